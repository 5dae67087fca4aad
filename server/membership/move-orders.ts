import { type ErrorCode, isErrorCode, ServiceError } from '../../base/errors.ts';
import { type FileId, isFileId, isServerId, type ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { MOVED_FILES_MAX } from '../../wire/catalog-api.ts';
import { jsonOf } from '../../wire/json.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { MemberChange } from '../file/member-changes.ts';
import { bounded } from '../process/bounded.ts';
import type { LoopPace } from '../process/loop-pace.ts';

/** Call of the catalog's primary to a member of many files: it becomes their primary, and changes their members. */
export const MOVE_CALL = 'move-files';
/** A file that needs longer continues; a request for it waits for the same change. */
const ORDER_MS_MAX = 5_000;
/** Files that begin in the same tick, so that their messages share frames, and few enough for requests of clients. */
const GROUP = 8;

/** One file of an order: its next members. */
export interface MoveOrder {
  readonly file: FileId;
  readonly members: readonly ServerId[];
  /** The number of the view by which they were chosen: a later view stays as it is. Absent from earlier releases. */
  readonly decidedBy?: number | undefined;
}

/** The file's new view number, after the catalog knows it; or why it was not moved. */
export type MoveAnswer =
  | { readonly view: number }
  | { readonly code: ErrorCode; readonly message: string; readonly primary?: string };

export interface MoveOrdersParts {
  readonly world: World;
  readonly pace: Pick<LoopPace, 'untilCalm'>;
  change(file: FileId, members: readonly ServerId[], decidedBy?: number): Promise<MemberChange>;
  release(driver: ReplicaDriver): Promise<void>;
}

/** Serves orders to move files: each file's change is one of its own, with its own epoch, views and outcome. */
export class MoveOrders {
  readonly #parts: MoveOrdersParts;
  /** The last group of all orders that waits to begin. */
  #last: Promise<void> = Promise.resolve();

  constructor(parts: MoveOrdersParts) {
    this.#parts = parts;
  }

  async serve(payload: Uint8Array): Promise<Uint8Array> {
    return Buffer.from(JSON.stringify(await this.carryOut(decodeOrders(payload))));
  }

  /** @returns an answer for each order, in order */
  async carryOut(orders: readonly MoveOrder[]): Promise<readonly MoveAnswer[]> {
    const moves: Promise<MoveAnswer>[] = [];
    for (let from = 0; from < orders.length; from += GROUP) {
      await this.#turn();
      for (const order of orders.slice(from, from + GROUP)) moves.push(this.#move(order));
    }
    return Promise.all(moves);
  }

  /** Resolves when the next group may begin: one at a time, and after a pause if this process is busy. */
  #turn(): Promise<void> {
    this.#last = this.#last.then(() => this.#parts.pace.untilCalm());
    return this.#last;
  }

  async #move({ file, members, decidedBy }: MoveOrder): Promise<MoveAnswer> {
    const { world, change, release } = this.#parts;
    try {
      const changing = change(file, members, decidedBy);
      // Also after the time of the order.
      changing.then(
        ({ unused }) => (unused === null ? undefined : release(unused)),
        () => undefined,
      );
      const late = () => new ServiceError('unknown', `The replicas of file ${file} are still moving`);
      const { view } = await bounded(world, changing, ORDER_MS_MAX, late);
      return { view: view.number };
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      const { code, message, details } = error;
      return { code, message, ...(details.primary === undefined ? {} : { primary: details.primary }) };
    }
  }
}

export function encodeOrders(orders: readonly MoveOrder[]): Uint8Array {
  return Buffer.from(JSON.stringify(orders));
}

function decodeOrders(payload: Uint8Array): MoveOrder[] {
  const orders = jsonOf(payload, 'An order to move files is');
  const isOrder = (order: unknown): order is MoveOrder => {
    const { file, members, decidedBy } = Object(order) as Record<string, unknown>;
    return (
      typeof file === 'number' &&
      isFileId(file) &&
      Array.isArray(members) &&
      members.every((id) => typeof id === 'string' && isServerId(id)) &&
      (decidedBy === undefined || Number.isSafeInteger(decidedBy))
    );
  };
  if (Array.isArray(orders) && orders.length <= MOVED_FILES_MAX && orders.every(isOrder)) return orders;
  throw new MalformedError('An order to move files is malformed');
}

/** @throws ServiceError unless there is an answer for each of `count` orders */
export function decodeAnswers(payload: Uint8Array, count: number): MoveAnswer[] {
  const malformed = (cause?: unknown) =>
    new ServiceError('internal', 'The answer to an order to move files is malformed', {}, { cause });
  let answers: unknown;
  try {
    answers = jsonOf(payload, 'The answer is');
  } catch (cause) {
    throw malformed(cause);
  }
  const isAnswer = (answer: unknown): answer is MoveAnswer => {
    const { view, code, message } = Object(answer) as Record<string, unknown>;
    return Number.isSafeInteger(view) || (isErrorCode(code) && typeof message === 'string');
  };
  if (Array.isArray(answers) && answers.length === count && answers.every(isAnswer)) return answers;
  throw malformed();
}

import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { World } from '../../base/world.ts';
import type { LimitedMove, MoveLimits } from './move-limits.ts';
import type { MoveAnswer, MoveOrder } from './move-orders.ts';
import { MoveProgress } from './move-progress.ts';
import { MoveRetries } from './move-retries.ts';

/** Files of one order: other orders go on while one waits for its slowest file. */
const ORDER_FILES_MAX = 32;
/** Moves that wait for limits, while moves of other servers pass them. */
const WAITING_MAX = 512;
/** Moves that wait for a rate begin together, so that their messages share frames. */
const GROUPED_MS = 50;
const CHECK_MS = 1_000;
/**
 * Answers after which a request for the single file follows: the server cannot be the file's primary, and the request
 * finds the one that is, or can; `unknown`: the file is still moving, and the request waits for it; `not-found`: maybe
 * only the server's replica is deleted, and the request finds out whether the file is.
 */
const SINGLE: ReadonlySet<string> = new Set([
  'not-primary',
  'recovering',
  'clock-fault',
  'unknown',
  'not-found',
]);

/** Errors after which a move is not counted as failed: it continues, or another server does it. */
const UNFINISHED: ReadonlySet<string> = new Set(['unknown', 'busy']);

export interface MoverParts {
  readonly world: Pick<World, 'nowMs' | 'after' | 'nextTick'>;
  readonly log: Logger;
  /** Of all moves on this server's orders. */
  readonly moveLimits: MoveLimits;
  isCatalogPrimary(): boolean;
  isConnected(server: ServerId): boolean;
  /** The file's primary, if this server knows it. */
  knownPrimary(file: FileId): ServerId | null;
  /** Has a member of the files move them. @returns null if it runs an earlier release, which moves single files */
  order(server: ServerId, orders: readonly MoveOrder[]): Promise<readonly MoveAnswer[] | null>;
  /** Moves one file, whichever of its members is or becomes its primary. */
  changeMembers(move: MoveOrder): Promise<unknown>;
}

/** A change of a file's members that the steward decided on. */
export interface Move extends MoveOrder {
  readonly decidedBy: number;
  /** The servers with the file's replicas now. */
  readonly from: readonly ServerId[];
  readonly sizeBytes: number;
}

/** `put-off`: failed, or paused after a failure; `gone`: the file was deleted. */
export type MoveOutcome = 'moved' | 'put-off' | 'gone';

export type MoveEnded = (move: Move, outcome: MoveOutcome) => void;

interface Started {
  readonly move: Move;
  readonly limited: LimitedMove;
  readonly begunMs: number;
}

/**
 * Changes the members of files as the steward decides: at which server's order, how many at a time, how fast, and when
 * again after a failure. The limits are those of servers, so that more servers move more files.
 */
export class Mover {
  readonly #parts: MoverParts;
  readonly #retries: MoveRetries;
  readonly #limits: MoveLimits;
  readonly #moving = new Set<number>();
  readonly #endWaiters: (() => void)[] = [];
  readonly progress: MoveProgress;

  constructor(parts: MoverParts) {
    this.#parts = parts;
    this.#retries = new MoveRetries(parts.world);
    this.#limits = parts.moveLimits;
    this.progress = new MoveProgress(parts.world);
  }

  get moving(): readonly number[] {
    return [...this.#moving];
  }

  /**
   * Moves all files until the moves end, or this server is not the catalog's primary. At `untilMs` the moves that still
   * wait for limits are put off, so that one busy server does not keep the caller from its other work.
   * @returns how many were moved
   */
  async moveAll(
    moves: AsyncGenerator<Move>,
    ended: MoveEnded = () => undefined,
    untilMs = Number.POSITIVE_INFINITY,
  ): Promise<number> {
    let moved = 0;
    let underWay = 0;
    const finish: MoveEnded = (move, outcome) => {
      if (outcome === 'moved') moved += 1;
      ended(move, outcome);
    };
    const waiting: Move[] = [];
    for (let isOver = false; ; ) {
      const mayBegin = this.#parts.isCatalogPrimary() && this.#parts.world.nowMs() < untilMs;
      if (!mayBegin) {
        isOver = true;
        for (const move of waiting.splice(0)) finish(move, 'put-off');
      }
      while (!isOver && waiting.length < WAITING_MAX) {
        const next = await moves.next();
        isOver = next.done === true || !this.#parts.isCatalogPrimary();
        if (next.done === true || isOver) break;
        const refused = this.#refusal(next.value);
        if (refused !== null) finish(next.value, refused);
        else waiting.push(next.value);
      }
      const { started, waitMs } = this.#start(waiting);
      for (const [server, batch] of started) {
        underWay += batch.length;
        void this.#order(server, batch, (move, outcome) => {
          underWay -= 1;
          finish(move, outcome);
        });
      }
      if (waiting.length === 0 && isOver && underWay === 0) return moved;
      if (started.length === 0 || waiting.length > 0 || isOver) await this.#nextEnd(waitMs);
    }
  }

  /** Why a move does not begin now; null if it may. */
  #refusal({ file, from }: Move): MoveOutcome | null {
    if (this.#moving.has(file) || this.#retries.isPaused(file)) return 'put-off';
    const reachable = from.filter((server) => this.#parts.isConnected(server));
    if (reachable.length >= majority(from.length)) return null;
    // There may be many, in each pass.
    this.#failed(file, new ServiceError('no-majority', 'Too few of its servers are reachable'), 'debug');
    return 'put-off';
  }

  /**
   * Takes the moves that may begin now from `waiting`, together for each server that is to carry them out.
   * @returns them, and when the next one may begin, in milliseconds from now
   */
  #start(waiting: Move[]): { started: [ServerId, Started[]][]; waitMs: number } {
    const open = new Map<ServerId, Started[]>();
    const started: [ServerId, Started[]][] = [];
    let nextMs = CHECK_MS;
    const left = waiting.splice(0).filter((move) => {
      // Servers may have been disconnected during the wait.
      const server = this.#executorOf(move);
      const limited = this.#limitedMove(move, server);
      const waitMs = this.#limits.waitMs(limited);
      if (waitMs > 0) {
        nextMs = Math.min(nextMs, waitMs);
        return true;
      }
      this.#limits.begin(limited);
      this.#moving.add(move.file);
      this.progress.begun();
      const batch = open.get(server) ?? [];
      batch.push({ move, limited, begunMs: this.#parts.world.nowMs() });
      open.set(server, batch);
      if (batch.length === ORDER_FILES_MAX) {
        started.push([server, batch]);
        open.delete(server);
      }
      return false;
    });
    waiting.push(...left);
    return { started: [...started, ...open], waitMs: nextMs };
  }

  /** The member that is to be the file's primary for the change: the same one each time, which resumes its order. */
  #executorOf({ file, from, members }: Move): ServerId {
    const reachable = from.filter((server) => this.#parts.isConnected(server));
    const staying = reachable.filter((server) => members.includes(server));
    const candidates = [staying, reachable, from].find(({ length }) => length > 0) ?? [];
    const primary = this.#parts.knownPrimary(file);
    if (primary !== null && candidates.includes(primary)) return primary;
    return candidates[file % candidates.length] as ServerId;
  }

  /** Only connected servers do work for a move: a server that is being replaced because it is down limits nothing. */
  #limitedMove({ from, members, sizeBytes }: Move, executor: ServerId): LimitedMove {
    const connected = [...new Set([...from, ...members])].filter((server) => this.#parts.isConnected(server));
    const added = connected.filter((server) => !from.includes(server));
    const removed = connected.filter((server) => !members.includes(server));
    return {
      members: new Set(connected),
      changed: [...added, ...removed],
      // New replicas fetch the contents from the file's primary.
      copying: added.length === 0 ? [] : [executor, ...added],
      sizeBytes,
    };
  }

  async #order(server: ServerId, batch: readonly Started[], ended: MoveEnded): Promise<void> {
    const orders = batch.map(({ move: { file, members, decidedBy } }) => ({ file, members, decidedBy }));
    const answers = this.#parts.order(server, orders);
    await Promise.all(
      batch.map(async (one, place) => {
        const { move, limited } = one;
        let outcome: MoveOutcome;
        try {
          outcome = await this.#outcomeOf(one, answers, place);
        } finally {
          this.#moving.delete(move.file);
          this.#limits.end(limited);
        }
        ended(move, outcome);
        for (const resolve of this.#endWaiters.splice(0)) resolve();
      }),
    );
  }

  /** @param ordered the answers to an order; null if its files have to be moved singly */
  async #outcomeOf(
    { move: { file, members, sizeBytes, decidedBy }, limited, begunMs }: Started,
    ordered: Promise<readonly MoveAnswer[] | null>,
    place: number,
  ): Promise<MoveOutcome> {
    try {
      const answer = (await ordered)?.[place];
      // A file that is still moving keeps its part of the limits.
      if (answer === undefined || ('code' in answer && SINGLE.has(answer.code)))
        await this.#parts.changeMembers({ file, members, decidedBy });
      else if ('code' in answer) throw new ServiceError(answer.code, answer.message);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      // Of an unknown outcome, the replicas may still be copied.
      if (error.code !== 'unknown') this.#limits.giveBack(limited, begunMs);
      if (error.code === 'not-found') return 'gone';
      this.#failed(file, error);
      return 'put-off';
    }
    this.#retries.succeeded(file);
    this.progress.moved(sizeBytes);
    this.#parts.log.debug({ file, members }, 'moved a file');
    return 'moved';
  }

  #failed(file: FileId, { code, message }: ServiceError, level: 'info' | 'debug' = 'info'): void {
    if (!UNFINISHED.has(code)) this.progress.failed();
    this.#retries.failed(file);
    this.#parts.log[level]({ file, reason: message }, 'a file is not moved yet');
  }

  /** Resolves when some moves have ended, or after `waitMs`. */
  async #nextEnd(waitMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = this.#parts.world.after(Math.max(GROUPED_MS, waitMs), () => done());
      const done = (): void => {
        timer.cancel();
        resolve();
      };
      this.#endWaiters.push(done);
    });
    // The other moves of the same order have ended by then.
    await this.#parts.world.nextTick();
  }

  /** To be called when there is nothing to move. */
  idle(): void {
    if (this.#moving.size > 0) return;
    this.#retries.dropOld();
    this.progress.idle();
  }

  /** Forgets the counts and pauses; moves in progress continue. */
  reset(): void {
    this.#retries.clear();
    this.progress.reset();
  }
}

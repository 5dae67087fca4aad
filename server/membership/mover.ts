import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import { MoveRetries } from './move-retries.ts';

const PARALLEL = 4;

/** Errors after which a move is not counted as failed: it continues, or another server does it. */
const UNFINISHED: ReadonlySet<string> = new Set(['unknown', 'busy']);

export interface MoverParts {
  readonly world: Pick<World, 'nowMs'>;
  readonly log: Logger;
  isCatalogPrimary(): boolean;
  changeMembers(file: FileId, members: readonly ServerId[]): Promise<View>;
  followView(file: FileId, view: View): Promise<unknown>;
}

/** A change of a file's members that the steward decided on. */
export interface Move {
  readonly file: FileId;
  readonly members: readonly ServerId[];
}

/** `put-off`: failed, or paused after a failure; `gone`: the file was deleted. */
export type MoveOutcome = 'moved' | 'put-off' | 'gone';

/** Changes the members of files as the steward decides: how many at a time, and when again after a failure. */
export class Mover {
  readonly #parts: MoverParts;
  readonly #retries: MoveRetries;
  readonly #moving = new Set<number>();
  #movedCount = 0;
  #failedCount = 0;

  constructor(parts: MoverParts) {
    this.#parts = parts;
    this.#retries = new MoveRetries(parts.world);
  }

  get movedCount(): number {
    return this.#movedCount;
  }

  get failedCount(): number {
    return this.#failedCount;
  }

  get moving(): readonly number[] {
    return [...this.#moving];
  }

  /** Moves all files, several at a time, until they end or this server is not the catalog's primary. */
  async moveAll(
    moves: AsyncGenerator<Move>,
    ended: (move: Move, outcome: MoveOutcome) => void = () => undefined,
  ): Promise<number> {
    let moved = 0;
    const worker = async (): Promise<void> => {
      // The workers share one generator: each move is taken by the first free worker.
      for (let next = await moves.next(); next.done !== true; next = await moves.next()) {
        if (!this.#parts.isCatalogPrimary()) return;
        const outcome = await this.move(next.value);
        if (outcome === 'moved') moved += 1;
        ended(next.value, outcome);
      }
    };
    await Promise.all(Array.from({ length: PARALLEL }, worker));
    return moved;
  }

  async move({ file, members }: Move): Promise<MoveOutcome> {
    const { changeMembers, followView, log } = this.#parts;
    if (this.#moving.has(file) || this.#retries.isPaused(file)) return 'put-off';
    this.#moving.add(file);
    try {
      const view = await changeMembers(file, members);
      await followView(file, view);
      this.#retries.succeeded(file);
      this.#movedCount += 1;
      log.info({ file, view: view.number, members: view.members }, 'moved a file');
      return 'moved';
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (error.code === 'not-found') return 'gone';
      if (!UNFINISHED.has(error.code)) this.#failedCount += 1;
      this.#retries.failed(file);
      log.info({ file, members, reason: error.message }, 'a file is not moved yet');
      return 'put-off';
    } finally {
      this.#moving.delete(file);
    }
  }

  /** To be called when there is nothing to move. */
  idle(): void {
    if (this.#moving.size === 0) this.#retries.dropOld();
  }

  /** Forgets the counts and pauses; moves in progress continue. */
  reset(): void {
    this.#retries.clear();
    this.#movedCount = 0;
    this.#failedCount = 0;
  }
}

import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Command, Query, QueryResults } from '../../wire/catalog-api.ts';

/** Of the time that an operation has, for the settling of a file. */
const SETTLE_SHARE = 0.8;

interface FlagBarrierParts {
  readonly operationTimeoutMs: number;
  nowMs(): number;
  query(query: Extract<Query, { kind: 'attributes' }>): QueryResults['attributes'];
  /** Has the file's primary report to the catalog all that it knows: its mark ends with that. */
  settle(file: FileId, timeoutMs: number): Promise<unknown>;
  /** Commands that were held may go on. */
  released(): void;
}

/**
 * Flags of a file are set while no mark of a primary stands (`open-for-write`): a primary orders no change without a mark, and the catalog
 * gives the next one under the new flags. So a change that is executed late, or by a primary of before, meets the flags. While flags wait for
 * a file to be settled, no other mark is given for it.
 */
export class FlagBarrier {
  readonly #parts: FlagBarrierParts;
  /** Files whose flags are being set, and by how many commands. */
  readonly #files = new Map<number, number>();

  constructor(parts: FlagBarrierParts) {
    this.#parts = parts;
  }

  get isUp(): boolean {
    return this.#files.size > 0;
  }

  /** Whether a command has to wait. The primary of a live file may go on: its settling waits for changes that are under way. */
  holds(command: Command): boolean {
    return (
      command.kind === 'open-for-write' && this.#files.has(command.inode) && !this.#isLive(command.inode)
    );
  }

  /** @param execute refuses with `busy` while the file is live, and may be called again then */
  async pass<Result>(file: FileId, execute: () => Promise<Result>): Promise<Result> {
    const { nowMs, operationTimeoutMs, settle, released } = this.#parts;
    const untilMs = nowMs() + operationTimeoutMs * SETTLE_SHARE;
    this.#files.set(file, (this.#files.get(file) ?? 0) + 1);
    try {
      for (;;) {
        if (this.#isLive(file)) await settle(file, Math.max(1, untilMs - nowMs()));
        try {
          return await execute();
        } catch (error) {
          const isBusy = error instanceof ServiceError && error.code === 'busy';
          if (!isBusy || !this.#isLive(file) || nowMs() >= untilMs) throw error;
        }
      }
    } finally {
      const left = (this.#files.get(file) ?? 1) - 1;
      if (left === 0) this.#files.delete(file);
      else this.#files.set(file, left);
      released();
    }
  }

  #isLive(inode: number): boolean {
    try {
      const { attributes } = this.#parts.query({ kind: 'attributes', inode });
      return attributes.kind === 'file' && attributes.live;
    } catch (error) {
      // What is not there is said by the command itself, in its place in the order.
      if (error instanceof ServiceError) return false;
      throw error;
    }
  }
}

import type { Logger } from 'pino';
import { BoundedMap } from '../../base/bounded-map.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { CommandOf, CommandResults, Query, QueryResults } from '../../wire/catalog-api.ts';
import { Rounds } from '../process/rounds.ts';

/** Between two looks whether there is something to copy. */
const PERIOD_MS = 1_000;
const PAGE = 64;
const PARALLEL = 4;
/** Entries of one command; other commands are executed in between. */
const SLICE_ENTRIES = 200;
/** After each slice of a directory: half of the primary's time is left to others. */
const PAUSE_MS = 10;

/** What could not be copied is tried again after twice as many rounds each time, up to this. */
const ROUNDS_SKIPPED_MAX = 60;
const FAILURES_MAX = 10_000;

interface Failure {
  readonly skips: number;
  /** The round in which it is tried again. */
  readonly round: number;
}

export interface CloneFillsParts {
  readonly world: Pick<World, 'every' | 'sleep'>;
  readonly log: Logger;
  isCatalogPrimary(): boolean;
  /** @see StewardParts.catalogPosition */
  catalogPosition(): string;
  query(query: Extract<Query, { kind: 'unfilled' }>): Promise<QueryResults['unfilled']>;
  command(command: CommandOf<'clone-fill'>): Promise<CommandResults['clone-fill']>;
  /** Resolves when the file has contents of its own. */
  fillFile(file: FileId): Promise<void>;
}

/**
 * Copies, as the root catalog's primary, what clones share with their snapshots: all of those that are flattened, and
 * files whose copies another server has begun but not completed. The progress is in the catalog's tables: after a
 * failure, the next primary continues.
 */
export class CloneFills {
  readonly #parts: CloneFillsParts;
  readonly #rounds: Rounds;
  #isClosed = false;
  /** Where the catalog was when there was nothing to copy. */
  #emptyAt: string | null = null;
  #roundNumber = 0;
  readonly #failures = new BoundedMap<number, Failure>(FAILURES_MAX);
  /** Of this round. */
  #failed: { count: number; readonly inode: number; readonly err: unknown } | null = null;

  constructor(parts: CloneFillsParts) {
    this.#parts = parts;
    this.#rounds = new Rounds({
      world: parts.world,
      periodMs: PERIOD_MS,
      isDue: () => parts.isCatalogPrimary() && parts.catalogPosition() !== this.#emptyAt,
      work: () => this.#round(),
      failed: (error) =>
        parts.log.debug({ err: error }, 'clones are not copied yet; trying again in the next round'),
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#rounds.close();
  }

  async #round(): Promise<void> {
    this.#roundNumber++;
    this.#failed = null;
    // What is filled adds what is in it.
    for (let isProgress = true; isProgress && this.#mayContinue; ) {
      const position = this.#parts.catalogPosition();
      const { found, filled } = await this.#pass();
      if (found === 0) this.#emptyAt = position;
      isProgress = filled > 0;
    }
    this.#report();
  }

  /** One line for all of a round. */
  #report(): void {
    if (this.#failed === null) return;
    this.#parts.log.info(this.#failed, 'cannot copy parts of clones yet; trying again later');
  }

  async #pass(): Promise<{ found: number; filled: number }> {
    let [found, filled] = [0, 0];
    for (let after: number | null = 0; after !== null; ) {
      const query = { kind: 'unfilled', after, countMax: PAGE } as const;
      const page: QueryResults['unfilled'] = await this.#parts.query(query);
      found += page.inodes.length;
      const waiting = page.inodes.values();
      const worker = async (): Promise<void> => {
        for (const one of waiting) if (this.#mayContinue && (await this.#fill(one))) filled++;
      };
      await Promise.all(Array.from({ length: PARALLEL }, worker));
      after = this.#mayContinue ? page.next : null;
    }
    return { found, filled };
  }

  get #mayContinue(): boolean {
    return !this.#isClosed && this.#parts.isCatalogPrimary();
  }

  /** @returns whether it is filled */
  async #fill({ inode, kind }: QueryResults['unfilled']['inodes'][number]): Promise<boolean> {
    const before = this.#failures.get(inode);
    if (before !== undefined && this.#roundNumber < before.round) return false;
    try {
      if (kind === 'directory') await this.#fillDirectory(inode);
      else await this.#parts.fillFile(inode as FileId);
      this.#failures.delete(inode);
      return true;
    } catch (error) {
      const skips = Math.min(2 * (before?.skips ?? 0) + 1, ROUNDS_SKIPPED_MAX);
      this.#failures.set(inode, { skips, round: this.#roundNumber + skips });
      this.#failed ??= { count: 0, inode, err: error };
      this.#failed.count++;
      return false;
    }
  }

  async #fillDirectory(inode: number): Promise<void> {
    const { command, world } = this.#parts;
    while (this.#mayContinue) {
      const { done } = await command({ kind: 'clone-fill', inode, countMax: SLICE_ENTRIES });
      if (done) return;
      await world.sleep(PAUSE_MS);
    }
  }
}

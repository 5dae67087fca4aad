import type { Logger } from 'pino';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { LiveMark, Query, QueryResults } from '../../wire/catalog-api.ts';
import { Rounds } from '../rounds.ts';

/** Between two rounds, in milliseconds. A file is settled by the second round that finds it under the same mark. */
const PERIOD_MS = 10_000;
const PAGE = 1_000;
/** Files that are settled at a time. */
const SETTLING_MAX = 8;
const SETTLE_MS_MAX = 5_000;

export interface ReservationSweepParts {
  readonly world: World;
  readonly log: Logger;
  isCatalogPrimary(): boolean;
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
  /** Has the file's primary report the size to the catalog; a server becomes primary where there is none. */
  settle(file: FileId, timeoutMs: number): Promise<unknown>;
}

/**
 * Ends what files may grow to and nobody uses (decision 0039). The primary that asked for it settles the file; where that primary has ended
 * without, or where its request takes effect after the settling, no later primary learns of the mark from the file's own sequence. So the
 * catalog's primary has each file settled whose mark stays the same from one round to the next. A file that is being written asks anew with
 * its next change.
 */
export class ReservationSweep {
  readonly #parts: ReservationSweepParts;
  readonly #rounds: Rounds;
  /** The marks that the last round found, by file. */
  #before = new Map<number, LiveMark>();

  constructor(parts: ReservationSweepParts) {
    this.#parts = parts;
    this.#rounds = new Rounds({
      world: parts.world,
      periodMs: PERIOD_MS,
      work: () => this.#round(),
      failed: (error) =>
        parts.log.debug({ err: error }, 'files that may still grow are left for the next round'),
    });
  }

  close(): void {
    this.#rounds.close();
  }

  run(): Promise<void> {
    return this.#rounds.run();
  }

  async #round(): Promise<void> {
    const found = this.#parts.isCatalogPrimary() ? await this.#find() : new Map<number, LiveMark>();
    const before = this.#before;
    this.#before = found;
    await this.#settle([...found].filter(([file, mark]) => isSame(before.get(file), mark)));
  }

  async #find(): Promise<Map<number, LiveMark>> {
    const found = new Map<number, LiveMark>();
    for (let after: number | null = 0; after !== null; ) {
      const page: QueryResults['reservations'] = await this.#parts.query({
        kind: 'reservations',
        after,
        countMax: PAGE,
      });
      for (const { inode, mark } of page.files) found.set(inode, mark);
      after = page.next;
    }
    return found;
  }

  async #settle(files: [number, LiveMark][]): Promise<void> {
    const { settle, log } = this.#parts;
    const work = async (): Promise<void> => {
      for (let next = files.pop(); next !== undefined; next = files.pop()) {
        const file = next[0] as FileId;
        await settle(file, SETTLE_MS_MAX).catch((error: unknown) => {
          log.debug({ file, err: error }, 'a file that may still grow cannot be settled yet');
        });
      }
    };
    await Promise.all(Array.from({ length: SETTLING_MAX }, work));
  }
}

function isSame(a: LiveMark | undefined, b: LiveMark): boolean {
  return a !== undefined && a.epoch === b.epoch && a.turn === b.turn;
}

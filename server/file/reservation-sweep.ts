import type { Logger } from 'pino';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { ContentVersion, LiveMark, Query, QueryResults } from '../../wire/catalog-api.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { FileState } from '../../wire/http-api.ts';
import { Rounds } from '../process/rounds.ts';

/** Period of the rounds, in milliseconds. The second one that finds the same mark has the file settled. */
const PERIOD_MS = 10_000;
const PAGE = 1_000;
const SETTLING_MAX = 8;
const SETTLE_MS_MAX = 5_000;
/** Rounds until a file that could not be settled is settled again; they double each time. */
const RETRY_ROUNDS_MIN = 2;
/** One hour of rounds. */
const RETRY_ROUNDS_MAX = 360;

export interface ReservationSweepParts {
  /** Includes files that reserve no growth: all linked files that are live. */
  readonly live?: true;
  readonly periodMs?: number;
  readonly world: World;
  readonly log: Logger;
  isCatalogPrimary(): boolean;
  /** @see StewardParts.catalogPosition */
  catalogPosition(): string;
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
  /** Has the file's primary report the size; if there is none, a server becomes primary. */
  settle(file: FileId, timeoutMs: number): Promise<FileState>;
}

export interface Unsettleable {
  readonly file: FileId;
  readonly reason: string;
}

interface Settled {
  readonly mark: LiveMark;
  readonly state: FileState;
  readonly nextRound: number;
  readonly waitRounds: number;
  /** Why the catalog ignored the settling; null unless a later round has found the same mark. */
  readonly reason: string | null;
}

/**
 * Ends reservations that no primary uses (decision 0039). The primary that requested one settles the file; if it ended
 * before, or its request takes effect after the settling, no later primary learns of the mark from the file's own
 * sequence. So the catalog's primary has each file settled whose mark is the same in two consecutive rounds. A file
 * that is being written requests a new mark with its next change.
 *
 * The catalog ignores a settling whose contents are older than those that it has: a loss of power may have taken
 * unsynced contents, but not the catalog. Only the next write ends that. Such files are settled at growing intervals,
 * and reported.
 *
 * A file that reserves no growth may stay live in the same way, and count with an old size. A second sweep, with
 * `live`, has such files settled. Its period is long: each round asks all primaries that write under an old mark.
 */
export class ReservationSweep {
  readonly #parts: ReservationSweepParts;
  readonly #rounds: Rounds;
  #marksBefore = new Map<number, LiveMark>();
  readonly #settled = new Map<number, Settled>();
  #roundNumber = 0;
  /** Where the catalog was when it had no live file to be settled. */
  #emptyAt: string | null = null;

  constructor(parts: ReservationSweepParts) {
    this.#parts = parts;
    this.#rounds = new Rounds({
      world: parts.world,
      periodMs: parts.periodMs ?? PERIOD_MS,
      isDue: () => this.#marksBefore.size > 0 || this.#settled.size > 0 || parts.isCatalogPrimary(),
      work: () => this.#round(),
      failed: (error) =>
        parts.log.debug({ err: error }, 'settling live files failed; trying again in the next round'),
    });
  }

  close(): void {
    this.#rounds.close();
  }

  run(): Promise<void> {
    return this.#rounds.run();
  }

  /** As the catalog's primary, has those files settled whose mark is the same as in the round before. */
  async #round(): Promise<void> {
    const { isCatalogPrimary, catalogPosition } = this.#parts;
    const position = isCatalogPrimary() ? catalogPosition() : null;
    if (position !== null && position === this.#emptyAt) return;
    const found = position === null ? new Map<number, LiveMark>() : await this.#findMarks();
    this.#emptyAt = found.size === 0 ? position : null;
    const before = this.#marksBefore;
    this.#marksBefore = found;
    this.#roundNumber++;
    for (const [file, { mark }] of this.#settled)
      if (!isSame(found.get(file), mark)) this.#settled.delete(file);
    await this.#noteUnsettled();
    const isDue = (file: number): boolean => this.#roundNumber >= (this.#settled.get(file)?.nextRound ?? 0);
    await this.#settle([...found].filter(([file, mark]) => isSame(before.get(file), mark) && isDue(file)));
  }

  /** Files that the catalog counts with more than their size although they were settled, for `leasehold check`. */
  get unsettleable(): readonly Unsettleable[] {
    return [...this.#settled].flatMap(([file, { reason }]) =>
      reason === null ? [] : [{ file: file as FileId, reason }],
    );
  }

  async #noteUnsettled(): Promise<void> {
    for (const [inode, settled] of this.#settled) {
      if (settled.reason !== null) continue;
      const { attributes } = await this.#parts.query({ kind: 'attributes', inode });
      const { contents, sizeBytes } = attributes;
      const [there, here] = [
        describe(contents, sizeBytes),
        describe(settled.state.contents, settled.state.sizeBytes),
      ];
      const isLost = contentVersionCompare(settled.state.contents, contents) < 0;
      const reason = isLost
        ? `the catalog has ${there} and the replicas have ${here}, after a power loss; the next write corrects this`
        : `the catalog did not accept ${here} as settled`;
      this.#settled.set(inode, { ...settled, reason });
      this.#parts.log.warn({ file: inode, reason }, 'a live file cannot be settled');
    }
  }

  async #findMarks(): Promise<Map<number, LiveMark>> {
    const found = new Map<number, LiveMark>();
    const live = this.#parts.live === true ? { live: true as const } : {};
    for (let after: number | null = 0; after !== null; ) {
      const page: QueryResults['reservations'] = await this.#parts.query({
        ...{ kind: 'reservations', after, countMax: PAGE },
        ...live,
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
        const [inode, mark] = next;
        const file = inode as FileId;
        await settle(file, SETTLE_MS_MAX).then(
          (state) => this.#noteSettled(file, mark, state),
          (error: unknown) => {
            log.debug({ file, err: error }, 'cannot settle a live file yet');
          },
        );
      }
    };
    await Promise.all(Array.from({ length: SETTLING_MAX }, work));
  }

  /** After a file was settled: should the catalog keep the mark, it is settled again after twice as many rounds. */
  #noteSettled(file: FileId, mark: LiveMark, state: FileState): void {
    const { waitRounds: before = RETRY_ROUNDS_MIN / 2, reason = null } = this.#settled.get(file) ?? {};
    const waitRounds = Math.min(RETRY_ROUNDS_MAX, 2 * before);
    const againFrom = this.#roundNumber + waitRounds;
    this.#settled.set(file, { mark, state, nextRound: againFrom, waitRounds, reason });
  }
}

function describe({ epoch, seq }: ContentVersion, sizeBytes: number): string {
  return `contents ${epoch}.${seq} of ${sizeBytes} bytes`;
}

function isSame(a: LiveMark | undefined, b: LiveMark): boolean {
  return a !== undefined && a.epoch === b.epoch && a.turn === b.turn;
}

import type { Logger } from 'pino';
import type { CatalogNumber, FileId, ServerId } from '../../base/ids.ts';
import { InodeCatalogs } from '../../base/inode-catalogs.ts';
import type { World } from '../../base/world.ts';
import type { Command, CommandResults } from '../../wire/catalog-api.ts';
import { Rounds } from '../process/rounds.ts';
import type { FileStore } from '../storage/store.ts';
import { type CatalogFiles, FILES_LISTED, filesOfCatalog } from './catalog-files.ts';
import { DeletionLogReader } from './deletion-log-reader.ts';
import type { DepartedFiles } from './departed-files.ts';
import { UnneededReplicas, type UnneededReplicasParts } from './unneeded-replicas.ts';

/** Grace while disk space is short: longer than the two minutes in which mounts report unlinked files that are open. */
const SHORT_GRACE_MS = 5 * 60_000;
const SHORT_PERIOD_MS = 5_000;
/** Orphans of a command, departed files of a query. */
const PAGE = 1_000;
const PAGES_MAX = 100;
/** The comparison of all replicas compares this many in a round. */
const SLICE = 25_000;
/** Pause between comparisons of all replicas. */
const FULL_PERIOD_MS = 24 * 60 * 60_000;
/** A server without replicas of the catalog's files reads its log this often, so that the catalog keeps few rows. */
const IDLE_LOG_PERIOD_MS = 60 * 60_000;
/**
 * While the catalog has retentions, their clock is advanced this often, also if nothing else happens: a change of the
 * primary advances it by a day at most.
 */
const CLOCK_PERIOD_MS = 60 * 60_000;
/** Files to be compared, at most: if more changed, all are compared. */
const CHANGED_MAX = 1_000_000;

export interface GarbageParts extends Omit<UnneededReplicasParts, 'graceMs' | 'store' | 'departed'> {
  readonly self: ServerId;
  /** Replicas of other catalogs' files are not examined. */
  readonly catalog: CatalogNumber;
  /** Which catalogs have files, by the list of this server. */
  inodeCatalogs(): InodeCatalogs;
  readonly world: World;
  readonly log: Logger;
  readonly store: Pick<FileStore, 'list' | 'record'>;
  readonly departed: Pick<DepartedFiles, 'add' | 'files' | 'forget'>;
  /** An unlinked file is kept for this long, in milliseconds, for clients that still read it. */
  readonly graceMs: number;
  isSpaceShort(): boolean;
  nowNs(): bigint;
  isCatalogPrimary(): boolean;
  /** @see StewardParts.catalogPosition */
  catalogPosition(): string;
  /** The newest known epoch of the catalog; it never decreases. Commands that power loss took have an earlier one. */
  catalogEpoch(): number;
  command(command: Command): Promise<unknown>;
}

/**
 * Removes replicas of one catalog's files that no client can reach. The catalog's primary deletes files that have been
 * unlinked for the grace time; every server removes replicas that it does not need any more (`UnneededReplicas`). A
 * round compares with the catalog only what has changed since the last one:
 *
 * - files that the catalog's log names: deleted, or moved to other servers;
 * - replicas that were created here, or whose view changed here (`placed`): until the catalog has them in that view;
 * - files that an earlier round did not finish with.
 *
 * What this misses, because this server restarted, was away for longer than the log is kept, or had its disk restored,
 * or because the catalog lost its latest commands with the power, is found by comparing all replicas: after the start,
 * after a gap in the log, in a new epoch of the catalog, and daily, a slice in each round.
 */
export class Garbage {
  readonly #parts: GarbageParts;
  readonly #rounds: Rounds;
  readonly #unneeded: UnneededReplicas;
  readonly #deletions: DeletionLogReader;
  /** Files to be compared in the next round. */
  readonly #changed = new Set<FileId>();
  /** Position of the comparison of all replicas; null while none is in progress. */
  #after: FileId | null = null;
  #isFullDue = true;
  /** As of the start of the last round's read of the log. */
  #catalogEpoch = 0;
  #fullAtMs = 0;
  #logReadMs = Number.NEGATIVE_INFINITY;
  /** No file of the catalog up to this number is here, by the numbers in `#searched`; infinite: none at all. */
  #noneUpTo = 0;
  #searched = InodeCatalogs.NONE_MOVED;
  /** Where the catalog was when it had nothing to delete, at once or after some time. */
  #emptyAt: string | null = null;
  /** When the clock of the catalog's retentions is to be advanced. */
  #clockDueMs = Number.POSITIVE_INFINITY;

  constructor(parts: GarbageParts) {
    this.#parts = parts;
    this.#unneeded = new UnneededReplicas({ ...parts, graceMs: () => this.#graceMs });
    this.#deletions = new DeletionLogReader(parts);
    const periodMs = Math.min(60_000, Math.max(1_000, parts.graceMs / 2));
    const checkMs = Math.min(SHORT_PERIOD_MS, periodMs);
    let sinceMs = 0;
    this.#rounds = new Rounds({
      world: parts.world,
      periodMs: checkMs,
      isDue: () => {
        sinceMs += checkMs;
        if (sinceMs < periodMs && !parts.isSpaceShort()) return false;
        sinceMs = 0;
        return true;
      },
      work: () => this.#round(),
      failed: (error) =>
        parts.log.debug({ err: error }, 'garbage collection failed; trying again in the next round'),
    });
  }

  close(): void {
    this.#rounds.close();
  }

  run(): Promise<void> {
    return this.#rounds.run();
  }

  /** A replica of a file of the catalog was created here, or its view changed. */
  placed(file: FileId): void {
    this.#noneUpTo = Math.min(this.#noneUpTo, file - 1);
    if (this.#changed.size < CHANGED_MAX) this.#changed.add(file);
    else this.#isFullDue = true;
  }

  async #round(): Promise<void> {
    if (this.#parts.isCatalogPrimary()) await this.#collect();
    const nowMs = this.#parts.nowMs();
    if (nowMs < this.#logReadMs + IDLE_LOG_PERIOD_MS && (await this.#hasNothing())) return;
    // Before the log is read: if a later epoch answers, the next round compares all.
    const epoch = this.#parts.catalogEpoch();
    if (epoch !== this.#catalogEpoch) this.#isFullDue = true;
    this.#catalogEpoch = epoch;
    if ((await this.#deletions.read((file) => this.#changed.add(file))) === 'incomplete')
      this.#isFullDue = true;
    this.#logReadMs = nowMs;
    await this.#removeUnneeded();
    await this.#deletions.trim((file) => this.#changed.has(file));
  }

  /** Whether nothing here is of the catalog's files, and no earlier round has left something to be done. */
  async #hasNothing(): Promise<boolean> {
    while (this.#changed.size === 0 && this.#deletions.isDone) {
      const inodes = this.#parts.inodeCatalogs();
      if (inodes !== this.#searched) this.#noneUpTo = 0;
      this.#searched = inodes;
      if (this.#noneUpTo === Number.POSITIVE_INFINITY) return true;
      const { files, next } = this.#list(this.#noneUpTo as FileId);
      const [first] = files;
      if (first !== undefined) {
        this.#noneUpTo = first - 1;
        return false;
      }
      this.#noneUpTo = next ?? Number.POSITIVE_INFINITY;
      await this.#parts.world.nextTick();
    }
    return false;
  }

  get #graceMs(): number {
    const { graceMs, isSpaceShort } = this.#parts;
    return isSpaceShort() ? Math.min(graceMs, SHORT_GRACE_MS) : graceMs;
  }

  /** Has the catalog delete orphans past their grace, expired reservations, and what only removed snapshots showed. */
  async #collect(): Promise<void> {
    const { catalogPosition } = this.#parts;
    if (this.#emptyAt === catalogPosition() && this.#parts.nowMs() < this.#clockDueMs) return;
    this.#emptyAt = null;
    const beforeNs = this.#parts.nowNs() - BigInt(Math.round(this.#graceMs)) * 1_000_000n;
    for (let page = 0; page < PAGES_MAX; page++) {
      const { inodes } = (await this.#parts.command({
        kind: 'collect',
        beforeNs: beforeNs.toString(),
        countMax: PAGE,
      })) as CommandResults['collect'];
      if (inodes.length === 0) break;
    }
    const position = catalogPosition();
    // A primary of an earlier release does not say whether it has garbage.
    const { pending, garbage = true, retains = false } = await this.#parts.query({ kind: 'sweeps' });
    // Each command advances it.
    this.#clockDueMs = retains ? this.#parts.nowMs() + CLOCK_PERIOD_MS : Number.POSITIVE_INFINITY;
    if (!pending) {
      if (!garbage) this.#emptyAt = position;
      return;
    }
    for (let page = 0; page < PAGES_MAX; page++) {
      const { more } = (await this.#parts.command({
        kind: 'sweep',
        countMax: PAGE,
      })) as CommandResults['sweep'];
      if (!more) break;
    }
  }

  /** Compares what changed, and a slice of all replicas if that is due. */
  async #removeUnneeded(): Promise<void> {
    if (this.#after === null && (this.#isFullDue || this.#parts.nowMs() >= this.#fullAtMs)) {
      this.#isFullDue = false;
      this.#after = 0 as FileId;
    }
    const isFull = this.#after !== null;
    await this.#unneeded.compare(this.#pages(), this.#changed);
    if (!isFull || this.#after !== null) return;
    this.#fullAtMs = this.#parts.nowMs() + FULL_PERIOD_MS;
    await this.#forgetDeparted();
  }

  /** Files that have changed until now, then those of the slice. */
  *#pages(): Generator<readonly FileId[]> {
    const compared = new Set<FileId>();
    const changed = this.#changed.values();
    for (let left = this.#changed.size; left > 0; left -= FILES_LISTED) {
      const page = takePage(changed, Math.min(left, FILES_LISTED));
      yield* this.#pageOfChanged(page);
      for (const file of page) compared.add(file);
    }
    // Without a log, each round compares all.
    const most = this.#deletions.isWritten ? SLICE : Number.POSITIVE_INFINITY;
    for (let count = 0; this.#after !== null && count < most; ) {
      const { files, next } = this.#list(this.#after);
      yield files.filter((file) => !compared.has(file));
      count += files.length;
      this.#after = next;
    }
  }

  /** Takes the files from those that have changed, unless the comparison fails. */
  *#pageOfChanged(page: readonly FileId[]): Generator<readonly FileId[]> {
    let isCompared = false;
    for (const file of page) this.#changed.delete(file);
    // Another catalog decides about a file that moved there: its own unit begins with a comparison of all replicas.
    for (const file of page) if (!this.#has(file)) this.#unneeded.forget(file);
    try {
      yield page.filter((file) => this.#has(file));
      isCompared = true;
    } finally {
      if (!isCompared) for (const file of page) this.#changed.add(file);
    }
  }

  /** Replicas here of the catalog's files, from behind `after` on. */
  #list(after: FileId): CatalogFiles {
    const { store, catalog, inodeCatalogs } = this.#parts;
    return filesOfCatalog(store, inodeCatalogs(), catalog, after);
  }

  #has(file: FileId): boolean {
    return this.#parts.inodeCatalogs().catalogOf(file) === this.#parts.catalog;
  }

  async #forgetDeparted(): Promise<void> {
    const { departed, query } = this.#parts;
    const files = departed.files().filter((file) => this.#has(file));
    for (let at = 0; at < files.length; at += PAGE) {
      const page = files.slice(at, at + PAGE);
      const placed = new Set((await query({ kind: 'placed', inodes: page })).files.map(({ inode }) => inode));
      await departed.forget(page.filter((file) => !placed.has(file)));
    }
  }
}

function takePage(files: Iterator<FileId>, countMax: number): readonly FileId[] {
  const page: FileId[] = [];
  while (page.length < countMax) {
    const next = files.next();
    if (next.done === true) break;
    page.push(next.value);
  }
  return page;
}

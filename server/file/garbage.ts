import type { Logger } from 'pino';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { Command, CommandResults } from '../../wire/catalog-api.ts';
import { Rounds } from '../process/rounds.ts';
import type { FileStore } from '../storage/store.ts';
import { DeletionLogReader } from './deletion-log-reader.ts';
import type { DepartedFiles } from './departed-files.ts';
import { UnneededReplicas, type UnneededReplicasParts } from './unneeded-replicas.ts';

/** Grace while disk space is short: longer than the two minutes in which mounts report unlinked files that are open. */
const SHORT_GRACE_MS = 5 * 60_000;
const SHORT_PERIOD_MS = 5_000;
/** Orphans of a command, departed files of a query. */
const PAGE = 1_000;
const PAGES_MAX = 100;
/** Replicas compared in one tick. */
const COMPARED = 250;
/** The comparison of all replicas compares this many in a round. */
const SLICE = 25_000;
/** Pause between comparisons of all replicas. */
const FULL_PERIOD_MS = 24 * 60 * 60_000;
/** Files to be compared, at most: if more changed, all are compared. */
const CHANGED_MAX = 1_000_000;

export interface GarbageParts extends Omit<UnneededReplicasParts, 'graceMs' | 'store' | 'departed'> {
  readonly self: ServerId;
  readonly world: World;
  readonly log: Logger;
  readonly store: Pick<FileStore, 'list' | 'record'>;
  readonly departed: Pick<DepartedFiles, 'add' | 'files' | 'forget'>;
  /** An unlinked file is kept for this long, in milliseconds, for clients that still read it. */
  readonly graceMs: number;
  isSpaceShort(): boolean;
  nowNs(): bigint;
  isCatalogPrimary(): boolean;
  /** The newest known epoch of the catalog; it never decreases. Commands that power loss took have an earlier one. */
  catalogEpoch(): number;
  command(command: Command): Promise<unknown>;
}

/**
 * Removes replicas that no client can reach. The catalog's primary deletes files that have been unlinked for the grace
 * time; every server removes replicas that it does not need any more (`UnneededReplicas`). A round compares with the
 * catalog only what has changed since the last one:
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

  /** A replica was created here, or its view changed. */
  placed(file: FileId): void {
    if (this.#changed.size < CHANGED_MAX) this.#changed.add(file);
    else this.#isFullDue = true;
  }

  async #round(): Promise<void> {
    if (this.#parts.isCatalogPrimary()) await this.#collect();
    // Before the log is read: if a later epoch answers, the next round compares all.
    const epoch = this.#parts.catalogEpoch();
    if (epoch !== this.#catalogEpoch) this.#isFullDue = true;
    this.#catalogEpoch = epoch;
    if ((await this.#deletions.read((file) => this.#changed.add(file))) === 'incomplete')
      this.#isFullDue = true;
    await this.#removeUnneeded();
    await this.#deletions.trim((file) => this.#changed.has(file));
  }

  get #graceMs(): number {
    const { graceMs, isSpaceShort } = this.#parts;
    return isSpaceShort() ? Math.min(graceMs, SHORT_GRACE_MS) : graceMs;
  }

  /** Has the catalog delete orphans past their grace, expired reservations, and what only removed snapshots showed. */
  async #collect(): Promise<void> {
    const beforeNs = this.#parts.nowNs() - BigInt(Math.round(this.#graceMs)) * 1_000_000n;
    for (let page = 0; page < PAGES_MAX; page++) {
      const { inodes } = (await this.#parts.command({
        kind: 'collect',
        beforeNs: beforeNs.toString(),
        countMax: PAGE,
      })) as CommandResults['collect'];
      if (inodes.length === 0) break;
    }
    if (!(await this.#parts.query({ kind: 'sweeps' })).pending) return;
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
    const asked = new Set(this.#changed);
    this.#changed.clear();
    try {
      await this.#unneeded.compare(this.#pages(asked), this.#changed);
    } finally {
      for (const file of asked) this.#changed.add(file);
    }
    if (this.#after === null) return;
    if (this.#parts.store.list(this.#after, 1).length > 0) return;
    this.#after = null;
    this.#fullAtMs = this.#parts.nowMs() + FULL_PERIOD_MS;
    await this.#forgetDeparted();
  }

  /** Files of `asked`, which are taken from it once they have been compared, then those of the slice. */
  *#pages(asked: Set<FileId>): Generator<readonly FileId[]> {
    const changed = [...asked];
    const compared = new Set(changed);
    for (let at = 0; at < changed.length; at += COMPARED) {
      const page = changed.slice(at, at + COMPARED);
      yield page;
      for (const file of page) asked.delete(file);
    }
    const { store, nowMs } = this.#parts;
    if (this.#after === null && (this.#isFullDue || nowMs() >= this.#fullAtMs)) {
      this.#isFullDue = false;
      this.#after = 0 as FileId;
    }
    // Without a log, each round compares all.
    const most = this.#deletions.isWritten ? SLICE : Number.POSITIVE_INFINITY;
    for (let count = 0; this.#after !== null && count < most; count += COMPARED) {
      const page = store.list(this.#after, COMPARED);
      const last = page.at(-1);
      if (last === undefined) break;
      yield page.filter((file) => !compared.has(file));
      this.#after = last;
    }
  }

  async #forgetDeparted(): Promise<void> {
    const { departed, query } = this.#parts;
    const files = departed.files();
    for (let at = 0; at < files.length; at += PAGE) {
      const page = files.slice(at, at + PAGE);
      const placed = new Set((await query({ kind: 'placed', inodes: page })).files.map(({ inode }) => inode));
      await departed.forget(page.filter((file) => !placed.has(file)));
    }
  }
}

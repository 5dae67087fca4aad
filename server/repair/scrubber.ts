import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import type { ScrubStatus } from '../../wire/http-api.ts';
import type { Clock } from '../clock.ts';
import type { DiskStore } from '../storage/disk-store.ts';
import type { ObjectEntry } from '../storage/object-entry.ts';
import type { DamagedObject, Repairer } from './repairer.ts';
import {
  type ScrubRecord,
  scrubRecordNew,
  scrubRecordRead,
  scrubRecordStart,
  scrubRecordWrite,
} from './scrub-record.ts';

/** Entries of the index that are looked at in one turn. */
const ENTRIES_PER_TURN = 256;
const FILES_PER_TURN = 256;
/** Shorter pauses are put together. */
const PAUSE_MS_MIN = 10;
/** The record is written after so much of a pass, in milliseconds. */
const SAVE_MS = 2_000;
/** Timers do not reach further than this, and a clock may be set meanwhile: so often the time is looked at. */
const LOOK_MS_MAX = 3_600_000;
/** Paths are told again within this time, in milliseconds, though a file may have moved meanwhile. */
const PATHS_MS = 60_000;
/** Objects that are remembered by name; the rest are only counted. */
const UNREPAIRABLE_MAX = 1_000;

export interface ScrubberParts {
  readonly world: World;
  readonly clock: Pick<Clock, 'nowMs' | 'wallNs'>;
  readonly log: Logger;
  readonly store: Pick<DiskStore, 'list' | 'record' | 'entries' | 'inspect' | 'repair'>;
  readonly repairer: Pick<Repairer, 'fetch'>;
  /** Where progress is remembered. */
  readonly recordFile: string;
  /** A pass reads no more than this, in bytes per second. */
  readonly bytesPerS: number;
  /** From the end of one pass to the begin of the next, in milliseconds. */
  readonly everyMs: number;
  /** First path of each file that has one, as the catalog knows it now. */
  paths(files: readonly FileId[]): Promise<ReadonlyMap<FileId, string>>;
}

/**
 * Reads every object of every replica on this disk now and then, at a set pace, because a damaged one that
 * nobody reads is found only when the last whole copy is gone. What is damaged is repaired from another
 * replica with the same version. A pass that a restart interrupts goes on where it was.
 */
export class Scrubber {
  readonly #parts: ScrubberParts;
  #record: ScrubRecord;
  #running = false;
  #retrying = false;
  /** How often another server came back. */
  #returns = 0;
  #closed = false;
  #timer: Timer | null = null;
  /** Paths as the catalog told them last: it reads all its names for that. */
  #known: { atMs: number; asked: ReadonlySet<FileId>; paths: ReadonlyMap<FileId, string> } = {
    atMs: -Infinity,
    asked: new Set(),
    paths: new Map(),
  };
  /** Ends the pause of the pass under way. */
  #wake: (() => void) | null = null;
  #savedMs = 0;
  /** What was read is paid for by waiting; so much is owed as of then. */
  #owedMs = 0;
  #pacedMs = 0;
  readonly #total = { objects: 0, bytes: 0, damaged: 0, repaired: 0, passes: 0 };

  constructor(parts: ScrubberParts) {
    this.#parts = parts;
    this.#record = scrubRecordRead(parts.recordFile) ?? scrubRecordNew(this.#wallMs());
  }

  /** The other servers can be asked from now on: goes on with a pass that was interrupted, or waits for the next. */
  begin(): void {
    if (this.#record.finishedMs === null) this.#run();
    else this.#wait();
  }

  /** What was counted since this server started. */
  get total(): { readonly [Name in 'objects' | 'bytes' | 'damaged' | 'repaired' | 'passes']: number } {
    return this.#total;
  }

  /** Objects of the pass under way, or of the last one, that no server had whole. */
  get unrepairable(): readonly DamagedObject[] {
    return this.#record.unrepairable;
  }

  /** Begins a pass now. One that is under way goes on. */
  start(): void {
    if (this.#running || this.#closed) return;
    this.#record = scrubRecordStart(this.#wallMs());
    this.#run();
  }

  /** Another server came back: perhaps it has what could not be repaired. */
  retry(): void {
    this.#returns++;
    this.#retry();
  }

  #retry(): void {
    if (this.#retrying || this.#closed || this.#record.unrepairable.length === 0) return;
    this.#retrying = true;
    const returns = this.#returns;
    void this.#retryAll()
      .catch((error: unknown) => {
        this.#parts.log.warn({ err: error }, 'damaged objects could not be looked at again');
      })
      .finally(() => {
        this.#retrying = false;
        // Who came back in the meantime was not asked for what had been given up before.
        if (this.#returns !== returns) this.#retry();
      });
  }

  async status(): Promise<ScrubStatus> {
    const { startedMs, finishedMs, objects, bytes, damaged, repaired, unrepairable } = this.#record;
    const files = [...new Set(unrepairable.map(({ file }) => file))];
    const paths = await this.#pathsOf(files);
    return {
      state: this.#running ? 'running' : 'waiting',
      startedAt: startedMs === null ? null : new Date(startedMs).toISOString(),
      finishedAt: finishedMs === null ? null : new Date(finishedMs).toISOString(),
      bytesPerSecond: this.#parts.bytesPerS,
      objects,
      bytes,
      damaged,
      repaired,
      unrepairable: unrepairable.map(({ file, index }) => ({
        file,
        object: index,
        path: paths.get(file) ?? null,
      })),
    };
  }

  /** Stops where it is; the next start of the server goes on from there. */
  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#wake?.();
    this.#save();
  }

  #wait(): void {
    if (this.#closed) return;
    const dueMs = (this.#record.finishedMs ?? 0) + this.#parts.everyMs - this.#wallMs();
    this.#timer = this.#parts.world.after(Math.min(Math.max(dueMs, 1), LOOK_MS_MAX), () => {
      if (this.#running) return;
      if (this.#wallMs() - (this.#record.finishedMs ?? 0) >= this.#parts.everyMs) this.start();
      else this.#wait();
    });
    this.#timer.unref();
  }

  #run(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#running = true;
    this.#save();
    const { log } = this.#parts;
    log.info({ file: this.#record.file }, 'a pass of the scrubber begins');
    void this.#pass()
      .then(() => {
        if (this.#closed) return;
        this.#record = { ...this.#record, finishedMs: this.#wallMs() };
        this.#total.passes++;
        const { objects, bytes, damaged, repaired } = this.#record;
        log.info({ objects, bytes, damaged, repaired }, 'a pass of the scrubber ended');
        this.#save();
      })
      .catch((error: unknown) => {
        // The store is over, or closed: the next start goes on.
        log.warn({ err: error }, 'a pass of the scrubber was broken off');
      })
      .finally(() => {
        this.#running = false;
        if (this.#record.finishedMs !== null) this.#wait();
      });
  }

  async #pass(): Promise<void> {
    const { store } = this.#parts;
    let after = Math.max(0, this.#record.file - 1) as FileId;
    for (;;) {
      const files = store.list(after, FILES_PER_TURN);
      const last = files.at(-1);
      if (last === undefined) return;
      for (const file of files) {
        await this.#file(file);
        if (this.#closed) return;
      }
      after = last;
    }
  }

  async #file(file: FileId): Promise<void> {
    const { store } = this.#parts;
    if (this.#record.file !== file) this.#record = { ...this.#record, file, index: -1 };
    for (;;) {
      // Removed meanwhile.
      if (store.record(file) === null) return;
      const entries = store.entries(file, this.#record.index + 1, Number.MAX_SAFE_INTEGER, ENTRIES_PER_TURN);
      for (const entry of entries) {
        await this.#pace(entry.length);
        if (this.#closed) return;
        await this.#object(file, entry);
      }
      if (entries.length < ENTRIES_PER_TURN) return;
    }
  }

  async #object(file: FileId, entry: ObjectEntry): Promise<void> {
    const { store, log } = this.#parts;
    const returns = this.#returns;
    const found = await store.inspect(file, entry);
    const isDamaged = found === 'damaged';
    const isRepaired = isDamaged && (await this.#repair(file, entry));
    if (isDamaged && !isRepaired) {
      const path = (await this.#pathsOf([file])).get(file) ?? null;
      log.error(
        { file, object: entry.index, path },
        'an object is damaged, and no other server has it whole',
      );
    }
    const bytes = found === 'gone' ? 0 : entry.length;
    const objects = found === 'gone' ? 0 : 1;
    this.#total.bytes += bytes;
    this.#total.objects += objects;
    if (isDamaged) this.#total.damaged++;
    if (isRepaired) this.#total.repaired++;
    // Only now, behind all that was waited for: what was left is looked at again meanwhile.
    const record = this.#record;
    const isLeft = isDamaged && !isRepaired && record.unrepairable.length < UNREPAIRABLE_MAX;
    this.#record = {
      ...record,
      index: entry.index,
      objects: record.objects + objects,
      bytes: record.bytes + bytes,
      damaged: record.damaged + (isDamaged ? 1 : 0),
      repaired: record.repaired + (isRepaired ? 1 : 0),
      unrepairable: isLeft ? [...record.unrepairable, { file, index: entry.index }] : record.unrepairable,
    };
    if (isLeft && this.#returns !== returns) this.#retry();
    if (this.#parts.clock.nowMs() - this.#savedMs > SAVE_MS) this.#save();
  }

  async #retryAll(): Promise<void> {
    const { store } = this.#parts;
    for (const left of this.#record.unrepairable) {
      if (this.#closed) return;
      const file = left.file;
      const entry =
        store.record(file) === null ? undefined : store.entries(file, left.index, left.index, 1)[0];
      const isDamaged = entry !== undefined && (await store.inspect(file, entry)) === 'damaged';
      if (isDamaged && !(await this.#repair(file, entry))) continue;
      if (isDamaged) this.#total.repaired++;
      const others = this.#record.unrepairable.filter(
        (other) => other.file !== file || other.index !== left.index,
      );
      // Another pass may have begun meanwhile, which has not come to this object.
      if (others.length === this.#record.unrepairable.length) continue;
      const repaired = this.#record.repaired + (isDamaged ? 1 : 0);
      this.#record = { ...this.#record, repaired, unrepairable: others };
    }
    this.#save();
  }

  /** @returns whether the object is whole now, or no longer what it was */
  async #repair(file: FileId, entry: ObjectEntry): Promise<boolean> {
    const { store, repairer } = this.#parts;
    const bytes = await repairer.fetch(file, entry);
    if (bytes !== null) await store.repair(file, { entry, bytes });
    return (await store.inspect(file, entry)) !== 'damaged';
  }

  /** Waits as long as so many bytes take at the set pace; what is read in no time is waited for together. */
  async #pace(bytes: number): Promise<void> {
    const nowMs = this.#parts.clock.nowMs();
    this.#owedMs = Math.max(0, this.#owedMs - (nowMs - this.#pacedMs));
    this.#owedMs += (bytes / this.#parts.bytesPerS) * 1000;
    this.#pacedMs = nowMs;
    if (this.#owedMs < PAUSE_MS_MIN) return;
    await new Promise<void>((resolve) => {
      const timer = this.#parts.world.after(this.#owedMs, resolve);
      timer.unref();
      this.#wake = () => {
        timer.cancel();
        resolve();
      };
    });
    this.#wake = null;
  }

  async #pathsOf(files: readonly FileId[]): Promise<ReadonlyMap<FileId, string>> {
    if (files.length === 0) return new Map();
    const nowMs = this.#parts.clock.nowMs();
    const known = this.#known;
    if (nowMs - known.atMs < PATHS_MS && files.every((file) => known.asked.has(file))) return known.paths;
    try {
      const paths = await this.#parts.paths(files);
      this.#known = { atMs: nowMs, asked: new Set(files), paths };
      return paths;
    } catch (error) {
      // Ids will do while the catalog is away.
      if (!(error instanceof ServiceError)) throw error;
      return new Map();
    }
  }

  #save(): void {
    this.#savedMs = this.#parts.clock.nowMs();
    try {
      scrubRecordWrite(this.#parts.recordFile, this.#record);
    } catch (error) {
      // A full disk: a restart begins further back.
      this.#parts.log.warn({ err: error }, "the scrubber's progress could not be written");
    }
  }

  #wallMs(): number {
    return Number(this.#parts.clock.wallNs() / 1_000_000n);
  }
}

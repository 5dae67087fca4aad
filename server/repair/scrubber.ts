import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import type { ScrubStatus } from '../../wire/http-api.ts';
import type { Clock } from '../process/clock.ts';
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

const ENTRIES_PER_PAGE = 256;
const FILES_PER_PAGE = 256;
/** Shorter pauses are accumulated. */
const PAUSE_MS_MIN = 10;
const SAVE_INTERVAL_MS = 2_000;
/** Longest timer, in milliseconds: timers have a limit, and the wall clock may be set meanwhile. */
const TIMER_MS_MAX = 3_600_000;
/** Paths are cached for this time, in milliseconds, although a file may move meanwhile. */
const PATHS_MS = 60_000;
/** Objects that are listed; further ones are only counted. */
const UNREPAIRABLE_MAX = 1_000;

export interface ScrubberParts {
  readonly world: World;
  readonly clock: Pick<Clock, 'nowMs' | 'wallNs'>;
  readonly log: Logger;
  readonly store: Pick<DiskStore, 'list' | 'record' | 'entries' | 'inspect' | 'repair'>;
  readonly repairer: Pick<Repairer, 'fetch'>;
  readonly recordFile: string;
  readonly bytesPerS: number;
  /** From the end of one pass to the start of the next, in milliseconds. */
  readonly everyMs: number;
  /** First path of each file that has one, as the catalog has it now. */
  paths(files: readonly FileId[]): Promise<ReadonlyMap<FileId, string>>;
}

/**
 * Reads every object of every replica on this disk periodically, at a limited rate: without reads, damage is found only
 * when the last undamaged copy is lost. A damaged object is repaired from another replica with the same version. An
 * interrupted pass continues after a restart.
 */
export class Scrubber {
  readonly #parts: ScrubberParts;
  #record: ScrubRecord;
  #running = false;
  #retrying = false;
  #reconnects = 0;
  #closed = false;
  #timer: Timer | null = null;
  /** Cached, because the catalog reads all its entries for a query. */
  #cachedPaths: { atMs: number; asked: ReadonlySet<FileId>; paths: ReadonlyMap<FileId, string> } = {
    atMs: -Infinity,
    asked: new Set(),
    paths: new Map(),
  };
  #wake: (() => void) | null = null;
  #savedMs = 0;
  /** How long the scrubber still has to wait for what it has read, as of `#pacedMs`. */
  #dueWaitMs = 0;
  #pacedMs = 0;
  readonly #total = { objects: 0, bytes: 0, damaged: 0, repaired: 0, passes: 0 };

  constructor(parts: ScrubberParts) {
    this.#parts = parts;
    this.#record = scrubRecordRead(parts.recordFile) ?? scrubRecordNew(this.#wallMs());
  }

  /** Called at the end of the server's start: continues an interrupted pass, or schedules the next one. */
  begin(): void {
    if (this.#record.finishedMs === null) this.#run();
    else this.#scheduleNext();
  }

  get total(): { readonly [Name in 'objects' | 'bytes' | 'damaged' | 'repaired' | 'passes']: number } {
    return this.#total;
  }

  get unrepairable(): readonly DamagedObject[] {
    return this.#record.unrepairable;
  }

  /** Starts a pass now, unless one is in progress. */
  start(): void {
    if (this.#running || this.#closed) return;
    this.#record = scrubRecordStart(this.#wallMs());
    this.#run();
  }

  /** Called when another server has reconnected: it may have objects that could not be repaired. */
  retry(): void {
    this.#reconnects++;
    this.#retry();
  }

  #retry(): void {
    if (this.#retrying || this.#closed || this.#record.unrepairable.length === 0) return;
    this.#retrying = true;
    const reconnects = this.#reconnects;
    void this.#retryAll()
      .catch((error: unknown) => {
        this.#parts.log.warn({ err: error }, 'cannot check damaged objects again');
      })
      .finally(() => {
        this.#retrying = false;
        // Servers that reconnected meanwhile were not asked for the earlier objects.
        if (this.#reconnects !== reconnects) this.#retry();
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

  /** Ends a pass in progress; the next start of the server continues it. */
  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#wake?.();
    this.#save();
  }

  #scheduleNext(): void {
    if (this.#closed) return;
    const dueMs = (this.#record.finishedMs ?? 0) + this.#parts.everyMs - this.#wallMs();
    this.#timer = this.#parts.world.after(Math.min(Math.max(dueMs, 1), TIMER_MS_MAX), () => {
      if (this.#running) return;
      if (this.#wallMs() - (this.#record.finishedMs ?? 0) >= this.#parts.everyMs) this.start();
      else this.#scheduleNext();
    });
    this.#timer.unref();
  }

  #run(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#running = true;
    this.#save();
    const { log } = this.#parts;
    log.info({ file: this.#record.file }, 'scrubber pass started');
    void this.#pass()
      .then(() => {
        if (this.#closed) return;
        this.#record = { ...this.#record, finishedMs: this.#wallMs() };
        this.#total.passes++;
        const { objects, bytes, damaged, repaired } = this.#record;
        log.info({ objects, bytes, damaged, repaired }, 'scrubber pass finished');
        this.#save();
      })
      .catch((error: unknown) => {
        // The store has failed, or is closed: the next start continues.
        log.warn({ err: error }, 'scrubber pass aborted');
      })
      .finally(() => {
        this.#running = false;
        if (this.#record.finishedMs !== null) this.#scheduleNext();
      });
  }

  async #pass(): Promise<void> {
    const { store } = this.#parts;
    let after = Math.max(0, this.#record.file - 1) as FileId;
    for (;;) {
      const files = store.list(after, FILES_PER_PAGE);
      const last = files.at(-1);
      if (last === undefined) return;
      for (const file of files) {
        await this.#checkFile(file);
        if (this.#closed) return;
      }
      after = last;
    }
  }

  async #checkFile(file: FileId): Promise<void> {
    const { store } = this.#parts;
    if (this.#record.file !== file) this.#record = { ...this.#record, file, index: -1 };
    for (;;) {
      if (store.record(file) === null) return;
      const entries = store.entries(file, this.#record.index + 1, Number.MAX_SAFE_INTEGER, ENTRIES_PER_PAGE);
      for (const entry of entries) {
        await this.#pace(entry.length);
        if (this.#closed) return;
        await this.#checkObject(file, entry);
      }
      if (entries.length < ENTRIES_PER_PAGE) return;
    }
  }

  async #checkObject(file: FileId, entry: ObjectEntry): Promise<void> {
    const { store, log } = this.#parts;
    const returns = this.#reconnects;
    const found = await store.inspect(file, entry);
    const isDamaged = found === 'damaged';
    const isRepaired = isDamaged && (await this.#repair(file, entry));
    if (isDamaged && !isRepaired) {
      const path = (await this.#pathsOf([file])).get(file) ?? null;
      log.error(
        { file, object: entry.index, path },
        'an object is damaged, and no other server has an intact copy',
      );
    }
    const bytes = found === 'absent' ? 0 : entry.length;
    const objects = found === 'absent' ? 0 : 1;
    this.#total.bytes += bytes;
    this.#total.objects += objects;
    if (isDamaged) this.#total.damaged++;
    if (isRepaired) this.#total.repaired++;
    // After all waits: `#retryAll` may have changed the list meanwhile.
    const record = this.#record;
    const isUnrepairable = isDamaged && !isRepaired && record.unrepairable.length < UNREPAIRABLE_MAX;
    this.#record = {
      ...record,
      index: entry.index,
      objects: record.objects + objects,
      bytes: record.bytes + bytes,
      damaged: record.damaged + (isDamaged ? 1 : 0),
      repaired: record.repaired + (isRepaired ? 1 : 0),
      unrepairable: isUnrepairable
        ? [...record.unrepairable, { file, index: entry.index }]
        : record.unrepairable,
    };
    if (isUnrepairable && this.#reconnects !== returns) this.#retry();
    if (this.#parts.clock.nowMs() - this.#savedMs > SAVE_INTERVAL_MS) this.#save();
  }

  /** Checks the objects that could not be repaired again, and removes those that are intact now from the list. */
  async #retryAll(): Promise<void> {
    const { store } = this.#parts;
    for (const damaged of this.#record.unrepairable) {
      if (this.#closed) return;
      const file = damaged.file;
      const entry =
        store.record(file) === null ? undefined : store.entries(file, damaged.index, damaged.index, 1)[0];
      const isDamaged = entry !== undefined && (await store.inspect(file, entry)) === 'damaged';
      if (isDamaged && !(await this.#repair(file, entry))) continue;
      if (isDamaged) this.#total.repaired++;
      const others = this.#record.unrepairable.filter(
        (other) => other.file !== file || other.index !== damaged.index,
      );
      // Another pass may have begun meanwhile, and not reached this object.
      if (others.length === this.#record.unrepairable.length) continue;
      const repaired = this.#record.repaired + (isDamaged ? 1 : 0);
      this.#record = { ...this.#record, repaired, unrepairable: others };
    }
    this.#save();
  }

  /** @returns whether the object is undamaged now, or has changed */
  async #repair(file: FileId, entry: ObjectEntry): Promise<boolean> {
    const { store, repairer } = this.#parts;
    const bytes = await repairer.fetch(file, entry);
    if (bytes !== null) await store.repair(file, { entry, bytes });
    return (await store.inspect(file, entry)) !== 'damaged';
  }

  /** Waits as long as these bytes take at the limited rate; short waits are accumulated. */
  async #pace(bytes: number): Promise<void> {
    const nowMs = this.#parts.clock.nowMs();
    this.#dueWaitMs = Math.max(0, this.#dueWaitMs - (nowMs - this.#pacedMs));
    this.#dueWaitMs += (bytes / this.#parts.bytesPerS) * 1000;
    this.#pacedMs = nowMs;
    if (this.#dueWaitMs < PAUSE_MS_MIN) return;
    await new Promise<void>((resolve) => {
      const timer = this.#parts.world.after(this.#dueWaitMs, resolve);
      timer.unref();
      this.#wake = () => {
        timer.cancel();
        resolve();
      };
    });
    this.#wake = null;
  }

  /** Paths of damaged files, for the status and the log. Without the catalog none are returned: ids suffice. */
  async #pathsOf(files: readonly FileId[]): Promise<ReadonlyMap<FileId, string>> {
    if (files.length === 0) return new Map();
    const nowMs = this.#parts.clock.nowMs();
    const known = this.#cachedPaths;
    if (nowMs - known.atMs < PATHS_MS && files.every((file) => known.asked.has(file))) return known.paths;
    try {
      const paths = await this.#parts.paths(files);
      this.#cachedPaths = { atMs: nowMs, asked: new Set(files), paths };
      return paths;
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      return new Map();
    }
  }

  #save(): void {
    this.#savedMs = this.#parts.clock.nowMs();
    try {
      scrubRecordWrite(this.#parts.recordFile, this.#record);
    } catch (error) {
      // A full disk: a restart repeats a part of the pass.
      this.#parts.log.warn({ err: error }, "cannot store the scrubber's progress");
    }
  }

  #wallMs(): number {
    return Number(this.#parts.clock.wallNs() / 1_000_000n);
  }
}

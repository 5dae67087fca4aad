/** Programs that change shared files under `fcntl` locks, and record what they read and write. */
import type { Prng } from '../../base/prng.ts';
import { Caller } from './names-caller.ts';
import { countUp, nowNs, type Recorder } from './recorder.ts';

/** The directory of the files that all mounts lock. */
export const LOCK_DIRECTORY = 'locked';
export const LOCK_FILES = ['l1', 'l2'];
/** The offsets of the values, each with a lock of its own: two adjacent ones, and one on another page. */
const CELL_OFFSETS = [0, 24, 5_000];
const CELL_BYTES = 24;

export interface LockerParts {
  readonly name: string;
  readonly prng: Prng;
  readonly recorder: Recorder;
  readonly errors: Map<string, number>;
  /** Counts of the outcomes of locks and of the changes under them. */
  readonly outcomes: Map<LockOutcome, number>;
}

export type LockOutcome = 'stored' | 'unknown' | 'refused';

/**
 * One program on one mount. It takes an exclusive lock, reads a value, writes another one and syncs it. A sync without
 * an error means that the new value has replaced the value that was read (`cas`). After a failed call the change may
 * have happened in the same way, perhaps later, or not at all: the servers refuse bytes that arrive after the loss of
 * a lock.
 */
export class Locker {
  readonly #parts: LockerParts;
  readonly #root: string;
  readonly #caller: Caller;
  #count = 0;

  /** @param root the directory of its mount */
  constructor(root: string, parts: LockerParts) {
    this.#root = root;
    this.#parts = parts;
    this.#caller = new Caller(parts.errors);
  }

  async run(): Promise<void> {
    while (!this.#caller.isOver) await this.#step();
  }

  async end(): Promise<void> {
    await this.#caller.end();
  }

  /** Reads all values without locks, after all changes. */
  async survey(): Promise<void> {
    for (const file of LOCK_FILES) {
      await this.#caller.call(null, 'open', 'file', this.#path(file), 'rdonly');
      for (const offset of CELL_OFFSETS) {
        const call = nowNs();
        const value = await this.#read(offset);
        if (value === undefined) continue;
        const read = { op: 'read' as const, input: null, output: value };
        this.#parts.recorder.record({ ...this.#common(file, offset, call), ...read, status: 'ok' });
      }
      await this.#caller.call(null, 'close', 'file');
    }
  }

  async #step(): Promise<void> {
    const { prng, outcomes } = this.#parts;
    const file = prng.pick(LOCK_FILES);
    const offset = prng.pick(CELL_OFFSETS);
    const [start, length] = prng.chance(0.2) ? [0, 0] : [offset, CELL_BYTES];
    const waits = prng.chance(0.5) ? 'yes' : 'no';
    const opened = await this.#caller.call(null, 'open', 'file', this.#path(file), 'rdwr');
    if (opened.kind !== 'ok') return;
    const range = [String(start), String(length)];
    const locked = await this.#caller.call('EAGAIN EACCES', 'lock', 'file', 'exclusive', ...range, waits);
    if (locked.kind === 'no') countUp(outcomes, 'refused');
    if (locked.kind === 'ok') {
      await this.#change(file, offset);
      // A close releases the locks, too.
      if (prng.chance(0.5)) await this.#caller.call(null, 'lock', 'file', 'unlock', ...range, 'no');
    }
    await this.#caller.call(null, 'close', 'file');
  }

  async #change(file: string, offset: number): Promise<void> {
    const { recorder, outcomes } = this.#parts;
    const call = nowNs();
    const expect = await this.#read(offset);
    if (expect === undefined) return;
    const value = `${this.#parts.name}.${++this.#count}`.padEnd(CELL_BYTES);
    const wrote = await this.#caller.call(null, 'pwrite', 'file', value, String(offset));
    const synced = wrote.kind === 'ok' ? await this.#caller.call(null, 'fsync', 'file') : wrote;
    const isStored = synced.kind === 'ok';
    countUp(outcomes, isStored ? 'stored' : 'unknown');
    const cas = { ...this.#common(file, offset, call), op: 'cas' as const, input: { expect, value } };
    if (isStored) recorder.record({ ...cas, output: true, status: 'ok' });
    else recorder.record({ ...cas, output: null, status: 'unknown', return: null });
  }

  /** @returns the value in the open file, null before the first; undefined if the read fails */
  async #read(offset: number): Promise<string | null | undefined> {
    const read = await this.#caller.call(null, 'pread', 'file', String(CELL_BYTES), String(offset));
    if (read.kind !== 'ok') return undefined;
    return read.value.replaceAll('\0', '') || null;
  }

  #common(file: string, offset: number, call: number) {
    return { client: this.#parts.name, key: `object/${file}.${offset}`, call, return: nowNs() };
  }

  #path(file: string): string {
    return [this.#root, LOCK_DIRECTORY, file].join('/');
  }
}

import type FileSystem from 'node:fs';
import type Database from 'better-sqlite3';
import type { SimulatedProcess } from '../simulated-process.ts';
import { FILE_CALLS, performedBy } from './file-calls.ts';
import type { Access } from './private-disk.ts';
import { ForeignFile, isInside, realFiles, unguarded } from './real-files.ts';

type Call = (...args: unknown[]) => unknown;
type Holder = Record<string, Call>;

/** The disk of a machine, for calls of its processes. */
export interface SimulatedDisk {
  /** @returns the duration of such a call, in milliseconds */
  delayMs(access: Access): number;
  /**
   * Performs a call of `node:fs` by `run`. @throws the system's error with which it fails, also if the file is not of
   * this disk
   */
  call(name: string, args: readonly unknown[], run: () => unknown): unknown;
  /** A simulated process has opened this connection. */
  used(database: Database.Database): void;
  databaseClosed(database: Database.Database): void;
  /** Performs a call of SQLite that commits. */
  commit(database: Database.Database, run: () => unknown): unknown;
  /**
   * Performs a call of SQLite that writes to the database file.
   * @param isSynced whether SQLite syncs it, and the log before
   * @param mayRemove whether it may remove the log
   */
  copyBack(database: Database.Database, isSynced: boolean, mayRemove: boolean, run: () => unknown): unknown;
}

/** Keeps the properties that Node's `promisify` uses. */
export function keepProperties(real: object, replaced: object): void {
  for (const key of Reflect.ownKeys(real)) {
    const own = Object.getOwnPropertyDescriptor(real, key);
    if (own?.configurable === true && key !== 'name' && key !== 'length')
      Object.defineProperty(replaced, key, own);
  }
}

const disks = new WeakMap<SimulatedProcess, SimulatedDisk>();

/** Gives a process its disk; a process without a disk has no files. */
export function mountDisk(process: SimulatedProcess, disk: SimulatedDisk): void {
  disks.set(process, disk);
}

export function diskOf(process: SimulatedProcess): SimulatedDisk | undefined {
  return disks.get(process);
}

/**
 * File operations of simulated processes are executed at once in their synchronous form and complete at a virtual
 * time. They stay executed if the process ends meanwhile: the page cache outlives it. Other operations are refused.
 *
 * @param refused throws, and ends the run
 */
export function guardFiles(
  fs: typeof FileSystem,
  currentProcess: () => SimulatedProcess | null,
  refused: (process: SimulatedProcess, what: string) => never,
): void {
  const within = (process: SimulatedProcess, name: string, args: readonly unknown[]): unknown => {
    const disk = disks.get(process);
    if (disk === undefined) return refused(process, `a file (${name} ${String(args[0])})`);
    const run = (): unknown => (realFiles as unknown as Holder)[`${name}Sync`]?.(...args);
    try {
      return unguarded(() => disk.call(name, args, run));
    } catch (error) {
      if (error instanceof ForeignFile) return refused(process, `${error.message} (${name})`);
      throw error;
    }
  };
  const later = (process: SimulatedProcess, name: string, args: unknown[]): Promise<unknown> => {
    let outcome: Promise<unknown>;
    const delayMs = disks.get(process)?.delayMs(performedBy(name).access) ?? 0;
    try {
      outcome = Promise.resolve(within(process, name, args));
    } catch (error) {
      outcome = Promise.reject(error as Error);
    }
    outcome.catch(() => undefined);
    return new Promise((resolve) => {
      process.due(delayMs, () => resolve(outcome));
    });
  };

  const replace = (
    holder: Holder,
    key: string,
    simulated: (process: SimulatedProcess, args: unknown[]) => unknown,
  ): void => {
    const real = holder[key] as Call;
    const guarded: Call = (...args) => {
      const process = isInside() ? null : currentProcess();
      return process === null ? real(...args) : simulated(process, args);
    };
    keepProperties(real, guarded);
    holder[key] = guarded;
  };
  const performed = new Set(FILE_CALLS);
  const files = fs as unknown as Holder;
  for (const key of Object.keys(files)) {
    if (typeof files[key] !== 'function' || /^[A-Z_]/.test(key)) continue;
    const name = key.replace(/Sync$/, '');
    replace(files, key, (process, args) => {
      if (!performed.has(name)) return refused(process, `a file (${key})`);
      if (key !== name) return within(process, name, args);
      const callback = args.pop() as (error: unknown, ...values: unknown[]) => void;
      void later(process, name, args).then(
        (value) => callback(null, value, args[1]),
        (error: unknown) => callback(error),
      );
      return undefined;
    });
  }
  const promises = fs.promises as unknown as Holder;
  for (const key of Object.keys(promises)) {
    if (typeof promises[key] !== 'function') continue;
    replace(promises, key, (process, args) => {
      if (!performed.has(key)) return refused(process, `a file (${key})`);
      const done = later(process, key, args);
      if (key !== 'open') return done;
      return done.then(
        (fd) => new SimulatedHandle(fd as number, (method, given) => later(process, method, given)),
      );
    });
  }
}

/** Behaves as a `FileHandle` of `fs/promises`, with the methods that this project uses. */
class SimulatedHandle {
  readonly fd: number;
  readonly #perform: (name: string, args: unknown[]) => Promise<unknown>;

  constructor(fd: number, perform: (name: string, args: unknown[]) => Promise<unknown>) {
    this.fd = fd;
    this.#perform = perform;
  }

  async read(
    buffer: Uint8Array,
    offset = 0,
    length = buffer.length,
    position: number | null = null,
  ): Promise<object> {
    const bytesRead = await this.#perform('read', [this.fd, buffer, offset, length, position]);
    return { bytesRead, buffer };
  }

  async write(
    buffer: Uint8Array,
    offset = 0,
    length = buffer.length,
    position: number | null = null,
  ): Promise<object> {
    const bytesWritten = await this.#perform('write', [this.fd, buffer, offset, length, position]);
    return { bytesWritten, buffer };
  }

  writeFile(data: string | Uint8Array): Promise<unknown> {
    return this.#perform('writeFile', [this.fd, data]);
  }

  stat(): Promise<unknown> {
    return this.#perform('fstat', [this.fd]);
  }

  truncate(sizeBytes: number): Promise<unknown> {
    return this.#perform('ftruncate', [this.fd, sizeBytes]);
  }

  datasync(): Promise<unknown> {
    return this.#perform('fdatasync', [this.fd]);
  }

  sync(): Promise<unknown> {
    return this.#perform('fsync', [this.fd]);
  }

  close(): Promise<unknown> {
    return this.#perform('close', [this.fd]);
  }
}

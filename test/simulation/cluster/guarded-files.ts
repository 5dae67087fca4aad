import type FileSystem from 'node:fs';
import type { SimulatedProcess } from './simulated-process.ts';

type Call = (...args: unknown[]) => unknown;
type Holder = Record<string, Call>;

/** What a machine's disk does with file operations of its processes. */
export interface SimulatedDisk {
  /** @throws where the operation is not of this disk */
  check(path: string): void;
  /** @returns how long the operation takes, in milliseconds; @throws the system's error that it fails with */
  begin(operation: string): number;
  /** A descriptor of a simulated process was opened or closed. */
  opened(fd: number): void;
  closed(fd: number): void;
  /** What was written to the file so far survives a loss of power. */
  synced(fd: number): void;
}

const disks = new WeakMap<SimulatedProcess, SimulatedDisk>();

/** Gives a process its disk; one without a disk has no files. */
export function mountDisk(process: SimulatedProcess, disk: SimulatedDisk): void {
  disks.set(process, disk);
}

/** Of callbacks and promises alike; each has a synchronous form that is called `…Sync`. */
const OPERATIONS = [
  'access',
  'appendFile',
  'close',
  'copyFile',
  'fdatasync',
  'fstat',
  'fsync',
  'ftruncate',
  'lstat',
  'mkdir',
  'open',
  'read',
  'readFile',
  'readdir',
  'rename',
  'rm',
  'rmdir',
  'stat',
  'statfs',
  'truncate',
  'unlink',
  'write',
  'writeFile',
  'writev',
] as const;

/**
 * File operations of simulated processes are done at once by the synchronous form and complete at a virtual time. A
 * process that ends meanwhile has done them: the page cache outlives it.
 */
export function guardFiles(fs: typeof FileSystem, currentProcess: () => SimulatedProcess | null): void {
  const files = fs as unknown as Holder;
  const syncs = new Map<string, Call>(OPERATIONS.map((name) => [name, files[`${name}Sync`] as Call]));
  const perform = (process: SimulatedProcess, name: string, args: unknown[]): Promise<unknown> => {
    const disk = disks.get(process);
    if (disk === undefined) throw new Error(`${process.name} has no disk, and called ${name}`);
    let delayMs = 0;
    let outcome: Promise<unknown>;
    try {
      delayMs = disk.begin(name);
      if (typeof args[0] === 'string') disk.check(args[0]);
      const value = (files[`${name}Sync`] as Call)(...args);
      outcome = Promise.resolve(value);
    } catch (error) {
      outcome = Promise.reject(error as Error);
    }
    outcome.catch(() => undefined);
    return new Promise((resolve) => {
      process.due(delayMs, () => resolve(outcome));
    });
  };

  // Descriptors and syncs are followed, however they come about.
  for (const [name, follow] of [
    ['openSync', (disk: SimulatedDisk, _args: unknown[], fd: unknown) => disk.opened(fd as number)],
    ['closeSync', (disk: SimulatedDisk, [fd]: unknown[]) => disk.closed(fd as number)],
    ['fsyncSync', (disk: SimulatedDisk, [fd]: unknown[]) => disk.synced(fd as number)],
    ['fdatasyncSync', (disk: SimulatedDisk, [fd]: unknown[]) => disk.synced(fd as number)],
  ] as const) {
    const real = files[name] as Call;
    files[name] = (...args) => {
      const process = currentProcess();
      const disk = process === null ? undefined : disks.get(process);
      if (disk === undefined) return real(...args);
      // /dev/shm has nothing to sync.
      const value = name.startsWith('f') ? undefined : real(...args);
      follow(disk, args, value);
      return value;
    };
  }

  for (const name of OPERATIONS) {
    const real = files[name] as Call;
    files[name] = (...args) => {
      const process = currentProcess();
      if (process === null) return real(...args);
      const callback = args.pop() as (error: unknown, ...values: unknown[]) => void;
      void perform(process, name, args).then(
        (value) => callback(null, value, args[1]),
        (error: unknown) => callback(error),
      );
      return undefined;
    };
  }

  const promises = fs.promises as unknown as Holder;
  for (const name of OPERATIONS) {
    const real = promises[name];
    if (real === undefined) continue;
    promises[name] = (...args) => {
      const process = currentProcess();
      if (process === null) return real(...args);
      const operation = name === 'writeFile' ? dropFlush(args) : args;
      return perform(process, name, operation).then((value) =>
        name === 'open'
          ? new SimulatedHandle(value as number, (method, given) => perform(process, method, given))
          : value,
      );
    };
  }
  void syncs;
}

/** The synchronous form would sync a file that is gone before the disk learns of it. */
function dropFlush([file, data, options]: unknown[]): unknown[] {
  return [
    file,
    data,
    typeof options === 'object' && options !== null ? { ...options, flush: false } : options,
  ];
}

/** As a `FileHandle` of `fs/promises`, with the methods that this project uses. */
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

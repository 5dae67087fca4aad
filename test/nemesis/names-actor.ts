/** Programs that change and query names on a mount, and record the answers. */
import type { Prng } from '../../base/prng.ts';
import type { Operation } from '../history/operation.ts';
import { Caller, type Result } from './names-caller.ts';
import { nowNs, type Recorder } from './recorder.ts';

/** The names of a shared directory: few, so that programs conflict. */
const NAMES = ['a', 'b', 'c'];
/**
 * A directory's history is searched as a whole: the directory is replaced after so many operations, or so many with an
 * unknown outcome.
 */
const OPERATIONS_MAX = 80;
const UNKNOWN_MAX = 4;
/** A flag of renameat2(2). */
const RENAME_NOREPLACE = '1';
/** Stands for the file of a creation with an unknown outcome, or of a mount without inode numbers. */
const UNKNOWN_FILE = '?';
const UNKNOWN_CONTENTS = `object/${UNKNOWN_FILE}`;

/** Shared directories; one is used at a time. */
export class Directories {
  readonly #make: (name: string) => Promise<void>;
  readonly #names: string[] = [];
  #operations = 0;
  #unknown = 0;
  #making: Promise<void> | null = null;

  /** @param make creates a directory that all mounts can see */
  constructor(make: (name: string) => Promise<void>) {
    this.#make = make;
  }

  get all(): readonly string[] {
    return this.#names;
  }

  /** @returns the directory to use now */
  async current(): Promise<string> {
    const isSpent = this.#operations >= OPERATIONS_MAX || this.#unknown >= UNKNOWN_MAX;
    if (this.#names.length === 0 || isSpent) {
      this.#making ??= this.#next().finally(() => {
        this.#making = null;
      });
      await this.#making;
    }
    return this.#names.at(-1) as string;
  }

  count(directory: string, status: Operation['status']): void {
    if (directory !== this.#names.at(-1)) return;
    this.#operations++;
    if (status === 'unknown') this.#unknown++;
  }

  async #next(): Promise<void> {
    const name = `d${this.#names.length + 1}`;
    await this.#make(name);
    this.#names.push(name);
    this.#operations = 0;
    this.#unknown = 0;
  }
}

export interface ActorParts {
  readonly name: string;
  readonly prng: Prng;
  readonly recorder: Recorder;
  readonly directories: Directories;
  /** How old the state that the mount shows may be, in nanoseconds. */
  readonly staleNs: number;
  /** Whether the mount shows the inode numbers of the cluster: with libfuse it does not. */
  readonly hasInodes: boolean;
  /** Counts of failed calls, by call and code. */
  readonly errors: Map<string, number>;
}

/** One program on one mount, which makes one call at a time. */
export class Actor {
  readonly #parts: ActorParts;
  readonly #caller: Caller;
  readonly #root: string;
  #count = 0;

  /** @param root the directory of its mount */
  constructor(root: string, parts: ActorParts) {
    this.#root = root;
    this.#parts = parts;
    this.#caller = new Caller(parts.errors);
  }

  /** Makes calls until `end`. */
  async run(): Promise<void> {
    while (!this.#caller.isOver) await this.#step(await this.#parts.directories.current());
  }

  /** Kills the program, which also ends a pending call. */
  async end(): Promise<void> {
    await this.#caller.end();
  }

  /** Reads the files of all names of a directory. */
  async survey(directory: string): Promise<void> {
    for (const name of NAMES) await this.#read(directory, name);
  }

  async #step(directory: string): Promise<void> {
    const { prng } = this.#parts;
    const name = prng.pick(NAMES);
    const steps: readonly (readonly [number, () => Promise<void>])[] = [
      [30, () => this.#read(directory, name)],
      [10, () => this.#look(directory, name)],
      [15, () => this.#createExclusively(directory, name)],
      [8, () => this.#link(directory, name)],
      // libfuse removes the name of an open file before the other file gets it.
      [this.#parts.hasInodes ? 8 : 0, () => this.#replace(directory, name)],
      [12, () => this.#overwrite(directory, name)],
      [15, () => this.#unlinkSome(directory)],
      [6, () => this.#rename(directory, name, prng.pick(NAMES.filter((other) => other !== name)))],
    ];
    let draw = prng.integer(
      1,
      steps.reduce((sum, [weight]) => sum + weight, 0),
    );
    for (const [weight, step] of steps) {
      draw -= weight;
      if (draw <= 0) return step();
    }
  }

  async #look(directory: string, name: string): Promise<void> {
    const call = this.#lookNs();
    const seen = await this.#call('ENOENT', 'stat', this.#path(directory, name), 'inode');
    if (seen.kind === 'unknown') return;
    this.#recordLookup(directory, name, seen.kind === 'ok' ? seen.value : null, call);
  }

  async #read(directory: string, name: string): Promise<void> {
    const inode = await this.#open(directory, name, 'rdonly');
    if (inode === null) return;
    const call = this.#lookNs();
    const read = await this.#call(null, 'pread', 'file', '64', '0');
    if (read.kind === 'ok')
      this.#recordContents(inode, { call, op: 'read', input: null, output: read.value || null }, 'ok');
    await this.#call(null, 'close', 'file');
  }

  async #overwrite(directory: string, name: string): Promise<void> {
    const inode = await this.#open(directory, name, 'wronly');
    if (inode !== null) await this.#writeAndClose(inode, true);
  }

  async #createExclusively(directory: string, name: string): Promise<void> {
    const call = nowNs();
    const path = this.#path(directory, name);
    const opened = await this.#call('EEXIST', 'open', 'file', path, 'wronly|creat|excl');
    const inode = opened.kind === 'ok' ? await this.#inode() : opened;
    const value = inode.kind === 'ok' ? inode.value : UNKNOWN_FILE;
    const outcome = { ok: true, no: false, unknown: null }[opened.kind];
    const create = { call, op: 'create' as const, input: { name, value }, output: outcome };
    this.#record(directory, create, outcome === null ? 'unknown' : 'ok');
    if (inode.kind === 'ok') await this.#writeAndClose(inode.value, this.#parts.prng.chance(0.5));
    else if (opened.kind === 'ok') await this.#call(null, 'close', 'file');
  }

  async #link(directory: string, name: string): Promise<void> {
    const made = await this.#ownFile();
    if (made === null) return;
    const call = nowNs();
    const linked = await this.#call('EEXIST', 'link', made.path, this.#path(directory, name));
    const output = { ok: true, no: false, unknown: null }[linked.kind];
    const create = { call, op: 'create' as const, input: { name, value: made.inode }, output };
    this.#record(directory, create, output === null ? 'unknown' : 'ok');
    await this.#call(null, 'unlink', made.path);
  }

  async #replace(directory: string, name: string): Promise<void> {
    const made = await this.#ownFile();
    if (made === null) return;
    const call = nowNs();
    const { kind } = await this.#call(null, 'rename', made.path, this.#path(directory, name));
    const replace = { call, op: 'replace' as const, input: { name, value: made.inode }, output: true };
    this.#record(directory, replace, kind === 'ok' ? 'ok' : 'unknown');
  }

  async #rename(directory: string, from: string, to: string): Promise<void> {
    const call = nowNs();
    const paths = [this.#path(directory, from), this.#path(directory, to)];
    // A kernel that has cached the old name of the same file answers a plain rename itself: both links stay.
    const noReplace = this.#parts.staleNs > 0;
    const { kind } = noReplace
      ? await this.#call('ENOENT EEXIST', 'rename-with', ...paths, RENAME_NOREPLACE)
      : await this.#call('ENOENT', 'rename', ...paths);
    const rename = { call, op: 'rename' as const, input: { from, to, noReplace }, output: kind === 'ok' };
    this.#record(directory, rename, kind === 'unknown' ? 'unknown' : 'ok');
  }

  /** An unlink counts as done once an fsync of its directory has succeeded. */
  async #unlinkSome(directory: string): Promise<void> {
    const { prng } = this.#parts;
    const names = prng.chance(0.5) ? [prng.pick(NAMES)] : NAMES;
    const calls: {
      readonly name: string;
      readonly call: number;
      readonly kind: Result['kind'];
      readonly endNs: number;
    }[] = [];
    for (const name of names) {
      const call = nowNs();
      const { kind } = await this.#call('ENOENT', 'unlink', this.#path(directory, name));
      calls.push({ name, call, kind, endNs: nowNs() });
    }
    const opened = await this.#call(null, 'open', 'directory', this.#path(directory), 'rdonly');
    const synced = opened.kind === 'ok' ? await this.#call(null, 'fsync', 'directory') : opened;
    if (opened.kind === 'ok') await this.#call(null, 'close', 'directory');
    for (const { name, call, kind, endNs } of calls) {
      const unlink = { call, op: 'unlink' as const, input: { name }, output: kind === 'ok' };
      if (kind === 'no') this.#record(directory, unlink, 'ok', endNs);
      else this.#record(directory, unlink, kind === 'ok' && synced.kind === 'ok' ? 'ok' : 'unknown');
    }
  }

  /** @returns a file with contents, under a name of its own, or null if a call failed */
  async #ownFile(): Promise<{ readonly path: string; readonly inode: string } | null> {
    const path = `${this.#root}/own-${this.#parts.name}-${++this.#count}`;
    if ((await this.#call(null, 'open', 'file', path, 'wronly|creat')).kind !== 'ok') return null;
    const inode = await this.#inode();
    if (inode.kind !== 'ok') return null;
    return (await this.#writeAndClose(inode.value, true)) ? { path, inode: inode.value } : null;
  }

  /** Opens a name as `file`, and records its file. @returns the inode number, or null if the file is not open */
  async #open(directory: string, name: string, flags: string): Promise<string | null> {
    const call = this.#lookNs();
    const opened = await this.#call('ENOENT', 'open', 'file', this.#path(directory, name), flags);
    if (opened.kind === 'no') this.#recordLookup(directory, name, null, call);
    if (opened.kind !== 'ok') return null;
    const endNs = nowNs();
    const inode = await this.#inode();
    if (inode.kind === 'ok') this.#recordLookup(directory, name, inode.value, call, endNs);
    else await this.#call(null, 'close', 'file');
    return inode.kind === 'ok' ? inode.value : null;
  }

  /** Writes a unique value to the open file. @returns whether the value is stored */
  async #writeAndClose(inode: string, isSynced: boolean): Promise<boolean> {
    const value = `${this.#parts.name}.${++this.#count}`.padEnd(24);
    const call = nowNs();
    const wrote = await this.#call(null, 'pwrite', 'file', value, '0');
    const synced = wrote.kind === 'ok' && isSynced ? await this.#call(null, 'fsync', 'file') : wrote;
    // A close without an error means that a majority has the earlier writes.
    const closed = await this.#call(null, 'close', 'file');
    const isStored = synced.kind === 'ok' && (isSynced || closed.kind === 'ok');
    const write = { call, op: 'write' as const, input: value, output: null };
    this.#recordContents(inode, write, isStored ? 'ok' : 'unknown');
    return isStored && closed.kind === 'ok';
  }

  #call(no: string | null, call: string, ...values: readonly string[]): Promise<Result> {
    return this.#caller.call(no, call, ...values);
  }

  /** @returns the inode number of the open `file` */
  async #inode(): Promise<Result> {
    if (!this.#parts.hasInodes) return { kind: 'ok', value: UNKNOWN_FILE };
    return this.#call(null, 'fstat', 'file', 'inode');
  }

  #path(...names: readonly string[]): string {
    return [this.#root, ...names].join('/');
  }

  /** @returns the earliest time whose state the next call may show */
  #lookNs(): number {
    return nowNs() - this.#parts.staleNs;
  }

  /** Without inode numbers only the absence of a name is recorded, as the file of a present name is not known. */
  #recordLookup(directory: string, name: string, output: string | null, call: number, endNs?: number): void {
    if (output !== null && !this.#parts.hasInodes) return;
    this.#record(directory, { call, op: 'lookup', input: { name }, output }, 'ok', endNs);
  }

  #record(
    directory: string,
    operation: Pick<Operation, 'call'> & {
      readonly op: string;
      readonly input: unknown;
      readonly output: unknown;
    },
    status: Operation['status'],
    endNs = nowNs(),
  ): void {
    this.#parts.directories.count(directory, status);
    // A refusal by the kernel itself depends on what it has cached.
    const isRefused = operation.output === false && status === 'ok';
    const call = isRefused ? operation.call - this.#parts.staleNs : operation.call;
    this.#write(`directory/${directory}`, { ...operation, call }, status, endNs);
  }

  #recordContents(
    inode: string,
    operation: Pick<Operation, 'call'> & {
      readonly op: string;
      readonly input: unknown;
      readonly output: unknown;
    },
    status: Operation['status'],
  ): void {
    this.#write(`object/${inode}`, operation, status, nowNs());
  }

  #write(key: string, operation: object, status: Operation['status'], endNs: number): void {
    const { name: client, recorder } = this.#parts;
    const end = status === 'ok' ? endNs : null;
    recorder.record({ client, key, status, return: end, ...operation } as Operation);
  }
}

/**
 * Replaces the inode numbers of look-ups that no known creation has: those files are of creations with an unknown
 * outcome.
 */
export function withUnknownFiles(operations: readonly Operation[]): Operation[] {
  const known = new Set(
    operations.flatMap(({ op, input }) => (op === 'create' || op === 'replace' ? [input.value] : [])),
  );
  return operations.map((operation) =>
    operation.op === 'lookup' && operation.output !== null && !known.has(operation.output)
      ? { ...operation, output: UNKNOWN_FILE }
      : operation,
  );
}

/**
 * Adds the file to writes and reads without an inode number. Each value is written once, so the file is the one in
 * which a mount with inode numbers wrote or read the value. A write whose value no such mount knows is left out, as is
 * a read of nothing.
 */
export function withKnownContents(operations: readonly Operation[]): Operation[] {
  const keys = new Map<string, string>();
  for (const { key, op, input, output } of operations) {
    if (key === UNKNOWN_CONTENTS) continue;
    if (op === 'write') keys.set(input, key);
    else if (op === 'read' && typeof output === 'string' && !keys.has(output)) keys.set(output, key);
  }
  return operations.flatMap((operation) => {
    if (operation.key !== UNKNOWN_CONTENTS) return [operation];
    const value = operation.op === 'write' ? operation.input : operation.output;
    const key = typeof value === 'string' ? keys.get(value) : undefined;
    return key === undefined ? [] : [{ ...operation, key }];
  });
}

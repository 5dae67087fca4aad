import {
  appendFileSync,
  chmodSync,
  closeSync,
  fstatSync,
  fsyncSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmdirSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { Prng } from '../../base/prng.ts';

export interface MirrorOptions {
  readonly seed: number;
  readonly steps: number;
  /** How long a mount may answer cached names and attributes after a change by another mount; 0: not at all. */
  readonly ttlMs: number;
  /** The kernel identifies an open file by its path, also after another mount has changed what has that path. */
  readonly isByPath: boolean;
}

const FOLDERS = ['one', 'two'];
const NAMES = ['a', 'b', 'c', 'd', 'ä'];
/**
 * Names of directories only: if a name changed its kind, a path through it could lead to the earlier inode for a
 * while.
 */
const FOLDER_NAMES = ['m', 'n'];
const BYTES_MAX = 5_000;
/** More than a file can be created with. */
const LARGE_BYTES = 300 * 1024;
/** How late the kernel may receive an answer and drop it. */
const SLACK_MS = 60;
const HISTORY_LENGTH = 25;

/** A file that is open on a mount and on the local disk during other calls. */
interface Held {
  readonly mount: number;
  readonly there: number;
  readonly here: number;
  readonly inode: number;
  /** The kernel may query another file instead of this one. */
  isDoubtful: boolean;
}

/**
 * Plays random calls on several mounts of one volume, and each at once on a local directory, which is the model. An
 * open must read what the model has. Names and attributes must agree after the caching time, and at once on the mount
 * that has changed them.
 */
export class Mirror {
  readonly #mounts: readonly string[];
  readonly #local: string;
  readonly #options: MirrorOptions;
  readonly #prng: Prng;
  readonly #history: string[] = [];
  /** When each mount has last changed something. */
  readonly #changedMs: number[];
  /** When each mount has last used a path. */
  readonly #touchedMs = new Map<string, number>();
  readonly #held: Held[] = [];
  #failure: string | null = null;
  /** The number of calls by kind. */
  readonly counts = new Map<string, number>();

  /** @param local an empty directory */
  constructor(mounts: readonly string[], local: string, options: MirrorOptions) {
    this.#mounts = mounts;
    this.#local = local;
    this.#options = options;
    this.#prng = new Prng(options.seed);
    this.#changedMs = mounts.map(() => Number.NEGATIVE_INFINITY);
  }

  /** @returns the first difference from the model, with the calls before it; null if there is none */
  run(): string | null {
    for (const folder of FOLDERS) this.#change(0, 'mkdir', folder, (path) => mkdirSync(path));
    this.#pause(this.#options.ttlMs + SLACK_MS);
    for (let step = 0; step < this.#options.steps && this.#failure === null; step++) this.#step(step);
    while (this.#held.length > 0) this.#release();
    if (this.#failure === null) return null;
    return `seed ${this.#options.seed}: ${this.#failure}\n${this.#history.slice(-HISTORY_LENGTH).join('\n')}\n`;
  }

  #step(step: number): void {
    const prng = this.#prng;
    this.#wait();
    const mount = prng.integer(0, this.#mounts.length - 1);
    const path = this.#drawPath();
    // A call by name depends on what the mount has cached of the name.
    if (this.#isSettled(mount) && prng.chance(0.5)) this.#playName(mount, path);
    else this.#playOpen(mount, path, step);
    this.#look(path);
  }

  /** An open uses the file that has the name now. */
  #playOpen(mount: number, path: string, step: number): void {
    const prng = this.#prng;
    if (this.#isHeldElsewhere(mount, path)) return;
    const bytes = bytesOf(step, prng.chance(0.03) ? LARGE_BYTES : prng.integer(0, BYTES_MAX));
    const at = prng.integer(0, BYTES_MAX);
    prng.pick([
      () => this.#change(mount, 'put', path, (file) => writeFileSync(file, bytes)),
      () => this.#change(mount, 'append', path, (file) => appendFileSync(file, bytes)),
      () => this.#change(mount, 'rewrite', path, (file) => rewrite(file, bytes, at)),
      () => this.#hold(mount, path),
      () => this.#learn(mount),
      () => this.#writeHeld(bytes, at),
      () => this.#release(),
    ])();
  }

  #playName(mount: number, path: string): void {
    const prng = this.#prng;
    const other = this.#drawPath();
    const folder = join(prng.pick(FOLDERS), prng.pick(FOLDER_NAMES));
    const size = prng.integer(0, BYTES_MAX);
    const at = (root: string): string => join(root, other);
    if (this.#options.isByPath) for (const held of this.#held) held.isDoubtful ||= held.mount !== mount;
    const all = NAMES.map((name) => join(prng.pick(FOLDERS), name));
    prng.pick([
      () => this.#change(mount, 'make', path, (file) => closeSync(openSync(file, 'wx'))),
      () => this.#change(mount, 'unlink', path, (file) => unlinkSync(file)),
      () => {
        for (const each of all) this.#change(mount, 'unlink', each, (file) => unlinkSync(file));
      },
      () => this.#change(mount, `rename to ${other} of`, path, (file, root) => renameSync(file, at(root))),
      () => this.#change(mount, `link to ${other} of`, path, (file, root) => linkSync(file, at(root))),
      () => this.#change(mount, 'chmod', path, (file) => chmodSync(file, 0o600 + (size % 64))),
      () => {
        if (!this.#isHeldElsewhere(mount, path))
          this.#change(mount, 'truncate', path, (file) => truncateSync(file, size));
      },
      () => this.#change(mount, 'mkdir', folder, (file) => mkdirSync(file)),
      () => this.#change(mount, 'rmdir', folder, (file) => rmdirSync(file)),
    ])();
    this.#stat(mount, other);
    this.#stat(mount, folder);
  }

  #hold(mount: number, path: string): void {
    if (this.#held.length >= this.#mounts.length) this.#release();
    const here = attempt(() => openSync(join(this.#local, path), 'r+'));
    const there = attempt(() => openSync(join(this.#mounts[mount] as string, path), 'r+'));
    this.#touch(mount, path);
    this.#note(mount, 'open', path, `${here.code}`);
    if (here.code !== there.code) this.#fail('open', path, there.code, here.code);
    if (here.value === undefined || there.value === undefined) return;
    this.#held.push({
      mount,
      there: there.value,
      here: here.value,
      inode: fstatSync(here.value).ino,
      isDoubtful: false,
    });
  }

  /**
   * The mount caches all existing names, some of them twice. The results are not compared, as they may be outdated.
   */
  #learn(mount: number): void {
    for (const folder of FOLDERS) {
      const root = join(this.#mounts[mount] as string, folder);
      for (const name of readdirSync(root)) attempt(() => lstatSync(join(root, name)));
      for (const name of NAMES) this.#touch(mount, join(folder, name));
    }
    this.#note(mount, 'learn', '', '');
  }

  #writeHeld(bytes: Buffer, at: number): void {
    const held = this.#held[0];
    if (held === undefined) return;
    const { mount, there, here, isDoubtful } = held;
    this.#note(mount, 'write to what is open', '', `${bytes.length} at ${at}`);
    for (const handle of [there, here]) writeSync(handle, bytes, 0, bytes.length, at);
    this.#changedMs[mount] = performance.now();
    if (isDoubtful) return;
    const [is, should] = [there, here].map((handle) => `${fstatSync(handle).size} bytes`);
    if (is !== should) this.#fail('write to what is open', '', is, should);
  }

  #release(): void {
    const held = this.#held.shift();
    if (held === undefined) return;
    const { mount, there, here, isDoubtful } = held;
    if (this.#prng.chance(0.2)) fsyncSync(there);
    const [is, should] = isDoubtful ? [] : [there, here].map(contentsOfHandle);
    for (const handle of [there, here]) closeSync(handle);
    this.#note(mount, 'close what is open', '', '');
    this.#changedMs[mount] = performance.now();
    if (is !== should) this.#fail('read of what was open', '', is, should);
  }

  /** Compares what a random mount shows now. */
  #look(path: string): void {
    const prng = this.#prng;
    const mount = prng.integer(0, this.#mounts.length - 1);
    if (!this.#isHeldElsewhere(mount, path)) this.#compare(mount, 'read', path, contentsOf);
    if (!this.#isSettled(mount)) return;
    this.#stat(mount, path);
    const folder = prng.pick(FOLDERS);
    this.#compare(mount, 'readdir', folder, listOf);
    if (!prng.chance(0.2)) return;
    for (const name of readdirSync(join(this.#local, folder))) this.#stat(mount, join(folder, name));
  }

  #stat(mount: number, path: string): void {
    if (!this.#isHeldElsewhere(mount, path)) this.#compare(mount, 'lstat', path, statOf);
  }

  /**
   * Waits for a random time: none, a moment, until just around the end of a path's caching time, or until after it.
   */
  #wait(): void {
    const { ttlMs } = this.#options;
    const draw = this.#prng.integer(0, 99);
    if (draw < 15) this.#pause(this.#prng.integer(0, 60));
    else if (draw < 25) this.#pause(ttlMs === 0 ? 0 : ttlMs + SLACK_MS);
    else if (draw < 40 && ttlMs > 0) this.#lookAtTheEnd();
  }

  /** Opens a path just before its caching time ends on the mount, at that moment, or just after it. */
  #lookAtTheEnd(): void {
    const prng = this.#prng;
    const mount = prng.integer(0, this.#mounts.length - 1);
    const path = this.#drawPath();
    const touchedMs = this.#touchedMs.get(`${mount} ${path}`);
    if (touchedMs === undefined || this.#isHeldElsewhere(mount, path)) return;
    this.#pause(touchedMs + this.#options.ttlMs + prng.integer(-15, 25) / 10 - performance.now());
    this.#compare(mount, 'read', path, contentsOf);
  }

  #drawPath(): string {
    return join(this.#prng.pick(FOLDERS), this.#prng.pick(NAMES));
  }

  /** @returns whether the mount must know all changes by others */
  #isSettled(mount: number): boolean {
    const { ttlMs } = this.#options;
    if (ttlMs === 0) return true;
    const sinceMs = performance.now() - ttlMs - SLACK_MS;
    return this.#changedMs.every((changedMs, other) => other === mount || changedMs < sinceMs);
  }

  /** @returns whether another mount has the file open, and may have unsent writes */
  #isHeldElsewhere(mount: number, path: string): boolean {
    if (this.#held.every((held) => held.mount === mount)) return false;
    const { value } = attempt(() => lstatSync(join(this.#local, path)).ino);
    return this.#held.some((held) => held.mount !== mount && held.inode === value);
  }

  #change(mount: number, what: string, path: string, act: (path: string, root: string) => unknown): void {
    this.#compare(mount, what, path, (file, root) => `${act(file, root) ?? 'done'}`);
    this.#changedMs[mount] = performance.now();
  }

  #compare(mount: number, what: string, path: string, act: (path: string, root: string) => string): void {
    if (this.#failure !== null) return;
    const [is, should] = [this.#mounts[mount] as string, this.#local].map((root) => {
      const { value, code } = attempt(() => act(join(root, path), root));
      return value ?? code;
    });
    this.#touch(mount, path);
    this.#note(mount, what, path, `${should}`);
    if (is !== should) this.#fail(`${what} on mount ${mount}`, path, is, should);
  }

  #touch(mount: number, path: string): void {
    this.#touchedMs.set(`${mount} ${path}`, performance.now());
  }

  #note(mount: number, what: string, path: string, outcome: string): void {
    const kind = what.split(' ')[0] as string;
    this.counts.set(kind, (this.counts.get(kind) ?? 0) + 1);
    this.#history.push(`${performance.now().toFixed(1)} mount ${mount}: ${what} ${path}: ${outcome}`);
    if (this.#history.length > 2 * HISTORY_LENGTH) this.#history.splice(0, HISTORY_LENGTH);
  }

  #fail(what: string, path: string, is: string | undefined, should: string | undefined): void {
    this.#failure ??= `${what} ${path}: ${is}, where the local disk has ${should}`;
  }

  #pause(ms: number): void {
    const untilMs = performance.now() + ms;
    // Busy waiting: the next call is made at an exact time, and no other work runs meanwhile.
    while (performance.now() < untilMs);
  }
}

function rewrite(path: string, bytes: Buffer, at: number): string {
  const handle = openSync(path, 'r+');
  try {
    writeSync(handle, bytes, 0, bytes.length, at);
    return `${fstatSync(handle).size} bytes`;
  } finally {
    closeSync(handle);
  }
}

function contentsOf(path: string): string {
  return described(readFileSync(path));
}

/** Reads up to the size and one byte more. */
function contentsOfHandle(handle: number): string {
  const { size } = fstatSync(handle);
  const bytes = Buffer.alloc(size + 1);
  return described(bytes.subarray(0, readSync(handle, bytes, 0, bytes.length, 0)));
}

/** @returns the runs of equal bytes, which name the steps that wrote them */
function described(bytes: Buffer): string {
  const runs: string[] = [];
  for (let at = 0; at < bytes.length; ) {
    let end = at;
    while (end < bytes.length && bytes[end] === bytes[at]) end++;
    runs.push(`${end - at}×${bytes[at]}`);
    at = end;
  }
  return `${bytes.length} bytes: ${runs.join(' ')}`;
}

function statOf(path: string): string {
  const stats = lstatSync(path);
  const mode = (stats.mode & 0o7777).toString(8);
  return stats.isDirectory()
    ? `directory ${mode}`
    : `file ${mode}, ${stats.size} bytes, ${stats.nlink} names`;
}

function listOf(path: string): string {
  const entries = readdirSync(path, { withFileTypes: true });
  return entries
    .map((entry) => `${entry.name}${entry.isDirectory() ? '/' : ''}`)
    .sort()
    .join(' ');
}

/** One byte value per step, so that outdated bytes are noticed. */
function bytesOf(step: number, length: number): Buffer {
  return Buffer.alloc(length, 1 + (step % 255));
}

function attempt<Value>(act: () => Value): { readonly value?: Value; readonly code: string } {
  try {
    return { value: act(), code: 'done' };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    return { code };
  }
}

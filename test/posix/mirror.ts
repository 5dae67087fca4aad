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
  /** For how long a mount may tell of names and attributes what another one has changed since; 0: not at all. */
  readonly ttlMs: number;
  /** The kernel takes a file that is open for the one that has its path now, where another mount has changed that. */
  readonly isByPath: boolean;
}

const FOLDERS = ['one', 'two'];
const NAMES = ['a', 'b', 'c', 'd', 'ä'];
/** What only directories are called: of a kind that has changed a path may lead to the one of a moment ago. */
const FOLDER_NAMES = ['m', 'n'];
const BYTES_MAX = 5_000;
/** More than what is borne with its name. */
const LARGE_BYTES = 300 * 1024;
/** What a mount was told takes so long to get to the kernel, and to be over there. */
const SLACK_MS = 60;
const HISTORY_LENGTH = 25;

/** A file that is open on a mount and on the local disk, while other calls go on. */
interface Held {
  readonly mount: number;
  readonly there: number;
  readonly here: number;
  readonly inode: number;
  /** The kernel may ask about another file in its place. */
  isDoubtful: boolean;
}

/**
 * Plays calls that are drawn from a seed on several mounts of one volume and, each at once, on a local directory, which is the model. What is
 * opened has to be what the model has, whoever changed it a moment ago; names and attributes have to be within their time, and at
 * once on the mount that has changed them.
 */
export class Mirror {
  readonly #mounts: readonly string[];
  readonly #local: string;
  readonly #options: MirrorOptions;
  readonly #prng: Prng;
  readonly #history: string[] = [];
  /** When each mount has changed something last. */
  readonly #changedMs: number[];
  /** When each mount has had to do with a path last. */
  readonly #touchedMs = new Map<string, number>();
  readonly #held: Held[] = [];
  #failure: string | null = null;
  /** How often each kind of call was played, or looked at. */
  readonly counts = new Map<string, number>();

  /** @param local an empty directory */
  constructor(mounts: readonly string[], local: string, options: MirrorOptions) {
    this.#mounts = mounts;
    this.#local = local;
    this.#options = options;
    this.#prng = new Prng(options.seed);
    this.#changedMs = mounts.map(() => Number.NEGATIVE_INFINITY);
  }

  /** @returns what was otherwise than in the model, and the calls before; null where all was the same */
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
    // By its name a path is changed by whoever has to know what the name is.
    if (this.#isSettled(mount) && prng.chance(0.5)) this.#playName(mount, path);
    else this.#playOpen(mount, path, step);
    this.#look(path);
  }

  /** Whoever opens a file opens what has the name now. */
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

  /** The mount hears of all names that there are, and of some twice; what it may be wrong about is not looked at. */
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

  /** What is there now, seen from a mount that is drawn. */
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

  /** Nothing, a moment, until a mount is about to forget what it knows of a path, or until it has forgotten. */
  #wait(): void {
    const { ttlMs } = this.#options;
    const draw = this.#prng.integer(0, 99);
    if (draw < 15) this.#pause(this.#prng.integer(0, 60));
    else if (draw < 25) this.#pause(ttlMs === 0 ? 0 : ttlMs + SLACK_MS);
    else if (draw < 40 && ttlMs > 0) this.#lookAtTheEnd();
  }

  /** What a mount knows of a path is over just before it is opened there, at that moment, or just after. */
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

  /** Whether the mount has to know all that others have changed. */
  #isSettled(mount: number): boolean {
    const { ttlMs } = this.#options;
    if (ttlMs === 0) return true;
    const sinceMs = performance.now() - ttlMs - SLACK_MS;
    return this.#changedMs.every((changedMs, other) => other === mount || changedMs < sinceMs);
  }

  /** What is written to it there may be on its way still. */
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
    // Calls are made one after the other, and at a moment that is meant.
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

/** As far as its size says, and beyond. */
function contentsOfHandle(handle: number): string {
  const { size } = fstatSync(handle);
  const bytes = Buffer.alloc(size + 1);
  return described(bytes.subarray(0, readSync(handle, bytes, 0, bytes.length, 0)));
}

/** What was written by which steps, in which order, and how much of it. */
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

/** One byte for each step, so that what is old is seen. */
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

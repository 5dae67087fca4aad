import path from 'node:path';
import Database from 'better-sqlite3';
import { assert } from '../../../../base/assert.ts';
import type { Prng } from '../../../../base/prng.ts';
import { type Performed, performedBy } from './file-calls.ts';
import type { SimulatedDisk } from './guarded-files.ts';
import { undone } from './real-database.ts';
import { ForeignFile, inodeAt, pathOf, realFiles } from './real-files.ts';
import { StoredFiles } from './stored-files.ts';
import type { Loss } from './synced-bytes.ts';

const CONTAINERS = /(^|\/)objects\/.*[^/]$/;
const DATABASES = ['index.db', 'catalog.db'];
/** https://sqlite.org/fileformat2.html: what is at the begin of each page but the first. */
const PAGE_BYTES = 4_096;

/** The duration of a disk operation, in milliseconds. */
const OPERATION_MS = 0.05;
const SYNC_MS = 2;
/** The size of the disk, which is free unless `fill` says otherwise. */
const TOTAL_BYTES = 4 * 1024 ** 3;
const FREE_BYTES = 2 * 1024 ** 3;
const BLOCK_BYTES = 4_096;
/** The free space that a commit needs: a few pages, and what belongs to each. */
const COMMIT_BYTES = 16 * BLOCK_BYTES;

interface Failing {
  readonly access: Access;
  readonly of: RegExp;
}

/** Calls to which `failNext` applies. */
const FAILING = /^(read|writev?|fsync|fdatasync)$/;

/** The kind of a call. */
export type Access = 'read' | 'write' | 'sync';

/**
 * The disk of one server: a private folder in memory whose operations complete at virtual times. It can lose what was
 * not synced, be full, fail, be slow, and rot.
 */
export class PrivateDisk implements SimulatedDisk {
  readonly #root: string;
  readonly #random: Prng;
  readonly #fds = new Set<number>();
  readonly #databases = new Set<Database.Database>();
  readonly #files = new StoredFiles();
  readonly #failing: Failing[] = [];
  #life = 0;
  /** The free space of a full disk; null: there is enough. */
  #freeBytes: number | null = null;
  /** Each operation takes so many times as long. */
  slowness = 1;
  syncs = 0;
  /** A call of the present process has failed. */
  hasFailed = false;

  constructor(root: string, random: Prng) {
    this.#root = root;
    disks.add(this);
    this.#random = random;
    for (const folder of [this.folder, this.memory]) realFiles.mkdirSync(folder, { recursive: true });
    this.#files.begin(this.folder);
  }

  get folder(): string {
    return path.join(this.#root, String(this.#life));
  }

  /** The folder of files in memory, which a boot removes. */
  get memory(): string {
    return path.join(this.#root, 'memory');
  }

  // --- faults ------------------------------------------------------------------------------------------

  /** Sets the free space from now on; null ends that. */
  fill(freeBytes: number | null): void {
    this.#freeBytes = freeBytes;
  }

  /** Has the next call of this kind fail with `EIO`, once. @param of selects the files: all if absent */
  failNext(access: Access, of: RegExp = /^/): void {
    this.#failing.push({ access, of });
  }

  /** @returns whether a call of this kind on this file must fail now */
  #isFailing(access: Access, file: string): boolean {
    const due = this.#failing.findIndex((one) => one.access === access && one.of.test(file));
    if (due < 0) return false;
    this.#failing.splice(due, 1);
    this.hasFailed = true;
    return true;
  }

  /** Ends the effects of `fill`, `failNext` and `slowness`. */
  repair(): void {
    this.#freeBytes = null;
    this.#failing.length = 0;
    this.slowness = 1;
  }

  /** Flips bits of a container. @returns its name; null if there is none */
  rotContainer(random: Prng): string | null {
    const names = this.#names().filter((name) => CONTAINERS.test(name) && this.#sizeOf(name) > 0);
    if (names.length === 0) return null;
    const name = random.pick(names);
    this.#flip(name, random.integer(0, this.#sizeOf(name) - 1), random);
    return name;
  }

  /** Damages a page of a database while no process has it open. @returns its name; null if there is none */
  rotDatabase(random: Prng): string | null {
    const others = this.#names().filter((name) => name.endsWith('.db') && !DATABASES.includes(name));
    const names = [...DATABASES, ...others].filter((name) => this.#sizeOf(name) > 0);
    if (names.length === 0) return null;
    const name = random.pick(names);
    const pages = this.#sizeOf(name) / PAGE_BYTES;
    // The first page begins with SQLite's signature.
    this.#flip(name, random.chance(0.5) ? 0 : random.integer(0, pages - 1) * PAGE_BYTES, random);
    return name;
  }

  /**
   * Damages the root page of the catalog's names while no process has it open; copies the log back before, which may
   * have a newer one.
   *
   * @returns whether there is a catalog
   */
  damageNames(): boolean {
    const file = path.join(this.folder, 'catalog.db');
    if (this.#sizeOf('catalog.db') === 0) return false;
    const database = new Database(file, { fileMustExist: true });
    const root = database.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'entries'").pluck().get();
    database.close();
    // SQLite has removed the log, which the server expects.
    realFiles.writeFileSync(`${file}-wal`, '');
    const fd = realFiles.openSync(file, 'r+');
    realFiles.writeSync(fd, Buffer.from([0xff]), 0, 1, ((root as number) - 1) * PAGE_BYTES);
    realFiles.closeSync(fd);
    return true;
  }

  #names(): string[] {
    return (realFiles.readdirSync(this.folder, { recursive: true }) as string[]).sort();
  }

  #sizeOf(name: string): number {
    const found = realFiles.statSync(path.join(this.folder, name), { throwIfNoEntry: false });
    return found?.isFile() === true ? found.size : 0;
  }

  #flip(name: string, at: number, random: Prng): void {
    const fd = realFiles.openSync(path.join(this.folder, name), 'r+');
    const byte = Buffer.alloc(1);
    realFiles.readSync(fd, byte, 0, 1, at);
    byte[0] = (byte[0] as number) ^ (1 << random.integer(0, 7));
    realFiles.writeSync(fd, byte, 0, 1, at);
    realFiles.closeSync(fd);
  }

  // --- calls of processes --------------------------------------------------------------------------------

  delayMs(access: Access): number {
    return (access === 'sync' ? SYNC_MS : OPERATION_MS) * (0.2 + 1.6 * this.#random.next()) * this.slowness;
  }

  call(name: string, args: readonly unknown[], run: () => unknown): unknown {
    const performed = performedBy(name);
    for (const at of performed.paths) this.#assertOwn(args[at], performed.access);
    if (performed.access === 'sync') this.syncs++;
    this.#failIfDue(performed, name, args);
    return performed.perform(this, args, run);
  }

  /** The synced state of the files; for the calls alone. */
  get files(): StoredFiles {
    return this.#files;
  }

  #assertOwn(given: unknown, access: Access): void {
    if (typeof given !== 'string') return;
    const file = path.resolve(given);
    if (`${file}/`.startsWith(`${this.folder}/`) || `${file}/`.startsWith(`${this.memory}/`)) return;
    // Programs and web pages of the working tree.
    if (access === 'read' && file.startsWith(`${PROGRAM}/`)) return;
    throw new ForeignFile(`${file}, outside of its folder`);
  }

  #failIfDue({ access }: Performed, name: string, args: readonly unknown[]): void {
    if (!FAILING.test(name)) return;
    if (this.#failing.length === 0 || !this.#isFailing(access, pathOf(args[0] as number))) return;
    if (access === 'sync') this.#files.dropped(args[0] as number);
    throw systemError('EIO', 'i/o error', -5, name);
  }

  /** @throws ENOSPC if there is too little free space */
  grow(bytes: number, name: string): void {
    if (this.#freeBytes === null || bytes <= 0) return;
    if (bytes > this.#freeBytes) throw systemError('ENOSPC', 'no space left on device', -28, name);
    this.#freeBytes -= bytes;
  }

  shrink(bytes: number): void {
    if (this.#freeBytes !== null) this.#freeBytes += Math.max(0, bytes);
  }

  get space(): object {
    const bavail = Math.floor((this.#freeBytes ?? FREE_BYTES) / BLOCK_BYTES);
    const blocks = TOTAL_BYTES / BLOCK_BYTES;
    return { type: 0, bsize: BLOCK_BYTES, blocks, bfree: bavail, bavail, files: 1e6, ffree: 1e6 };
  }

  opened(fd: number): void {
    this.#fds.add(fd);
  }

  closed(fd: number): void {
    this.#fds.delete(fd);
  }

  // --- databases -------------------------------------------------------------------------------------------

  used(database: Database.Database): void {
    if (this.#databases.has(database)) return;
    this.#assertOwn(database.name, 'write');
    this.#databases.add(database);
  }

  commit(database: Database.Database, run: () => unknown): unknown {
    if (this.#isFailing('write', database.name))
      throw undone(database, 'SQLITE_IOERR_WRITE', 'disk I/O error');
    if (this.#freeBytes === null) return run();
    if (this.#freeBytes < COMMIT_BYTES) throw undone(database, 'SQLITE_FULL', 'database or disk is full');
    const log = path.relative(this.folder, `${database.name}-wal`);
    const before = this.#sizeOf(log);
    const value = run();
    this.#freeBytes = Math.max(0, this.#freeBytes - (this.#sizeOf(log) - before));
    return value;
  }

  copyBack(database: Database.Database, isSynced: boolean, mayRemove: boolean, run: () => unknown): unknown {
    return this.#files.copyBack(database.name, isSynced, mayRemove, run);
  }

  databaseClosed(database: Database.Database): void {
    this.#databases.delete(database);
  }

  // --- lives -----------------------------------------------------------------------------------------------

  /** The process has ended: the next one finds what it wrote or, after a loss of power, what is left of it. */
  next(lostPower: boolean): void {
    const loss: Loss = this.#random.chance(0.4) ? 'all' : 'some';
    const before = this.folder;
    this.#life++;
    this.hasFailed = false;
    this.#failing.length = 0;
    if (lostPower) {
      this.#files.losePower(before, this.folder, loss, this.#random);
      realFiles.rmSync(this.memory, { recursive: true, force: true });
      realFiles.mkdirSync(this.memory);
    } else this.#files.move(before, this.folder, this.#random);
    this.#release();
    realFiles.rmSync(before, { recursive: true, force: true });
  }

  /** Replaces the disk by an empty one. */
  replace(): void {
    realFiles.rmSync(this.folder, { recursive: true, force: true });
    realFiles.mkdirSync(this.folder);
    this.#files.begin(this.folder);
  }

  /** Closes what an ended process has left open, as its kernel does. */
  #release(): void {
    for (const database of this.#databases) this.#files.abandon(database);
    this.#databases.clear();
    for (const fd of this.#fds) {
      try {
        realFiles.closeSync(fd);
      } catch {
        // Closed by a path that the guard does not follow.
      }
    }
    this.#fds.clear();
  }

  get root(): string {
    return this.#root;
  }

  /** Ends the disk at the end of the run. */
  close(): void {
    for (const file of this.#files.logsIn(this.folder)) realFiles.truncateSync(file, 0);
    this.#release();
    disks.delete(this);
  }
}

/** All disks in use; one run at a time has disks. */
const disks = new Set<PrivateDisk>();

/** Closes the disks below a folder. @throws if a file in it stays open: its memory would not be freed */
export function closeDisks(root: string): void {
  for (const disk of disks) if (disk.root.startsWith(`${root}/`)) disk.close();
  const open = realFiles
    .readdirSync('/proc/self/fd')
    // The descriptor that reads this directory is closed.
    .map((fd) =>
      inodeAt(`/proc/self/fd/${fd}`) === null ? '' : realFiles.readlinkSync(`/proc/self/fd/${fd}`),
    )
    .filter((file) => file.startsWith(`${root}/`));
  assert(open.length === 0, `Nothing of the disks is open at the end: ${open.join()}`);
}

const PROGRAM = path.resolve(import.meta.dirname, '../../../..');

function systemError(code: string, text: string, errno: number, syscall: string): Error {
  return Object.assign(new Error(`${code}: ${text}, ${syscall}`), { code, errno, syscall });
}

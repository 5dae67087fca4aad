import fs from 'node:fs';
import path from 'node:path';
import type { Prng } from '../../../base/prng.ts';
import type { SimulatedDisk } from './guarded-files.ts';

const realReadFile = fs.readFileSync;
const realClose = fs.closeSync;
const realOpen = fs.openSync;
/** https://sqlite.org/fileformat2.html#walformat */
const LOG_HEADER_BYTES = 32;

/** The log of a database as it was when it was synced last. */
interface SyncedLog {
  readonly bytes: number;
  /** Another one shows that the log was begun anew since. */
  readonly header: Buffer;
  /** When the database itself was changed last: SQLite syncs the log before it copies it there. */
  readonly databaseMs: number;
}

const CONTAINERS = /(^|\/)objects\//;
const DATABASE = /\.db(-wal)?$/;
/** Replaced as a whole, or of no use to the next life. */
const VOLATILE = /(^|\/)lock\.|-shm$|\.new$/;

/** Where a disk's operations take their time, in milliseconds. */
const OPERATION_MS = 0.05;
const SYNC_MS = 2;

/**
 * The disk of one server: a private folder in memory whose operations complete at virtual times. Each life of the server
 * has a copy of its own, so that what an ended process left open touches nothing.
 */
export class PrivateDisk implements SimulatedDisk {
  readonly #root: string;
  readonly #random: Prng;
  readonly #fds = new Set<number>();
  /** By container, relative to the folder: what a loss of power leaves. */
  #synced = new Map<string, Buffer>();
  /** By database: how far its log was synced. */
  readonly #logs = new Map<string, SyncedLog>();
  /** The same at the end of the process. */
  readonly #lost = new Map<string, SyncedLog>();
  #life = 0;
  /** Writes fail with `ENOSPC`. */
  isFull = false;
  /** Each operation takes so many times as long. */
  slowness = 1;
  syncs = 0;

  constructor(root: string, random: Prng) {
    this.#root = root;
    this.#random = random;
    fs.mkdirSync(this.folder, { recursive: true });
  }

  get folder(): string {
    return path.join(this.#root, String(this.#life));
  }

  check(file: string): void {
    if (file.startsWith(this.folder) || file.startsWith('/proc/')) return;
    throw new Error(`A simulated process reached for ${file}, outside of its folder`);
  }

  begin(operation: string): number {
    const isSync = operation.endsWith('sync');
    if (this.isFull && /^(write|append)/.test(operation)) {
      const message = `ENOSPC: no space left on device, ${operation}`;
      throw Object.assign(new Error(message), { code: 'ENOSPC', errno: -28, syscall: operation });
    }
    return (isSync ? SYNC_MS : OPERATION_MS) * (0.2 + 1.6 * this.#random.next()) * this.slowness;
  }

  opened(fd: number): void {
    this.#fds.add(fd);
  }

  closed(fd: number): void {
    this.#fds.delete(fd);
  }

  synced(fd: number): void {
    this.syncs++;
    const file = fs.readlinkSync(`/proc/self/fd/${fd}`);
    if (!file.startsWith(this.folder)) return;
    const name = path.relative(this.folder, file);
    if (CONTAINERS.test(name)) this.#keep(name);
    else if (DATABASE.test(name)) {
      const database = name.replace(/-wal$/, '');
      this.#logs.set(database, this.#logOf(database));
    }
  }

  #logOf(database: string): SyncedLog {
    const file = path.join(this.folder, database);
    const log = `${file}-wal`;
    const header = Buffer.alloc(LOG_HEADER_BYTES);
    let bytes = 0;
    try {
      const fd = realOpen(log, 'r');
      fs.readSync(fd, header, 0, LOG_HEADER_BYTES, 0);
      bytes = fs.fstatSync(fd).size;
      realClose(fd);
    } catch {
      // There is none before the first transaction.
    }
    const { mtimeMs } = fs.statSync(file);
    return { bytes, header, databaseMs: mtimeMs };
  }

  #keep(name: string): void {
    try {
      this.#synced.set(name, realReadFile(path.join(this.folder, name)) as Buffer);
    } catch {
      this.#synced.delete(name);
    }
  }

  /** The process that had the disk has ended: the next one finds what it wrote, or what it had synced where the power was lost. */
  next(lostPower: boolean): void {
    for (const fd of this.#fds) {
      try {
        realClose(fd);
      } catch {
        // Closed by a path that the guard does not follow.
      }
    }
    this.#fds.clear();
    const before = this.folder;
    const names = (fs.readdirSync(before, { recursive: true, withFileTypes: true }) as fs.Dirent[])
      .map((entry) => ({ entry, name: path.relative(before, path.join(entry.parentPath, entry.name)) }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
    this.#lost.clear();
    for (const database of this.#logs.keys()) this.#lost.set(database, this.#logOf(database));
    this.#life++;
    fs.mkdirSync(this.folder);
    for (const { entry, name } of names) {
      const target = path.join(this.folder, name);
      if (entry.isDirectory()) fs.mkdirSync(target);
      else if (!VOLATILE.test(name)) this.#restore(path.join(before, name), target, name, lostPower);
    }
    if (lostPower) {
      const kept = new Map<string, Buffer>();
      for (const [name, bytes] of this.#synced)
        if (fs.existsSync(path.join(this.folder, name))) kept.set(name, bytes);
      this.#synced = kept;
    }
    for (const [database, synced] of this.#logs) {
      const lost = this.#lost.get(database);
      const copy = this.#logOf(database);
      const isSame = lost !== undefined && isUnchanged(synced, lost);
      // A copy has another time. After a loss of power what there is is synced as a whole.
      this.#logs.set(database, isSame && !lostPower ? { ...synced, databaseMs: copy.databaseMs } : copy);
    }
    fs.rmSync(before, { recursive: true, force: true });
  }

  #restore(from: string, to: string, name: string, lostPower: boolean): void {
    if (!lostPower || !(CONTAINERS.test(name) || DATABASE.test(name))) {
      fs.copyFileSync(from, to);
      return;
    }
    if (DATABASE.test(name)) {
      fs.copyFileSync(from, to);
      if (name.endsWith('-wal')) this.#tear(name, to);
      return;
    }
    const synced = this.#synced.get(name);
    if (synced !== undefined) fs.writeFileSync(to, synced);
    // A file that was never synced is gone, or there with whatever the kernel wrote of it.
    else if (this.#random.chance(0.5)) {
      const bytes = fs.readFileSync(from);
      const whole = bytes.subarray(0, Math.floor(this.#random.next() * (bytes.length + 1)));
      fs.writeFileSync(to, whole);
    }
  }

  /** Cuts off what was not synced, at any byte of it. */
  #tear(name: string, to: string): void {
    const database = name.replace(/-wal$/, '');
    const synced = this.#logs.get(database);
    const now = this.#lost.get(database);
    if (synced === undefined || now === undefined) return;
    if (!isUnchanged(synced, now)) return;
    const kept = this.#random.chance(0.5)
      ? 0
      : Math.floor(this.#random.next() * (now.bytes - synced.bytes + 1));
    fs.truncateSync(to, synced.bytes + kept);
  }
}

function isUnchanged(synced: SyncedLog, now: SyncedLog): boolean {
  return synced.header.equals(now.header) && synced.databaseMs === now.databaseMs;
}

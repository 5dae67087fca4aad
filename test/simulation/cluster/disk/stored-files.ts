import path from 'node:path';
import type Database from 'better-sqlite3';
import type { Prng } from '../../../../base/prng.ts';
import { realDatabase } from './real-database.ts';
import { inodeAt, pathOf, realFiles } from './real-files.ts';
import { type Loss, SyncedBytes } from './synced-bytes.ts';
import { readerOf, SyncedLog } from './synced-log.ts';
import { SyncedNames } from './synced-names.ts';

const LOG = /-wal$/;
/** SQLite creates it again. */
const LOG_INDEX = /-shm$/;
/** Open connections keep these files, so the next process gets copies. */
const OF_DATABASE = /\.db(-wal|\.(snapshot|incoming)-\d+(-wal)?)?$/;

/** A file that was unlinked since the directory was synced, and may be there again after a loss of power. */
interface Nameless {
  readonly directory: number | null;
  readonly bytes: Buffer;
}

/** What of a folder survives a loss of power: bytes, logs of databases, and names. */
export class StoredFiles {
  #names = new SyncedNames();
  /** By inode. */
  readonly #bytes = new Map<number, SyncedBytes>();
  readonly #logs = new Map<number, SyncedLog>();
  readonly #nameless = new Map<number, Nameless>();
  /**
   * Inodes of which a sync has failed: the kernel has dropped what was not synced, and reports no further failure.
   */
  readonly #dropped = new Set<number>();

  // --- calls of processes --------------------------------------------------------------------------------

  /** Runs a call that creates, moves or removes names. @param lost a file that loses its last name */
  names<Value>(paths: readonly string[], lost: string | null, run: () => Value): Value {
    if (lost !== null) this.#keepNameless(lost);
    return this.#names.follow(paths, run);
  }

  /** Call it before bytes of an open file change. */
  changes(fd: number, position: number, length: number): void {
    this.#bytes.get(realFiles.fstatSync(fd).ino)?.changes(fd, position, length);
  }

  synced(fd: number): void {
    const found = realFiles.fstatSync(fd);
    const { ino, size, nlink } = found;
    if (this.#dropped.has(ino) || nlink === 0) return;
    if (found.isDirectory()) {
      this.#names.synced(pathOf(fd));
      for (const [nameless, { directory }] of this.#nameless)
        if (directory === ino) this.#nameless.delete(nameless);
    } else if (this.#isLog(fd, ino)) this.#logOf(ino).synced(readerOf(fd), size);
    else this.#bytesOf(ino).synced(size);
  }

  #isLog(fd: number, inode: number): boolean {
    return this.#logs.has(inode) || (!this.#bytes.has(inode) && LOG.test(pathOf(fd)));
  }

  dropped(fd: number): void {
    this.#dropped.add(realFiles.fstatSync(fd).ino);
  }

  #bytesOf(inode: number): SyncedBytes {
    let bytes = this.#bytes.get(inode);
    if (bytes === undefined) {
      bytes = new SyncedBytes(0);
      this.#bytes.set(inode, bytes);
    }
    return bytes;
  }

  #logOf(inode: number): SyncedLog {
    let log = this.#logs.get(inode);
    if (log === undefined) {
      log = new SyncedLog();
      this.#logs.set(inode, log);
    }
    return log;
  }

  /** Keeps a file whose inode may be removed by the next call, and whose name a loss of power may restore. */
  #keepNameless(file: string): void {
    const found = realFiles.lstatSync(file, { throwIfNoEntry: false });
    if (found?.isFile() !== true || found.nlink > 1) return;
    if (!this.#bytes.has(found.ino) && !this.#logs.has(found.ino)) return;
    const bytes = this.#left(file, found.ino, 'all', null);
    this.#nameless.set(found.ino, { directory: inodeAt(path.dirname(file)), bytes });
  }

  // --- databases -------------------------------------------------------------------------------------------

  /**
   * Runs a call of SQLite that writes to the database file, such as copying the log back: it syncs the log before and
   * the database afterwards, unless its syncs are off.
   * @param mayRemove whether it may remove the log
   */
  copyBack(file: string, isSynced: boolean, mayRemove: boolean, run: () => unknown): unknown {
    const log = `${file}-wal`;
    if (isSynced) this.#syncedAt(log);
    else this.#changesAt(file);
    if (mayRemove) this.#keepNameless(log);
    const value = run();
    if (isSynced) this.#syncedAt(file);
    return value;
  }

  #syncedAt(file: string): void {
    this.#withOpen(file, (fd) => this.synced(fd));
  }

  #changesAt(file: string): void {
    this.#withOpen(file, (fd) => this.changes(fd, 0, realFiles.fstatSync(fd).size));
  }

  #withOpen(file: string, use: (fd: number) => void): void {
    if (inodeAt(file) === null) return;
    const fd = realFiles.openSync(file, 'r');
    use(fd);
    realFiles.closeSync(fd);
  }

  /**
   * Closes a connection of an ended process; its files are copied already, and its log is empty, so that SQLite copies
   * nothing back.
   */
  abandon(database: Database.Database): void {
    if (!database.open) return;
    realDatabase.close.call(database);
  }

  // --- lives -----------------------------------------------------------------------------------------------

  /** All files in the folder are synced. */
  begin(folder: string): void {
    this.#names = new SyncedNames();
    for (const map of [this.#bytes, this.#logs, this.#nameless, this.#dropped]) map.clear();
    this.#names.synced(folder);
    for (const file of filesBelow(folder)) {
      const found = realFiles.lstatSync(file);
      if (found.isDirectory()) this.#names.synced(file);
      else if (LOG.test(file)) this.#syncedAt(file);
      else this.#bytesOf(found.ino).synced(found.size);
    }
  }

  /** The next process finds all that this one wrote, except what the kernel has dropped. */
  move(before: string, folder: string, random: Prng): void {
    realFiles.renameSync(before, folder);
    for (const file of filesBelow(folder)) {
      const found = realFiles.lstatSync(file);
      if (LOG_INDEX.test(file)) realFiles.unlinkSync(file);
      else if (found.isFile() && this.#dropped.has(found.ino))
        this.#replace(file, this.#left(file, found.ino, 'some', random), found.ino);
      else if (OF_DATABASE.test(file)) this.#replace(file, realFiles.readFileSync(file), found.ino);
    }
    this.#dropped.clear();
  }

  /** Replaces a file that the ended process may have open by a copy. */
  #replace(file: string, bytes: Buffer, inode: number): void {
    if (LOG.test(file)) realFiles.truncateSync(file, 0);
    realFiles.unlinkSync(file);
    realFiles.writeFileSync(file, bytes, { mode: 0o600 });
    const fresh = inodeAt(file) as number;
    this.#names.renumber(inode, fresh);
    const known = this.#bytes.get(inode);
    const log = this.#logs.get(inode);
    if (known !== undefined) this.#bytes.set(fresh, known);
    if (log !== undefined) this.#logs.set(fresh, log);
    this.#bytes.delete(inode);
    this.#logs.delete(inode);
    if (this.#dropped.has(inode)) this.#bytesOf(fresh).synced(bytes.length);
  }

  /** The next process finds what a loss of power left. */
  losePower(before: string, folder: string, loss: Loss, random: Prng): void {
    const places = new Map<number, string>();
    for (const file of filesBelow(before)) places.set(inodeAt(file) as number, file);
    const build = (from: string, to: string): void => {
      realFiles.mkdirSync(to, { mode: 0o700 });
      for (const [name, inode] of this.#names.afterLoss(from, loss, random)) {
        const place = places.get(inode);
        const target = path.join(to, name);
        if (LOG_INDEX.test(name)) continue;
        if (place === undefined) {
          const bytes = this.#nameless.get(inode)?.bytes;
          if (bytes !== undefined) realFiles.writeFileSync(target, bytes, { mode: 0o600 });
          continue;
        }
        const found = realFiles.lstatSync(place);
        if (found.isDirectory()) build(place, target);
        else if (found.nlink === 1 && !OF_DATABASE.test(name) && this.#bytes.get(inode)?.isWhole(found.size))
          // No process has it open any more; its earlier name is removed with the earlier folder.
          realFiles.linkSync(place, target);
        else realFiles.writeFileSync(target, this.#left(place, inode, loss, random), { mode: 0o600 });
      }
    };
    build(before, folder);
    for (const file of this.logsIn(before)) realFiles.truncateSync(file, 0);
    this.begin(folder);
  }

  /** @returns the logs of databases; if they are emptied, a connection of an ended process copies nothing back */
  logsIn(folder: string): string[] {
    return filesBelow(folder).filter((file) => LOG.test(file));
  }

  /** @param random null: nothing that was not synced is left */
  #left(file: string, inode: number, loss: Loss, random: Prng | null): Buffer {
    const now = realFiles.readFileSync(file) as Buffer;
    const drawn = random ?? { chance: () => false };
    return LOG.test(file)
      ? this.#logOf(inode).afterLoss(now, loss, drawn as Prng)
      : this.#bytesOf(inode).afterLoss(now, loss, drawn as Prng);
  }
}

/** In the order of their names. */
function filesBelow(folder: string): string[] {
  const names = realFiles.readdirSync(folder, { recursive: true }) as string[];
  return names.sort().map((name) => path.join(folder, name));
}

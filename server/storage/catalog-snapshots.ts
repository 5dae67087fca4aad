import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { assert } from '../../base/assert.ts';
import { reserveBytes } from '../../base/disk-reserve.ts';
import { ServiceError } from '../../base/errors.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { type CatalogRecord, readRecord } from './catalog-database.ts';
import {
  COMPARED_RANGES_MAX,
  DamagedPage,
  FETCHED_PAGES_MAX,
  fetchPages,
  HASH_BYTES,
  hashAt,
  PAGE_BYTES,
  type PageRead,
  type PageSource,
  pageHashes,
  RANGE_BYTES,
  rangeHash,
  readFully,
  type TransferCounts,
} from './catalog-pages.ts';
import type { CatalogSnapshot, StagedCatalog } from './catalog-transfer.ts';
import { isCorruption, isNoSpace, storageError } from './failures.ts';

/** Snapshots that are kept open for replicas that fetch them; the oldest is closed first. */
const SNAPSHOTS_MAX = 4;
/** Pages per step of a copy: a few milliseconds of the event loop. */
const SNAPSHOT_STEP_PAGES = 1000;

/** For this time after a check has found no damage, damage that other replicas find in copies counts as theirs. */
const SOUND_MS = 3_600_000;

/** The file `catalog.db` while it does not change, because all is in it and nothing is copied back from the log. */
export interface FrozenDatabase {
  readonly record: CatalogRecord;
  readonly bytes: number;
  readonly read: PageRead;
  end(): void;
}

/** The database, in a read transaction. */
interface OpenSource {
  readonly source: Database.Database;
  readonly record: CatalogRecord;
  /** Size of its copy. */
  readonly bytes: number;
}

interface SnapshotParts {
  nowMs(): number;
  /** @returns null if the file cannot be frozen soon */
  freeze(): Promise<FrozenDatabase | null>;
  /** Reads a whole database. @returns the first damage, or null */
  check(file: string): Promise<string | null>;
}

interface Snapshot {
  readonly file: string;
  readonly handle: fs.promises.FileHandle;
  readonly size: number;
  /** How much of it is there: it is read from its beginning while it is copied. */
  bytes: number;
  /** Resolves when there is more; rejects if the copy was aborted. */
  more: PromiseWithResolvers<void>;
}

const COPY_BYTES = 1024 * 1024;

/** Another replica's snapshot, as it arrived, has a damaged page. */
export class DamagedCopy extends ServiceError {
  constructor(damage: string) {
    super('storage', `The copy is damaged: ${damage}`);
  }
}

/** Snapshots beside one `catalog.db`. `endCopies` has to be called before the database is replaced or closed. */
export class CatalogSnapshots {
  readonly #path: string;
  readonly #parts: SnapshotParts;
  #soundUntilMs = -Infinity;
  readonly #snapshots = new Map<number, Snapshot>();
  readonly #removals = new Set<Promise<void>>();
  readonly #copying = new Set<Database.Database>();
  #fileNumber = 0;
  /** A copy by SQLite's means, which can take longer than a caller waits: its retries get the same one. */
  #slowCopy: Promise<CatalogSnapshot> | null = null;
  /** Own and fetched pages of an interrupted `stagePages`. */
  #partial: string | null = null;

  constructor(file: string, parts: SnapshotParts) {
    this.#path = file;
    this.#parts = parts;
  }

  /**
   * Copies the current committed state, in steps between which the event loop runs. It can be read meanwhile.
   * @throws ServiceError `busy` while another copy keeps the file from being frozen again
   */
  async take(): Promise<CatalogSnapshot> {
    if (this.#slowCopy !== null) return this.#slowCopy;
    const frozen = await this.#parts.freeze();
    if (frozen !== null) return this.#take(frozen);
    if ([...this.#snapshots.values()].some(({ bytes, size }) => bytes < size))
      throw new ServiceError('busy', 'Another copy of the catalog is in progress');
    this.#slowCopy ??= this.#take(null).finally(() => {
      this.#slowCopy = null;
    });
    return this.#slowCopy;
  }

  async #take(frozen: FrozenDatabase | null): Promise<CatalogSnapshot> {
    this.#fileNumber += 1;
    const id = this.#fileNumber;
    const file = `${this.#path}.snapshot-${id}`;
    try {
      if (frozen !== null) await this.#assertFree(frozen.bytes);
      const record = frozen === null ? await this.#copy(file) : frozen.record;
      const handle = await fs.promises.open(file, frozen === null ? 'r' : 'wx+', 0o600);
      const bytes = frozen?.bytes ?? (await handle.stat()).size;
      const snapshot: Snapshot = { file, handle, size: bytes, bytes: 0, more: Promise.withResolvers() };
      this.#snapshots.set(id, snapshot);
      if (frozen === null) snapshot.bytes = bytes;
      else void this.#copyFrozen(id, snapshot, frozen);
      const [oldest] = this.#snapshots.keys();
      if (this.#snapshots.size > SNAPSHOTS_MAX && oldest !== undefined) await this.close(oldest);
      return { id, bytes, position: { epoch: record.installed, seq: record.last.seq } };
    } catch (error) {
      frozen?.end();
      await fs.promises.rm(file, { force: true });
      throw storageError('Cannot copy the catalog', error);
    }
  }

  /**
   * Half of the disk's reserve stays free for promises and deletions; copies in progress take theirs first.
   * @throws ServiceError `no-space`
   */
  async #assertFree(bytes: number): Promise<void> {
    const { bavail, blocks, bsize } = await fs.promises.statfs(path.dirname(this.#path));
    let wanted = bytes + reserveBytes(blocks * bsize) / 2;
    for (const snapshot of this.#snapshots.values()) wanted += snapshot.size - snapshot.bytes;
    if (bavail * bsize < wanted)
      throw new ServiceError('no-space', 'The disk has too little free space for a copy of the catalog');
  }

  /** Reads and writes in the thread pool. The copy is not synced: it is removed at the next start. */
  async #copyFrozen(id: number, snapshot: Snapshot, frozen: FrozenDatabase): Promise<void> {
    try {
      const buffer = Buffer.allocUnsafe(COPY_BYTES);
      while (snapshot.bytes < frozen.bytes) {
        const wanted = buffer.subarray(0, Math.min(COPY_BYTES, frozen.bytes - snapshot.bytes));
        const bytes = await readFully(frozen.read, wanted, snapshot.bytes);
        if (bytes.length < wanted.length) throw new Error('The database is shorter than its header says');
        await writeFully(snapshot.handle, bytes, snapshot.bytes);
        snapshot.bytes += bytes.length;
        const { more } = snapshot;
        snapshot.more = Promise.withResolvers();
        more.resolve();
      }
    } catch (error) {
      // Readers that wait report it; later ones find no snapshot.
      snapshot.more.promise.catch(() => undefined);
      snapshot.more.reject(error);
      // A file that cannot be removed now is removed at the next start.
      this.close(id).catch(() => undefined);
    } finally {
      frozen.end();
    }
  }

  /** Returns fewer than `length` bytes at the end. @throws ServiceError `not-found` if the snapshot is closed */
  async read(id: number, offset: number, length: number): Promise<Uint8Array> {
    const snapshot = this.#opened(id);
    try {
      while (snapshot.bytes < Math.min(offset + length, snapshot.size)) await snapshot.more.promise;
      return await readFully(reader(snapshot.handle), Buffer.alloc(length), offset);
    } catch (error) {
      throw storageError('Cannot read a copy of the catalog', error);
    }
  }

  /** Compares consecutive ranges by hash. @returns for each range null if equal, else the hashes of its pages here */
  async compare(id: number, firstRange: number, hashes: Uint8Array): Promise<(Uint8Array | null)[]> {
    const count = hashes.length / HASH_BYTES;
    if (!Number.isInteger(count) || count > COMPARED_RANGES_MAX)
      throw new MalformedError('A comparison has a hash of each range, and a bounded number');
    const compared: (Uint8Array | null)[] = [];
    for (let index = 0; index < count; index++) {
      const own = pageHashes(await this.read(id, (firstRange + index) * RANGE_BYTES, RANGE_BYTES));
      compared.push(Buffer.compare(rangeHash(own), hashAt(hashes, index)) === 0 ? null : own);
    }
    return compared;
  }

  async readPages(id: number, pages: readonly number[]): Promise<Uint8Array> {
    if (pages.length > FETCHED_PAGES_MAX) throw new MalformedError('A request has a bounded number of pages');
    const read: Uint8Array[] = [];
    for (const page of pages) read.push(await this.read(id, page * PAGE_BYTES, PAGE_BYTES));
    return Buffer.concat(read);
  }

  #opened(id: number): Snapshot {
    const snapshot = this.#snapshots.get(id);
    if (snapshot === undefined)
      throw new ServiceError('not-found', `There is no snapshot ${id} of the catalog`);
    return snapshot;
  }

  /** @returns what is wrong with a snapshot; null if it is sound, was so recently, is not whole yet, or is closed */
  async check(id: number): Promise<string | null> {
    const snapshot = this.#snapshots.get(id);
    const nowMs = this.#parts.nowMs();
    if (snapshot === undefined || nowMs < this.#soundUntilMs || snapshot.bytes < snapshot.size) return null;
    try {
      const damage = await this.#parts.check(snapshot.file);
      if (damage === null) this.#soundUntilMs = nowMs + SOUND_MS;
      return damage;
    } catch (error) {
      if (this.#snapshots.has(id)) throw storageError('Cannot check a copy of the catalog', error);
      return null;
    }
  }

  async close(id: number): Promise<void> {
    const snapshot = this.#snapshots.get(id);
    if (snapshot === undefined) return;
    this.#snapshots.delete(id);
    const removal = remove(snapshot);
    this.#removals.add(removal);
    await removal.finally(() => this.#removals.delete(removal));
  }

  async closeAll(): Promise<void> {
    await this.dropPartial();
    for (const id of [...this.#snapshots.keys()]) await this.close(id);
    await Promise.allSettled(this.#removals);
  }

  /** Stores another replica's snapshot beside the local state, and checks it. */
  async stage(chunks: AsyncIterable<Uint8Array>): Promise<StagedCatalog> {
    const file = this.#nextIncoming();
    try {
      const handle = await fs.promises.open(file, 'wx', 0o600);
      try {
        for await (const chunk of chunks) await handle.writeFile(chunk);
        await handle.sync();
      } finally {
        await handle.close();
      }
    } catch (error) {
      await removeDatabase(file);
      throw storageError('Cannot take a copy of the catalog', error);
    }
    return this.#checked(file);
  }

  /**
   * Like `stage`, but transfers only pages that differ from those here. What was fetched before an interruption is kept
   * for the next call.
   * @param own reads `catalog.db`
   */
  async stagePages(
    source: PageSource,
    own: PageRead,
  ): Promise<{ readonly staged: StagedCatalog; readonly counts: TransferCounts }> {
    const partial = this.#partial;
    this.#partial = null;
    const file = partial ?? this.#nextIncoming();
    let counts: TransferCounts;
    try {
      const handle = await fs.promises.open(file, partial === null ? 'wx+' : 'r+', 0o600);
      try {
        counts = await fetchPages(source, {
          read: partial === null ? own : reader(handle),
          write: (bytes, position) => writeFully(handle, bytes, position),
          isInPlace: partial !== null,
        });
        await handle.truncate(source.bytes);
        await handle.sync();
      } finally {
        await handle.close();
      }
    } catch (error) {
      // A full disk here needs the space. An error of the source is a `ServiceError`: its disk is another one.
      const isFullHere = isNoSpace(error) && !(error instanceof ServiceError);
      if (isFullHere || this.#partial !== null) await removeDatabase(file);
      else this.#partial = file;
      if (error instanceof DamagedPage) throw new DamagedCopy(error.message);
      throw storageError('Cannot take the pages of a copy of the catalog', error);
    }
    return { staged: await this.#checked(file), counts };
  }

  /** Removes what is left of an interrupted `stagePages`, which is not needed any more. */
  async dropPartial(): Promise<void> {
    const partial = this.#partial;
    this.#partial = null;
    if (partial !== null) await removeDatabase(partial);
  }

  #nextIncoming(): string {
    this.#fileNumber += 1;
    return `${this.#path}.incoming-${this.#fileNumber}`;
  }

  async #checked(file: string): Promise<StagedCatalog> {
    try {
      const damage = await this.#parts.check(file);
      if (damage !== null) throw new DamagedCopy(damage);
      const record = migrateCopy(file);
      const position = { epoch: record.installed, seq: record.last.seq };
      return { kind: 'snapshot', position, view: record.view, file };
    } catch (error) {
      await removeDatabase(file);
      if (isCorruption(error)) throw new DamagedCopy((error as Error).message);
      throw storageError('Cannot take a copy of the catalog', error);
    }
  }

  /** Copies the database to `file`. A read transaction hides later commits from the copy. */
  async #copy(file: string): Promise<CatalogRecord> {
    const { source, record, bytes } = this.openSource();
    try {
      await this.#assertFree(bytes);
      await source.backup(file, { progress: () => SNAPSHOT_STEP_PAGES });
      return record;
    } finally {
      this.closeSource(source);
    }
  }

  /** Opens the database in a read transaction, until `closeSource` or `endCopies`. */
  openSource(): OpenSource {
    const source = new Database(this.#path, { readonly: true, fileMustExist: true, timeout: 0 });
    this.#copying.add(source);
    try {
      source.exec('BEGIN');
      return { source, record: readRecord(source), bytes: bytesOf(source) };
    } catch (error) {
      this.closeSource(source);
      throw error;
    }
  }

  closeSource(source: Database.Database): void {
    this.#copying.delete(source);
    source.close();
  }

  /** Aborts the copies in progress: their callers get an error. */
  endCopies(): void {
    for (const source of this.#copying) source.close();
    this.#copying.clear();
  }
}

/** Size of the file that a copy of the database is. */
function bytesOf(source: Database.Database): number {
  const pages = source.pragma('page_count', { simple: true }) as number;
  return pages * (source.pragma('page_size', { simple: true }) as number);
}

async function remove({ handle, file }: Snapshot): Promise<void> {
  await handle.close();
  await fs.promises.rm(file, { force: true });
}

function reader(handle: fs.promises.FileHandle): PageRead {
  return async (buffer, position) => (await handle.read(buffer, 0, buffer.length, position)).bytesRead;
}

async function writeFully(
  handle: fs.promises.FileHandle,
  bytes: Uint8Array,
  position: number,
): Promise<void> {
  for (let written = 0; written < bytes.length; ) {
    const { bytesWritten } = await handle.write(bytes, written, bytes.length - written, position + written);
    written += bytesWritten;
  }
}

/** Brings a copy to the schema of this release, and removes its log, so that it is one file. */
function migrateCopy(file: string): CatalogRecord {
  const db = new Database(file, { fileMustExist: true, timeout: 0 });
  try {
    ensureSchema(db);
    const record = readRecord(db);
    const mode = db.pragma('journal_mode = DELETE', { simple: true });
    assert(mode === 'delete', 'A database with one connection can remove its log');
    return record;
  } finally {
    db.close();
  }
}

export async function removeDatabase(file: string): Promise<void> {
  for (const suffix of ['', '-wal', '-shm', '-journal'])
    await fs.promises.rm(`${file}${suffix}`, { force: true });
}

export async function removeLeftovers(folder: string): Promise<void> {
  for (const name of await fs.promises.readdir(folder)) {
    if (/^catalog\.db\.(snapshot|incoming)-/.test(name)) await fs.promises.rm(path.join(folder, name));
  }
}

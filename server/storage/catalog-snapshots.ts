import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import { type CatalogRecord, readRecord } from './catalog-database.ts';
import type { CatalogSnapshot, StagedCatalog } from './catalog-transfer.ts';
import { damageOf } from './database-check.ts';
import { isCorruption, storageError } from './failures.ts';

/** Snapshots that are kept open for replicas that fetch them; the oldest is closed first. */
const SNAPSHOTS_MAX = 4;
/** Pages per step of a copy: a few milliseconds of the event loop. */
const SNAPSHOT_STEP_PAGES = 1000;

/** For this time after a check has found no damage, damage that other replicas find in copies counts as theirs. */
const SOUND_MS = 3_600_000;

interface Snapshot {
  readonly file: string;
  readonly handle: fs.promises.FileHandle;
}

/** Another replica's snapshot, as it arrived, has a damaged page. */
export class DamagedCopy extends ServiceError {
  constructor(damage: string) {
    super('storage', `The copy is damaged: ${damage}`);
  }
}

/** Snapshots beside one `catalog.db`. `endCopies` has to be called before the database is replaced or closed. */
export class CatalogSnapshots {
  readonly #path: string;
  readonly #nowMs: () => number;
  #soundUntilMs = -Infinity;
  readonly #snapshots = new Map<number, Snapshot>();
  readonly #copying = new Set<Database.Database>();
  #fileNumber = 0;

  constructor(file: string, nowMs: () => number) {
    this.#path = file;
    this.#nowMs = nowMs;
  }

  /** Copies the current committed state, in steps between which the event loop runs. */
  async take(): Promise<CatalogSnapshot> {
    this.#fileNumber += 1;
    const id = this.#fileNumber;
    const file = `${this.#path}.snapshot-${id}`;
    try {
      const record = await this.#copy(file);
      const handle = await fs.promises.open(file, 'r');
      this.#snapshots.set(id, { file, handle });
      const { size } = await handle.stat();
      const [oldest] = this.#snapshots.keys();
      if (this.#snapshots.size > SNAPSHOTS_MAX && oldest !== undefined) await this.close(oldest);
      return { id, bytes: size, position: { epoch: record.installed, seq: record.last.seq } };
    } catch (error) {
      await fs.promises.rm(file, { force: true });
      throw storageError('Cannot copy the catalog', error);
    }
  }

  /** Returns fewer than `length` bytes at the end. @throws ServiceError `not-found` if the snapshot is closed */
  async read(id: number, offset: number, length: number): Promise<Uint8Array> {
    const snapshot = this.#snapshots.get(id);
    if (snapshot === undefined)
      throw new ServiceError('not-found', `There is no snapshot ${id} of the catalog`);
    const bytes = Buffer.alloc(length);
    try {
      let filled = 0;
      while (filled < length) {
        const { bytesRead } = await snapshot.handle.read(bytes, filled, length - filled, offset + filled);
        if (bytesRead === 0) break;
        filled += bytesRead;
      }
      return bytes.subarray(0, filled);
    } catch (error) {
      throw storageError('Cannot read a copy of the catalog', error);
    }
  }

  /** @returns what is wrong with a snapshot; null if it is sound, was so recently, or is closed */
  check(id: number): string | null {
    const snapshot = this.#snapshots.get(id);
    const nowMs = this.#nowMs();
    if (snapshot === undefined || nowMs < this.#soundUntilMs) return null;
    const database = new Database(snapshot.file, { fileMustExist: true, timeout: 0 });
    try {
      const damage = damageOf(database);
      if (damage === null) this.#soundUntilMs = nowMs + SOUND_MS;
      return damage;
    } finally {
      database.close();
    }
  }

  async close(id: number): Promise<void> {
    const snapshot = this.#snapshots.get(id);
    if (snapshot === undefined) return;
    this.#snapshots.delete(id);
    await snapshot.handle.close();
    await fs.promises.rm(snapshot.file, { force: true });
  }

  async closeAll(): Promise<void> {
    for (const id of [...this.#snapshots.keys()]) await this.close(id);
  }

  /** Stores another replica's snapshot beside the local state, and checks it. */
  async stage(chunks: AsyncIterable<Uint8Array>): Promise<StagedCatalog> {
    this.#fileNumber += 1;
    const file = `${this.#path}.incoming-${this.#fileNumber}`;
    try {
      const handle = await fs.promises.open(file, 'wx', 0o600);
      try {
        for await (const chunk of chunks) await handle.writeFile(chunk);
        await handle.sync();
      } finally {
        await handle.close();
      }
      const record = checkSnapshot(file);
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
    const source = new Database(this.#path, { readonly: true, fileMustExist: true, timeout: 0 });
    this.#copying.add(source);
    try {
      source.exec('BEGIN');
      const record = readRecord(source);
      await source.backup(file, { progress: () => SNAPSHOT_STEP_PAGES });
      return record;
    } finally {
      this.#copying.delete(source);
      source.close();
    }
  }

  /** Aborts the copies in progress: their callers get an error. */
  endCopies(): void {
    for (const source of this.#copying) source.close();
    this.#copying.clear();
  }
}

/** Checks a copy, and removes its log, so that it is one file. */
function checkSnapshot(file: string): CatalogRecord {
  const db = new Database(file, { fileMustExist: true, timeout: 0 });
  try {
    const damage = damageOf(db);
    if (damage !== null) throw new DamagedCopy(damage);
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

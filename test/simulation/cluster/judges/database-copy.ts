import { copyFileSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';

/** Reads a copy of a server's database: the server, which may be running, has the database locked. */
export function readDatabaseCopy<Value>(
  folder: string,
  name: 'index.db' | 'catalog.db',
  none: Value,
  read: (database: Database.Database) => Value,
): Value {
  const [path, copy] = [join(folder, name), `${folder}-copy-of-${name}`];
  if (!existsSync(path)) return none;
  copyFileSync(path, copy);
  if (existsSync(`${path}-wal`)) copyFileSync(`${path}-wal`, `${copy}-wal`);
  const database = new Database(copy);
  try {
    return read(database);
  } finally {
    database.close();
    for (const ending of ['', '-wal', '-shm']) rmSync(`${copy}${ending}`, { force: true });
  }
}

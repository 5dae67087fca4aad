import { copyFileSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';

/**
 * Reads a copy of a server's database: the server, which may be running, has the database locked.
 * @param name of the database in the data folder
 */
export function readDatabaseCopy<Value>(
  folder: string,
  name: string,
  none: Value,
  read: (database: Database.Database) => Value,
): Value {
  const [path, copy] = [join(folder, name), `${folder}-copy-of-${name.replaceAll('/', '-')}`];
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

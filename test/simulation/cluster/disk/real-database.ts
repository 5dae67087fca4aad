import Database from 'better-sqlite3';

const { exec, pragma, prepare, close } = Database.prototype;

// The library reads files of the system when it makes its first connection.
new Database(':memory:').close();

/** The methods of a database in its library; the guard replaces those of the class. */
export const realDatabase = { exec, pragma, prepare, close };

/** @returns SQLite's error after it has undone a transaction */
export function undone(database: Database.Database, code: string, text: string): Error {
  if (database.inTransaction) exec.call(database, 'ROLLBACK');
  return new Database.SqliteError(text, code);
}

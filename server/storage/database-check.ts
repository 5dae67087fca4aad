import Database from 'better-sqlite3';
import { isCorruption } from './failures.ts';

/** Reads all used pages. Rows that are well formed but wrong are not found. @returns the first damage, or null */
export function damageOf(database: Database.Database): string | null {
  try {
    const verdict = String(database.pragma('quick_check(1)', { simple: true }));
    return verdict === 'ok' ? null : verdict;
  } catch (error) {
    if (isCorruption(error)) return (error as Error).message;
    throw error;
  }
}

/** Like `damageOf`, of a file that no one has open. Of a large one it takes many seconds. */
export function damageIn(file: string): string | null {
  const database = new Database(file, { fileMustExist: true, timeout: 0 });
  try {
    return damageOf(database);
  } finally {
    database.close();
  }
}

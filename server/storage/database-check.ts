import type Database from 'better-sqlite3';
import { isCorruption } from './failures.ts';

/**
 * Reads all pages of a database that are in use. Rows that are well formed and wrong are not found.
 *
 * @returns what is wrong with one of them, or null
 */
export function damageOf(database: Database.Database): string | null {
  try {
    const verdict = String(database.pragma('quick_check(1)', { simple: true }));
    return verdict === 'ok' ? null : verdict;
  } catch (error) {
    if (isCorruption(error)) return (error as Error).message;
    throw error;
  }
}

import type Database from 'better-sqlite3';
import { isCorruption } from './failures.ts';

/**
 * Reads all used pages of a database. It does not find rows that are well formed but wrong. @returns the first damage,
 * or null
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

import type Database from 'better-sqlite3';
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

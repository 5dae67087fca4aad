import { readFileSync } from 'node:fs';
import type { RowName, SubjectName } from './names.ts';

/** A directory that is measured, ready to be used. */
export interface Subject {
  readonly name: SubjectName;
  /** The directory of its files. */
  readonly directory: string;
  /** The rows that are measured of it; absent: all. */
  readonly rows?: readonly RowName[];
  /** Directories of the same files by further mounts. */
  readonly others?: readonly string[];
  /** Its processes without this one, by their role: `mount`, or one of the servers. */
  pids(): Readonly<Record<string, readonly number[]>>;
  /** The number of HTTP requests that its servers have answered so far, by route; absent: not known. */
  requests?(): Promise<ReadonlyMap<string, number>>;
  stop(): Promise<void>;
}

/** Why a subject is not measured on this machine. */
export class Missing extends Error {
  override readonly name = 'Missing';
}

/** @returns the running descendants of a process */
export function descendants(pid: number): number[] {
  let text = '';
  try {
    text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
  }
  const children = text.split(' ').filter((word) => word !== '');
  return children.flatMap((word) => [Number(word), ...descendants(Number(word))]);
}

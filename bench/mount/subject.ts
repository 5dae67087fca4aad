import { readFileSync } from 'node:fs';
import type { RowName, SubjectName } from './names.ts';

/** Something that files are written to, ready to be used. */
export interface Subject {
  readonly name: SubjectName;
  /** Where its files are. */
  readonly directory: string;
  /** What is measured of it; absent: all. */
  readonly rows?: readonly RowName[];
  /** The same files by way of further mounts. */
  readonly others?: readonly string[];
  /** All of its processes, this one's not among them, by what they are: `mount`, or one of the servers. */
  pids(): Readonly<Record<string, readonly number[]>>;
  /** How many HTTP requests its servers have answered so far, by route; absent: not known. */
  requests?(): Promise<ReadonlyMap<string, number>>;
  stop(): Promise<void>;
}

/** Says why a subject is not measured here. */
export class Missing extends Error {
  override readonly name = 'Missing';
}

/** @returns the processes that a process has begun, and those that they have, as far as they live */
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

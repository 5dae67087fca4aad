import { open, readlink } from 'node:fs/promises';
import { isMountDaemon, processes, volumeMounts } from './mount-table.ts';

const LOG_BYTES_MAX = 4 * 1024 * 1024;
export const LATE_ERROR_MESSAGE = 'an acknowledged operation was dropped';

/** An operation that a mount acknowledged and that was then dropped. */
export interface LateErrorLine {
  readonly time: string;
  readonly operation: string;
  readonly path: string;
  readonly error: string;
}

export interface MountStatus {
  readonly directory: string;
  readonly source: string;
  /** Of the process that serves it; null if no such process is visible. */
  readonly pid: number | null;
  readonly log: string | null;
  readonly lateErrors: readonly LateErrorLine[];
}

/** @returns the mounts of volumes on this machine, with the dropped operations in their logs */
export async function mountStatuses(): Promise<MountStatus[]> {
  const all = await processes();
  const mounts = await volumeMounts();
  return Promise.all(
    mounts.map(async ({ directory, source }) => {
      const pid = all.find((entry) => isMountDaemon(entry, directory))?.pid ?? null;
      const log = pid === null ? null : await readlink(`/proc/${pid}/fd/2`).catch(() => null);
      return { directory, source, pid, log, lateErrors: log === null ? [] : await lateErrorsIn(log) };
    }),
  );
}

/** @returns the late errors in the last 4 MiB of a mount's log and of its rotated part, the oldest first */
export async function lateErrorsIn(log: string): Promise<LateErrorLine[]> {
  // A long log continues in a new file; the part before is `.1`.
  const parts = await Promise.all([`${log}.1`, log].map((path) => endOf(path).catch(() => '')));
  return parts
    .join('\n')
    .split('\n')
    .flatMap((line) => {
      if (!line.includes(LATE_ERROR_MESSAGE)) return [];
      try {
        const { time, operation, path, error } = JSON.parse(line) as LateErrorLine;
        return [{ time, operation, path, error }];
      } catch {
        return [];
      }
    });
}

async function endOf(path: string): Promise<string> {
  const file = await open(path);
  try {
    const stat = await file.stat();
    if (!stat.isFile()) return '';
    const from = Math.max(0, stat.size - LOG_BYTES_MAX);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(stat.size - from), 0, stat.size - from, from);
    return buffer.subarray(0, bytesRead).toString();
  } finally {
    await file.close();
  }
}

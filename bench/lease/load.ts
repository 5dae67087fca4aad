import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { killAtEnd, removeAtEnd } from './cleanup.ts';

const PROGRAM = fileURLToPath(new URL('./load-process.ts', import.meta.url));
/** The type of a file system in memory in the result of `statfs`. */
const TMPFS_TYPE = 0x01021994;

/** The load of a load process, as JSON in its first argument. */
export type Load =
  /** Writes to a file of bounded size as fast as the disk allows, with a sync after each write. */
  | { readonly kind: 'disk'; readonly path: string }
  /** Uses this share of one core, and no disk. */
  | { readonly kind: 'cpu'; readonly coreShare: number };

/** Sent when the load has begun, and when it has ended. */
export interface LoadReport {
  readonly writtenBytes: number;
  readonly cpuMs: number;
  readonly spanMs: number;
  /** Whether writes bypass the page cache, which costs less CPU. */
  readonly direct: boolean;
}

/** @returns a folder on a disk, removed at the end; null if none is found */
export function diskFolder(): string | null {
  for (const parent of [tmpdir(), '/var/tmp', process.cwd()]) {
    try {
      if (statfsSync(parent).type === TMPFS_TYPE) continue;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') continue;
      throw error;
    }
    const folder = mkdtempSync(join(parent, 'leasehold-bench-disk-'));
    removeAtEnd(folder);
    return folder;
  }
  return null;
}

/** Runs `work` while another process puts a load on the machine. */
export async function underLoad<Result>(
  load: Load,
  work: () => Promise<Result>,
): Promise<{ readonly result: Result; readonly load: LoadReport }> {
  const child = fork(PROGRAM, [JSON.stringify(load)], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const kill = killAtEnd(child);
  try {
    await report(child);
    const result = await work();
    const ended = report(child);
    child.send('end');
    return { result, load: await ended };
  } finally {
    kill();
  }
}

/** @throws Error if the process ends before it reports */
async function report(child: ChildProcess): Promise<LoadReport> {
  const gone = Promise.withResolvers<never>();
  const onExit = (): void => gone.reject(new Error('The process that makes load has ended early'));
  child.once('exit', onExit);
  try {
    const [message] = (await Promise.race([once(child, 'message'), gone.promise])) as [LoadReport];
    return message;
  } finally {
    child.off('exit', onExit);
  }
}

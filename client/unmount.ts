import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import {
  CommandFailure,
  EXIT_FAILED,
  EXIT_NOT_FOUND,
  EXIT_PRECONDITION,
  EXIT_TEMPORARY,
  isSystemError,
  systemReason,
} from './failure.ts';
import { canonical, mountAt, mountsBelow, processes, usersOf } from './mount-table.ts';
import { formatDuration } from './quantities.ts';
import { run } from './run-program.ts';

/** What was written must reach the servers before the mount's process ends. */
const END_TIMEOUT_MS = 60_000;
const POLL_MS = 20;
const COMMAND_CHARS_MAX = 60;

export interface UnmountOptions {
  /** Detach even if it is in use: those who use it keep what they have open. */
  readonly lazy?: boolean;
  readonly timeoutMs?: number;
}

/** Removes a mount, and waits until its process has stored what was written and has ended. */
export async function unmountDirectory(directoryText: string, options: UnmountOptions = {}): Promise<void> {
  const directory = await canonicalOrFail(directoryText);
  const mounted = await mountAt(directory);
  if (mounted === null) {
    throw new CommandFailure(EXIT_PRECONDITION, `Cannot unmount "${directory}": nothing is mounted there`);
  }
  if (!mounted.type.startsWith('fuse')) {
    throw new CommandFailure(
      EXIT_PRECONDITION,
      `Cannot unmount "${directory}": a file system of type ${mounted.type} is mounted there, not a volume`,
    );
  }
  const daemons = await daemonsOf(directory);
  await detach(directory, options.lazy === true);
  await endOf(directory, daemons, options.timeoutMs ?? END_TIMEOUT_MS);
}

async function daemonsOf(directory: string): Promise<number[]> {
  const all = await processes();
  return all
    .filter(({ argv }) => argv.includes('mount-daemon') && argv.at(-1) === directory)
    .map(({ pid }) => pid);
}

async function endOf(directory: string, pids: readonly number[], timeoutMs: number): Promise<void> {
  const deadlineMs = performance.now() + timeoutMs;
  let left = pids;
  while (left.length > 0) {
    left = left.filter(isAlive);
    if (left.length === 0) return;
    if (performance.now() > deadlineMs) {
      throw new CommandFailure(
        EXIT_TEMPORARY,
        `Unmounted "${directory}", but process ${left.join(', ')} has not stored everything after ${formatDuration(timeoutMs)}`,
        'leave it running until the cluster has a majority again; what it holds is lost if it is killed',
      );
    }
    // The process is not a child of this one, so there is no event for its end.
    await delay(POLL_MS);
  }
}

/** A process that has ended stays in the table until its parent asks for it, which the first process of a container may never do. */
function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // After the name, which may have any character in it.
    return stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3) !== 'Z';
  } catch (error) {
    if (isSystemError(error) && (error.code === 'ENOENT' || error.code === 'ESRCH')) return false;
    throw error;
  }
}

async function inUse(directory: string): Promise<CommandFailure> {
  const users = await usersOf(directory);
  const below = await mountsBelow(directory);
  const who = [
    ...users.map(
      ({ pid, argv, use }) => `process ${pid} (${argv.join(' ').slice(0, COMMAND_CHARS_MAX)}): ${use}`,
    ),
    ...below.map(({ directory: inside, type }) => `a file system of type ${type} is mounted on ${inside}`),
  ];
  if (who.length === 0) {
    who.push('nobody that can be seen from here; root sees the processes of all users');
  }
  return new CommandFailure(
    EXIT_PRECONDITION,
    `Cannot unmount "${directory}": it is in use\n  ${who.join('\n  ')}`,
    'end these, or use --lazy to detach it all the same',
  );
}

/** @param lazily even if somebody uses it */
export async function detach(directory: string, lazily: boolean): Promise<void> {
  const flags = lazily ? ['-u', '-z'] : ['-u'];
  let result = await run('fusermount3', [...flags, directory]);
  if (result.kind === 'missing' || (result.kind === 'failed' && lazily)) {
    result = await run('umount', lazily ? ['-l', directory] : [directory]);
  }
  if (result.kind === 'done') return;
  const why = result.kind === 'failed' ? result.output : 'neither fusermount3 nor umount is installed';
  if (/busy/i.test(why)) throw await inUse(directory);
  throw new CommandFailure(EXIT_FAILED, `Cannot unmount "${directory}": ${why}`);
}

/**
 * @param whereMissing what to do where there is no such directory
 * @returns the directory by its real name; refused if there is no way to it
 */
export async function canonicalOrFail(directory: string, whereMissing = ''): Promise<string> {
  try {
    return await canonical(directory);
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new CommandFailure(
      EXIT_NOT_FOUND,
      `Cannot use the directory "${directory}": ${systemReason(error)}`,
      error.code === 'ENOENT' ? whereMissing : '',
    );
  }
}

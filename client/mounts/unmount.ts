import { existsSync } from 'node:fs';
import { systemWorld } from '../../world/system-world.ts';
import {
  type CommandFailure,
  generalFailure,
  isSystemError,
  notFoundFailure,
  preconditionFailure,
  systemReason,
  temporaryFailure,
} from '../terminal/failure.ts';
import { formatDuration } from '../terminal/quantities.ts';
import {
  canonical,
  holdersOf,
  isMountDaemon,
  type MountHolder,
  type MountUser,
  mountAt,
  mountsBelow,
  type ProcessEntry,
  stillMounted,
  usersOf,
} from './mount-table.ts';
import { isAlive, isStopped } from './process-state.ts';
import { run } from './run-program.ts';

const END_TIMEOUT_MS = 60_000;
const POLL_MS = 20;
/** A process that queries free space or attributes keeps the mount busy for a moment, and cannot be named. */
const BUSY_MS_MAX = 5_000;
const COMMAND_CHARS_MAX = 60;

export interface UnmountOptions {
  /** Detach even if it is in use: its users keep what they have open. */
  readonly lazy?: boolean;
  readonly timeoutMs?: number;
}

/**
 * Removes a mount. Waits until its process has ended; or until it has stored what was written, if it has to continue
 * because the file system is also mounted elsewhere, in a container or a service with mounts of its own, or because it
 * was detached in use.
 * @returns a message that names the remaining users; null if the process has ended
 * @throws CommandFailure with exit code 5 if it is not known that everything is stored
 */
export async function unmountDirectory(
  directoryText: string,
  options: UnmountOptions = {},
): Promise<string | null> {
  const directory = await canonicalOrFail(directoryText);
  const mounted = await mountAt(directory);
  if (mounted === null) {
    if (!existsSync(directory))
      throw notFoundFailure(`Cannot unmount "${directory}": there is no such directory`);
    throw preconditionFailure(`Cannot unmount "${directory}": nothing is mounted there`);
  }
  if (!mounted.type.startsWith('fuse')) {
    throw preconditionFailure(
      `Cannot unmount "${directory}": a file system of type ${mounted.type} is mounted there, not a volume`,
    );
  }
  const before = await holdersOf(mounted.device);
  const daemons = daemonsOf(directory, before);
  const { timeoutMs = END_TIMEOUT_MS, lazy = false } = options;
  const wait = { timeoutMs, untilMs: systemWorld.nowMs() + timeoutMs };
  const stored = await syncBeforeUnmount(directory, daemons, wait);
  const isLost = stored.kind === 'lost';
  if (isLost && !lazy) {
    throw temporaryFailure(
      `"${directory}" stays mounted: some written data could not be stored: ${stored.why}`,
      'its log names the files; "leasehold umount" tries again, --lazy discards what cannot be stored',
    );
  }
  const users = lazy ? await usersOf(directory) : [];
  await detach(directory, lazy);
  const holders = daemons.length === 0 ? [] : stillMounted(await holdersOf(mounted.device), before);
  const who = holders.map(describeHolder).join('\n  ');
  const keepsRunning = `process ${daemons.join(', ')} keeps running, because the file system is also mounted elsewhere:\n  ${who}`;
  const isElsewhere = holders.length > 0;
  if (isElsewhere) await syncElsewhere(directory, holders, stored, wait, keepsRunning);
  else if (users.length > 0) return unmountedInUse(directory, daemons, users, stored);
  else await waitForEnd(directory, daemons, wait);
  if (isLost) {
    const why = isElsewhere ? `${stored.why}\n  ${keepsRunning}` : stored.why;
    throw temporaryFailure(`Unmounted "${directory}", but some written data could not be stored: ${why}`);
  }
  return isElsewhere
    ? `Unmounted "${directory}" here, and all that was written is stored; ${keepsRunning}`
    : null;
}

interface Wait {
  readonly timeoutMs: number;
  readonly untilMs: number;
}

function remainingMs({ untilMs }: Wait): number {
  return Math.max(POLL_MS, Math.ceil(untilMs - systemWorld.nowMs()));
}

/** The outcome of a lazy unmount in use. The mount's process ends later, when its users have closed everything. */
function unmountedInUse(
  directory: string,
  daemons: readonly number[],
  users: readonly MountUser[],
  stored: Stored,
): string | null {
  const running = daemons.filter(isAlive);
  if (running.length === 0 && stored.kind === 'all') return null;
  const who = users.map(describeUser).join('\n  ');
  const keepsRunning = `process ${running.join(', ')} keeps running until these have closed their files:\n  ${who}`;
  if (stored.kind === 'all')
    return `Unmounted "${directory}", and all that was written so far is stored; ${keepsRunning}`;
  const what =
    stored.kind === 'lost'
      ? 'but some written data could not be stored'
      : 'but some written data may not be stored';
  const why = running.length === 0 ? stored.why : `${stored.why}\n  ${keepsRunning}`;
  throw temporaryFailure(`Unmounted "${directory}", ${what}: ${why}`);
}

/** Polls until the mount's processes have ended: they are no children of this process, so there is no event. */
async function waitForEnd(directory: string, daemons: readonly number[], wait: Wait): Promise<void> {
  let running = daemons.filter(isAlive);
  while (running.length > 0) {
    if (systemWorld.nowMs() > wait.untilMs) throw notEnded(directory, running, wait);
    await systemWorld.sleep(POLL_MS);
    running = running.filter(isAlive);
  }
}

type Stored = { readonly kind: 'all' } | { readonly kind: 'lost' | 'unknown'; readonly why: string };

/** Stores what was written before the unmount, since a failure afterwards would reach no program. */
async function syncBeforeUnmount(directory: string, daemons: readonly number[], wait: Wait): Promise<Stored> {
  const synced = await run('env', ['LC_ALL=C', 'sync', directory], remainingMs(wait));
  if (synced.kind === 'done') return { kind: 'all' };
  if (synced.kind === 'missing') return { kind: 'unknown', why: 'the program sync is not installed' };
  const reason = /error syncing .*: (.*)/.exec(synced.output)?.[1];
  if (reason !== undefined) return { kind: 'lost', why: reason };
  return { kind: 'unknown', why: synced.output + stoppedProcessHint(daemons) };
}

function stoppedProcessHint(daemons: readonly number[]): string {
  const stopped = daemons.filter(isStopped).join(' ');
  return stopped === '' ? '' : `; process ${stopped} is stopped: continue it with "kill -CONT ${stopped}"`;
}

/** @returns the mount's processes: one in another container may serve another mount of the same path */
function daemonsOf(directory: string, holders: readonly MountHolder[]): number[] {
  const entries = holders.flatMap(({ processes: all }) => all);
  const daemons = entries.filter((entry) => isMountDaemon(entry, directory));
  return [...new Set(daemons.map(({ pid }) => pid))];
}

/** Syncs the mount's root where it is still mounted: the mount's process then stores what was written. */
async function syncElsewhere(
  directory: string,
  holders: readonly MountHolder[],
  stored: Stored,
  wait: Wait,
  keepsRunning: string,
): Promise<void> {
  let why = stored.kind === 'unknown' ? stored.why : 'no process can request it';
  for (const holder of holders) {
    if (systemWorld.nowMs() >= wait.untilMs) break;
    const [{ pid } = { pid: 'self' }] = holder.processes;
    // In a child process, which can be killed if the mount does not answer.
    const synced = await run('sync', [`/proc/${pid}/root${holder.directory}`], remainingMs(wait));
    if (synced.kind === 'done') return;
    why = synced.kind === 'missing' ? 'the program sync is not installed' : synced.output;
  }
  throw temporaryFailure(
    `Unmounted "${directory}" here, but some written data may not be stored: ${why}\n  ${keepsRunning}`,
    'see its log and "leasehold status"',
  );
}

function describeHolder({ directory, isHere, processes: entries }: MountHolder): string {
  if (isHere) return `also mounted here on ${directory}`;
  const [first, ...others] = entries;
  const more = others.length === 0 ? '' : ` and ${others.length} more`;
  return `process ${first === undefined ? '' : describeProcess(first)}${more}: on ${directory} in another mount namespace`;
}

function notEnded(directory: string, pids: readonly number[], { timeoutMs }: Wait): CommandFailure {
  const stopped = pids.filter(isStopped).join(' ');
  if (stopped !== '') {
    return temporaryFailure(
      `Unmounted "${directory}", but process ${stopped} is stopped, and may not have stored everything`,
      `continue it with "kill -CONT ${stopped}": it stores the rest and ends; the rest is lost if it is killed`,
    );
  }
  return temporaryFailure(
    `Unmounted "${directory}", but process ${pids.join(', ')} is still running after ${formatDuration(timeoutMs)} and has not stored everything`,
    'leave it running until the cluster has a majority again; what it has not stored is lost if it is killed',
  );
}

/** @returns pid and command line, in one line without control characters */
function describeProcess({ pid, argv }: ProcessEntry): string {
  return `${pid} (${argv
    .join(' ')
    .replaceAll(/\p{Cc}/gu, '?')
    .slice(0, COMMAND_CHARS_MAX)})`;
}

function describeUser(user: MountUser): string {
  return `process ${describeProcess(user)}: ${user.use}`;
}

async function describeUsers(directory: string): Promise<string[]> {
  const users = await usersOf(directory);
  const below = await mountsBelow(directory);
  return [
    ...users.map(describeUser),
    ...below.map(({ directory: inside, type }) => `a file system of type ${type} is mounted on ${inside}`),
  ];
}

/** Unmounts a directory. @throws CommandFailure that names the users if it is in use */
export async function detach(directory: string, lazily: boolean): Promise<void> {
  const untilMs = systemWorld.nowMs() + BUSY_MS_MAX;
  // Each round reads the descriptors of all processes, and there is no event for the end of a use.
  for (let pauseMs = POLL_MS; ; pauseMs *= 2) {
    const why = await unmountOnce(directory, lazily);
    if (why === null) return;
    if (!/busy/i.test(why)) throw generalFailure(`Cannot unmount "${directory}": ${why}`);
    const who = await describeUsers(directory);
    const isLate = systemWorld.nowMs() > untilMs;
    if (isLate && who.length === 0)
      who.push('no process that this user can see; run it as root to see all processes');
    if (who.length > 0)
      throw preconditionFailure(
        `Cannot unmount "${directory}": it is in use\n  ${who.join('\n  ')}`,
        'end these processes, or use --lazy to detach it anyway',
      );
    await systemWorld.sleep(pauseMs);
  }
}

/** @returns why the directory is still mounted; null if it is not */
async function unmountOnce(directory: string, lazily: boolean): Promise<string | null> {
  const flags = lazily ? ['-u', '-z'] : ['-u'];
  let result = await run('fusermount3', [...flags, directory]);
  if (result.kind === 'missing' || (result.kind === 'failed' && lazily)) {
    result = await run('umount', lazily ? ['-l', directory] : [directory]);
  }
  if (result.kind === 'done') return null;
  return result.kind === 'failed' ? result.output : 'neither fusermount3 nor umount is installed';
}

/** @returns the directory by its real name @throws CommandFailure if it cannot be reached */
export async function canonicalOrFail(directory: string, hintIfMissing = ''): Promise<string> {
  try {
    return await canonical(directory);
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw notFoundFailure(
      `Cannot use the directory "${directory}": ${systemReason(error)}`,
      error.code === 'ENOENT' ? hintIfMissing : '',
    );
  }
}

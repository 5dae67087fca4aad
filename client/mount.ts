import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { access, open, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import type { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { isErrorCode, ServiceError } from '../base/errors.ts';
import {
  CommandFailure,
  EXIT_FAILED,
  EXIT_NOT_FOUND,
  EXIT_PRECONDITION,
  EXIT_TEMPORARY,
  EXIT_USAGE,
  isSystemError,
  systemReason,
} from './failure.ts';
import { canonical, mountAt, processes, usersOf } from './mount-table.ts';
import { LAUNCHER, logTail } from './programs.ts';
import { formatDuration } from './quantities.ts';

/** Looking at a directory takes longer than this only where a mount hangs. */
const LOOK_TIMEOUT_MS = 5_000;
const READY_TIMEOUT_MS = 60_000;
/** What was written must reach the servers before the mount's process ends. */
const END_TIMEOUT_MS = 60_000;
const POLL_MS = 20;
const READY_LINE_BYTES_MAX = 64 * 1024;

export interface MountOptions {
  readonly servers: readonly string[];
  readonly volume: string;
  readonly directory: string;
  /** How long a call on the mount may take before it fails. */
  readonly operationTimeoutMs?: number;
  /** Where the mount's process writes its log. */
  readonly log?: string;
  readonly readyTimeoutMs?: number;
  /** Further options of the mount's process, as it takes them on its command line. */
  readonly extra?: readonly string[];
}

export interface Mounted {
  readonly directory: string;
  readonly pid: number;
  readonly log: string;
}

/** @returns why nothing can be mounted on this machine, or null if it can */
export async function mountObstacle(): Promise<string | null> {
  try {
    await access('/dev/fuse');
  } catch (error) {
    if (!isSystemError(error)) throw error;
    return 'there is no /dev/fuse here (in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN)';
  }
  const found = await run('fusermount3', ['--version']);
  return found.kind === 'missing'
    ? 'the program fusermount3 is missing (Debian: apt-get install fuse3)'
    : null;
}

/** Mounts a volume with a process of its own, which goes on when this one ends. Resolves once it is usable. */
export async function mountVolume(options: MountOptions): Promise<Mounted> {
  const obstacle = await mountObstacle();
  if (obstacle !== null) throw new CommandFailure(EXIT_FAILED, `Cannot mount: ${obstacle}`);
  const directory = await canonicalOrFail(options.directory);
  await makeRoom(directory);
  const log = options.log ?? join(tmpdir(), `leasehold-mount-${basename(directory)}-${process.pid}.log`);
  const argv = [LAUNCHER, 'mount-daemon', '--servers', options.servers.join(',')];
  if (options.operationTimeoutMs !== undefined) argv.push('--op-timeout', `${options.operationTimeoutMs}ms`);
  argv.push(...(options.extra ?? []), options.volume, directory);
  const logFile = await open(log, 'a');
  let child: ChildProcess;
  try {
    child = spawn(process.execPath, argv, {
      detached: true,
      // Not in the directory: it would hold the mount busy, or somebody else's.
      cwd: '/',
      // Few heaps for the C library: each thread of the pool would keep one of its own.
      env: { MALLOC_ARENA_MAX: '2', ...process.env },
      stdio: ['ignore', logFile.fd, logFile.fd, 'pipe'],
    });
  } finally {
    await logFile.close();
  }
  try {
    const pid = await becomeReady(child, log, options.readyTimeoutMs ?? READY_TIMEOUT_MS);
    child.unref();
    return { directory, pid, log };
  } catch (error) {
    child.kill('SIGKILL');
    throw error;
  } finally {
    child.stdio[3]?.destroy();
  }
}

async function canonicalOrFail(directory: string): Promise<string> {
  try {
    return await canonical(directory);
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new CommandFailure(
      EXIT_NOT_FOUND,
      `Cannot use the directory "${directory}": ${systemReason(error)}`,
    );
  }
}

/** Leaves an existing directory that nothing is mounted on; a mount whose process died is removed. */
async function makeRoom(directory: string): Promise<void> {
  const look = await lookAt(directory);
  if (look === 'missing') {
    throw new CommandFailure(
      EXIT_NOT_FOUND,
      `Cannot mount on "${directory}": there is no such directory`,
      `create it with: mkdir -p ${directory}`,
    );
  }
  if (look === 'dead') {
    await detach(directory, true);
    return makeRoom(directory);
  }
  const mounted = await mountAt(directory);
  if (mounted?.type.startsWith('fuse')) {
    const hangs = look === 'hangs' ? ', which does not answer' : '';
    throw new CommandFailure(
      EXIT_PRECONDITION,
      `Cannot mount on "${directory}": ${mounted.source} is mounted there already${hangs}`,
      `"leasehold umount ${hangs === '' ? '' : '--force '}${directory}" removes it`,
    );
  }
  if (look === 'hangs')
    throw new CommandFailure(EXIT_FAILED, `Cannot mount on "${directory}": it does not answer`);
  if (look === 'other')
    throw new CommandFailure(EXIT_USAGE, `Cannot mount on "${directory}": it is not a directory`);
}

async function lookAt(directory: string): Promise<'directory' | 'other' | 'missing' | 'dead' | 'hangs'> {
  const looked = stat(directory).then(
    (stats) => (stats.isDirectory() ? 'directory' : 'other'),
    (error: unknown) => {
      if (isSystemError(error) && error.code === 'ENOENT') return 'missing';
      if (isSystemError(error) && (error.code === 'ENOTCONN' || error.code === 'ECONNABORTED')) return 'dead';
      throw error;
    },
  );
  const abort = new AbortController();
  try {
    return await Promise.race([looked, delay(LOOK_TIMEOUT_MS, 'hangs' as const, { signal: abort.signal })]);
  } finally {
    abort.abort();
  }
}

interface ReadyLine {
  readonly ready?: unknown;
  readonly pid?: unknown;
  readonly error?: { readonly code?: unknown; readonly message?: unknown };
}

/** Waits for the line with which the mount's process says that it is ready, or why it is not. */
async function becomeReady(child: ChildProcess, log: string, timeoutMs: number): Promise<number> {
  const ended = new Promise<never>((_, reject) => {
    child.once('error', reject);
    // 'close' and not 'exit': by then its last words have been read.
    child.once('close', (code, signal) => {
      void logTail(log).then((tail) => {
        const how = signal === null ? `exit code ${code}` : `signal ${signal}`;
        const exit = code !== null && code > 0 && code < 10 ? code : EXIT_FAILED;
        reject(new CommandFailure(exit, `Cannot mount: its process ended with ${how}${tail}`));
      });
    });
  });
  const abort = new AbortController();
  const late = delay(timeoutMs, null, { signal: abort.signal }).then(() => {
    const message = `Cannot mount: it was not usable after ${formatDuration(timeoutMs)}`;
    throw new CommandFailure(EXIT_TEMPORARY, message, `its log is ${log}`);
  });
  ended.catch(() => {});
  late.catch(() => {});
  try {
    const line = await Promise.race([readLine(child.stdio[3] as Readable, ended), ended, late]);
    const said = JSON.parse(line) as ReadyLine;
    if (said.ready === true && child.pid !== undefined) {
      return typeof said.pid === 'number' ? said.pid : child.pid;
    }
    const { code, message = line } = said.error ?? {};
    if (isErrorCode(code)) throw new ServiceError(code, `Cannot mount: ${String(message)}`);
    throw new CommandFailure(EXIT_FAILED, `Cannot mount: ${String(message)}`);
  } finally {
    abort.abort();
    child.removeAllListeners();
  }
}

async function readLine(stream: Readable, ended: Promise<never>): Promise<string> {
  let text = '';
  for await (const chunk of stream.setEncoding('utf8')) {
    text += chunk;
    const end = text.indexOf('\n');
    if (end !== -1) return text.slice(0, end);
    if (text.length > READY_LINE_BYTES_MAX) break;
  }
  // The pipe ended without a line, so the process is about to: its end says why.
  return ended;
}

export interface UnmountOptions {
  /** Detach even if it is in use: those who use it keep what they have open. */
  readonly force?: boolean;
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
  await detach(directory, options.force === true);
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

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    if (isSystemError(error) && error.code === 'ESRCH') return false;
    if (isSystemError(error) && error.code === 'EPERM') return true;
    throw error;
  }
}

/** @param lazily even if somebody uses it */
async function detach(directory: string, lazily: boolean): Promise<void> {
  const flags = lazily ? ['-u', '-z'] : ['-u'];
  let result = await run('fusermount3', [...flags, directory]);
  if (result.kind === 'missing' || (result.kind === 'failed' && lazily)) {
    result = await run('umount', lazily ? ['-l', directory] : [directory]);
  }
  if (result.kind === 'done') return;
  const why = result.kind === 'failed' ? result.output : 'neither fusermount3 nor umount is installed';
  if (/busy/i.test(why)) {
    const users = await usersOf(directory);
    const who = users.map(({ pid, argv }) => `${basename(argv[0] ?? '?')} (${pid})`).join(', ');
    throw new CommandFailure(
      EXIT_PRECONDITION,
      `Cannot unmount "${directory}": it is in use${who === '' ? '' : ` by ${who}`}`,
      'close what is open there, or use --force to detach it all the same',
    );
  }
  throw new CommandFailure(EXIT_FAILED, `Cannot unmount "${directory}": ${why}`);
}

type RunResult =
  | { readonly kind: 'done' }
  | { readonly kind: 'missing' }
  | { readonly kind: 'failed'; readonly output: string };

function run(program: string, argv: readonly string[]): Promise<RunResult> {
  return new Promise((resolve) => {
    execFile(program, [...argv], { timeout: 30_000 }, (error, stdout, stderr) => {
      if (error === null) resolve({ kind: 'done' });
      else if (error.code === 'ENOENT') resolve({ kind: 'missing' });
      else resolve({ kind: 'failed', output: (stderr || stdout || error.message).trim() });
    });
  });
}

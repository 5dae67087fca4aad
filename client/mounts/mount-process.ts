import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type FileHandle, open, stat, statfs } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { isErrorCode, ServiceError } from '../../base/errors.ts';
import { systemWorld } from '../../world/system-world.ts';
import {
  CommandFailure,
  EXIT_FAILED,
  generalFailure,
  isSystemError,
  notFoundFailure,
  preconditionFailure,
  temporaryFailure,
  usageFailure,
} from '../terminal/failure.ts';
import { formatDuration } from '../terminal/quantities.ts';
import type { AccessFiles } from '../transport/access.ts';
import { deviceObstacle } from './fuse-device.ts';
import { createMountLog, OWN_LOG_VARIABLE, renameMountLog } from './mount-log.ts';
import { accessTexts, optionText, parseMountOptions } from './mount-options.ts';
import { MOUNT_DAEMON, mountAt } from './mount-table.ts';
import { LAUNCHER, logTail } from './programs.ts';
import { run } from './run-program.ts';
import { canonicalOrFail, detach } from './unmount.ts';

const STAT_TIMEOUT_MS = 5_000;
const READY_TIMEOUT_MS = 60_000;
const READY_LINE_BYTES_MAX = 64 * 1024;

export interface MountOptions {
  readonly servers: readonly string[];
  readonly volume: string;
  readonly path?: string;
  readonly directory: string;
  readonly log?: string;
  readonly options?: readonly string[];
  readonly sloppy?: boolean;
  /** Credentials; a token in the environment is inherited. */
  readonly access?: AccessFiles;
}

export interface Mounted {
  readonly directory: string;
  readonly pid: number;
  readonly log: string | null;
}

/** @returns why nothing can be mounted on this machine, or null if it can */
export async function mountObstacle(): Promise<string | null> {
  const obstacle = await deviceObstacle();
  if (obstacle !== null) return `${obstacle.what} (${obstacle.fix})`;
  // Root needs no setuid helper.
  if (process.getuid?.() === 0) return null;
  const found = await run('fusermount3', ['--version']);
  return found.kind === 'missing'
    ? 'the program fusermount3 is missing (Debian: apt-get install fuse3)'
    : null;
}

/** Mounts a volume by a process of its own, which outlives this one. Resolves once the mount is usable. */
export async function mountVolume(options: MountOptions): Promise<Mounted> {
  const directory = await prepare(options);
  if (options.log !== undefined) {
    const file = await open(options.log, 'a', 0o600);
    const { child, pid } = await startDaemon(options, directory, { path: options.log, file });
    child.unref();
    return { directory, pid, log: options.log };
  }
  const log = await createMountLog(directory);
  const { child, pid } = await startDaemon(options, directory, log, { [OWN_LOG_VARIABLE]: '1' });
  child.unref();
  return { directory, pid, log: await renameMountLog(log.path, directory, pid) };
}

/**
 * Mounts a volume, and returns when the mount's process has ended. SIGTERM and SIGINT are forwarded to it: it stores
 * what was written and unmounts; a second one ends it at once. A service manager (`NOTIFY_SOCKET`) is notified when the
 * mount is usable.
 * @returns the exit code of the mount's process
 */
export async function mountInForeground(
  options: MountOptions,
  usable: (mounted: Mounted) => void,
): Promise<number> {
  const directory = await prepare(options);
  const log = options.log ?? null;
  const file = log === null ? null : { path: log, file: await open(log, 'a', 0o600) };
  const { child, pid } = await startDaemon(options, directory, file);
  const ended = once(child, 'exit') as Promise<[number | null]>;
  const onSignal = (signal: NodeJS.Signals) => {
    child.kill(signal);
  };
  process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
  try {
    usable({ directory, pid, log });
    // systemd-notify runs as a child of this process, which is why the unit says NotifyAccess=all.
    if (process.env.NOTIFY_SOCKET !== undefined) await run('systemd-notify', ['--ready']);
    const [code] = await ended;
    return code ?? EXIT_FAILED;
  } finally {
    process.off('SIGTERM', onSignal).off('SIGINT', onSignal);
  }
}

/** Whether the options need root: the mount's process refuses them and says so, whatever obstacle there is. */
function lacksRoot({ options = [], sloppy }: MountOptions): boolean {
  return process.getuid?.() !== 0 && parseMountOptions(options, sloppy).transport === 'kernel';
}

async function prepare(options: MountOptions): Promise<string> {
  const obstacle = await mountObstacle();
  if (obstacle !== null && !lacksRoot(options)) throw generalFailure(`Cannot mount: ${obstacle}`);
  const directory = await canonicalOrFail(options.directory, `make it first: mkdir -p ${options.directory}`);
  await prepareMountPoint(directory);
  return directory;
}

/**
 * Settings for the C library. Few heaps: each thread of the pool would keep one of its own. And a block that a file was
 * read into is kept for the next one: returned to the system, it would cost a page fault for every 4 KiB, a sixth of a
 * long read.
 */
const MALLOC_ENV = {
  MALLOC_ARENA_MAX: '2',
  MALLOC_MMAP_THRESHOLD_: String(16 * 1024 * 1024),
  MALLOC_TRIM_THRESHOLD_: String(64 * 1024 * 1024),
};

/** V8 settings: collect garbage of answers early (docs/design/mount.md, "Memory"). */
const GC_FLAGS = ['--max-semi-space-size=16', '--heap-growing-percent=30'];

/** Starts the mount's process, and awaits that it is ready. @param log for its output, closed here; null: inherited */
async function startDaemon(
  options: MountOptions,
  directory: string,
  log: { readonly path: string; readonly file: FileHandle } | null,
  env: Readonly<Record<string, string>> = {},
): Promise<{ readonly child: ChildProcess; readonly pid: number }> {
  const output = log === null ? 'inherit' : log.file.fd;
  let child: ChildProcess;
  try {
    child = spawn(process.execPath, [...GC_FLAGS, ...daemonArguments(options, directory)], {
      // Also in the foreground: Ctrl-C reaches it once, through the waiting process.
      detached: true,
      // Any other working directory might keep a mount busy.
      cwd: '/',
      env: { ...MALLOC_ENV, ...process.env, ...env },
      stdio: ['ignore', output, output, 'pipe'],
    });
  } finally {
    await log?.file.close();
  }
  try {
    return { child, pid: await awaitReadyLine(child, log?.path ?? null) };
  } catch (error) {
    child.kill('SIGKILL');
    throw error;
  } finally {
    child.stdio[3]?.destroy();
  }
}

/** @returns the command line of the mount's process; the directory comes last: it identifies the process */
function daemonArguments(options: MountOptions, directory: string): string[] {
  const { servers, volume, path = '/', access = {} } = options;
  const texts = [
    ...(options.options ?? []),
    optionText('servers', servers.join(';')),
    ...accessTexts(access),
  ];
  const sloppy = options.sloppy === true ? ['--sloppy'] : [];
  return [
    LAUNCHER,
    MOUNT_DAEMON,
    ...sloppy,
    ...texts.flatMap((text) => ['-o', text]),
    `${volume}:${path}`,
    directory,
  ];
}

/** Makes sure that the directory exists and nothing is mounted on it; removes a dead mount. */
async function prepareMountPoint(directory: string): Promise<void> {
  const found = await probeDirectory(directory);
  if (found === 'missing') {
    throw notFoundFailure(
      `Cannot mount on "${directory}": there is no such directory`,
      `create it with: mkdir -p ${directory}`,
    );
  }
  if (found === 'dead') {
    await detach(directory, true);
    return prepareMountPoint(directory);
  }
  const mounted = await mountAt(directory);
  if (mounted?.type.startsWith('fuse')) {
    const hangs = found === 'hangs' ? ', and does not respond' : '';
    throw preconditionFailure(
      `Cannot mount on "${directory}": ${mounted.source} is mounted there already${hangs}`,
      `"leasehold umount ${hangs === '' ? '' : '--lazy '}${directory}" removes it`,
    );
  }
  if (found === 'hangs')
    throw generalFailure(
      `Cannot mount on "${directory}": the directory does not respond; it may be a dead network mount`,
    );
  if (found === 'other')
    throw usageFailure(
      `Cannot mount on "${directory}": it is not a directory`,
      'name a directory; mkdir makes one',
    );
}

async function probeDirectory(
  directory: string,
): Promise<'directory' | 'other' | 'missing' | 'dead' | 'hangs'> {
  // In a child process, which can be killed: a thread that hangs would keep this process from ending. Statistics of the
  // file system and not attributes: the kernel may have those of a dead mount's root in its cache.
  const beganMs = systemWorld.nowMs();
  await run('stat', ['-f', directory], STAT_TIMEOUT_MS);
  if (systemWorld.nowMs() - beganMs >= STAT_TIMEOUT_MS) return 'hangs';
  try {
    await statfs(directory);
    return (await stat(directory)).isDirectory() ? 'directory' : 'other';
  } catch (error) {
    if (isSystemError(error) && error.code === 'ENOENT') return 'missing';
    if (isSystemError(error) && (error.code === 'ENOTCONN' || error.code === 'ECONNABORTED')) return 'dead';
    throw error;
  }
}

interface ReadyLine {
  readonly ready?: unknown;
  readonly error?: { readonly code?: unknown; readonly message?: unknown; readonly hint?: unknown };
}

/** Awaits the line by which the mount's process reports that it is ready. @returns its pid @throws why it is not */
async function awaitReadyLine(child: ChildProcess, log: string | null): Promise<number> {
  const ended = new Promise<never>((_, reject) => {
    child.once('error', reject);
    // 'close' and not 'exit': by then all output has been read.
    child.once('close', (code, signal) => {
      void (log === null ? Promise.resolve('') : logTail(log)).then((tail) => {
        const how = signal === null ? `exit code ${code}` : `signal ${signal}`;
        const exit = code !== null && code > 0 && code < 10 ? code : EXIT_FAILED;
        reject(new CommandFailure(exit, `Cannot mount: its process ended with ${how}${tail}`));
      });
    });
  });
  const abort = new AbortController();
  const late = systemWorld.sleep(READY_TIMEOUT_MS, { signal: abort.signal }).then(() => {
    const message = `Cannot mount: the mount was not ready after ${formatDuration(READY_TIMEOUT_MS)}`;
    throw temporaryFailure(message, log === null ? '' : `its log is ${log}`);
  });
  ended.catch(() => {});
  late.catch(() => {});
  try {
    const line = await Promise.race([readLine(child.stdio[3] as Readable, ended), ended, late]);
    const status = JSON.parse(line) as ReadyLine;
    if (status.ready === true && child.pid !== undefined) return child.pid;
    const { code, message = line, hint = '' } = status.error ?? {};
    if (isErrorCode(code)) throw new ServiceError(code, `Cannot mount: ${String(message)}`);
    throw generalFailure(`Cannot mount: ${String(message)}`, String(hint));
  } finally {
    abort.abort();
    child.removeAllListeners();
  }
}

async function readLine(stream: Readable, processEnded: Promise<never>): Promise<string> {
  let text = '';
  for await (const chunk of stream.setEncoding('utf8')) {
    text += chunk;
    const end = text.indexOf('\n');
    if (end !== -1) return text.slice(0, end);
    if (text.length > READY_LINE_BYTES_MAX) break;
  }
  // The pipe ended without a line, so the process is about to end: its exit says why.
  return processEnded;
}

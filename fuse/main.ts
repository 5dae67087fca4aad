import { closeSync, fstatSync, writeSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { ServiceError } from '../base/errors.ts';
import { ClusterClient } from '../client/cluster-client.ts';
import { mountWithBinding } from './binding.ts';
import { clusterBackend } from './cluster-backend.ts';
import { ErrnoError } from './errno.ts';
import { isLogLevel, stderrLog } from './log.ts';
import { mountVolume } from './mount.ts';

const USAGE =
  'usage: fuse/main.ts --servers URL,URL,… [--op-timeout 20s] [--log-level info] [--no-xattr] VOLUME DIR';
const READY_FD = 3;
const OPERATION_TIMEOUT_DEFAULT = '20s';
/** The client library gives up this much earlier, so that its error, which says why, is the one that is told. */
const CLIENT_MARGIN = 0.95;

interface Settings {
  readonly servers: readonly string[];
  readonly limitMs: number;
  readonly logLevel: 'error' | 'warn' | 'info' | 'debug';
  readonly xattrs: boolean;
  readonly volume: string;
  readonly directory: string;
}

/**
 * The process behind a mount. Says on descriptor 3, if that is a pipe, in one line of JSON that the mount is
 * usable or why it is not; ends when the mount does. SIGTERM and SIGINT write out what is under way and unmount.
 *
 * @returns the exit code: 0, or 1 where it could not mount, 2 for a wrong command line
 */
export async function runMountDaemon(argv: readonly string[]): Promise<number> {
  let settings: Settings;
  try {
    settings = parseSettings(argv);
  } catch (error) {
    process.stderr.write(`${messageOf(error)}\n${USAGE}\n`);
    sayReady({ error: { code: 'bad-request', message: messageOf(error) } });
    return 2;
  }
  const { servers, limitMs, volume, directory, xattrs } = settings;
  const log = stderrLog(settings.logLevel);
  const client = new ClusterClient({ servers, operationTimeoutMs: Math.round(limitMs * CLIENT_MARGIN) });
  const backend = clusterBackend(client, volume);
  const source = `leasehold:${volume}`;
  try {
    const mounted = await mountVolume(backend, mountWithBinding, { directory, source, limitMs, xattrs, log });
    unmountOnSignal(mounted.unmount, (error) => log('error', 'cannot unmount', { error: messageOf(error) }));
    sayReady({ ready: true, pid: process.pid });
    log('info', 'mounted', { volume, directory });
    await mounted.ended;
    log('info', 'unmounted', { volume, directory });
    return 0;
  } catch (error) {
    log('error', 'cannot mount', { volume, directory, error: messageOf(error) });
    sayReady({ error: { code: codeOf(error), message: messageOf(error) } });
    return 1;
  }
}

/** A second signal ends the process at once; the kernel's helper then removes the mount. */
export function unmountOnSignal(unmount: () => Promise<void>, failed: (error: unknown) => void): void {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.once(signal, () => {
      unmount().catch((error: unknown) => {
        failed(error);
        process.exitCode = 1;
      });
    });
  }
}

/** One line for whoever started this process, which then may go its way. */
export function sayReady(line: unknown): void {
  const text = `${JSON.stringify(line)}\n`;
  // Started by hand there is no descriptor 3, or it is one of this process's own.
  let isPipe = false;
  try {
    const stat = fstatSync(READY_FD);
    isPipe = stat.isFIFO() || stat.isSocket();
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EBADF')) throw error;
  }
  if (!isPipe) {
    process.stdout.write(text);
    return;
  }
  try {
    writeSync(READY_FD, text);
  } catch (error) {
    // Who started us is gone; the mount is there all the same.
    if (!(error instanceof Error && 'code' in error && error.code === 'EPIPE')) throw error;
  }
  closeSync(READY_FD);
}

function parseSettings(argv: readonly string[]): Settings {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      servers: { type: 'string' },
      'op-timeout': { type: 'string', default: OPERATION_TIMEOUT_DEFAULT },
      'log-level': { type: 'string', default: 'info' },
      'no-xattr': { type: 'boolean', default: false },
    },
  });
  const [volume, directory] = positionals;
  if (volume === undefined || directory === undefined || positionals.length > 2) {
    throw new Error('A volume and a directory are needed');
  }
  const servers = (values.servers ?? '').split(',').filter((url) => url !== '');
  if (servers.length === 0) throw new Error('--servers names no server');
  const logLevel = values['log-level'];
  if (!isLogLevel(logLevel)) throw new Error(`--log-level ${logLevel} is not error, warn, info or debug`);
  const limitMs = parseDurationMs(values['op-timeout']);
  return { servers, limitMs, logLevel, xattrs: !values['no-xattr'], volume, directory };
}

function parseDurationMs(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|)$/.exec(text);
  const unitMs = match?.[2] === 's' ? 1000 : match?.[2] === 'm' ? 60_000 : 1;
  const limitMs = Math.round(Number(match?.[1]) * unitMs);
  if (!(limitMs >= 100))
    throw new Error(`--op-timeout ${text} is not a duration of 100ms or more, such as 20s`);
  return limitMs;
}

function codeOf(error: unknown): string {
  if (error instanceof ServiceError) return error.code;
  if (error instanceof ErrnoError) return 'no-majority';
  return 'internal';
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

if (import.meta.main) process.exit(await runMountDaemon(process.argv.slice(2)));

import { closeSync, fstatSync, writeSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { ServiceError } from '../base/errors.ts';
import { controlSocketPath } from '../client/mounts/mount-log.ts';
import {
  flagOptions,
  MOUNT_OPTIONS,
  type MountSettings,
  parseMountOptions,
  parseMountSource,
} from '../client/mounts/mount-options.ts';
import { Access, accessFiles } from '../client/transport/access.ts';
import { systemWorld as world } from '../world/system-world.ts';
import { isSnapshot } from './cluster/cluster-backend.ts';
import { SystemUsers } from './cluster/users.ts';
import { type ClusterMountSettings, mountCluster } from './composition.ts';
import { writtenBytesMax } from './contents/written-pages.ts';
import { listenForControl } from './control-socket.ts';
import { withDeadline } from './deadline.ts';
import { errnoName, messageOf } from './errno.ts';
import { stderrLog } from './log.ts';
import { OwnLog } from './own-log.ts';
import { expiresNames, TransportError, transportOf } from './transports.ts';

const USAGE =
  'usage: fuse/main.ts [--servers URL,URL,…] [-o OPTION,OPTION=VALUE,…] VOLUME[:/DIRECTORY] DIR; docs/mount.md has the options';
const READY_FD = 3;
/** Contents of a snapshot never change. */
const SNAPSHOT_AGE_MS = 3_600_000;
const UNMOUNT_LIMIT_MS = 60_000;

/**
 * The process of a mount, which ends with it. Reports on descriptor 3, if a pipe, in one line of JSON that the mount is
 * usable or why not. SIGTERM and SIGINT store what is pending and unmount.
 * @returns the exit code: 0; 1 if it could not mount; 2 for a wrong command line
 */
export async function runMountDaemon(argv: readonly string[]): Promise<number> {
  let settings: ClusterMountSettings;
  try {
    settings = parseSettings(argv);
  } catch (error) {
    process.stderr.write(`${messageOf(error)}\n${USAGE}\n`);
    reportReady({ error: { code: 'bad-request', message: messageOf(error) } });
    return 2;
  }
  const { volume, path, directory } = settings;
  const log = stderrLog(world, settings.logLevel);
  const ownLog = new OwnLog(world);
  try {
    const transport = transportOf(settings);
    const mounted = await mountCluster(settings, {
      ...{ world, log, transport, expiresNames: expiresNames(transport) },
      access: new Access(accessFiles(settings.access)),
      isRoot: process.getuid?.() === 0,
      users: new SystemUsers(world),
      writtenBytesMax: writtenBytesMax(),
    });
    unmountOnSignal(mounted.unmount, (error) => log('error', 'cannot unmount', { error: messageOf(error) }));
    const socket = controlSocketPath(directory, process.pid);
    const endControl = await listenForControl(socket, mounted, readOnlyWhy(settings), log);
    const { limitMs, cache } = mounted;
    // Before the parent gets its line: it may read the log then.
    log('info', 'mounted', { volume, path, directory, limitMs, cache: cache.kind });
    reportReady({ ready: true, pid: process.pid });
    await mounted.ended;
    endControl();
    log('info', 'unmounted', { volume, directory });
    // After a dropped operation the log may be the only record of it.
    if (!mounted.hasDropped) ownLog.remove();
    return 0;
  } catch (error) {
    log('error', 'cannot mount', { volume, directory, error: messageOf(error) });
    const hint = error instanceof TransportError ? { hint: error.hint } : {};
    reportReady({ error: { code: codeOf(error), message: messageOf(error), ...hint } });
    return 1;
  }
}

/** Unmounts at a signal. A second signal, a failure, or a minute ends the process: the guard removes the mount. */
export function unmountOnSignal(unmount: () => Promise<void>, failed: (error: unknown) => void): void {
  const signals = ['SIGTERM', 'SIGINT'] as const;
  const onSignal = (): void => {
    for (const signal of signals) process.off(signal, onSignal);
    withDeadline(world, unmount(), UNMOUNT_LIMIT_MS, 'Storing what was written and unmounting').catch(
      (error: unknown) => {
        failed(error);
        process.exit(1);
      },
    );
  };
  for (const signal of signals) process.on(signal, onSignal);
}

export function reportReady(line: unknown): void {
  const text = `${JSON.stringify(line)}\n`;
  // Without a parent, descriptor 3 is closed, or one of this process's own.
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
    // The parent has ended; the mount works without it.
    if (!(error instanceof Error && 'code' in error && error.code === 'EPIPE')) throw error;
  }
  closeSync(READY_FD);
}

function parseSettings(argv: readonly string[]): ClusterMountSettings {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      option: { type: 'string', short: 'o', multiple: true, default: [] },
      sloppy: { type: 'boolean', default: false },
      ...Object.fromEntries(
        MOUNT_OPTIONS.flatMap(({ flag, valueForm }) =>
          flag === undefined ? [] : [[flag, { type: valueForm === null ? 'boolean' : 'string' } as const]],
        ),
      ),
    },
  });
  const [sourceText, directory] = positionals;
  if (sourceText === undefined || directory === undefined || positionals.length > 2) {
    throw new Error('A volume and a directory are needed');
  }
  const settings = parseMountOptions(
    [...(values.option as string[]), ...flagOptions(values)],
    values.sloppy === true,
  );
  if (settings.servers.length === 0) throw new Error('--servers names no server');
  const source = parseMountSource(sourceText);
  const mount = isSnapshot(source.volume) ? asOfSnapshot(settings) : settings;
  return { ...mount, ...source, directory };
}

function asOfSnapshot(settings: MountSettings): MountSettings {
  return { ...settings, readOnly: true, cache: { kind: 'ttl', ageMs: SNAPSHOT_AGE_MS } };
}

/** @returns why the mount can never become read-write; null if it can */
function readOnlyWhy({ readOnly, volume }: ClusterMountSettings): string | null {
  if (isSnapshot(volume)) return 'it is of a snapshot, of which nothing changes';
  return readOnly ? 'it was mounted with "ro": unmount it, and mount it without' : null;
}

function codeOf(error: unknown): string {
  if (error instanceof ServiceError) return error.code;
  if (error instanceof TransportError) return 'transport';
  return errnoName(error) === 'ETIMEDOUT' ? 'no-majority' : 'internal';
}

if (import.meta.main) process.exit(await runMountDaemon(process.argv.slice(2)));

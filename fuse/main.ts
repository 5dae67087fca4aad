import { closeSync, fstatSync, writeSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { ServiceError } from '../base/errors.ts';
import { Access, accessFiles } from '../client/access.ts';
import { ClusterClient, type ClusterClientOptions } from '../client/cluster-client.ts';
import { writeGapBound } from '../client/demo/bound.ts';
import {
  flagOptions,
  kernelOptions,
  MOUNT_OPTIONS,
  type MountSettings,
  parseMountOptions,
  parseMountSource,
} from '../client/mount-options.ts';
import { LATE_ERROR_MESSAGE } from '../client/mount-status.ts';
import { RememberingClient, type RememberingClientOptions } from '../client/remembering-client.ts';
import { systemWorld as world } from '../world/system-world.ts';
import type { AccessRule } from './access-times.ts';
import { withBirths } from './birth-backend.ts';
import { clusterBackend, isSnapshot } from './cluster-backend.ts';
import { ClusterBirths } from './cluster-births.ts';
import { withDeadline } from './deadline.ts';
import { errnoName } from './errno.ts';
import { clusterFacts, withFacts } from './facts.ts';
import { stderrLog } from './log.ts';
import { type Mounted, mountVolume } from './mount.ts';
import { type LateError, UNBORN_MS_MAX } from './newborn-files.ts';
import { OwnLog } from './own-log.ts';
import { isAsStored, presenter } from './presentation.ts';
import { readOnlyBackend } from './read-only.ts';
import { REMOVAL_ROW_MS } from './removal-rows.ts';
import type { KernelCache, Log } from './transport.ts';
import { TransportError, transportNamed } from './transports.ts';

const USAGE =
  'usage: fuse/main.ts [--servers URL,URL,…] [-o OPTION,OPTION=VALUE,…] VOLUME[:/DIRECTORY] DIR; docs/mount.md has the options';
const READY_FD = 3;
/** How long a mount believes what it heard of a snapshot. */
const SNAPSHOT_AGE_MS = 3_600_000;
/** The client library gives up this much earlier, so that its error, which says why, is the one that is told. */
const CLIENT_MARGIN = 0.95;
/** For the question how long leases are, on which the limit of all further ones depends. */
const FIRST_LIMIT_MS = 20_000;
const ERROR_CHARS_MAX = 1_000;
/** What a call may take beyond the cluster's lease, where nobody has said otherwise. */
const BEYOND_LEASE_MS = 5_000;
const BEYOND_FAILOVER_MS = 1_000;
/** For all that was written to reach the servers after a signal. */
const UNMOUNT_LIMIT_MS = 60_000;

interface Settings extends MountSettings {
  readonly volume: string;
  readonly path: string;
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
  const { servers, volume, path, directory, xattrs } = settings;
  const log = stderrLog(world, settings.logLevel);
  const ownLog = new OwnLog(world);
  let hasDropped = false;
  const source = settings.source ?? (path === '/' ? `leasehold:${volume}` : `leasehold:${volume}:${path}`);
  try {
    const access = new Access(accessFiles(settings.access));
    const limitMs = settings.operationTimeoutMs ?? (await usualLimit(servers, access));
    let mounted: Mounted | null = null;
    const clientOptions = {
      ...{ world, servers, access, operationTimeoutMs: Math.round(limitMs * CLIENT_MARGIN) },
      localReads: settings.localReads,
      exact: settings.cache.kind !== 'ttl' || settings.cache.ageMs < UNBORN_MS_MAX,
    };
    const failed = (error: unknown) =>
      log('debug', 'nothing is remembered for now', { error: messageOf(error) });
    const { client, believedMs } = clientOf(settings, clientOptions, {
      forgotten: (inodes) => mounted?.forgotten(inodes) ?? Promise.resolve(),
      changing: (inodes) => mounted?.changing(inodes) ?? Promise.resolve(),
      failed,
    });
    const births =
      settings.cache.kind !== 'strict' && !settings.readOnly
        ? new ClusterBirths(client, volume, failed)
        : null;
    const plain = clusterBackend(client, volume, path, births?.delegations);
    // Facts are of what is there now.
    const whole = isSnapshot(volume) ? plain : withFacts(plain, clusterFacts(client, volume), settings.facts);
    const rowMs = clientOptions.exact ? 0 : REMOVAL_ROW_MS;
    const waitMsMax = clientOptions.operationTimeoutMs;
    const changeable =
      births === null
        ? whole
        : withBirths(world, whole, births, log, {
            ...{ rowMs, waitMsMax },
            late: (error) => {
              hasDropped = true;
              void reportLate(client, error, log);
            },
          });
    const backend = settings.readOnly ? readOnlyBackend(changeable) : changeable;
    mounted = await mountVolume(backend, transportNamed(settings.transport), {
      ...{ world, directory, source, limitMs, xattrs, log },
      kernelOptions: kernelOptions(settings, process.getuid?.() === 0),
      present: presenter(settings),
      // Lists speak of the owners and modes that are stored.
      acls: isAsStored(settings),
      flushBehind: settings.flushBehind,
      accessRule: settings.readOnly ? { times: 'noatime', directories: false } : accessRule(settings),
      ageMaxMs: settings.cache.kind === 'ttl' ? settings.cache.ageMs : 0,
      ...(believedMs === undefined ? {} : { believedMs }),
    });
    unmountOnSignal(mounted.unmount, (error) => log('error', 'cannot unmount', { error: messageOf(error) }));
    sayReady({ ready: true, pid: process.pid });
    log('info', 'mounted', { volume, path, directory, limitMs });
    await mounted.ended;
    log('info', 'unmounted', { volume, directory });
    // Where an acknowledged operation was dropped, the log may be the only one that says so.
    if (!hasDropped) ownLog.remove();
    return 0;
  } catch (error) {
    log('error', 'cannot mount', { volume, directory, error: messageOf(error) });
    const hint = error instanceof TransportError ? { hint: error.hint } : {};
    sayReady({ error: { code: codeOf(error), message: messageOf(error), ...hint } });
    return 1;
  }
}

/** The log has an operation that was dropped even where no server learns of it. */
async function reportLate(client: ClusterClient, late: LateError, log: Log): Promise<void> {
  const { operation, directory, name } = late;
  const error = messageOf(late.error).slice(0, ERROR_CHARS_MAX);
  let path = `directory ${directory}: ${name}`;
  try {
    const { paths } = await client.query({ kind: 'paths', inodes: [directory] });
    const [found] = paths;
    if (found !== undefined) path = `${found.volume}:${found.path.replace(/\/$/, '')}/${name}`;
  } catch (why) {
    log('debug', 'the path of a late error is not known', { error: messageOf(why) });
  }
  log('error', LATE_ERROR_MESSAGE, { operation, path, error });
  await client.reportLateError({ operation, path, error }).catch((why: unknown) => {
    log('debug', 'a late error is not reported', { error: messageOf(why) });
  });
}

function accessRule({ accessTimes, directoryAccessTimes }: MountSettings): AccessRule {
  return { times: accessTimes, directories: directoryAccessTimes };
}

/** The client of a mount, and for how long what it told stays true. */
function clientOf(
  { cache }: MountSettings,
  options: ClusterClientOptions,
  events: Required<Pick<RememberingClientOptions, 'forgotten' | 'changing' | 'failed'>>,
): { readonly client: ClusterClient; readonly believedMs?: KernelCache['believedMs'] } {
  if (cache.kind !== 'leases') return { client: new ClusterClient(options) };
  const client = new RememberingClient({ ...options, ...events });
  return { client, believedMs: (attributes) => client.believedMs(attributes) };
}

/**
 * SIGTERM and SIGINT unmount. A second signal, or a cluster that does not take in time what was written, ends the process
 * at once; the kernel's helper then removes the mount.
 */
export function unmountOnSignal(
  unmount: () => Promise<void>,
  failed: (error: unknown) => void,
  limitMs = UNMOUNT_LIMIT_MS,
): void {
  const signals = ['SIGTERM', 'SIGINT'] as const;
  const onSignal = (): void => {
    for (const signal of signals) process.off(signal, onSignal);
    withDeadline(world, unmount(), limitMs, 'Storing what was written and unmounting').catch(
      (error: unknown) => {
        failed(error);
        process.exit(1);
      },
    );
  };
  for (const signal of signals) process.on(signal, onSignal);
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
      option: { type: 'string', short: 'o', multiple: true, default: [] },
      sloppy: { type: 'boolean', default: false },
      ...Object.fromEntries(
        MOUNT_OPTIONS.flatMap(({ flag, value }) =>
          flag === undefined ? [] : [[flag, { type: value === null ? 'boolean' : 'string' } as const]],
        ),
      ),
    },
  });
  const [source, directory] = positionals;
  if (source === undefined || directory === undefined || positionals.length > 2) {
    throw new Error('A volume and a directory are needed');
  }
  const settings = parseMountOptions(
    [...(values.option as string[]), ...flagOptions(values)],
    values.sloppy === true,
  );
  if (settings.servers.length === 0) throw new Error('--servers names no server');
  const place = parseMountSource(source);
  const mount = isSnapshot(place.volume) ? asOfSnapshot(settings) : settings;
  return { ...mount, ...place, directory };
}

/** Nothing of a snapshot changes: whatever was heard of it once stays true. */
function asOfSnapshot(settings: MountSettings): MountSettings {
  return { ...settings, readOnly: true, cache: { kind: 'ttl', ageMs: SNAPSHOT_AGE_MS } };
}

/**
 * Long enough for the death of a server to be a pause: the cluster's lease and some seconds, or the longest
 * fail-over where that takes longer.
 */
async function usualLimit(servers: readonly string[], access: Access): Promise<number> {
  const client = new ClusterClient({ world, servers, access, operationTimeoutMs: FIRST_LIMIT_MS });
  try {
    const { leaseMs, clockSkewMaxMs } = (await client.status()).timing;
    const failoverMs = writeGapBound(leaseMs, clockSkewMaxMs).totalMs;
    return Math.max(leaseMs + BEYOND_LEASE_MS, failoverMs + BEYOND_FAILOVER_MS);
  } finally {
    await client.close();
  }
}

function codeOf(error: unknown): string {
  if (error instanceof ServiceError) return error.code;
  if (error instanceof TransportError) return 'transport';
  return errnoName(error) === 'ETIMEDOUT' ? 'no-majority' : 'internal';
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

if (import.meta.main) process.exit(await runMountDaemon(process.argv.slice(2)));

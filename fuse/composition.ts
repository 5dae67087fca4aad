import type { World } from '../base/world.ts';
import { CachingClient, type CachingClientOptions } from '../client/cluster/caching-client.ts';
import { ClusterClient, type ClusterClientOptions } from '../client/cluster/cluster-client.ts';
import { writeGapBound } from '../client/demo/bound.ts';
import {
  type CacheMode,
  cacheModeOf,
  kernelOptions,
  type MountSettings,
} from '../client/mounts/mount-options.ts';
import { LATE_ERROR_MESSAGE } from '../client/mounts/mount-status.ts';
import type { Access } from '../client/transport/access.ts';
import { clusterBackend, isSnapshot } from './cluster/cluster-backend.ts';
import { ClusterDelegations } from './cluster/cluster-delegations.ts';
import { isAsStored, presenter } from './cluster/presentation.ts';
import { readOnlyBackend } from './cluster/read-only.ts';
import type { Users } from './cluster/users.ts';
import { clusterVirtualAttributes, withVirtualAttributes } from './cluster/virtual-attributes.ts';
import { messageOf } from './errno.ts';
import { MetadataCache } from './metadata/cache.ts';
import { type Mounted, type MountOptions, mountVolume } from './mount.ts';
import { withPendingNames } from './pending/pending-names.ts';
import { PendingOps } from './pending/pending-ops.ts';
import { UNCOMMITTED_MS_MAX } from './pending/uncommitted-files.ts';
import { UNLINK_STREAK_MS } from './pending/unlink-streaks.ts';
import type { LateError } from './pending/unlinks.ts';
import type { Log, Transport } from './transport.ts';

/** The client library's share of a call's limit: the program then gets the library's error, which has the reason. */
const CLIENT_MARGIN = 0.95;
/** For the request for the cluster's timing, from which the limit of all others follows. */
const FIRST_LIMIT_MS = 20_000;
const ERROR_CHARS_MAX = 1_000;
const BEYOND_LEASE_MS = 5_000;
const BEYOND_FAILOVER_MS = 1_000;

export interface ClusterMountSettings extends MountSettings {
  readonly volume: string;
  readonly path: string;
  readonly directory: string;
}

export interface MountSurroundings {
  readonly world: World;
  readonly access: Access;
  readonly transport: Transport;
  readonly expiresNames: boolean;
  readonly log: Log;
  readonly isRoot: boolean;
  readonly users: Users;
  readonly writtenBytesMax: number;
}

export interface ClusterMount extends Mounted {
  readonly limitMs: number;
  readonly cache: CacheMode;
  /** An acknowledged operation was dropped; the log has it. */
  readonly hasDropped: boolean;
}

/** Mounts a volume of a cluster. @throws ServiceError or TransportError, before anything is mounted */
export async function mountCluster(
  settings: ClusterMountSettings,
  surroundings: MountSurroundings,
): Promise<ClusterMount> {
  const { world, access, transport, log, isRoot, users, writtenBytesMax } = surroundings;
  const { servers, volume, path, directory, xattrs } = settings;
  const mode = cacheModeOf(settings.cache, surroundings.expiresNames);
  const source = settings.source ?? (path === '/' ? `leasehold:${volume}` : `leasehold:${volume}:${path}`);
  const limitMs = settings.operationTimeoutMs ?? (await usualLimit(world, servers, access));
  let mounted: Mounted | null = null;
  let hasDropped = false;
  const clientOptions = {
    ...{ world, servers, access, operationTimeoutMs: Math.round(limitMs * CLIENT_MARGIN) },
    localReads: settings.localReads,
    exact: mode.kind !== 'ttl' || mode.ageMs < UNCOMMITTED_MS_MAX,
  };
  const failed = (error: unknown) =>
    log('debug', 'answers are not cached for now', { error: messageOf(error) });
  const dropAttributes = (inodes: readonly number[]): Promise<void> =>
    mounted?.dropAttributes(inodes) ?? Promise.resolve();
  const { client, grantedMs } = clientOf(mode, clientOptions, {
    recalled: (inodes) => mounted?.invalidate(inodes) ?? Promise.resolve(),
    changing: dropAttributes,
    accessed: dropAttributes,
    failed,
  });
  const delegated =
    mode.kind !== 'strict' && !settings.readOnly
      ? new ClusterDelegations(client, volume, failed, users)
      : null;
  const plain = clusterBackend(client, volume, path, delegated, users);
  // Virtual attributes describe the present, not a snapshot.
  const whole = isSnapshot(volume)
    ? plain
    : withVirtualAttributes(plain, clusterVirtualAttributes(client, volume), settings.virtualXattrs);
  const ttlMs = mode.kind === 'ttl' ? mode.ageMs : 0;
  const cache = new MetadataCache(world, ttlMs, (directory) => delegated?.isDelegated(directory) === true);
  const pending = new PendingOps(world);
  const changeable =
    delegated === null
      ? whole
      : withPendingNames(world, whole, delegated, { cache, pending }, log, {
          streakMs: isAheadOfCluster(mode) ? UNLINK_STREAK_MS : 0,
          waitMsMax: clientOptions.operationTimeoutMs,
          changed: dropAttributes,
          late: (error) => {
            hasDropped = true;
            void reportLate(client, error, log);
          },
        });
  const backend = settings.readOnly ? readOnlyBackend(changeable) : changeable;
  const { accessTimes: times, directoryAccessTimes: directories } = settings;
  mounted = await mountVolume(backend, transport, {
    ...{ world, directory, source, limitMs, xattrs, log },
    ...{ cache, pending, writtenBytesMax },
    kernelOptions: kernelOptions(settings, isRoot),
    present: presenter(settings),
    // Access control lists refer to the stored owners and modes.
    acls: isAsStored(settings),
    creationTimes: settings.creationTimes,
    flushBehind: settings.flushBehind,
    accessRule: settings.readOnly ? { times: 'noatime', directories: false } : { times, directories },
    ...(grantedMs === undefined ? {} : { grantedMs }),
  });
  return {
    ...{ ...mounted, limitMs, cache: mode },
    get hasDropped() {
      return hasDropped;
    },
  };
}

/** Not with `strict`, which promises current answers, nor if records expire sooner than an unlink may take. */
function isAheadOfCluster(cache: CacheMode): boolean {
  return cache.kind === 'leases' || (cache.kind === 'ttl' && cache.ageMs >= UNCOMMITTED_MS_MAX);
}

function clientOf(
  mode: CacheMode,
  options: ClusterClientOptions,
  events: Required<Pick<CachingClientOptions, 'recalled' | 'changing' | 'accessed' | 'failed'>>,
): { readonly client: ClusterClient; readonly grantedMs?: MountOptions['grantedMs'] } {
  if (mode.kind !== 'leases') return { client: new ClusterClient(options) };
  const client = new CachingClient({ ...options, ...events });
  return { client, grantedMs: (attributes) => client.validMs(attributes) };
}

/** Logs a late error with its path, even if no server can be reached, and reports it to the cluster. */
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

/** The default limit of a call outlasts a failed server: its lease and 5 s, or if longer its failover and 1 s. */
async function usualLimit(world: World, servers: readonly string[], access: Access): Promise<number> {
  const client = new ClusterClient({ world, servers, access, operationTimeoutMs: FIRST_LIMIT_MS });
  try {
    const { leaseMs, clockSkewMaxMs } = (await client.status()).timing;
    const failoverMs = writeGapBound(leaseMs, clockSkewMaxMs).totalMs;
    return Math.max(leaseMs + BEYOND_LEASE_MS, failoverMs + BEYOND_FAILOVER_MS);
  } finally {
    await client.close();
  }
}

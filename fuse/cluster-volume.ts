import type { CatalogNumber } from '../base/ids.ts';
import { CachingClient, type CachingClientOptions } from '../client/cluster/caching-client.ts';
import { ClusterClient, type ClusterClientOptions } from '../client/cluster/cluster-client.ts';
import type { CacheMode, MountSettings } from '../client/mounts/mount-options.ts';
import { LATE_ERROR_MESSAGE } from '../client/mounts/mount-status.ts';
import { clusterBackend, isSnapshot } from './cluster/cluster-backend.ts';
import { ClusterDelegations } from './cluster/cluster-delegations.ts';
import { readOnlyBackend } from './cluster/read-only.ts';
import type { Users } from './cluster/users.ts';
import { clusterVirtualAttributes, withVirtualAttributes } from './cluster/virtual-attributes.ts';
import type { DeadlineOf } from './deadline.ts';
import { messageOf } from './errno.ts';
import { MetadataCache } from './metadata/cache.ts';
import type { NestedVolume, VolumeOptions } from './mount.ts';
import { withPendingNames } from './pending/pending-names.ts';
import { PendingOps } from './pending/pending-ops.ts';
import { UNCOMMITTED_MS_MAX } from './pending/uncommitted-files.ts';
import { UNLINK_STREAK_MS } from './pending/unlink-streaks.ts';
import type { LateError } from './pending/unlinks.ts';
import type { Log } from './transport.ts';

const ERROR_CHARS_MAX = 1_000;

/** What the volumes of a mount have in common. */
export interface ClusterVolumeParts {
  readonly clientOptions: Omit<ClusterClientOptions, 'volume' | 'catalog' | 'exact'> & {
    readonly operationTimeoutMs: number;
  };
  readonly mode: CacheMode;
  readonly settings: Pick<
    MountSettings,
    'readOnly' | 'virtualXattrs' | 'flushBehind' | 'accessTimes' | 'directoryAccessTimes'
  >;
  readonly users: Users;
  readonly log: Log;
  /** Resolves when the kernel caches nothing of these inodes, which other clients are about to change. */
  invalidate(inodes: readonly number[]): Promise<void>;
  dropAttributes(inodes: readonly number[]): Promise<void>;
  /** An acknowledged operation was dropped. */
  dropped(): void;
}

export interface MountedTree {
  /** Its name, or that of a snapshot. */
  readonly volume: string;
  /** The directory that becomes the root. */
  readonly path: string;
  readonly catalog: CatalogNumber;
  readonly writtenBytesMax: number;
}

/** A volume of a cluster, with a client, caches and pending operations of its own. */
export function clusterVolume(
  { volume, path, catalog, writtenBytesMax }: MountedTree,
  parts: ClusterVolumeParts,
): NestedVolume {
  const { clientOptions, mode, settings, users, log, dropAttributes } = parts;
  const { world } = clientOptions;
  const failed = (error: unknown) =>
    log('debug', 'answers are not cached for now', { volume, error: messageOf(error) });
  const deadlineOf: DeadlineOf = (beganMs, limitMs) => client.deadlineMs(beganMs, limitMs);
  const exact = mode.kind !== 'ttl' || mode.ageMs < UNCOMMITTED_MS_MAX;
  const { client, grantedMs } = clientOf(
    mode,
    { ...clientOptions, volume, catalog, exact },
    { recalled: parts.invalidate, changing: dropAttributes, accessed: dropAttributes, failed },
  );
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
          deadlineOf,
          changed: dropAttributes,
          late: (error) => {
            parts.dropped();
            void reportLate(client, error, log);
          },
        });
  const { accessTimes: times, directoryAccessTimes: directories, readOnly, flushBehind } = settings;
  return {
    backend: readOnly ? readOnlyBackend(changeable) : changeable,
    ...{ cache, pending, writtenBytesMax, flushBehind, deadlineOf },
    accessRule: readOnly ? { times: 'noatime', directories: false } : { times, directories },
    ...(grantedMs === undefined ? {} : { grantedMs }),
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
): { readonly client: ClusterClient; readonly grantedMs?: VolumeOptions['grantedMs'] } {
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

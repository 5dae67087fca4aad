import type { CatalogNumber } from '../base/ids.ts';
import type { World } from '../base/world.ts';
import { ClusterClient } from '../client/cluster/cluster-client.ts';
import { writeGapBound } from '../client/demo/bound.ts';
import {
  type CacheMode,
  cacheModeOf,
  kernelOptions,
  type MountSettings,
} from '../client/mounts/mount-options.ts';
import type { Access } from '../client/transport/access.ts';
import { ClusterAttachments } from './cluster/cluster-attachments.ts';
import { isSnapshot } from './cluster/cluster-backend.ts';
import { isAsStored, presenter } from './cluster/presentation.ts';
import type { Users } from './cluster/users.ts';
import { type ClusterVolumeParts, clusterVolume } from './cluster-volume.ts';
import { WRITTEN_BYTES_LEAST } from './contents/written-pages.ts';
import { GRANTED_NAME_MS_MAX } from './kernel-view/granted-names.ts';
import { type Mounted, mountVolume, type NestedOptions } from './mount.ts';
import type { Log, Transport } from './transport.ts';

/** The client library's share of a call's limit: the program then gets the library's error, which has the reason. */
const CLIENT_MARGIN = 0.95;
/** For the request for the cluster's timing, from which the limit of all others follows. */
const FIRST_LIMIT_MS = 20_000;
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
  const { limitMs, catalog } = await limitAndCatalog(settings, surroundings);
  let mounted: Mounted | null = null;
  let hasDropped = false;
  const operationTimeoutMs = Math.round(limitMs * CLIENT_MARGIN);
  const { localReads, zone } = settings;
  const clientOptions = { world, servers, access, operationTimeoutMs, localReads, zone };
  const parts: ClusterVolumeParts = {
    ...{ clientOptions, mode, settings, users, log },
    invalidate: (inodes) => mounted?.invalidate(inodes) ?? Promise.resolve(),
    dropAttributes: (inodes) => mounted?.dropAttributes(inodes) ?? Promise.resolve(),
    dropped: () => {
      hasDropped = true;
    },
  };
  const { backend, ...own } = clusterVolume({ volume, path, catalog, writtenBytesMax }, parts);
  mounted = await mountVolume(backend, transport, {
    ...{ ...own, world, directory, source, limitMs, xattrs, log },
    // A snapshot shows no attached volumes.
    ...(isSnapshot(volume) ? {} : { nested: nestedOptions(parts) }),
    kernelOptions: kernelOptions(settings, isRoot),
    present: presenter(settings),
    // Access control lists refer to the stored owners and modes.
    acls: isAsStored(settings),
    creationTimes: settings.creationTimes,
    deviceNumber: settings.deviceNumber,
  });
  return {
    ...{ ...mounted, limitMs, cache: mode },
    get hasDropped() {
      return hasDropped;
    },
  };
}

function nestedOptions(parts: ClusterVolumeParts): NestedOptions {
  const { mode, clientOptions } = parts;
  // As long as a name.
  const ageMaxMs = mode.kind === 'leases' ? GRANTED_NAME_MS_MAX : mode.kind === 'ttl' ? mode.ageMs : 0;
  return {
    attachments: new ClusterAttachments(new ClusterClient(clientOptions), ageMaxMs),
    open: ({ volume, catalog }) =>
      clusterVolume({ volume, catalog, path: '/', writtenBytesMax: WRITTEN_BYTES_LEAST }, parts),
  };
}

/** The limit of each call, and the catalog that has the volume: all requests of the mount's client are for it. */
async function limitAndCatalog(
  { servers, volume, operationTimeoutMs }: ClusterMountSettings,
  { world, access }: MountSurroundings,
): Promise<{ readonly limitMs: number; readonly catalog: CatalogNumber }> {
  const firstLimitMs = operationTimeoutMs ?? FIRST_LIMIT_MS;
  const client = new ClusterClient({ world, servers, access, operationTimeoutMs: firstLimitMs });
  try {
    const limitMs = operationTimeoutMs ?? (await usualLimit(client));
    return { limitMs, catalog: await client.catalogOfVolume(volume) };
  } finally {
    await client.close();
  }
}

/** The default limit of a call outlasts a failed server: its lease and 5 s, or if longer its failover and 1 s. */
async function usualLimit(client: ClusterClient): Promise<number> {
  const { leaseMs, clockSkewMaxMs } = (await client.status()).timing;
  const failoverMs = writeGapBound(leaseMs, clockSkewMaxMs).totalMs;
  return Math.max(leaseMs + BEYOND_LEASE_MS, failoverMs + BEYOND_FAILOVER_MS);
}

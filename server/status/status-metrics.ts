import type { ServerId } from '../../base/ids.ts';
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import type { Moving } from '../../wire/http-api.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { FileStore } from '../storage/store.ts';
import type { Labels, MetricsRegistry } from '../telemetry/metrics.ts';
import { type LocalStatusService, type StatusOfMembership, VERSION } from './status-service.ts';

const MS_PER_S = 1000;
const STATES = ['serving', 'recovering', 'clock-fault', 'storage-failed'] as const;

export interface StatusMeasuredParts {
  readonly status: Pick<
    LocalStatusService,
    'state' | 'underReplicated' | 'urls' | 'id' | 'isConnected' | 'lacksCatalogReplica'
  >;
  readonly lease: Pick<LeaseDriver, 'clockOffsets'>;
  readonly store: Pick<FileStore, 'space'>;
  readonly membership: Pick<StatusOfMembership, 'registered' | 'lag' | 'moving'>;
  catalogPrimary(): ServerId | null;
  /** Only at the catalog's primary; elsewhere none. */
  volumes(): readonly VolumeInfo[];
}

/** Registers this server's state, and what it knows of the others, for alerts. */
export function registerStatusMetrics(metrics: MetricsRegistry, parts: StatusMeasuredParts): void {
  const { status, lease, store, membership } = parts;
  metrics.observe(
    'gauge',
    'leasehold_build_info',
    'Always 1; the version is in the label',
    () => [[{ version: VERSION }, 1]],
    ['version'],
  );
  metrics.observe(
    'gauge',
    'leasehold_server_state',
    '1 for the current state of this server, 0 for the others',
    () => {
      const now = status.state();
      return STATES.map((state): [Labels, number] => [{ state }, state === now ? 1 : 0]);
    },
    ['state'],
  );
  metrics.observe(
    'gauge',
    'leasehold_server_registered',
    '1 while this server is registered with the catalog',
    () => Number(membership.registered()),
  );
  metrics.observe(
    'gauge',
    'leasehold_catalog_primary_known',
    '1 while this server knows a primary of the catalog',
    () => Number(parts.catalogPrimary() !== null),
  );
  metrics.observe(
    'gauge',
    'leasehold_catalog_replica_missing',
    "1 while this server's catalog replica is being created",
    () => Number(status.lacksCatalogReplica()),
  );
  metrics.observe(
    'gauge',
    'leasehold_peer_connected',
    '1 for each other server that this one is connected to, else 0',
    () =>
      [...status.urls.keys()]
        .filter((peer) => peer !== status.id)
        .map((peer): [Labels, number] => [{ peer }, Number(status.isConnected(peer))]),
    ['peer'],
  );
  metrics.observe(
    'gauge',
    'leasehold_clock_offset_seconds',
    "Offset of another server's lease clock from this one's, if known",
    () =>
      Object.entries(lease.clockOffsets()).map(([peer, { offsetMs }]): [Labels, number] => [
        { peer },
        offsetMs / MS_PER_S,
      ]),
    ['peer'],
  );
  metrics.observe(
    'gauge',
    'leasehold_under_replicated_files',
    'Files with primary here that have a replica unreachable, or behind for more than a second',
    () => status.underReplicated().length,
  );
  metrics.observe('gauge', 'leasehold_lag_files', 'Replicas that anti-entropy found behind', () => {
    return membership.lag().files;
  });
  metrics.observe('gauge', 'leasehold_lag_bytes', 'Bytes that those replicas lack, as far as known', () => {
    return membership.lag().bytes;
  });
  const ofMoves = (name: string, help: string, read: (moving: Moving) => number): void =>
    metrics.observe('gauge', name, `${help}, by orders of this server as primary of catalogs`, () => {
      const moving = membership.moving();
      return moving === null ? [] : [[{}, read(moving)]];
    });
  ofMoves('leasehold_moves_left', 'Files that are to be moved', ({ total, done }) => total - done);
  ofMoves('leasehold_moves_done', 'Files moved since the last idle moment', ({ done }) => done);
  ofMoves('leasehold_moves_failed', 'Failed moves since then, which are repeated', ({ failed }) => failed);
  // A failed disk reports nothing: then these have no value.
  const space = async (read: 'freeBytes' | 'totalBytes'): Promise<[Labels, number][]> => {
    if (status.state() === 'storage-failed') return [];
    return [[{}, (await store.space())[read]]];
  };
  metrics.observe('gauge', 'leasehold_disk_free_bytes', 'Free space on the disk of the data folder', () => {
    return space('freeBytes');
  });
  metrics.observe('gauge', 'leasehold_disk_size_bytes', 'Size of the disk of the data folder', () => {
    return space('totalBytes');
  });
  registerVolumeMetrics(metrics, () => parts.volumes());
}

/** Registers metrics by volume: volumes are few, and their names are public, so they may be labels. */
function registerVolumeMetrics(metrics: MetricsRegistry, volumes: () => readonly VolumeInfo[]): void {
  const each = (
    name: string,
    help: string,
    value: (volume: VolumeInfo) => number,
    isReported: (volume: VolumeInfo) => boolean = () => true,
  ): void => {
    const read = (): [Labels, number][] =>
      volumes()
        .filter(isReported)
        .map((volume) => [{ volume: volume.name }, value(volume)]);
    metrics.observe('gauge', name, help, read, ['volume']);
  };
  each(
    'leasehold_volume_bytes',
    "Size of a volume's files, as quotas count it, trash included; from the catalog's primary",
    ({ namedBytes }) => namedBytes,
  );
  each(
    'leasehold_volume_inodes',
    "Files and directories of a volume, trash included; from the catalog's primary",
    ({ namedInodes }) => namedInodes,
  );
  each(
    'leasehold_volume_trash_bytes',
    'Sizes of the files in the trash of a volume',
    ({ trashedBytes }) => trashedBytes,
    ({ trashMs, trashedInodes }) => trashMs > 0 || trashedInodes > 0,
  );
  each(
    'leasehold_volume_trash_files',
    'Files in the trash of a volume',
    ({ trashedInodes }) => trashedInodes,
    ({ trashMs, trashedInodes }) => trashMs > 0 || trashedInodes > 0,
  );
  each(
    'leasehold_volume_quota_bytes',
    'Quota of a volume in bytes, if it has one',
    ({ quotaBytes }) => quotaBytes,
    ({ quotaBytes }) => quotaBytes > 0,
  );
  each(
    'leasehold_volume_quota_inodes',
    'Quota of a volume in files and directories, if it has one',
    ({ quotaInodes }) => quotaInodes,
    ({ quotaInodes }) => quotaInodes > 0,
  );
  // Directories are many, and their names are not public.
  each(
    'leasehold_volume_full_directories',
    'Directories of a volume that have used more than nine tenths of their quota',
    ({ fullDirectories = 0 }) => fullDirectories,
  );
}

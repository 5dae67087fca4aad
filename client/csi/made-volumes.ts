/** The volumes that the driver makes: one for each claim, and one for each inline volume of a pod. */
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import { CallFailure, nullIfNotFound } from './call-failure.ts';
import type { Cluster } from './cluster-access.ts';
import { ignoreExists, type Page, Records, type VolumeRecord } from './driver-records.ts';
import type { ContentSource } from './messages.ts';
import { clusterName, parseSnapshotId } from './names.ts';
import { type Capacity, capacityFits, quotaOf, type Settings, settingsText } from './parameters.ts';
import { copySnapshot, copyTree, emptyVolume, isCopySnapshot, removeCopySnapshot } from './volume-copy.ts';

const TRASH_COUNT_MAX = 10_000;

export interface WantedVolume {
  readonly name: string;
  readonly settings: Settings;
  readonly capacity: Capacity;
  readonly source: ContentSource | null;
  readonly node: string | null;
  /** Chooses the zones of its replicas, once. */
  readonly zones: () => Promise<readonly string[]>;
}

export interface MadeVolume {
  readonly id: string;
  readonly record: VolumeRecord;
  readonly volume: VolumeInfo;
}

export class Volumes {
  readonly #cluster: Cluster;
  readonly #recordsIn: string;

  /** @param recordsIn the volume of the driver's records */
  constructor(cluster: Cluster, recordsIn: string) {
    this.#cluster = cluster;
    this.#recordsIn = recordsIn;
  }

  records<Value>(work: (records: Records) => Promise<Value>): Promise<Value> {
    return this.#cluster.use(null, (client) => work(new Records(client, this.#recordsIn)));
  }

  info(id: string): Promise<VolumeInfo | null> {
    return this.#cluster.use(null, async (client) => {
      const found = await client.query({ kind: 'volume', name: id }).catch(nullIfNotFound);
      return found?.volume ?? null;
    });
  }

  /** Makes a volume, or completes one that an earlier call began. @throws CallFailure `ALREADY_EXISTS` if it differs */
  async create(wanted: WantedVolume): Promise<MadeVolume> {
    const id = clusterName(wanted.name);
    if (id === this.#recordsIn) throw taken(id, "it has the driver's records");
    const record = (await this.#begun(id)) ?? (await this.#begin(id, wanted));
    const differs = differenceOf(record, wanted);
    if (differs !== null)
      throw new CallFailure(
        'ALREADY_EXISTS',
        `There is a volume ${wanted.name} already, with another ${differs}`,
      );
    if (record.state === 'creating') await this.#complete(id, record);
    const volume = await this.info(id);
    if (volume === null)
      throw new CallFailure('ABORTED', `The volume ${id} was removed while it was created: repeat the call`);
    if (!capacityFits(volume.quotaBytes, wanted.capacity))
      throw new CallFailure(
        'ALREADY_EXISTS',
        `There is a volume ${wanted.name} already, with another capacity`,
      );
    return { id, record, volume };
  }

  /** @returns the record of a volume that exists or is being created; completes a deletion first */
  async #begun(id: string): Promise<VolumeRecord | null> {
    const record = await this.records((records) => records.get('volume', id));
    if (record === null) return null;
    if (record.state === 'deleting') {
      await this.#finishDeletion(id, record);
      return null;
    }
    // An administrator has removed it.
    const isGone = record.state === 'ready' && (await this.info(id)) === null;
    if (isGone) await this.records((records) => records.remove('volume', id));
    return isGone ? null : record;
  }

  async #begin(id: string, wanted: WantedVolume): Promise<VolumeRecord> {
    const { name, settings, capacity, source, node } = wanted;
    if ((await this.info(id)) !== null) throw taken(id, 'this driver has not made it');
    const quotaBytes = quotaOf(capacity);
    if (source !== null) await this.#checkSource(source, quotaBytes);
    const zones = await wanted.zones();
    const given = { name, settings, zones, quotaBytes, source, node };
    const record = { kind: 'volume', state: 'creating', ...given } as const;
    return this.records((records) => records.add<'volume'>(id, record));
  }

  /** @throws CallFailure if the source does not exist, or has more than the quota allows */
  async #checkSource({ snapshot, volume }: ContentSource, quotaBytes: number): Promise<void> {
    const neededBytes = snapshot
      ? await this.#snapshotBytes(snapshot.snapshotId)
      : await this.#volumeBytes(volume?.volumeId ?? '');
    if (quotaBytes > 0 && quotaBytes < neededBytes)
      throw new CallFailure(
        'OUT_OF_RANGE',
        `The source has ${neededBytes} bytes: a larger capacity is needed`,
      );
  }

  async #volumeBytes(id: string): Promise<number> {
    const volume = await this.info(id);
    if (volume === null) throw new CallFailure('NOT_FOUND', `There is no volume ${id} to copy`);
    return volume.namedBytes;
  }

  async #snapshotBytes(id: string): Promise<number> {
    const parsed = parseSnapshotId(id);
    const isThere = parsed !== null && (await this.#hasSnapshot(parsed.volume, parsed.name));
    if (!isThere) throw new CallFailure('NOT_FOUND', `There is no snapshot ${id}`);
    const record = await this.records((records) => records.get('snapshot', parsed.name));
    return record?.volume === parsed.volume ? record.sizeBytes : 0;
  }

  async #hasSnapshot(volume: string, name: string): Promise<boolean> {
    return (await this.snapshotNames(volume)).includes(name);
  }

  async snapshotNames(volume: string): Promise<string[]> {
    return this.#cluster.use(volume, async (client) => {
      const found = await client.query({ kind: 'snapshots', volume }).catch(nullIfNotFound);
      return (found?.snapshots ?? []).map(({ name }) => name);
    });
  }

  async #complete(id: string, record: VolumeRecord): Promise<void> {
    const { settings, zones, quotaBytes, source } = record;
    const { ownCatalog, topology: _, subdir, ...others } = settings;
    const volume = { name: id, ...others, labels: [...others.labels], zones: [...zones], quotaBytes };
    await this.#cluster.use(null, (client) =>
      client
        .command({ kind: ownCatalog ? 'catalog-create' : 'volume-create', ...volume })
        .then(() => undefined, ignoreExists),
    );
    if (source?.snapshot) await copyTree(this.#cluster, source.snapshot.snapshotId, id);
    const from = source?.volume?.volumeId;
    if (from !== undefined) {
      await copyTree(this.#cluster, await copySnapshot(this.#cluster, from, id), id);
      await removeCopySnapshot(this.#cluster, from, id);
    }
    await makeDirectories(this.#cluster, id, subdir, settings);
    await this.records((records) => records.put<'volume'>(id, { ...record, state: 'ready' }));
  }

  /** Deletes a volume that the driver made, with its contents; none is fine. */
  async delete(id: string): Promise<void> {
    const record = await this.records((records) => records.get('volume', id));
    if (record === null) {
      if ((await this.info(id)) === null) return;
      throw new CallFailure(
        'FAILED_PRECONDITION',
        `Cannot delete the volume ${id}: this driver has not made it; use "leasehold volume rm", or the reclaim policy Retain`,
      );
    }
    const [snapshot] = (await this.snapshotNames(id)).filter((name) => !isCopySnapshot(name));
    if (snapshot !== undefined)
      throw new CallFailure(
        'FAILED_PRECONDITION',
        `Cannot delete the volume ${id}: it has the snapshot ${snapshot}; delete its snapshots first`,
      );
    await this.#finishDeletion(id, record);
  }

  async #finishDeletion(id: string, record: VolumeRecord): Promise<void> {
    if (record.state !== 'deleting')
      await this.records((records) => records.put<'volume'>(id, { ...record, state: 'deleting' }));
    const from = record.source?.volume?.volumeId;
    // Of a copy that was interrupted.
    if (from !== undefined && record.state !== 'ready') await removeCopySnapshot(this.#cluster, from, id);
    if ((await this.info(id)) !== null) {
      const copies = (await this.snapshotNames(id)).filter(isCopySnapshot);
      if (copies.length > 0)
        throw new CallFailure(
          'ABORTED',
          `The volume ${id} is being copied: repeat the call when that has ended`,
        );
      await emptyVolume(this.#cluster, id);
      await this.#emptyTrash(id);
      await this.#cluster.use(null, (client) =>
        client.command({ kind: 'volume-remove', name: id }).catch(nullIfNotFound),
      );
    }
    await this.records((records) => records.remove('volume', id));
  }

  async #emptyTrash(volume: string): Promise<void> {
    await this.#cluster.use(volume, async (client) => {
      const command = { kind: 'trash-empty', volume, countMax: TRASH_COUNT_MAX } as const;
      while ((await client.command(command)).removed > 0);
    });
  }

  /** Sets the quota to at least what is required. @returns the quota after it */
  async expand(id: string, capacity: Capacity): Promise<number> {
    const volume = await this.info(id);
    if (volume === null) throw new CallFailure('NOT_FOUND', `There is no volume ${id}`);
    const wanted = quotaOf(capacity);
    const { quotaBytes, namedBytes } = volume;
    // A repetition, or a volume that is larger already.
    if (quotaBytes > 0 && quotaBytes >= capacity.requiredBytes) {
      if (capacityFits(quotaBytes, capacity)) return quotaBytes;
      throw new CallFailure(
        'OUT_OF_RANGE',
        `The volume ${id} has ${quotaBytes} bytes, more than the limit of ${capacity.limitBytes}: it cannot shrink`,
      );
    }
    if (wanted < namedBytes)
      throw new CallFailure(
        'OUT_OF_RANGE',
        `The volume ${id} has ${namedBytes} bytes in use: ${wanted} are too few`,
      );
    await this.#cluster.use(id, (client) =>
      client.command({ kind: 'volume-set', name: id, quotaBytes: wanted }),
    );
    return wanted;
  }

  /** Lists the volumes that the driver has made for claims, in the order of their ids. */
  list(after: string, countMax: number): Promise<Page<VolumeRecord>> {
    return this.records((records) => records.page('volume', after, countMax, ({ node }) => node === null));
  }
}

/** Makes a directory and those above it that are missing. */
export async function makeDirectories(
  cluster: Cluster,
  volume: string,
  path: string,
  { mode, uid, gid }: Pick<Settings, 'mode' | 'uid' | 'gid'>,
): Promise<void> {
  const names = path.split('/').filter((name) => name !== '');
  if (names.length === 0) return;
  await cluster.use(volume, async (client) => {
    for (const [index] of names.entries()) {
      const place = { volume, path: `/${names.slice(0, index + 1).join('/')}` };
      await client.command({ kind: 'make-directory', place, mode, uid, gid }).catch(ignoreExists);
    }
  });
}

function taken(id: string, why: string): CallFailure {
  return new CallFailure('ALREADY_EXISTS', `There is a volume ${id} already, and ${why}`);
}

/** @returns in what a record differs from a request for the same name; null if in nothing */
function differenceOf(record: VolumeRecord, { name, settings, source, node }: WantedVolume): string | null {
  // Two names with one digest do not occur.
  if (record.name !== name) return 'name';
  if (settingsText(record.settings) !== settingsText(settings)) return 'set of parameters';
  if (sourceText(record.source) !== sourceText(source)) return 'source of its contents';
  return record.node === node ? null : 'node';
}

function sourceText(source: ContentSource | null): string {
  return source === null ? '' : `${source.snapshot?.snapshotId ?? ''} ${source.volume?.volumeId ?? ''}`;
}

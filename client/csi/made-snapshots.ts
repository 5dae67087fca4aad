import type { SnapshotInfo } from '../../wire/catalog-api.ts';
import { CallFailure, nullIfNotFound } from './call-failure.ts';
import type { Cluster } from './cluster-access.ts';
import { ignoreExists, type Page, type SnapshotRecord } from './driver-records.ts';
import type { Volumes } from './made-volumes.ts';
import { clusterName, type SnapshotId } from './names.ts';

export interface MadeSnapshot {
  readonly id: SnapshotId;
  readonly madeNs: string;
  readonly sizeBytes: number;
}

/** The snapshots that the driver makes. Each name is that of one snapshot, whatever its volume. */
export class Snapshots {
  readonly #cluster: Cluster;
  readonly #volumes: Volumes;

  constructor(cluster: Cluster, volumes: Volumes) {
    this.#cluster = cluster;
    this.#volumes = volumes;
  }

  /** Makes a snapshot, or completes one that an earlier call began. */
  async create(wanted: string, volume: string): Promise<MadeSnapshot> {
    const name = clusterName(wanted);
    const record = (await this.#begun(name)) ?? (await this.#begin(name, wanted, volume));
    if (record.volume !== volume || record.name !== wanted)
      throw new CallFailure(
        'ALREADY_EXISTS',
        `There is a snapshot ${wanted} already, of the volume ${record.volume}`,
      );
    const id = { volume, name };
    if (record.state === 'ready') return { id, madeNs: record.madeNs, sizeBytes: record.sizeBytes };
    await this.#cluster.use(volume, (client) =>
      client.command({ kind: 'snapshot-create', volume, name }).then(() => undefined, ignoreExists),
    );
    const made = await this.find(id);
    if (made === null)
      throw new CallFailure('ABORTED', `The snapshot ${name} was removed while it was made: repeat the call`);
    const { madeNs } = made;
    await this.#volumes.records((records) =>
      records.put<'snapshot'>(name, { ...record, state: 'ready', madeNs }),
    );
    return { id, madeNs, sizeBytes: record.sizeBytes };
  }

  async #begun(name: string): Promise<SnapshotRecord | null> {
    const record = await this.#volumes.records((records) => records.get('snapshot', name));
    if (record?.state !== 'deleting') return record;
    await this.#finishDeletion({ volume: record.volume, name });
    return null;
  }

  async #begin(name: string, wanted: string, volume: string): Promise<SnapshotRecord> {
    const source = await this.#volumes.info(volume);
    if (source === null) throw new CallFailure('NOT_FOUND', `There is no volume ${volume}`);
    if ((await this.find({ volume, name })) !== null)
      throw new CallFailure(
        'ALREADY_EXISTS',
        `There is a snapshot ${volume}@${name} already, and this driver has not made it`,
      );
    const sizeBytes = source.namedBytes;
    const record = {
      kind: 'snapshot',
      state: 'creating',
      name: wanted,
      volume,
      sizeBytes,
      madeNs: '0',
    } as const;
    return this.#volumes.records((records) => records.add<'snapshot'>(name, record));
  }

  /** @returns null if there is no such snapshot in the cluster */
  find({ volume, name }: SnapshotId): Promise<SnapshotInfo | null> {
    return this.#cluster.use(volume, async (client) => {
      const found = await client.query({ kind: 'snapshots', volume }).catch(nullIfNotFound);
      return found?.snapshots.find((one) => one.name === name) ?? null;
    });
  }

  async delete(id: SnapshotId): Promise<void> {
    const record = await this.#volumes.records((records) => records.get('snapshot', id.name));
    if (record === null || record.volume !== id.volume) {
      if ((await this.find(id)) === null) return;
      throw new CallFailure(
        'FAILED_PRECONDITION',
        `Cannot delete the snapshot ${id.volume}@${id.name}: this driver has not made it; use "leasehold snapshot rm", or the deletion policy Retain`,
      );
    }
    if (record.state !== 'deleting')
      await this.#volumes.records((records) =>
        records.put<'snapshot'>(id.name, { ...record, state: 'deleting' }),
      );
    await this.#finishDeletion(id);
  }

  async #finishDeletion({ volume, name }: SnapshotId): Promise<void> {
    await this.#cluster.use(volume, (client) =>
      client.command({ kind: 'snapshot-remove', volume, name }).catch(nullIfNotFound),
    );
    await this.#volumes.records((records) => records.remove('snapshot', name));
  }

  /** Lists the driver's snapshots in the order of their names. @param volume null: of all volumes */
  list(volume: string | null, after: string, countMax: number): Promise<Page<SnapshotRecord>> {
    const isWanted = (record: SnapshotRecord): boolean => volume === null || record.volume === volume;
    return this.#volumes.records((records) => records.page('snapshot', after, countMax, isWanted));
  }

  async record(name: string): Promise<SnapshotRecord | null> {
    return this.#volumes.records((records) => records.get('snapshot', name));
  }
}

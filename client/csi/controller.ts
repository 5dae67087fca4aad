/** The Controller service: volumes and snapshots of the cluster. */
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import { CallFailure, invalid } from './call-failure.ts';
import { checkUses, useOf } from './capabilities.ts';
import type { Cluster } from './cluster-access.ts';
import type { VolumeRecord } from './driver-records.ts';
import { type MadeSnapshot, Snapshots } from './made-snapshots.ts';
import { Volumes } from './made-volumes.ts';
import type {
  ContentSource,
  CreateSnapshotRequest,
  CreateVolumeRequest,
  DeleteSnapshotRequest,
  DeleteVolumeRequest,
  ExpandVolumeRequest,
  GetCapacityRequest,
  ListRequest,
  ListSnapshotsRequest,
  Snapshot,
  Texts,
  ValidateVolumeCapabilitiesRequest,
  Volume,
} from './messages.ts';
import { checkName, clusterName, parseSnapshotId, snapshotIdText } from './names.ts';
import type { Operations } from './operations.ts';
import { capacityOf, quotaOf, type Settings, settingsOf } from './parameters.ts';
import { accessOf, capacityIn, placedZones } from './topology.ts';
import { mountedTree, SUBDIR } from './volume-context.ts';

const CAPABILITIES = [
  'CREATE_DELETE_VOLUME',
  'LIST_VOLUMES',
  'GET_CAPACITY',
  'CREATE_DELETE_SNAPSHOT',
  'LIST_SNAPSHOTS',
  'CLONE_VOLUME',
  'EXPAND_VOLUME',
  'SINGLE_NODE_MULTI_WRITER',
] as const;
const LIST_COUNT_MAX = 1_000;

export interface ControllerOptions {
  readonly cluster: Cluster;
  readonly operations: Operations;
  readonly driverName: string;
  /** The volume of the driver's records. */
  readonly recordsIn: string;
  readonly topology: boolean;
}

interface Parts {
  readonly cluster: Cluster;
  readonly volumes: Volumes;
  readonly snapshots: Snapshots;
}

export class Controller {
  readonly #options: ControllerOptions;

  constructor(options: ControllerOptions) {
    this.#options = options;
  }

  /** @param secrets of the caller, who acts with its own token */
  #as(secrets: Texts): Parts {
    const cluster = this.#options.cluster.with(secrets);
    const volumes = new Volumes(cluster, this.#options.recordsIn);
    return { cluster, volumes, snapshots: new Snapshots(cluster, volumes) };
  }

  async capabilities() {
    return { capabilities: CAPABILITIES.map((type) => ({ rpc: { type } })) };
  }

  async createVolume(request: CreateVolumeRequest): Promise<{ readonly volume: Volume }> {
    const { name, parameters, secrets, accessibilityRequirements: requirement } = request;
    checkName(name, 'name');
    checkUses(request.volumeCapabilities);
    if (Object.keys(request.mutableParameters).length > 0)
      throw invalid('This driver has no mutable parameters');
    const settings = settingsOf(parameters);
    const capacity = capacityOf(request.capacityRange);
    const source = sourceOf(request.volumeContentSource);
    const { cluster, volumes } = this.#as(secrets);
    const { driverName } = this.#options;
    return this.#options.operations.run([volumeKey(clusterName(name))], async () => {
      const zones = () => placedZones(cluster, driverName, settings, requirement);
      const { id, record, volume } = await volumes.create({
        name,
        settings,
        capacity,
        source,
        node: null,
        zones,
      });
      return { volume: this.#volumeOf(id, record, volume) };
    });
  }

  async deleteVolume({ volumeId, secrets }: DeleteVolumeRequest): Promise<object> {
    checkName(volumeId, 'volume id');
    const { volumes } = this.#as(secrets);
    // No volume has an id of another form.
    if (clusterName(volumeId) !== volumeId && !/^csi-[0-9a-f]{40}$/.test(volumeId)) return {};
    await this.#options.operations.run([volumeKey(volumeId)], () => volumes.delete(volumeId));
    return {};
  }

  async validateCapabilities(request: ValidateVolumeCapabilitiesRequest) {
    const { volumeId, volumeContext, volumeCapabilities, parameters, secrets } = request;
    checkName(volumeId, 'volume id');
    if (volumeCapabilities.length === 0) throw invalid('The request has no volume capabilities');
    const { tree } = mountedTree(volumeId, volumeContext);
    const { volumes } = this.#as(secrets);
    if ((await volumes.info(tree.replace(/@.*/, ''))) === null)
      throw new CallFailure('NOT_FOUND', `There is no volume ${tree}`);
    try {
      for (const capability of volumeCapabilities) {
        const { readOnly } = useOf(capability);
        if (tree.includes('@') && !readOnly) throw invalid('A snapshot can only be read');
      }
      settingsOf(parameters);
    } catch (error) {
      if (!(error instanceof CallFailure)) throw error;
      return { message: error.message };
    }
    return { confirmed: { volumeContext, volumeCapabilities, parameters }, message: '' };
  }

  async listVolumes({ maxEntries, startingToken }: ListRequest) {
    const { cluster, volumes } = this.#as({});
    const { all, more } = await volumes.list(startOf(startingToken), countOf(maxEntries));
    const known = await cluster.use(null, (client) => client.query({ kind: 'volumes' }));
    const byName = new Map(known.volumes.map((one) => [one.name, one]));
    return {
      // A volume whose catalog does not answer has its recorded capacity.
      entries: all.map(({ id, record }) => ({
        volume: this.#volumeOf(id, record, byName.get(id) ?? record),
      })),
      nextToken: more ? (all.at(-1)?.id ?? '') : '',
    };
  }

  async getCapacity({ volumeCapabilities, parameters, accessibleTopology }: GetCapacityRequest) {
    for (const capability of volumeCapabilities) useOf(capability);
    const { cluster, driverName } = this.#options;
    const bytes = await capacityIn(cluster, driverName, settingsOf(parameters), accessibleTopology);
    return { availableCapacity: bytes };
  }

  async expandVolume({ volumeId, capacityRange, secrets, volumeCapability }: ExpandVolumeRequest) {
    checkName(volumeId, 'volume id');
    if (capacityRange === null) throw invalid('The request has no capacity range');
    const capacity = capacityOf(capacityRange);
    if (quotaOf(capacity) === 0) throw invalid('The capacity range has no capacity');
    if (volumeCapability !== null) useOf(volumeCapability);
    const { volumes } = this.#as(secrets);
    if (!isClusterName(volumeId)) throw new CallFailure('NOT_FOUND', `There is no volume ${volumeId}`);
    const capacityBytes = await this.#options.operations.run([volumeKey(volumeId)], () =>
      volumes.expand(volumeId, capacity),
    );
    return { capacityBytes, nodeExpansionRequired: false };
  }

  async createSnapshot(request: CreateSnapshotRequest): Promise<{ readonly snapshot: Snapshot }> {
    const { name, sourceVolumeId, secrets, parameters } = request;
    checkName(name, 'name');
    checkName(sourceVolumeId, 'source volume id');
    const unknown = Object.keys(parameters).find((key) => !key.startsWith('csi.storage.k8s.io/'));
    if (unknown !== undefined) throw invalid(`There is no parameter "${unknown}" of snapshots`);
    if (!isClusterName(sourceVolumeId))
      throw new CallFailure('NOT_FOUND', `There is no volume ${sourceVolumeId}`);
    const { snapshots } = this.#as(secrets);
    const keys = [`snapshot ${clusterName(name)}`];
    const made = await this.#options.operations.run(keys, () => snapshots.create(name, sourceVolumeId));
    return { snapshot: snapshotOf(made) };
  }

  async deleteSnapshot({ snapshotId, secrets }: DeleteSnapshotRequest): Promise<object> {
    if (snapshotId === '') throw invalid('The request has no snapshot id');
    const { snapshots } = this.#as(secrets);
    const id = parseSnapshotId(snapshotId);
    if (id === null) return {};
    await this.#options.operations.run([`snapshot ${id.name}`], () => snapshots.delete(id));
    return {};
  }

  async listSnapshots(request: ListSnapshotsRequest) {
    const { maxEntries, startingToken, sourceVolumeId, snapshotId, secrets } = request;
    const { snapshots } = this.#as(secrets);
    if (snapshotId !== '') {
      const one = await this.#snapshot(snapshots, snapshotId);
      const isWanted = one !== null && (sourceVolumeId === '' || one.id.volume === sourceVolumeId);
      return { entries: isWanted ? [{ snapshot: snapshotOf(one) }] : [], nextToken: '' };
    }
    const volume = sourceVolumeId === '' ? null : sourceVolumeId;
    const { all, more } = await snapshots.list(volume, startOf(startingToken), countOf(maxEntries));
    return {
      entries: all.map(({ id, record }) => ({
        snapshot: snapshotOf({ ...record, id: { volume: record.volume, name: id } }),
      })),
      nextToken: more ? (all.at(-1)?.id ?? '') : '',
    };
  }

  async #snapshot(snapshots: Snapshots, text: string): Promise<MadeSnapshot | null> {
    const id = parseSnapshotId(text);
    const found = id === null ? null : await snapshots.find(id);
    if (id === null || found === null) return null;
    const record = await snapshots.record(id.name);
    return { id, madeNs: found.madeNs, sizeBytes: record?.volume === id.volume ? record.sizeBytes : 0 };
  }

  #volumeOf(
    volumeId: string,
    { settings, zones, source }: VolumeRecord,
    { quotaBytes }: Pick<VolumeInfo, 'quotaBytes'>,
  ): Volume {
    return {
      volumeId,
      capacityBytes: quotaBytes,
      volumeContext: contextOf(settings),
      ...(source === null ? {} : { contentSource: source }),
      ...(this.#options.topology
        ? { accessibleTopology: accessOf(this.#options.driverName, settings, zones) }
        : {}),
    };
  }
}

function contextOf({ subdir }: Settings): Texts {
  return subdir === '/' ? {} : { [SUBDIR]: subdir };
}

function isClusterName(id: string): boolean {
  return clusterName(id) === id || /^csi-[0-9a-f]{40}$/.test(id);
}

function volumeKey(id: string): string {
  return `volume ${id}`;
}

function sourceOf(source: ContentSource | null): ContentSource | null {
  if (source === null) return null;
  const { snapshot, volume } = source;
  if (snapshot) return checkedSource({ snapshot: { snapshotId: snapshot.snapshotId } }, snapshot.snapshotId);
  if (volume) {
    if (!isClusterName(volume.volumeId))
      throw new CallFailure('NOT_FOUND', `There is no volume ${volume.volumeId} to copy`);
    return checkedSource({ volume: { volumeId: volume.volumeId } }, volume.volumeId);
  }
  throw invalid('The source of the contents is of an unknown kind');
}

function checkedSource(source: ContentSource, id: string): ContentSource {
  if (id === '') throw invalid('The source of the contents has no id');
  return source;
}

function snapshotOf({ id, madeNs, sizeBytes }: MadeSnapshot): Snapshot {
  const ns = BigInt(madeNs);
  return {
    snapshotId: snapshotIdText(id),
    sourceVolumeId: id.volume,
    sizeBytes,
    creationTime: { seconds: String(ns / 1_000_000_000n), nanos: Number(ns % 1_000_000_000n) },
    // Contents can be copied from it at once.
    readyToUse: true,
  };
}

function countOf(maxEntries: number): number {
  if (maxEntries < 0) throw invalid('The number of entries is not negative');
  return maxEntries === 0 ? LIST_COUNT_MAX : maxEntries;
}

/** @throws CallFailure `ABORTED` for a token that no list has returned */
function startOf(token: string): string {
  if (token === '' || isClusterName(token)) return token;
  throw new CallFailure('ABORTED', `There is no list with the token "${token}": begin it again`);
}

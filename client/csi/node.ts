/** The Node service: volumes on this node. */
import { CallFailure, statusOf } from './call-failure.ts';
import { useOf } from './capabilities.ts';
import type { Cluster } from './cluster-access.ts';
import type { Log } from './launcher.ts';
import { Volumes } from './made-volumes.ts';
import type {
  PublishRequest,
  StageRequest,
  StatsRequest,
  UnpublishRequest,
  UnstageRequest,
} from './messages.ts';
import {
  boundAt,
  type FileSystemSpace,
  isVolumeMount,
  type Probe,
  probe,
  removeDirectory,
  unmountAll,
} from './mount-points.ts';
import type { Mounter } from './mounter.ts';
import { checkName, checkPath, clusterName } from './names.ts';
import type { NodeState, StagedVolume } from './node-state.ts';
import type { Operations } from './operations.ts';
import { inlineCapacityOf, settingsOf } from './parameters.ts';
import { isWhole, StagedVolumes } from './staged-volumes.ts';
import { topologyOf } from './topology.ts';
import { isEphemeral, mountedTree, ownAttributes } from './volume-context.ts';

const CAPABILITIES = [
  'STAGE_UNSTAGE_VOLUME',
  'GET_VOLUME_STATS',
  'VOLUME_CONDITION',
  'SINGLE_NODE_MULTI_WRITER',
] as const;

export interface NodeOptions {
  readonly cluster: Cluster;
  readonly operations: Operations;
  readonly mounter: Mounter;
  readonly state: NodeState;
  readonly driverName: string;
  readonly recordsIn: string;
  readonly nodeId: string;
  readonly zone: string | null;
  /** Whether the node reports its zone as its topology. */
  readonly topology: boolean;
  readonly log: Log;
}

export class Node {
  readonly #options: NodeOptions;
  readonly #staged: StagedVolumes;

  constructor(options: NodeOptions) {
    this.#options = options;
    this.#staged = new StagedVolumes(options);
  }

  async capabilities() {
    return { capabilities: CAPABILITIES.map((type) => ({ rpc: { type } })) };
  }

  async info() {
    const { nodeId, zone, topology, driverName } = this.#options;
    return {
      nodeId,
      ...(zone === null || !topology ? {} : { accessibleTopology: topologyOf(driverName, zone) }),
    };
  }

  async stage(request: StageRequest): Promise<object> {
    const { volumeId, stagingTargetPath: directory, volumeCapability, volumeContext, secrets } = request;
    checkName(volumeId, 'volume id');
    checkPath(directory, 'staging target path');
    const { readOnly, single, flags } = useOf(volumeCapability);
    const place = mountedTree(volumeId, volumeContext);
    this.#options.cluster.with(secrets);
    const isReadOnly = readOnly || place.tree.includes('@');
    const wanted = { volumeId, directory, ...place, flags, readOnly: isReadOnly, single, ephemeral: false };
    await this.#locked(volumeId, () => this.#staged.stage(wanted, secrets));
    return {};
  }

  async unstage({ volumeId, stagingTargetPath: directory }: UnstageRequest): Promise<object> {
    checkName(volumeId, 'volume id');
    checkPath(directory, 'staging target path');
    await this.#locked(volumeId, () => this.#staged.unstage(directory));
    return {};
  }

  async publish(request: PublishRequest): Promise<object> {
    const { volumeId, targetPath: directory, volumeContext } = request;
    checkName(volumeId, 'volume id');
    checkPath(directory, 'target path');
    useOf(request.volumeCapability);
    await this.#locked(volumeId, () =>
      isEphemeral(volumeContext) ? this.#publishEphemeral(request) : this.#publishStaged(request),
    );
    return {};
  }

  async #publishStaged(request: PublishRequest): Promise<void> {
    const { volumeId, targetPath: directory, stagingTargetPath: staging, readonly } = request;
    if (staging === '')
      throw new CallFailure(
        'FAILED_PRECONDITION',
        'The request has no staging target path: stage the volume first',
      );
    checkPath(staging, 'staging target path');
    const { readOnly } = useOf(request.volumeCapability);
    const staged = await this.#staged.alive(staging);
    if (staged === null || staged.volumeId !== volumeId)
      throw new CallFailure('FAILED_PRECONDITION', `The volume ${volumeId} is not staged at "${staging}"`);
    await this.#refuseSecond(staged, directory);
    const { state } = this.#options;
    const before = await state.published(directory);
    const published = { volumeId, staging, directory, readOnly: readonly || readOnly || staged.readOnly };
    if (before === null) await state.putPublished(published);
    else if (before.staging !== staging || before.readOnly !== published.readOnly)
      throw new CallFailure(
        'ALREADY_EXISTS',
        `"${directory}" has volume ${before.volumeId} in another mode already`,
      );
    await this.#staged.publish(published);
  }

  /** @throws CallFailure for a second path of a volume that is for a single one */
  async #refuseSecond(staged: StagedVolume, directory: string): Promise<void> {
    if (!staged.single) return;
    const other = (await this.#options.state.publishedOf(staged.directory)).find(
      (one) => one.directory !== directory,
    );
    if (other !== undefined)
      throw new CallFailure(
        'FAILED_PRECONDITION',
        `The volume ${staged.volumeId} is for one pod, and published at "${other.directory}"`,
      );
  }

  /** Makes a volume for one pod, mounts it in the plugin's folder, and there. */
  async #publishEphemeral(request: PublishRequest): Promise<void> {
    const { volumeId, targetPath: directory, volumeContext, secrets } = request;
    const { readOnly: isReader, flags } = useOf(request.volumeCapability);
    const { size, ...parameters } = ownAttributes(volumeContext);
    const settings = settingsOf(parameters, 'volume attribute');
    const capacity = inlineCapacityOf(size);
    const { cluster, state, nodeId } = this.#options;
    const own = cluster.with(secrets);
    const staging = state.mountPoint(volumeId);
    const readOnly = request.readonly || isReader;
    const { subdir: path, zones } = settings;
    const place = { tree: clusterName(volumeId), path };
    const wanted = { volumeId, directory: staging, ...place, flags, readOnly, single: true, ephemeral: true };
    const before = await state.published(directory);
    if (before !== null && before.staging !== staging)
      throw new CallFailure('ALREADY_EXISTS', `"${directory}" has volume ${before.volumeId} already`);
    // First, so that what an interrupted call began is removed with the pod.
    const published = { volumeId, staging, directory, readOnly };
    await state.putPublished(published);
    if ((await state.staged(staging)) === null) await state.putStaged({ ...wanted, tokenFile: null });
    await this.#volumes(own).create({
      ...{ name: volumeId, settings, capacity, source: null, node: nodeId },
      zones: async () => zones,
    });
    await this.#staged.stage(wanted, secrets);
    await this.#staged.publish(published);
  }

  #volumes(cluster: Cluster): Volumes {
    return new Volumes(cluster, this.#options.recordsIn);
  }

  async unpublish({ volumeId, targetPath: directory }: UnpublishRequest): Promise<object> {
    checkName(volumeId, 'volume id');
    checkPath(directory, 'target path');
    await this.#locked(volumeId, () => this.#unpublish(directory));
    return {};
  }

  async #unpublish(directory: string): Promise<void> {
    const { state } = this.#options;
    const published = await state.published(directory);
    await this.#staged.unpublish(directory);
    const staged = published === null ? null : await state.staged(published.staging);
    if (staged?.ephemeral) await this.#deleteEphemeral(staged);
    // First: a repair would mount it again at a directory that cannot be removed.
    await state.removePublished(directory);
    await removeDirectory(directory);
  }

  async #deleteEphemeral({ directory: staging, tree, tokenFile }: StagedVolume): Promise<void> {
    const { state, cluster } = this.#options;
    // Nothing in it is needed any more, so it need not be stored.
    await unmountAll(staging, () => true);
    const own = tokenFile === null ? cluster : cluster.as({ ...cluster.options.access, tokenFile });
    await this.#volumes(own).delete(tree);
    await removeDirectory(staging);
    await state.removeStaged(staging);
  }

  async stats({ volumeId, volumePath }: StatsRequest) {
    checkName(volumeId, 'volume id');
    checkPath(volumePath, 'volume path');
    const mounted = await boundAt(volumePath);
    if (mounted === null || !isVolumeMount(mounted))
      throw new CallFailure('NOT_FOUND', `The volume ${volumeId} is not published at "${volumePath}"`);
    const found = await probe(volumePath);
    if (found.kind !== 'answers')
      return { usage: [], volumeCondition: { abnormal: true, message: whyOf(found) } };
    return {
      usage: usageOf(found.space),
      volumeCondition: { abnormal: false, message: 'The mount answers' },
    };
  }

  /** Replaces mounts whose processes have died, under the volumes that are published from them. */
  async repair(): Promise<void> {
    const { state, log, operations } = this.#options;
    const published = Map.groupBy(await state.allPublished(), ({ staging }) => staging);
    for (const { volumeId, directory } of await state.allStaged()) {
      try {
        if (await isWhole(directory, published.get(directory) ?? [])) continue;
        await operations.repair(keyOf(volumeId), () => this.#staged.repair(directory));
      } catch (error) {
        const { code, message } = statusOf(error);
        log('a dead mount is not replaced yet', { volume: volumeId, directory, code, error: message });
      }
    }
  }

  #locked<Value>(volumeId: string, work: () => Promise<Value>): Promise<Value> {
    return this.#options.operations.run([keyOf(volumeId)], work);
  }
}

function keyOf(volumeId: string): string {
  return `volume ${volumeId} on this node`;
}

function whyOf(found: Exclude<Probe, { readonly kind: 'answers' }>): string {
  switch (found.kind) {
    case 'missing':
      return 'The directory does not exist';
    case 'dead':
      return 'The process of the mount has ended; the plugin replaces it';
    case 'silent':
      return `The mount does not answer: ${found.why}`;
  }
}

function usageOf(space: FileSystemSpace) {
  const { blockBytes, blocks, freeBlocks, availableBlocks, inodes, freeInodes } = space;
  return [
    {
      unit: 'BYTES',
      total: blocks * blockBytes,
      available: availableBlocks * blockBytes,
      used: (blocks - freeBlocks) * blockBytes,
    },
    { unit: 'INODES', total: inodes, available: freeInodes, used: inodes - freeInodes },
  ];
}

/** Mounts of volumes on this node: made, found again after a restart of the plugin, and replaced when they die. */
import { located } from '../cluster/location.ts';
import { optionText } from '../mounts/mount-options.ts';
import { mountAt } from '../mounts/mount-table.ts';
import { unmountDirectory } from '../mounts/unmount.ts';
import { CallFailure, isNotFound } from './call-failure.ts';
import { type Cluster, TOKEN_SECRET } from './cluster-access.ts';
import type { Log } from './launcher.ts';
import { makeDirectories } from './made-volumes.ts';
import type { Texts } from './messages.ts';
import {
  bind,
  boundAt,
  isVolumeMount,
  makeDirectory,
  type Probe,
  probe,
  removeDirectory,
  unmountAll,
} from './mount-points.ts';
import type { Mounter } from './mounter.ts';
import type { NodeState, PublishedVolume, StagedVolume } from './node-state.ts';

const DIRECTORY = { mode: 0o755, uid: 0, gid: 0 };

export interface StagedVolumesOptions {
  readonly cluster: Cluster;
  readonly state: NodeState;
  readonly mounter: Mounter;
  /** Of the node: its servers are asked first. */
  readonly zone: string | null;
  readonly log: Log;
}

export class StagedVolumes {
  readonly #options: StagedVolumesOptions;

  constructor(options: StagedVolumesOptions) {
    this.#options = options;
  }

  /** Mounts a volume, unless that is done. @throws CallFailure `ALREADY_EXISTS` if it is mounted there otherwise */
  async stage(wanted: Omit<StagedVolume, 'tokenFile'>, secrets: Texts): Promise<void> {
    const { state } = this.#options;
    const { directory } = wanted;
    const before = await state.staged(directory);
    await makeDirectory(directory);
    const found = await this.#found(directory);
    if (found !== 'none') {
      if (before === null) await this.#adopt(wanted, secrets);
      else if (!isSame(before, wanted))
        throw new CallFailure(
          'ALREADY_EXISTS',
          `"${directory}" has volume ${before.volumeId} with other options`,
        );
      // A token may have been replaced, and the mount reads its file again.
      if (found === 'alive') return void (await this.#tokenFile(directory, secrets));
    }
    const staged = { ...wanted, tokenFile: await this.#tokenFile(directory, secrets) };
    await state.putStaged(staged);
    try {
      await this.#mount(staged);
    } catch (error) {
      // The caller may never ask again, and a volume with a record is mounted again and again.
      if (before === null) await state.removeStaged(directory);
      throw error;
    }
  }

  /** @returns whether there is a mount of a volume @throws CallFailure if another file system is mounted there */
  async #found(directory: string): Promise<'none' | 'alive' | 'dead'> {
    const mounted = await mountAt(directory);
    if (mounted === null) return 'none';
    if (!isVolumeMount(mounted))
      throw new CallFailure(
        'FAILED_PRECONDITION',
        `"${directory}" has a file system of type ${mounted.type}: unmount it first`,
      );
    return (await probe(directory)).kind === 'dead' ? 'dead' : 'alive';
  }

  /** Takes a mount over whose record is lost. */
  async #adopt(wanted: Omit<StagedVolume, 'tokenFile'>, secrets: Texts): Promise<void> {
    const { directory, tree } = wanted;
    const mounted = await mountAt(directory);
    const source = `leasehold:${tree}`;
    if (mounted !== null && mounted.source !== source && !mounted.source.startsWith(`${source}:`))
      throw new CallFailure(
        'ALREADY_EXISTS',
        `"${directory}" is a mount of ${mounted.source}, not of ${source}`,
      );
    const tokenFile = await this.#tokenFile(directory, secrets);
    await this.#options.state.putStaged({ ...wanted, tokenFile });
  }

  async #tokenFile(directory: string, secrets: Texts): Promise<string | null> {
    const { [TOKEN_SECRET]: token } = secrets;
    return token === undefined ? null : this.#options.state.putToken(directory, token);
  }

  async #mount(staged: StagedVolume): Promise<void> {
    const { mounter, zone, cluster } = this.#options;
    const { directory, flags, readOnly, tokenFile } = staged;
    if ((await this.#found(directory)) === 'dead') await unmountAll(directory, () => true);
    const { servers, access: own } = cluster.options;
    const access = tokenFile === null ? own : { ...own, tokenFile };
    const place = await placeOf(cluster.as(access), staged);
    // First, so that flags may name another zone.
    const options = [
      ...(zone === null ? [] : [optionText('zone', zone)]),
      ...flags,
      ...(readOnly ? ['ro'] : []),
    ];
    await mounter.mount({ servers, tree: place.volume, path: place.path, directory, options, access });
  }

  /** Removes the mount; all that was written is stored then. */
  async unstage(directory: string): Promise<void> {
    // A mount that was replaced may lie below.
    while ((await mountAt(directory)) !== null) {
      if ((await this.#found(directory)) === 'dead') await unmountAll(directory, isDead);
      else await this.#unmount(directory);
    }
    await this.#options.state.removeStaged(directory);
  }

  async #unmount(directory: string): Promise<void> {
    const message = await unmountDirectory(directory);
    if (message !== null) this.#options.log('unmounted in use', { directory, message });
  }

  /** Mounts a staged volume again if its process has died. @returns its record; null if it is not staged */
  async alive(directory: string): Promise<StagedVolume | null> {
    const staged = await this.#options.state.staged(directory);
    if (staged !== null && (await this.#mountIfDead(staged))) await this.#publishAll(directory);
    return staged;
  }

  /** Mounts a staged volume again if its process has died, and publishes it where an earlier repair did not. */
  async repair(directory: string): Promise<void> {
    const staged = await this.#options.state.staged(directory);
    if (staged === null) return;
    await this.#mountIfDead(staged);
    await this.#publishAll(directory);
  }

  /** @returns whether it was dead */
  async #mountIfDead(staged: StagedVolume): Promise<boolean> {
    const { directory, volumeId } = staged;
    if ((await this.#found(directory)) === 'alive') return false;
    this.#options.log('the mount is dead, or gone, and is replaced', { volume: volumeId, directory });
    await this.#mount(staged);
    return true;
  }

  async #publishAll(directory: string): Promise<void> {
    const failures: unknown[] = [];
    // One that cannot be published keeps no other from it.
    for (const published of await this.#options.state.publishedOf(directory))
      await this.publish(published).catch((error: unknown) => failures.push(error));
    if (failures.length > 0) throw failures[0];
  }

  /** Removes all mounts of a volume at a pod's directory, and what a killed plugin has left of preparing one. */
  async unpublish(directory: string): Promise<void> {
    await unmountAll(directory, isDead);
    const via = this.#via(directory);
    await unmountAll(via, () => true);
    await removeDirectory(via);
  }

  #via(directory: string): string {
    return this.#options.state.mountPoint(`for ${directory}`);
  }

  /**
   * Mounts a staged volume also at a pod's directory, unless that is done. A dead mount there is covered, not removed:
   * what is mounted on top of it reaches the containers to which mounts propagate.
   */
  async publish({ staging, directory, readOnly }: PublishedVolume): Promise<void> {
    await makeDirectory(directory).catch(ignoreDead);
    const [wanted, mounted] = [await boundAt(staging), await boundAt(directory)];
    if (wanted === null) throw new CallFailure('FAILED_PRECONDITION', `Nothing is mounted at "${staging}"`);
    if (mounted !== null && mounted.device === wanted.device) {
      if (mounted.readOnly === (readOnly || wanted.readOnly)) return;
      throw new CallFailure('ALREADY_EXISTS', `"${directory}" has the volume in another mode already`);
    }
    if (mounted !== null && (!isVolumeMount(mounted) || (await probe(directory)).kind !== 'dead'))
      throw new CallFailure('ALREADY_EXISTS', `"${directory}" has another mount already: ${mounted.source}`);
    await bind(staging, directory, this.#via(directory), readOnly);
  }
}

/**
 * Finds what is to be mounted, so that a missing volume has an error of its own. Makes a missing directory, unless
 * nothing may be written.
 */
async function placeOf(
  cluster: Cluster,
  { tree, path, readOnly }: StagedVolume,
): Promise<{ readonly volume: string; readonly path: string }> {
  const find = () =>
    cluster.use(null, async (client) => {
      const place = await located(client, { volume: tree, path });
      const { kind } = await client.resolve(place.volume, place.path);
      if (kind === 'directory') return place;
      throw new CallFailure('INVALID_ARGUMENT', `Cannot mount ${tree}:${path}: it is not a directory`);
    });
  try {
    return await find();
  } catch (error) {
    if (!isNotFound(error) || path === '/' || readOnly || tree.includes('@')) throw error;
    await makeDirectories(cluster, tree, path, DIRECTORY);
    return find();
  }
}

/** Whether a volume is mounted where it was staged, and from there wherever it was published. */
export async function isWhole(staging: string, published: readonly PublishedVolume[]): Promise<boolean> {
  const wanted = await boundAt(staging);
  if (wanted === null || (await probe(staging)).kind === 'dead') return false;
  for (const { directory } of published)
    if ((await boundAt(directory))?.device !== wanted.device) return false;
  return true;
}

function isDead({ kind }: Probe): boolean {
  return kind === 'dead';
}

/** A directory on which a dead mount lies exists. */
function ignoreDead(error: unknown): void {
  const code = error instanceof Error && 'code' in error ? error.code : null;
  if (code !== 'ENOTCONN' && code !== 'ECONNABORTED' && code !== 'EEXIST') throw error;
}

function isSame(a: Omit<StagedVolume, 'tokenFile'>, b: Omit<StagedVolume, 'tokenFile'>): boolean {
  const text = ({ volumeId, tree, path, flags, readOnly, single }: Omit<StagedVolume, 'tokenFile'>): string =>
    JSON.stringify([volumeId, tree, path, flags, readOnly, single]);
  return text(a) === text(b);
}

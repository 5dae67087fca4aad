import { ServiceError } from '../../base/errors.ts';
import { catalogOfInode, ROOT_CATALOG } from '../../base/ids.ts';
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import { catalogOf } from '../../wire/catalog-of-volume.ts';
import type { AttachedAt } from '../../wire/junctions.ts';
import type { CallOptions } from '../transport/exchange.ts';
import type { ClusterClient } from './cluster-client.ts';
import { joinPath, type RemotePlace } from './remote-path.ts';

/** A command waits no longer for what it can do without. The query of paths reads all names of a catalog. */
const ANSWER_MS = 10_000;

export interface AttachedVolume {
  readonly name: string;
  /** The directory at which it is attached. */
  readonly inode: number;
  /** Null if the caller may not see it, or the catalog that has it does not answer. */
  readonly at: RemotePlace | null;
}

/** @param client names no catalog: the volumes may be in any */
export async function attachedVolumes(
  client: Pick<ClusterClient, 'query'>,
  volumes: readonly Pick<VolumeInfo, 'name' | 'attached'>[],
  call: CallOptions,
): Promise<readonly AttachedVolume[]> {
  const attached = volumes.flatMap(({ name, attached: inode }) =>
    inode === undefined ? [] : [{ name, inode }],
  );
  const paths = await pathsOf(
    client,
    attached.map(({ inode }) => inode),
    call,
  );
  return attached.map(({ name, inode }) => ({ name, inode, at: paths.get(inode) ?? null }));
}

/**
 * Volumes that are attached in a tree, with their paths from its top. For a notice: those are left out that the caller
 * may not see, and all if the list of volumes or the catalog of the tree does not answer.
 */
export async function attachedBelow(
  client: Pick<ClusterClient, 'query'>,
  top: RemotePlace,
  call: CallOptions,
): Promise<readonly AttachedAt[]> {
  const answer = client.query({ kind: 'volumes' }, { ...call, timeoutMs: ANSWER_MS });
  const { volumes } = (await answerOrNull(answer)) ?? { volumes: [] };
  const outer = volumes.find(({ name }) => name === top.volume);
  if (outer === undefined) return [];
  // The directories of a volume that has moved may have numbers of the root catalog.
  const catalogs = [ROOT_CATALOG, catalogOf(outer)];
  const candidates = volumes.filter(
    ({ attached }) => attached !== undefined && catalogs.includes(catalogOfInode(attached)),
  );
  const prefix = joinPath(top.path, '');
  return (await attachedVolumes(client, candidates, call)).flatMap(({ name, at }) =>
    at?.volume === top.volume && at.path.startsWith(prefix)
      ? [{ path: at.path.slice(prefix.length), volume: name }]
      : [],
  );
}

async function pathsOf(
  client: Pick<ClusterClient, 'query'>,
  inodes: readonly number[],
  call: CallOptions,
): Promise<ReadonlyMap<number, RemotePlace>> {
  if (inodes.length === 0) return new Map();
  const query = { kind: 'paths' as const, inodes: [...inodes] };
  const answer = await answerOrNull(client.query(query, { ...call, timeoutMs: ANSWER_MS }));
  return new Map(answer?.paths.map(({ inode, volume, path }) => [inode, { volume, path }]));
}

/** @returns null if the caller may not have the answer, or no catalog gives it */
async function answerOrNull<Answer>(asked: Promise<Answer>): Promise<Answer | null> {
  try {
    return await asked;
  } catch (error) {
    const isHidden = error instanceof ServiceError && error.code === 'forbidden';
    const isUnavailable = error instanceof ServiceError && error.remedy === 'retry';
    if (isHidden || isUnavailable) return null;
    throw error;
  }
}

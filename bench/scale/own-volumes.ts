import type { CatalogNumber } from '../../base/ids.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { RealCluster } from '../../test/cluster/real-cluster.ts';
import { systemWorld } from '../../world/system-world.ts';

const REPLICAS = 3;
const OBJECT_BYTES = 131_072;
/** The catalog's members elect a primary, which may take some lease times on a busy machine. */
const CREATION_MS_MAX = 120_000;
const ATTEMPTS_MAX = 20;
const OWNER = { uid: 0, gid: 0 } as const;

/** A volume with a catalog of its own. */
export interface OwnVolume {
  readonly name: string;
  readonly catalog: CatalogNumber;
  /** From the command to the end of the creation of the first file, in milliseconds. */
  readonly firstFileMs: number;
}

/** Creates volumes with catalogs of their own, one after the other, each with a first file. */
export async function createOwnVolumes(
  cluster: RealCluster,
  names: readonly string[],
): Promise<readonly OwnVolume[]> {
  await using client = new ClusterClient({
    ...{ world: systemWorld, servers: cluster.urls, operationTimeoutMs: CREATION_MS_MAX },
  });
  const volumes: OwnVolume[] = [];
  for (const name of names) {
    const beganMs = performance.now();
    const settings = { replicas: Math.min(REPLICAS, cluster.ids.length), objectBytes: OBJECT_BYTES };
    await client.command({ kind: 'catalog-create', name, ...settings });
    const catalog = await client.catalogOfVolume(name);
    await using user = clientOf(cluster, { catalog });
    await createFile(user, name, '/first');
    volumes.push({ name, catalog, firstFileMs: performance.now() - beganMs });
  }
  return volumes;
}

/** A client that knows the catalog of its volume. */
export function clientOf(cluster: RealCluster, { catalog }: Pick<OwnVolume, 'catalog'>): ClusterClient {
  const operationTimeoutMs = CREATION_MS_MAX;
  return new ClusterClient({ world: systemWorld, servers: cluster.urls, operationTimeoutMs, catalog });
}

export async function createFile(client: ClusterClient, volume: string, path: string): Promise<void> {
  const place = { volume, path };
  await client.command({ kind: 'create-file', place, mode: 0o644, exclusive: true, ...OWNER });
}

/** @returns the new directory's inode */
export async function createDirectory(client: ClusterClient, volume: string, path: string): Promise<number> {
  const place = { volume, path };
  const { attributes } = await client.command({ kind: 'make-directory', place, mode: 0o755, ...OWNER });
  return attributes.inode;
}

/** Contents of new files by their names. */
export type NewContents = ReadonlyMap<string, Uint8Array>;

/** Creates files with contents in a directory, in one request, and again those whose numbers could not be used. */
export async function createFilled(
  client: ClusterClient,
  volume: string,
  parent: number,
  contents: NewContents,
): Promise<void> {
  let left = [...contents];
  for (let attempts = 0; left.length > 0; attempts++) {
    const created = await createSome(client, volume, parent, left);
    if (attempts >= ATTEMPTS_MAX) throw new Error(`Files of ${volume} cannot be created`);
    left = left.filter((_, place) => created[place] === false);
  }
}

/** @returns of each file whether it was created; false if its number could not be used */
async function createSome(
  client: ClusterClient,
  volume: string,
  parent: number,
  contents: readonly (readonly [string, Uint8Array])[],
): Promise<readonly boolean[]> {
  const numbers = await client.reserveInodes(contents.length, { volume });
  const files = contents.map(([name, bytes], place) => ({
    ...{ parent, name, inode: numbers.first + place, mode: 0o644, ...OWNER },
    ...{ accessedNs: null, modifiedNs: null, changedNs: null, contents: bytes },
  }));
  const outcomes = await client.createWithContents(numbers.creatingServer, files);
  return outcomes.map((outcome) => {
    if (outcome.kind === 'refused') throw new Error(`A file was refused: ${JSON.stringify(outcome)}`);
    return outcome.kind === 'created';
  });
}

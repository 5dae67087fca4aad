import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { ClusterMount, run } from '../cluster/cluster-mount.ts';
import { RealCluster } from '../cluster/real-cluster.ts';
import { SERVERS_OF_FORM } from '../long.ts';

const obstacle = await mountObstacle();

/** Why no program can be run on a mount here; false where it can. */
export const skip: string | false = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;

/** On a machine with few cores, of which three servers and perhaps other tests have their share, in milliseconds. */
export const PROGRAM_MS_MAX = 10 * 60_000;

/** A mounted volume of a real cluster, and a folder of the local disk beside it. */
export interface OnMount {
  readonly cluster: RealCluster;
  readonly transport: string;
  readonly volume: string;
  readonly mount: ClusterMount;
  readonly local: string;
  /** For programs that read settings of whoever starts them: nothing of the machine's own. */
  readonly env: NodeJS.ProcessEnv;
}

const isRoot = process.getuid?.() === 0;

/** To be called before the tests of a file are defined; everything ends with them. Over the transport that users get. */
export async function onMount(): Promise<OnMount> {
  const cluster = await startCluster();
  return mountOf(cluster, isRoot ? 'kernel' : 'native');
}

/** The same over each transport that may be used here, of a cluster with a volume for each. */
export async function onMounts(): Promise<OnMount[]> {
  const cluster = await startCluster();
  const mounts = [await mountOf(cluster, 'native')];
  if (isRoot) mounts.push(await mountOf(cluster, 'kernel'));
  return mounts;
}

async function startCluster(): Promise<RealCluster> {
  const cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
  after(() => cluster.stop());
  return cluster;
}

async function mountOf(cluster: RealCluster, transport: string): Promise<OnMount> {
  const volume = transport;
  await cluster.createVolume(volume);
  const mount = await ClusterMount.start(cluster, volume, '--transport', transport);
  after(() => mount.stop());
  const local = join(cluster.folder, `local-${transport}`);
  mkdirSync(local);
  const env = {
    HOME: local,
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    npm_config_cache: join(local, 'npm'),
  };
  return { cluster, transport, volume, mount, local, env };
}

/** @returns why a test that needs the program is skipped; false where it is there */
export async function isMissing(program: string): Promise<string | false> {
  const { code } = await run('sh', ['-c', `command -v ${program}`]);
  return code === 0 ? false : `There is no ${program} here`;
}

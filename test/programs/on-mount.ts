import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { ClusterMount, run } from '../cluster/cluster-mount.ts';
import { RealCluster } from '../cluster/real-cluster.ts';
import { SERVERS_OF_FORM } from '../long.ts';

const obstacle = await mountObstacle();

/** The reason why programs cannot run on a mount here, or false. */
export const skip: string | false = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;

/** Enough on a machine with few cores that also runs three servers and perhaps other tests, in milliseconds. */
export const PROGRAM_MS_MAX = 10 * 60_000;

/** A mounted volume of a real cluster, and a folder of the local disk. */
export interface OnMount {
  readonly cluster: RealCluster;
  readonly transport: string;
  readonly volume: string;
  readonly mount: ClusterMount;
  readonly local: string;
  /** The environment of programs that read a user's settings: none of this machine. */
  readonly env: NodeJS.ProcessEnv;
}

const isRoot = process.getuid?.() === 0;

/**
 * Starts a cluster with a mount over the default transport, until the end of the tests. Call it before they are
 * declared.
 */
export async function onMount(): Promise<OnMount> {
  const cluster = await startCluster();
  return mountOf(cluster, isRoot ? 'kernel' : 'native');
}

/** The same over each transport that is possible here: one cluster, with a volume for each. */
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

/** @returns why a test that needs the program is skipped, or false */
export async function isMissing(program: string): Promise<string | false> {
  const { code } = await run('sh', ['-c', `command -v ${program}`]);
  return code === 0 ? false : `There is no ${program} here`;
}

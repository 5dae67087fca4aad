import { chmod, mkdtemp, rm, rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { ClusterMount, run, runOk } from '../cluster/cluster-mount.ts';
import { LAUNCHER, type RealCluster } from '../cluster/real-cluster.ts';
import { isLong } from '../long.ts';
import { noPrograms } from './program.ts';

/** Why nothing can be mounted and called as several users here; false where it can. */
export async function noMounts(): Promise<string | false> {
  const obstacle = await mountObstacle();
  return obstacle === null ? noPrograms() : `Nothing can be mounted: ${obstacle}`;
}

/** The ways to the kernel that the mount knows here. */
export async function transports(): Promise<string[]> {
  const { text } = await run(process.execPath, [LAUNCHER, 'mount', '--help']);
  return text.includes('--transport') ? ['native', 'kernel'] : ['native'];
}

export async function mountOver(
  cluster: RealCluster,
  transport: string,
  ...flags: readonly string[]
): Promise<ClusterMount> {
  const chosen =
    transport === 'native' && (await transports()).length === 1 ? [] : ['--transport', transport];
  return ClusterMount.start(cluster, 'main', ...chosen, ...flags);
}

/** The ways to the kernel of tests whose rules do not depend on the way: the one that users get, and in the long form all. */
export async function transportsOfForm(): Promise<string[]> {
  const all = await transports();
  return isLong ? all : all.slice(-1);
}

export interface MountPair {
  readonly transport: string;
  readonly mounts: readonly [ClusterMount, ClusterMount];
}

/**
 * Two mounts of the volume over each of these transports, until the end of the tests of the file. All are there before the first
 * test is declared: where none is left to run, the runner takes the tests for over.
 */
export async function mountPairsOver(
  chosen: readonly string[],
  cluster: RealCluster,
  ...flags: readonly string[]
): Promise<MountPair[]> {
  const pairs: MountPair[] = [];
  for (const transport of chosen) {
    const mounts = [
      await mountOver(cluster, transport, ...flags),
      await mountOver(cluster, transport, ...flags),
    ] as const;
    for (const mount of mounts) after(() => mount.stop());
    pairs.push({ transport, mounts });
  }
  return pairs;
}

/** What is in the directory, read-only, until the end of the tests of the file. */
export async function readOnlyView(directory: string): Promise<string> {
  const view = await mkdtemp(join(tmpdir(), 'leasehold-view-'));
  await runOk('mount', ['--bind', directory, view]);
  after(async () => {
    await runOk('umount', ['-l', view]);
    await rmdir(view);
  });
  await runOk('mount', ['-o', 'remount,bind,ro', view]);
  return view;
}

/** A directory of this machine that all users can reach. */
export async function localDirectory(): Promise<{ readonly path: string; remove(): Promise<void> }> {
  const path = await mkdtemp(join(tmpdir(), 'leasehold-local-'));
  await chmod(path, 0o755);
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
}

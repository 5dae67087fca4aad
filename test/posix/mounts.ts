import { chmod, mkdtemp, rm, rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { ClusterMount, run, runOk } from '../cluster/cluster-mount.ts';
import { LAUNCHER, type RealCluster } from '../cluster/real-cluster.ts';
import { isLong } from '../long.ts';
import { noPrograms } from './program.ts';

/** @returns why this machine cannot mount and run programs as several users, or false */
export async function noMounts(): Promise<string | false> {
  const obstacle = await mountObstacle();
  return obstacle === null ? noPrograms() : `Nothing can be mounted: ${obstacle}`;
}

/** @returns the ways to the kernel that the mount supports here */
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

/** The ways to the kernel for tests that do not depend on the way: the default one, and in the long form all. */
export async function transportsOfForm(): Promise<string[]> {
  const all = await transports();
  return isLong ? all : all.slice(-1);
}

export interface MountPair {
  readonly transport: string;
  readonly mounts: readonly [ClusterMount, ClusterMount];
}

/**
 * Starts two mounts of the volume over each transport, until the end of the tests of the file. All start before the
 * first test is declared: if no declared test is left to run, the runner ends.
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

/** @returns a read-only bind mount of the directory, until the end of the tests of the file */
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

/** @returns a directory of this machine that all users can reach */
export async function localDirectory(): Promise<{ readonly path: string; remove(): Promise<void> }> {
  const path = await mkdtemp(join(tmpdir(), 'leasehold-local-'));
  await chmod(path, 0o755);
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
}

import { createHash } from 'node:crypto';
import { type RestoreReport, restore } from '../backup/restore.ts';
import { backup, emptyReport } from '../backup/volume-backup.ts';
import { CallFailure, nullIfNotFound } from './call-failure.ts';
import type { Cluster } from './cluster-access.ts';
import { ignoreExists } from './driver-records.ts';

/** Of the snapshots that copies of volumes are made from. */
const COPY_PREFIX = 'csi-copy.';

/** Removes everything in a volume but its snapshots. */
export async function emptyVolume(cluster: Cluster, volume: string): Promise<void> {
  await cluster.use(volume, (client) => client.admin.removeAll(volume));
}

/**
 * Copies a snapshot, with owners, modes, times, attributes, links and holes, into a volume, whose contents before are
 * removed: they are the rest of an interrupted copy.
 * @param tree `VOLUME@SNAPSHOT`
 */
export async function copyTree(cluster: Cluster, tree: string, volume: string): Promise<void> {
  await emptyVolume(cluster, volume);
  const report: RestoreReport = { members: 0, dataBytes: 0, failed: [] };
  await cluster.use(tree, (source) =>
    cluster.use(volume, async (target) => {
      const read = emptyReport();
      const top = await source.resolve(tree, '/');
      await restore(target, backup(source, top, read, {}), { volume, path: '/' }, report, {});
      const [torn] = read.torn;
      if (torn !== undefined)
        throw new CallFailure(
          'INTERNAL',
          `Cannot copy ${tree}: "${torn}" changes, although it is a snapshot`,
        );
    }),
  );
  const [failed] = report.failed;
  if (failed !== undefined)
    throw new CallFailure('INTERNAL', `Cannot copy "${failed.path}" of ${tree}: ${failed.why}`);
}

/** Makes the snapshot that a copy of `source` is made from; an interrupted copy has one already. @returns its tree */
export async function copySnapshot(cluster: Cluster, source: string, target: string): Promise<string> {
  const name = copySnapshotName(target);
  await cluster.use(source, (client) =>
    client.command({ kind: 'snapshot-create', volume: source, name }).then(() => undefined, ignoreExists),
  );
  return `${source}@${name}`;
}

export async function removeCopySnapshot(cluster: Cluster, source: string, target: string): Promise<void> {
  const name = copySnapshotName(target);
  await cluster.use(source, (client) =>
    client.command({ kind: 'snapshot-remove', volume: source, name }).catch(nullIfNotFound),
  );
}

export function isCopySnapshot(name: string): boolean {
  return name.startsWith(COPY_PREFIX);
}

/** A digest, since names of snapshots are no longer than those of volumes. */
function copySnapshotName(target: string): string {
  return `${COPY_PREFIX}${createHash('sha256').update(target).digest('hex').slice(0, 40)}`;
}

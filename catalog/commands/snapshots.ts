import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults, Preservation } from '../../wire/catalog-api.ts';
import type { Retention } from '../../wire/retention.ts';
import { snapshotInfoOf } from '../attributes.ts';
import { charge, chargeOf } from '../charges.ts';
import type { InodeRow } from '../inode-rows.ts';
import { assertNotRetained, prolonged } from '../retention.ts';
import { KIND_FILE } from '../schema.ts';
import type { SnapshotRow } from '../snapshot-tables.ts';
import type { Tables } from '../tables.ts';
import { volumeOf } from '../tree.ts';
import type { VolumeRow } from '../volume-tables.ts';
import { assertNotCloned } from './clones.ts';

/** Orphan time of a file kept for snapshots: never old enough to be collected. */
const KEPT_FOR_SNAPSHOT_NS = (2n ** 63n - 1n).toString();
/** Old enough to be collected at once. */
const COLLECT_NOW_NS = '0';

const SNAPSHOTS_MAX = 4_096;

export function snapshotCreate(
  tables: Tables,
  command: CommandOf<'snapshot-create'>,
  atNs: string,
): CommandResults['snapshot-create'] {
  const volume = volumeOf(tables, command.volume);
  const { snapshots } = tables;
  if (snapshots.byName(volume.id, command.name) !== undefined) {
    throw new ServiceError(
      'exists',
      `There is a snapshot "${command.name}" of volume "${volume.name}" already`,
    );
  }
  if (snapshots.all(volume.id).length >= SNAPSHOTS_MAX) {
    throw new ServiceError('too-large', `A volume has at most ${SNAPSHOTS_MAX} snapshots: remove some`);
  }
  // The catalog does not know size and contents of a live file.
  const [live] = tables.inodeLists.live(volume.id, 1);
  if (live !== undefined) {
    throw new ServiceError(
      'busy',
      `Cannot make a snapshot of volume "${volume.name}": file ${live} is being written`,
    );
  }
  const created = snapshots.create(volume.id, command.name, atNs);
  const { retain } = command;
  const snapshot = retain === undefined ? created : retainSnapshot(tables, volume, created, retain);
  return { snapshot: snapshotInfoOf(volume, snapshot) };
}

export function snapshotRemove(
  tables: Tables,
  command: CommandOf<'snapshot-remove'>,
): CommandResults['snapshot-remove'] {
  const volume = volumeOf(tables, command.volume);
  const snapshot = snapshotOf(tables, volume, command.name);
  assertNotRetained(tables, describe(volume, snapshot), snapshot.retainNs);
  assertNotCloned(tables, volume, snapshot);
  tables.snapshots.remove(snapshot);
  return {};
}

export function snapshotRetain(
  tables: Tables,
  command: CommandOf<'snapshot-retain'>,
): CommandResults['snapshot-retain'] {
  const volume = volumeOf(tables, command.volume);
  const snapshot = snapshotOf(tables, volume, command.name);
  return { snapshot: snapshotInfoOf(volume, retainSnapshot(tables, volume, snapshot, command.retain)) };
}

function retainSnapshot(
  tables: Tables,
  volume: VolumeRow,
  snapshot: SnapshotRow,
  wanted: Retention,
): SnapshotRow {
  const retainNs = prolonged(tables, describe(volume, snapshot), snapshot.retainNs, wanted);
  tables.retentions.putOfSnapshot(volume.id, snapshot.serial, retainNs);
  tables.volumes.noteRetained(volume.id, retainNs);
  return { ...snapshot, retainNs };
}

function snapshotOf(tables: Tables, volume: VolumeRow, name: string): SnapshotRow {
  const snapshot = tables.snapshots.byName(volume.id, name);
  if (snapshot !== undefined) return snapshot;
  throw new ServiceError('not-found', `There is no snapshot "${name}" of volume "${volume.name}"`);
}

function describe(volume: VolumeRow, { name }: SnapshotRow): string {
  return `Snapshot "${volume.name}@${name}"`;
}

/** Deletes past rows that no snapshot shows. Files that only removed snapshots showed may then be collected. */
export function sweep(tables: Tables, command: CommandOf<'sweep'>): CommandResults['sweep'] {
  const { rows, more, sources } = tables.sweeps.sweep(command.countMax);
  for (const id of sources) {
    const inode = tables.inode(id);
    if (inode?.orphanedNs === KEPT_FOR_SNAPSHOT_NS && !isShown(tables, inode))
      tables.inodes.setOrphaned(id, COLLECT_NOW_NS);
  }
  // Unfinished preservations for removed snapshots.
  for (const file of tables.inodeLists.preserving())
    if (!isShown(tables, file)) endPreservation(tables, file);
  return { rows, more };
}

/** Whether `sweep` has work. A preservation for an existing snapshot stays. */
export function isSweepPending(tables: Tables): boolean {
  tables.snapshots.begin();
  return tables.sweeps.isPending() || tables.inodeLists.preserving().some((file) => !isShown(tables, file));
}

/** Deletes an orphan, unless a snapshot shows its contents: then keeps it. @returns whether it was deleted */
export function collectOrphan(tables: Tables, orphan: InodeRow): boolean {
  if (isShown(tables, orphan)) {
    // It can be recovered from the snapshot, so it leaves the trash.
    charge(tables, orphan, -1, -chargeOf(orphan));
    if (orphan.trashed) tables.trash.delete(orphan.id);
    tables.inodes.setOrphaned(orphan.id, KEPT_FOR_SNAPSHOT_NS);
    return false;
  }
  endPreservation(tables, orphan);
  tables.inodes.delete(orphan);
  return true;
}

/**
 * Called before a file is marked live. Contents that snapshots show must first be preserved as those of a new inode,
 * which has no servers and is not visible until the caller reports that it has the contents (`preserved`).
 * @returns what to preserve; null if nothing
 * @throws ServiceError `busy` if the caller knows no snapshots
 */
export function preserveIfShown(
  tables: Tables,
  inode: InodeRow,
  { preserves, preserved }: CommandOf<'open-for-write'>,
  atNs: string,
): Preservation | null {
  if (!tables.snapshots.showsContents(inode.id)) {
    // A preservation begun for removed snapshots must not continue after the contents changed.
    endPreservation(tables, inode);
    return null;
  }
  if (preserved === 'lost') {
    setContentsSource(tables, inode, -1, atNs);
    endPreservation(tables, inode);
    return null;
  }
  if (preserved !== undefined && preserved !== 'again' && preserved.inode === inode.preserving) {
    tables.inodes.storePreserved(
      preserved.inode,
      inode,
      preserved.view.number,
      preserved.view.members.join(','),
    );
    setContentsSource(tables, inode, preserved.inode, atNs);
    tables.inodes.setPreserving(inode.id, 0);
    return null;
  }
  if (preserves !== true) {
    throw new ServiceError(
      'busy',
      `The primary of file ${inode.id} runs a program that knows no snapshots: update it`,
    );
  }
  const contents = { epoch: inode.contentsEpoch, seq: inode.contentsSeq };
  if (preserved === 'again') endPreservation(tables, inode);
  else if (inode.preserving !== 0) return { inode: inode.preserving, contents };
  const id = tables.inodes.insert({
    volume: inode.volume,
    kind: KIND_FILE,
    mode: 0,
    uid: inode.uid,
    gid: inode.gid,
    links: 0,
    sizeBytes: 0,
    atNs,
    target: '',
    device: 0,
    replicas: '',
    view: 0,
    objectBytes: inode.objectBytes,
    live: 0,
    parent: null,
    orphanedNs: KEPT_FOR_SNAPSHOT_NS,
    policy: inode.policy,
    allowed: null,
    placement: inode.placement,
  });
  tables.inodes.setPreserving(inode.id, id);
  return { inode: id, contents };
}

function setContentsSource(tables: Tables, inode: InodeRow, source: number, atNs: string): void {
  tables.snapshots.setContentsSource(inode.id, source);
  // It was kept only for snapshots that show its contents; now an open file is written.
  if (inode.orphanedNs === KEPT_FOR_SNAPSHOT_NS) tables.inodes.setOrphaned(inode.id, atNs);
}

function isShown({ snapshots }: Tables, { id }: InodeRow): boolean {
  return snapshots.showsContents(id) || snapshots.showsPreserved(id);
}

function endPreservation(tables: Tables, { id, preserving }: InodeRow): void {
  if (preserving === 0) return;
  tables.inodes.setPreserving(id, 0);
  tables.inodes.setOrphaned(preserving, COLLECT_NOW_NS);
}

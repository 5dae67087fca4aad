import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults, Preservation } from '../../wire/catalog-api.ts';
import { snapshotInfoOf } from '../attributes.ts';
import { charge, chargeOf } from '../charges.ts';
import type { InodeRow } from '../inode-rows.ts';
import { KIND_FILE } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { volumeOf } from '../tree.ts';

/** Since when a file has no name that stays because of snapshots: never long enough ago to be collected. */
const HELD_NS = (2n ** 63n - 1n).toString();
/** Long enough ago to be collected at once. */
const RELEASED_NS = '0';

/** Snapshots of one volume at the most. */
const SNAPSHOTS_MAX = 4_096;

export function snapshotCreate(
  tables: Tables,
  command: CommandOf<'snapshot-create'>,
  atNs: string,
): CommandResults['snapshot-create'] {
  const volume = volumeOf(tables, command.volume);
  const { snapshots } = tables;
  if (snapshots.named(volume.id, command.name) !== undefined) {
    throw new ServiceError(
      'exists',
      `There is a snapshot "${command.name}" of volume "${volume.name}" already`,
    );
  }
  if (snapshots.all(volume.id).length >= SNAPSHOTS_MAX) {
    throw new ServiceError('too-large', `A volume has at most ${SNAPSHOTS_MAX} snapshots: remove some`);
  }
  // Of a live file the catalog knows neither size nor contents.
  const [live] = tables.inodeLists.live(volume.id, 1);
  if (live !== undefined) {
    throw new ServiceError(
      'busy',
      `Cannot make a snapshot of volume "${volume.name}": file ${live} is being written`,
    );
  }
  return { snapshot: snapshotInfoOf(volume, snapshots.make(volume.id, command.name, atNs)) };
}

/** What only it showed is swept later. */
export function snapshotRemove(
  tables: Tables,
  command: CommandOf<'snapshot-remove'>,
): CommandResults['snapshot-remove'] {
  const volume = volumeOf(tables, command.volume);
  const snapshot = tables.snapshots.named(volume.id, command.name);
  if (snapshot === undefined) {
    throw new ServiceError('not-found', `There is no snapshot "${command.name}" of volume "${volume.name}"`);
  }
  tables.snapshots.remove(snapshot);
  return {};
}

/** Files whose contents no snapshot shows any more are collected with the next orphans. */
export function sweep(tables: Tables, command: CommandOf<'sweep'>): CommandResults['sweep'] {
  const { rows, more, sources } = tables.sweeps.sweep(command.countMax);
  for (const id of sources) {
    const inode = tables.inode(id);
    if (inode?.orphanedNs === HELD_NS && !isShown(tables, inode)) tables.inodes.setOrphaned(id, RELEASED_NS);
  }
  // What was begun for snapshots that are gone, and broke off.
  for (const file of tables.inodeLists.preserving()) if (!isShown(tables, file)) release(tables, file);
  return { rows, more };
}

/** Whether `sweep` has something to do. What is about to be preserved for a snapshot that is there still stays. */
export function isSweepPending(tables: Tables): boolean {
  tables.snapshots.begin();
  return tables.sweeps.isPending() || tables.inodeLists.preserving().some((file) => !isShown(tables, file));
}

/** Removes a file without a name, unless snapshots show its contents: then it stays for them. @returns whether it is gone */
export function isCollected(tables: Tables, orphan: InodeRow): boolean {
  if (isShown(tables, orphan)) {
    // Whoever wants it back finds it in the snapshot, and not in the trash any more.
    charge(tables.volumes, orphan, -1, -chargeOf(orphan));
    if (orphan.trashed) tables.trash.delete(orphan.id);
    tables.inodes.setOrphaned(orphan.id, HELD_NS);
    return false;
  }
  release(tables, orphan);
  tables.inodes.delete(orphan);
  return true;
}

/**
 * A file is about to be written. Where snapshots show the contents that it has, they have to be preserved first, as those of an
 * inode that is made for that. It has no servers, and nobody is told of it, until they are there.
 *
 * @returns what is to be preserved; null where nothing is, any more
 * @throws ServiceError `busy` where whoever asks does not know how
 */
export function preserveFirst(
  tables: Tables,
  inode: InodeRow,
  { preserves, preserved }: CommandOf<'open-for-write'>,
  atNs: string,
): Preservation | null {
  if (!tables.snapshots.holdsContents(inode.id)) {
    // What was begun for snapshots that are gone must not be gone on with after the contents have changed.
    release(tables, inode);
    return null;
  }
  if (preserved === 'lost') {
    contentsAre(tables, inode, -1, atNs);
    release(tables, inode);
    return null;
  }
  if (preserved !== undefined && preserved !== 'again' && preserved.inode === inode.preserving) {
    tables.inodes.preserved(preserved.inode, inode, preserved.view.number, preserved.view.members.join(','));
    contentsAre(tables, inode, preserved.inode, atNs);
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
  if (preserved === 'again') release(tables, inode);
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
    orphanedNs: HELD_NS,
    policy: inode.policy,
    allowed: null,
  });
  tables.inodes.setPreserving(inode.id, id);
  return { inode: id, contents };
}

function contentsAre(tables: Tables, inode: InodeRow, source: number, atNs: string): void {
  tables.snapshots.contentsAre(inode.id, source);
  // It stayed for its contents alone; now it is written by whoever has it open.
  if (inode.orphanedNs === HELD_NS) tables.inodes.setOrphaned(inode.id, atNs);
}

function isShown({ snapshots }: Tables, { id }: InodeRow): boolean {
  return snapshots.holdsContents(id) || snapshots.needs(id);
}

/** The inode that was to preserve a file's contents is not needed any more. */
function release(tables: Tables, { id, preserving }: InodeRow): void {
  if (preserving === 0) return;
  tables.inodes.setPreserving(id, 0);
  tables.inodes.setOrphaned(preserving, RELEASED_NS);
}

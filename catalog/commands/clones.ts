/** Volumes that begin as the tree of a snapshot, and are filled when that is needed: docs/design/clones.md. */
import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import { volumeInfoOf } from '../attributes.ts';
import { chargeQuotas } from '../charges.ts';
import type { CloneRow } from '../clone-tables.ts';
import { inheritedQuota } from '../inherited-quota.ts';
import type { InodeRow } from '../inode-rows.ts';
import { KIND_DIRECTORY, KIND_FILE } from '../schema.ts';
import type { SnapshotRow } from '../snapshot-tables.ts';
import type { Tables } from '../tables.ts';
import { inodeOf, SnapshotTree, sharedContents, volumeOf } from '../tree.ts';
import type { VolumeRow } from '../volume-tables.ts';
import { refuseTakenName } from './volume-catalogs.ts';

export function cloneCreate(
  tables: Tables,
  command: CommandOf<'clone-create'>,
): CommandResults['clone-create'] {
  refuseTakenName(tables, command.name);
  const source = sourceOf(tables, command.volume);
  const snapshot = tables.snapshots.byName(source.id, command.snapshot);
  if (snapshot === undefined)
    throw new ServiceError(
      'not-found',
      `There is no snapshot "${command.snapshot}" of volume "${source.name}"`,
    );
  const { name } = command;
  const { replicas, objectBytes, policy, quotaBytes, quotaInodes, trashMs, labels, zones } = source;
  const id = tables.volumes.insert(name, 0, replicas, objectBytes, policy);
  const volume = { replicas, policy, quotaBytes, quotaInodes, trashMs, labels, zones };
  const origin = inodeOf(new SnapshotTree(tables, snapshot.serial), source.root) as InodeRow;
  const root = tables.inodes.insertCopy(origin, { volume: id, parent: 'self', placement: 0, quota: 0 });
  tables.volumes.setRoot(id, root);
  tables.volumes.set(id, volume);
  copyXattrs(tables, origin.id, root, snapshot.serial);
  count(tables, { id, quota: 0 }, 1, 0);
  if (hasEntries(tables, origin.id, snapshot.serial)) {
    tables.clones.create({ volume: id, source: source.id, serial: snapshot.serial });
    tables.clones.add(id, root, origin.id);
  }
  return { volume: volumeInfoOf(tables.volumes.row(id)) };
}

/** The volume whose snapshot is cloned. @throws ServiceError if its catalog is not this one, or not for long */
function sourceOf(tables: Tables, name: string): VolumeRow {
  const listed = tables.catalogs.byName(name);
  if (listed !== undefined && listed.moving === undefined && tables.volumes.byName(name) === undefined)
    throw new ServiceError(
      'precondition-failed',
      `Cannot clone a snapshot of volume "${name}": it has a catalog of its own, which has no other volume`,
    );
  const volume = volumeOf(tables, name);
  if (listed !== undefined || tables.moves.sources().includes(volume.id))
    throw new ServiceError(
      'busy',
      `Volume "${name}", or a directory of it, moves: wait until that has ended`,
    );
  return volume;
}

/**
 * Copies the next entries of a directory. It is no change of the directory: nothing is recalled or reported, and
 * snapshots of the clone show what is copied, because the directory had it from the beginning.
 * @throws UnfilledDirectory if the origin is of a clone, and unfilled itself
 */
export function cloneFill(
  tables: Tables,
  { inode: id, countMax }: CommandOf<'clone-fill'>,
): CommandResults['clone-fill'] {
  const directory = tables.inode(id);
  const row = directory?.kind === KIND_DIRECTORY ? tables.clones.unfilled(id) : undefined;
  // It was filled, perhaps by an earlier primary.
  if (directory === undefined || row === undefined) return { done: true };
  const clone = tables.clones.ofVolume(row.volume);
  assert(clone !== undefined, 'An unfilled inode is of a clone');
  const tree = new SnapshotTree(tables, clone.serial);
  const names = tables.snapshots.childrenAt(row.origin, row.position, countMax, clone.serial);
  let inodes = 0;
  let bytes = 0;
  for (const { name, inode } of names) {
    const known = tables.clones.nextName(clone.volume, inode);
    if (known !== undefined) {
      tables.entries.insertCopy(id, name, known);
      continue;
    }
    const origin = inodeOf(tree, inode) as InodeRow;
    tables.entries.insertCopy(id, name, copyInode(tables, clone, directory, origin));
    inodes += 1;
    if (origin.kind === KIND_FILE) bytes += origin.sizeBytes;
  }
  count(tables, { id: clone.volume, quota: inheritedQuota(tables, directory) }, inodes, bytes);
  const last = names.at(-1);
  if (last !== undefined && names.length === countMax) {
    tables.clones.setPosition(id, last.name);
    return { done: false };
  }
  tables.clones.end(id);
  return { done: true };
}

/**
 * Chooses the servers of a file's own contents: those that have what it shares, so that each copies what it has. The
 * first choice stays: the number of a view has one set of members, and any of them may have made its copy.
 */
export function cloneOpen(
  tables: Tables,
  { inode: id }: CommandOf<'clone-open'>,
): CommandResults['clone-open'] {
  const inode = inodeOf(tables, id);
  if (inode.kind !== KIND_FILE) throw new ServiceError('bad-request', `Inode ${id} is no file`);
  const row = tables.clones.unfilled(id);
  if (row === undefined) return { members: null };
  if (row.members !== '') return { members: row.members.split(',') };
  const { replicas = '' } = tables.inode(sharedContents(tables, row).source) ?? {};
  if (replicas === '')
    throw new ServiceError(
      'integrity',
      `No server has the contents that file ${id} of the clone "${inode.volumeName}" shares with its snapshot`,
    );
  tables.clones.setMembers(id, replicas);
  return { members: replicas.split(',') };
}

/** A majority of the file's servers has its contents, on their disks: from now on they are its own. */
export function cloneFilled(
  tables: Tables,
  { inode }: CommandOf<'clone-filled'>,
): CommandResults['clone-filled'] {
  const row = tables.clones.unfilled(inode);
  // It was removed, or this is a repetition.
  if (row === undefined) return {};
  if (row.members === '')
    throw new ServiceError('bad-request', `No servers were chosen for the contents of inode ${inode}`);
  tables.inodes.setFirstView(inode, row.members);
  tables.clones.end(inode);
  return {};
}

/** Has all of a clone filled in the background, so that it needs its snapshot no longer. */
export function cloneFlatten(
  tables: Tables,
  { name }: CommandOf<'clone-flatten'>,
): CommandResults['clone-flatten'] {
  const { id } = volumeOf(tables, name);
  tables.clones.flatten(id);
  return { unfilled: tables.clones.ofVolume(id)?.unfilled ?? 0 };
}

function copyInode(tables: Tables, clone: CloneRow, directory: InodeRow, origin: InodeRow): number {
  const { volume, serial } = clone;
  const { placement } = directory;
  const quota = inheritedQuota(tables, directory);
  const isDirectory = origin.kind === KIND_DIRECTORY;
  const parent = isDirectory ? directory.id : null;
  const id = tables.inodes.insertCopy(origin, { volume, parent, placement, quota });
  if (origin.xattrs > 0) copyXattrs(tables, origin.id, id, serial);
  if (isDirectory ? hasEntries(tables, origin.id, serial) : origin.kind === KIND_FILE)
    tables.clones.add(volume, id, origin.id);
  const hasOthers = !isDirectory && origin.links > 1;
  if (hasOthers) tables.clones.expectNames(volume, origin.id, id, origin.links - 1);
  // What gets a quota here before its names are visited is visited, too: all names of a file must be in the directory.
  if (tables.walks.row(quota)?.phase === 'counting') {
    if (isDirectory) tables.walks.addDirectory(quota, id);
    if (hasOthers) tables.walks.addShared(quota, { inode: id, names: 0, parent: 0, name: '' });
  }
  return id;
}

function copyXattrs(tables: Tables, origin: number, inode: number, serial: number): void {
  for (const { name, value } of tables.snapshots.xattrsAt(origin, serial))
    tables.xattrs.insertCopy(inode, name, value);
}

/** Whether the directory has entries in the snapshot: an unfilled one has. */
function hasEntries(tables: Tables, directory: number, serial: number): boolean {
  return (
    tables.clones.isUnfilled(directory) || tables.snapshots.childrenAt(directory, '', 1, serial).length > 0
  );
}

/** Quotas do not refuse it: the clone has had these inodes from the beginning. */
function count(
  tables: Tables,
  { id, quota }: { readonly id: number; readonly quota: number },
  inodes: number,
  bytes: number,
): void {
  tables.volumes.count(id, inodes, bytes);
  chargeQuotas(tables, { volume: id, quota }, inodes, bytes);
}

/** A file has contents and servers of its own before it is changed. */
export function notFilled({ id, volumeName }: InodeRow): ServiceError {
  return new ServiceError(
    'busy',
    `File ${id} of the clone "${volumeName}" has no contents of its own yet: they are its snapshot's`,
  );
}

/** @throws ServiceError if a clone needs the snapshot */
export function assertNotCloned(tables: Tables, volume: VolumeRow, { serial, name }: SnapshotRow): void {
  const names = namesOf(tables, tables.clones.ofSource(volume.id, serial));
  if (names.length === 0) return;
  const [clones, them] = names.length === 1 ? ['the clone', 'it'] : ['the clones', 'them'];
  throw new ServiceError(
    'precondition-failed',
    `Snapshot "${volume.name}@${name}" has contents of ${clones} ${names.join(', ')}: flatten or remove ${them} before`,
  );
}

/** @returns why the volume cannot move to another catalog: it shares contents with another one; or null */
export function sharedWith(tables: Tables, { id }: VolumeRow): string | null {
  const clone = tables.clones.ofVolume(id);
  if (clone !== undefined) return `it is a clone of a snapshot of "${tables.volumes.row(clone.source).name}"`;
  const names = namesOf(tables, tables.clones.ofSource(id, null));
  return names.length === 0 ? null : `its snapshots have contents of clones: ${names.join(', ')}`;
}

function namesOf(tables: Tables, clones: readonly CloneRow[]): string[] {
  return clones.map(({ volume }) => `"${tables.volumes.row(volume).name}"`).sort();
}

/**
 * Directories of a volume of the root catalog that become volumes of their own. The new volume gets the directory's
 * inodes one after the other, each directory before its entries: from then on its changes wait, while others of the
 * same directory go on. Then the new volume moves as others do (`volume-moves.ts`), and is attached where the directory
 * was. A change of what is in the directory has either been executed before it is visited, or waits.
 */
import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import { volumeInfoOf } from '../attributes.ts';
import { placementClassOf } from '../file-class.ts';
import type { InodeRow } from '../inode-rows.ts';
import { KIND_DIRECTORY } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { volumeOf } from '../tree.ts';
import type { MoveRow } from '../volume-move-tables.ts';
import type { VolumeRow } from '../volume-tables.ts';
import { isBelow, pathInode } from '../walk.ts';
import { sharedWith } from './clones.ts';
import { leaveQuota, returnToQuota } from './directory-quotas.ts';
import { addCatalog, refuseTakenName, settingsOf } from './volume-catalogs.ts';

/** @param chosen the members of the new catalog if the command names none */
export function volumeSplit(
  tables: Tables,
  command: CommandOf<'volume-split'>,
  chosen: readonly string[],
): CommandResults['volume-split'] {
  const { name, volume: volumeName, path, members = chosen } = command;
  const volume = volumeOf(tables, volumeName);
  const { id } = pathInode(tables, volumeName, path, { follow: true, junction: 'self' });
  const listed = tables.catalogs.byName(name);
  // A repetition.
  if (listed?.moving !== undefined && tables.moves.row(listed.number)?.part === id)
    return { catalog: listed };
  refuseTakenName(tables, name);
  if (tables.moves.leaving().includes(volume.id) || tables.moves.sources().includes(volume.id))
    throw new ServiceError(
      'busy',
      `The volume "${volumeName}", or a directory of it, moves: wait until that has ended`,
    );
  const directory = tables.inodes.existing(id);
  const why = unfitness(tables, directory, volume);
  if (why !== null)
    throw new ServiceError('precondition-failed', `"${volumeName}:${path}" cannot become a volume: ${why}`);
  const files = tables.classes.of(volume, directory.placement);
  const info = {
    ...volumeInfoOf(volume),
    replicas: files.replicas,
    labels: [],
    zones: [],
    ...placementClassOf(files),
  };
  const { quotaBytes: _bytes, quotaInodes: _inodes, ...unlimited } = info;
  const catalog = addCatalog(tables, { name, members, settings: settingsOf(unlimited) });
  const part = { part: id, source: volume.id, above: directory.parent };
  tables.moves.enter({ catalog: catalog.number, volume: volume.id, ...part }, 'begun');
  return { catalog: { ...catalog, moving: 'begun' } };
}

/** @returns why the directory cannot become a volume now; null if it can */
function unfitness(tables: Tables, directory: InodeRow | undefined, volume: VolumeRow): string | null {
  if (directory === undefined || directory.volume !== volume.id) return 'it was removed';
  if (directory.kind !== KIND_DIRECTORY) return 'it is no directory';
  if (directory.id === volume.root) return `it is the root of its volume, which may move as a whole`;
  if (directory.junction !== null) return 'a volume is attached there';
  const shared = sharedWith(tables, volume);
  if (shared !== null) return `of its volume, ${shared}`;
  if (tables.snapshots.all(volume.id).length > 0)
    return 'its volume has snapshots, which would lose it: remove them';
  if (tables.sweeps.hasVolume(volume.id))
    return 'the rows of a removed snapshot are not deleted yet: try again';
  return null;
}

/**
 * Creates the volume, whose first inode is the directory itself.
 * @returns why that is not possible any more; null if it is done
 */
export function beginSplit(tables: Tables, move: MoveRow): string | null {
  const source = tables.volumes.find(move.source);
  if (source === undefined) return 'its volume was removed';
  const directory = tables.inode(move.part);
  const why = unfitness(tables, directory, source);
  if (why !== null) return why;
  assert(directory !== undefined, 'A directory that can become a volume exists');
  const listed = tables.catalogs.byNumber(move.catalog);
  assert(listed !== undefined, 'A volume moves to a catalog that is listed');
  const { name } = listed;
  if (tables.volumes.byName(name) !== undefined) return `there is a volume "${name}" already`;
  const { replicas, labels, zones } = tables.classes.of(source, directory.placement);
  const { objectBytes, policy, trashMs, serial } = source;
  const volume = tables.volumes.insert(name, directory.id, replicas, objectBytes, policy);
  tables.volumes.set(volume, { replicas, policy, quotaBytes: 0, quotaInodes: 0, trashMs, labels, zones });
  tables.volumes.setSerial(volume, serial);
  // It keeps its parent here, for paths and for the check of renames; the copy is its own parent.
  tables.inodes.setVolume(directory, volume);
  // Its own quota, if it has one, becomes that of the volume's root.
  leaveQuota(tables, directory, outerQuota(tables, directory.parent));
  tables.splits.addDirectory(move.catalog, directory.id);
  tables.moves.enter({ ...move, volume, above: directory.parent }, 'splitting');
  tables.catalogs.nextVersion();
  return null;
}

/**
 * Visits entries, at most `countMax`, and makes their inodes the volume's.
 *
 * @param resumes keeps in which directory it ended
 * @returns how far it came; null at the end; or why the directory cannot become a volume
 */
export function visitEntries(
  tables: Tables,
  move: MoveRow,
  countMax: number,
  resumes: boolean,
): MoveRow | string | null {
  const { catalog } = move;
  let { visiting, visited } = move;
  for (let left = countMax; left > 0; ) {
    // Another one may have come before it since: the position is of this one.
    const directory = visiting > 0 ? visiting : tables.splits.directory(catalog);
    if (directory === undefined) return checkSharedFiles(tables, { ...move, visiting, visited }, left);
    const children = tables.entries.children(directory, visited, left);
    for (const child of children) {
      const why = visitChild(tables, move, child);
      if (why !== null) return why;
    }
    visited = children.at(-1)?.entryName ?? visited;
    visiting = resumes ? directory : 0;
    if (children.length < left) {
      tables.splits.delete(catalog, directory);
      visiting = 0;
      visited = '';
    }
    left -= Math.max(1, children.length);
  }
  return { ...move, visiting, visited };
}

/** @returns why the directory cannot become a volume; null if it can */
function visitChild(
  tables: Tables,
  { catalog, volume, part, above }: MoveRow,
  child: InodeRow,
): string | null {
  const { inodes, splits } = tables;
  const isDirectory = child.kind === KIND_DIRECTORY;
  if (!isDirectory && child.links > 1) splits.addName(catalog, child.id);
  // A file with several names may have been visited, also among the entries that were read together.
  if (inodes.volumeOf(child.id) === volume) return null;
  const outside = classOutside(tables, part, child);
  if (outside !== null)
    return `inode ${child.id} has the placement class of directory ${outside}, which is not in it: set or clear its own`;
  inodes.setVolume(child, volume);
  leaveQuota(tables, child, outerQuota(tables, above));
  if (typeof child.retainNs === 'string') tables.volumes.noteRetained(volume, child.retainNs);
  if (isDirectory) splits.addDirectory(catalog, child.id);
  return null;
}

/** @returns a directory outside whose class the inode has, unless the new volume gets it; else null */
function classOutside(tables: Tables, part: number, { placement }: InodeRow): number | null {
  const top = tables.inodes.existing(part);
  if (placement === 0 ? top.placement === 0 : placement === top.placement) return null;
  const { directory } = tables.classes.row(placement) ?? { directory: 0 };
  if (directory === 0) return null;
  return isBelow(tables, tables.inodes.existing(directory), top) ? null : directory;
}

/** All names of a file must be in the new volume. */
function checkSharedFiles(tables: Tables, move: MoveRow, countMax: number): MoveRow | string | null {
  const files = tables.splits.sharedFiles(move.catalog, move.position, countMax);
  for (const { inode, names } of files)
    if (tables.inodes.existing(inode).links !== names)
      return `file ${inode} has names inside and outside of it (hard links): remove one of them`;
  const last = files.at(-1);
  return last === undefined || files.length < countMax ? null : { ...move, position: last.inode };
}

/** @param above the directory that the part is in @returns the quota against which the part does not count any more */
function outerQuota(tables: Tables, above: number): number {
  return tables.inodes.existing(above).quota;
}

/** What was visited becomes the other volume's again. @returns how far it came; null at the end */
export function joinAgain(tables: Tables, move: MoveRow, countMax: number): MoveRow | null {
  const rows = tables.rows.numbers('inodes', move.position, countMax);
  for (const { first, volume } of rows) {
    if (volume !== move.volume) continue;
    const inode = tables.inodes.existing(first);
    tables.inodes.setVolume(inode, move.source);
    returnToQuota(tables, inode, outerQuota(tables, move.above));
  }
  const last = rows.at(-1);
  if (last !== undefined && rows.length === countMax) return { ...move, position: last.first };
  tables.volumes.delete(move.volume);
  return null;
}

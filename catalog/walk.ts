import { assert } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import type { Place } from '../wire/catalog-api.ts';
import type { InodeRow } from './inode-rows.ts';
import { leadsThrough } from './junction-refusals.ts';
import { nameCheck, pathNames, SYMLINKS_MAX, targetNames } from './names.ts';
import { KIND_DIRECTORY, KIND_SYMLINK } from './schema.ts';
import type { Tables } from './tables.ts';
import { directoryOf, inodeOf, type ShownRow, treeByName, volumeOf } from './tree.ts';
import type { VolumeRow } from './volume-tables.ts';

/** A name in a directory, and the inode with that name, if any. */
export interface ResolvedName {
  readonly directory: InodeRow;
  readonly name: string;
  readonly inode: ShownRow | undefined;
}

/** A path's end: an entry, or a directory reached without one (the root, or by `..`). */
type End = ResolvedName | { readonly directory: null; readonly inode: ShownRow };

/**
 * Resolves a path. Symbolic links stay in the volume: absolute targets start at its root; `..` above it fails.
 * @throws ServiceError `junction` if it leads on in another volume
 */
function walk(tables: Tables, volumeName: string, path: string, followLast: boolean): End {
  const { tree, root: rootId } = treeByName(tables, volumeName);
  const root = inodeOf(tree, rootId);
  // Remaining names, the next one last.
  const remaining = pathNames(path).reverse();
  let end: End = { directory: null, inode: root };
  let symlinks = 0;
  for (let name = remaining.pop(); name !== undefined; name = remaining.pop()) {
    const here: ShownRow | undefined = end.inode;
    if (here === undefined)
      throw new ServiceError('not-found', `"${path}" leads through a name that is not there`);
    if (here.kind !== KIND_DIRECTORY) {
      throw new ServiceError('not-directory', `"${path}" leads through something that is no directory`);
    }
    if (name === '..') {
      if (here.id === root.id) {
        throw new ServiceError('bad-request', `A symbolic link on "${path}" leads outside the volume`);
      }
      end = { directory: null, inode: inodeOf(tree, here.parent) };
      continue;
    }
    if (here.junction !== null) throw leadsThrough(here, path, [name, ...remaining.toReversed()]);
    const inode = tree.child(here.id, name);
    if (inode?.kind === KIND_SYMLINK && (followLast || remaining.length > 0)) {
      symlinks += 1;
      if (symlinks > SYMLINKS_MAX) {
        throw new ServiceError(
          'symlink-loop',
          `"${path}" leads through more than ${SYMLINKS_MAX} symbolic links`,
        );
      }
      remaining.push(...targetNames(inode.target).reverse());
      end = { directory: null, inode: inode.target.startsWith('/') ? root : here };
      continue;
    }
    end = { directory: here, name, inode };
  }
  return end;
}

/** The inode at a path; follows a final symbolic link, and returns a junction, only on request. */
export function pathInode(
  tables: Tables,
  volume: string,
  path: string,
  { follow, junction }: { readonly follow: boolean; readonly junction?: 'self' | undefined },
): ShownRow {
  const { inode } = walk(tables, volume, path, follow);
  if (inode === undefined) throw new ServiceError('not-found', `There is nothing at "${volume}:${path}"`);
  if (inode.junction !== null && junction !== 'self') throw leadsThrough(inode, path, []);
  return inode;
}

/**
 * Resolves a place to directory, name and inode. Follows a path's final symbolic link only on request, and never one in
 * a directory given by inode: such callers follow links. A junction at the end is an entry like others.
 * @returns null for the root, and for a path that ends in `..`
 */
export function resolvePlace(tables: Tables, place: Place, follow: boolean): ResolvedName | null {
  if ('parent' in place) {
    nameCheck(place.name);
    const directory = directoryOf(tables, place.parent);
    return { directory, name: place.name, inode: tables.child(directory.id, place.name) };
  }
  // Places are for changes: their schema allows no snapshot.
  const end = walk(tables, place.volume, place.path, follow);
  return end.directory === null ? null : end;
}

/** The volume of a place, without a walk. */
export function placeVolume(tables: Tables, place: Place): VolumeRow {
  if ('volume' in place) return volumeOf(tables, place.volume);
  return tables.volumes.row(directoryOf(tables, place.parent).volume);
}

/** Scans the directories above: entries have no index by inode. @returns the path; null if one is unlinked */
export function pathTo(tables: Tables, directory: InodeRow, name: string): string | null {
  const names = [name];
  let here = directory;
  // A volume's root is its own parent.
  while (here.parent !== here.id) {
    const above = tables.entries.nameIn(here.parent, here.id);
    if (above === undefined) return null;
    names.unshift(above);
    here = tables.inodes.existing(here.parent);
  }
  return `/${names.join('/')}`;
}

/** @returns the path of a directory in its volume; null if it was removed */
export function directoryPath(tables: Tables, id: number): string | null {
  return directoryPaths(tables, [id]).get(id) ?? null;
}

/** Like `directoryPath` for many: reads the entries of each directory that they are in once, and of those above. */
export function directoryPaths(tables: Tables, ids: readonly number[]): Map<number, string> {
  const paths = new Map<number, string>();
  const byParent = new Map<number, number[]>();
  for (const id of ids) {
    const parent = tables.inode(id)?.parent;
    if (parent === id) paths.set(id, '/');
    else if (parent !== undefined) byParent.set(parent, [...(byParent.get(parent) ?? []), id]);
  }
  const above = byParent.size === 0 ? paths : directoryPaths(tables, [...byParent.keys()]);
  for (const [parent, children] of byParent) {
    const prefix = above.get(parent);
    if (prefix === undefined) continue;
    for (const [id, name] of tables.entries.namesIn(parent, children))
      paths.set(id, prefix === '/' ? `/${name}` : `${prefix}/${name}`);
  }
  return paths;
}

/** @returns whether `directory` is or lies below `ancestor` */
export function isBelow(tables: Tables, directory: InodeRow, ancestor: InodeRow): boolean {
  let here = directory;
  while (here.id !== ancestor.id) {
    if (here.parent === here.id) return false;
    here = tables.inodes.existing(here.parent);
    assert(here.kind === KIND_DIRECTORY, 'The parent of a directory is a directory');
  }
  return true;
}

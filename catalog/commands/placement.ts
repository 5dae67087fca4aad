import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import { joinList } from '../lists.ts';
import { KIND_DIRECTORY, KIND_FILE } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { directoryOf } from '../tree.ts';

/** Directories with a class: each costs the catalog's primary a step a second. */
const CLASSES_MAX = 1_000;

/**
 * Sets or removes the class of a directory. New files and directories in it get it; what is there has the class that it
 * had, whose changes it follows, until `inherit-placement`. Without a class of its own, it has that of its parent.
 */
export function setPlacement(
  tables: Tables,
  { inode, class: wanted }: CommandOf<'set-placement'>,
): CommandResults['set-placement'] {
  const directory = directoryOf(tables, inode);
  if (wanted !== null) {
    if (tables.classes.row(inode) === undefined && tables.classes.count() >= CLASSES_MAX)
      throw new ServiceError(
        'too-large',
        `At most ${CLASSES_MAX} directories have a placement class: clear some`,
      );
    const { labels, zones, replicas } = wanted;
    const lists = { labels: joinList(labels), zones: joinList(zones) };
    tables.classes.put({ directory: inode, volume: directory.volume, ...lists, replicas: replicas ?? 0 });
    tables.inodes.setPlacement(inode, inode);
    return {};
  }
  if (tables.classes.row(inode) === undefined)
    throw new ServiceError('not-found', `Directory ${inode} has no placement class of its own`);
  tables.classes.delete(inode);
  const isRoot = directory.parent === inode;
  tables.inodes.setPlacement(inode, isRoot ? 0 : tables.inodes.existing(directory.parent).placement);
  return {};
}

/** Gives entries of a directory its class, page by page, except for directories with a class of their own. */
export function inheritPlacement(
  tables: Tables,
  { inode, after, countMax }: CommandOf<'inherit-placement'>,
): CommandResults['inherit-placement'] {
  const { placement } = directoryOf(tables, inode);
  const children = tables.children(inode, after, countMax);
  const directories: number[] = [];
  for (const child of children) {
    if (child.kind !== KIND_FILE && child.kind !== KIND_DIRECTORY) continue;
    if (tables.classes.row(child.id) !== undefined) continue;
    if (child.kind === KIND_DIRECTORY) directories.push(child.id);
    if (child.placement !== placement) tables.inodes.setPlacement(child.id, placement);
  }
  const last = children.at(-1);
  return { directories, next: children.length < countMax || last === undefined ? null : last.entryName };
}

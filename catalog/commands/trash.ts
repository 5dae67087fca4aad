import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import { attributesOf } from '../attributes.ts';
import { charge, chargeOf } from '../charges.ts';
import { assertMayGain } from '../flags.ts';
import type { InodeRow } from '../inode-rows.ts';
import { pathNames } from '../names.ts';
import { KIND_DIRECTORY } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { volumeOf } from '../tree.ts';
import { moveCharge } from './directory-quotas.ts';
import { nodeCreate } from './entries.ts';

const DIRECTORY_MODE = 0o755;

/** Links a file again, at its old or another path, and creates missing directories. */
export function trashRestore(
  tables: Tables,
  command: CommandOf<'trash-restore'>,
  atNs: string,
): CommandResults['trash-restore'] {
  const inode = trashedInode(tables, command.volume, command.inode);
  const names = pathNames(command.to ?? tables.trash.row(inode.id)?.path ?? '');
  const name = names.pop();
  if (name === undefined) throw new ServiceError('exists', 'A volume has its root already');
  const directory = createDirectories(tables, tables.volumes.row(inode.volume).root, names, atNs);
  const path = `/${[...names, name].join('/')}`;
  if (tables.child(directory.id, name) !== undefined) {
    throw new ServiceError(
      'exists',
      `There is a "${command.volume}:${path}" already: restore file ${inode.id} to another path`,
    );
  }
  assertMayGain(tables, directory);
  moveCharge(tables, inode, directory);
  tables.trash.delete(inode.id);
  tables.volumes.chargeTrash(inode.volume, -1, -chargeOf(inode));
  tables.inodes.setLinks(inode.id, 1, null, atNs);
  tables.entries.insert(directory.id, name, inode.id);
  tables.inodes.touchDirectory(directory.id, 0, atNs);
  return { attributes: attributesOf(tables.inodes.existing(inode.id)), path };
}

/** Creates what is missing of a path. @returns its last directory. Follows no symbolic links: a trash path has none. */
function createDirectories(tables: Tables, root: number, names: readonly string[], atNs: string): InodeRow {
  let directory = tables.inodes.existing(root);
  for (const name of names) {
    let inode = tables.child(directory.id, name);
    if (inode === undefined) {
      const { uid, gid } = directory;
      const spot = { directory, name, inode: undefined };
      inode = nodeCreate(tables, spot, { kind: 'directory', mode: DIRECTORY_MODE, uid, gid }, atNs);
    }
    if (inode.kind !== KIND_DIRECTORY) {
      throw new ServiceError('not-directory', `Cannot restore below "${name}", which is no directory now`);
    }
    directory = inode;
  }
  return directory;
}

/** Removes files from the trash. They are then collected like other orphans: open ones stay readable as long. */
export function trashEmpty(
  tables: Tables,
  command: CommandOf<'trash-empty'>,
  atNs: string,
): CommandResults['trash-empty'] {
  const { volume: name, inode, path, countMax } = command;
  const volume = volumeOf(tables, name);
  const inodes =
    inode === undefined
      ? tables.trash.below(volume.id, pathCheck(path ?? '/'), null, countMax).map((row) => row.inode)
      : [trashedInode(tables, name, inode).id];
  for (const id of inodes) {
    charge(tables, tables.inodes.existing(id), -1, -chargeOf(tables.inodes.existing(id)));
    tables.trash.delete(id);
    tables.inodes.setOrphaned(id, atNs);
  }
  return { removed: inodes.length };
}

function trashedInode(tables: Tables, volume: string, id: number): InodeRow {
  const inode = tables.inode(id);
  if (inode?.trashed !== 1 || inode.volume !== volumeOf(tables, volume).id) {
    throw new ServiceError('not-found', `There is no file ${id} in the trash of volume "${volume}"`);
  }
  return inode;
}

export function pathCheck(path: string): string {
  return `/${pathNames(path).join('/')}`;
}

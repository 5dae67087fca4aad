import { ServiceError } from '../../base/errors.ts';
import type { CommandResults } from '../../wire/catalog-api.ts';
import { attributesOf } from '../attributes.ts';
import type { CommandOf } from '../command.ts';
import { pathNames } from '../names.ts';
import { charge, chargeOf } from '../quota.ts';
import { KIND_DIRECTORY } from '../schema.ts';
import type { InodeRow, Tables } from '../tables.ts';
import { volumeOf } from '../walk.ts';
import { nodeCreate } from './entries.ts';

/** Mode of directories that are made again. */
const DIRECTORY_MODE = 0o755;

/** Gives a file its name again, or another, with the directories on the way. */
export function trashRestore(
  tables: Tables,
  command: CommandOf<'trash-restore'>,
  atNs: string,
): CommandResults['trash-restore'] {
  const inode = thrownAway(tables, command.volume, command.inode);
  const names = pathNames(command.to ?? tables.trash.row(inode.id)?.path ?? '');
  const name = names.pop();
  if (name === undefined) throw new ServiceError('exists', 'A volume has its root already');
  const directory = directoriesMade(tables, tables.volume(inode.volume).root, names, atNs);
  const path = `/${[...names, name].join('/')}`;
  if (tables.child(directory.id, name) !== undefined) {
    throw new ServiceError(
      'exists',
      `There is a "${command.volume}:${path}" already: restore file ${inode.id} to another path`,
    );
  }
  tables.trash.delete(inode.id);
  tables.volumeChargeTrash(inode.volume, -1, -chargeOf(inode));
  tables.inodeSetLinks(inode.id, 1, null, atNs);
  tables.entryInsert(directory.id, name, inode.id);
  tables.directoryTouch(directory.id, 0, atNs);
  return { attributes: attributesOf(tables.inodeKnown(inode.id)), path };
}

/** Symbolic links are not followed: a path in the trash is that of directories. */
function directoriesMade(tables: Tables, root: number, names: readonly string[], atNs: string): InodeRow {
  let directory = tables.inodeKnown(root);
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

/** They are collected like what was never kept: whoever has one open reads on for the usual time. */
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
      : [thrownAway(tables, name, inode).id];
  for (const id of inodes) {
    charge(tables, tables.inodeKnown(id), -1, -chargeOf(tables.inodeKnown(id)));
    tables.trash.delete(id);
    tables.inodeSetOrphaned(id, atNs);
  }
  return { removed: inodes.length };
}

function thrownAway(tables: Tables, volume: string, id: number): InodeRow {
  const inode = tables.inode(id);
  if (inode?.trashed !== 1 || inode.volume !== volumeOf(tables, volume).id) {
    throw new ServiceError('not-found', `There is no file ${id} in the trash of volume "${volume}"`);
  }
  return inode;
}

/** @returns a path as the trash has it */
export function pathCheck(path: string): string {
  return `/${pathNames(path).join('/')}`;
}

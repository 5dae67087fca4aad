import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import { chargeOf } from '../charges.ts';
import { assertMayGain, assertMayLose } from '../flags.ts';
import type { InodeRow } from '../inode-rows.ts';
import { assertNotAttached } from '../junction-refusals.ts';
import { KIND_DIRECTORY } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { isBelow, type ResolvedName } from '../walk.ts';
import { assertSameQuota, moveCharge } from './directory-quotas.ts';
import { nodeCreate, removeLink, resolveExistingName, resolveName } from './entries.ts';
import { assertExpected } from './expectation.ts';
import { goesToTrash, type Removal } from './removal.ts';

/** POSIX rename, with two variants of Linux's renameat2. */
export function rename(tables: Tables, command: CommandOf<'rename'>, atNs: string): CommandResults['rename'] {
  const from = resolveExistingName(tables, command.from, 'bad-request');
  const to = resolveName(tables, command.to, 'bad-request');
  if (from.directory.volume !== to.directory.volume) {
    throw new ServiceError('cross-volume', `Cannot rename "${from.name}" to another volume`);
  }
  if (command.expect !== undefined) assertExpected(command.expect, from.name, from.inode);
  if (command.mode === 'exchange') {
    if (to.inode === undefined) throw new ServiceError('not-found', `There is no "${to.name}"`);
    return exchange(tables, from, { ...to, inode: to.inode }, atNs);
  }
  if (command.mode === 'no-replace' && to.inode !== undefined) {
    throw new ServiceError('exists', `There is a "${to.name}" already`);
  }
  return move(tables, from, to, command, atNs);
}

/** A rename that leaves a whiteout, as Linux overlays use to hide entries. */
export function renameWhiteout(
  tables: Tables,
  command: CommandOf<'rename-whiteout'>,
  atNs: string,
): CommandResults['rename-whiteout'] {
  const { uid, gid, ...names } = command;
  const result = rename(tables, { ...names, kind: 'rename' }, atNs);
  const spot = resolveName(tables, command.from, 'bad-request');
  // Both entries were links of one inode, and stay.
  if (spot.inode === undefined)
    nodeCreate(tables, spot, { kind: 'character', mode: 0, device: 0, uid, gid }, atNs);
  return result;
}

function move(
  tables: Tables,
  from: ResolvedName & { inode: InodeRow },
  to: ResolvedName,
  removal: Removal,
  atNs: string,
): CommandResults['rename'] {
  const moved = from.inode;
  const replaced = to.inode;
  // POSIX keeps both links of one inode.
  if (replaced?.id === moved.id) return { replaced: null };
  const isDirectory = moved.kind === KIND_DIRECTORY;
  if (isDirectory) assertOutside(tables, to.directory, moved);
  if (replaced !== undefined) {
    const replacesDirectory = replaced.kind === KIND_DIRECTORY;
    if (isDirectory && !replacesDirectory) {
      throw new ServiceError('not-directory', `Cannot rename a directory over "${to.name}", which is none`);
    }
    if (!isDirectory && replacesDirectory) {
      throw new ServiceError('is-directory', `Cannot rename a file over "${to.name}", which is a directory`);
    }
    if (replacesDirectory && tables.entries.hasChildren(replaced.id)) {
      throw new ServiceError('not-empty', `Directory "${to.name}" is not empty`);
    }
    assertNotAttached(replaced, to.name);
  }
  assertMayLose(tables, from.directory, moved);
  if (replaced === undefined) assertMayGain(tables, to.directory);
  else assertMayLose(tables, to.directory, replaced);
  moveCharge(tables, moved, to.directory, freedBy(tables, replaced, removal), from.directory);

  tables.entries.delete(from.directory.id, from.name, from.inode.id);
  tables.inodes.touchDirectory(from.directory.id, isDirectory ? -1 : 0, atNs);
  if (replaced === undefined) {
    tables.entries.insert(to.directory.id, to.name, moved.id);
    tables.inodes.touchDirectory(to.directory.id, isDirectory ? 1 : 0, atNs);
  } else {
    // A directory that replaces a directory leaves the link count unchanged.
    tables.entries.setInode(to.directory.id, to.name, moved.id);
    tables.inodes.touchDirectory(to.directory.id, 0, atNs);
    removeLink(tables, replaced, to, removal, atNs);
  }
  tables.inodes.setChanged(moved.id, atNs);
  if (isDirectory) tables.inodes.setParent(moved.id, to.directory.id);
  return { replaced: replaced?.id ?? null };
}

/** What counts no longer against quotas once its entry is another inode's. */
function freedBy(
  tables: Tables,
  replaced: InodeRow | undefined,
  removal: Removal,
): { readonly inodes: number; readonly bytes: number } {
  const hasOtherNames = replaced?.kind !== KIND_DIRECTORY && replaced?.links !== 1;
  if (replaced === undefined || hasOtherNames) return { inodes: 0, bytes: 0 };
  if (goesToTrash(tables.volumes.row(replaced.volume), replaced, removal)) return { inodes: 0, bytes: 0 };
  return { inodes: 1, bytes: chargeOf(replaced) };
}

function exchange(
  tables: Tables,
  from: ResolvedName & { inode: InodeRow },
  to: ResolvedName & { inode: InodeRow },
  atNs: string,
): CommandResults['rename'] {
  const [a, b] = [from.inode, to.inode];
  if (a.id === b.id) return { replaced: null };
  assertSameQuota(tables, from, to);
  const [aIsDirectory, bIsDirectory] = [a.kind === KIND_DIRECTORY, b.kind === KIND_DIRECTORY];
  if (aIsDirectory) assertOutside(tables, to.directory, a);
  if (bIsDirectory) assertOutside(tables, from.directory, b);
  assertMayLose(tables, from.directory, a);
  assertMayLose(tables, to.directory, b);
  tables.entries.setInode(from.directory.id, from.name, b.id);
  tables.entries.setInode(to.directory.id, to.name, a.id);
  const gained = Number(bIsDirectory) - Number(aIsDirectory);
  tables.inodes.touchDirectory(from.directory.id, gained, atNs);
  tables.inodes.touchDirectory(to.directory.id, -gained, atNs);
  tables.inodes.setChanged(a.id, atNs);
  tables.inodes.setChanged(b.id, atNs);
  if (aIsDirectory) tables.inodes.setParent(a.id, to.directory.id);
  if (bIsDirectory) tables.inodes.setParent(b.id, from.directory.id);
  return { replaced: null };
}

/** Refuses to move a directory below itself, where it would be unreachable. */
function assertOutside(tables: Tables, target: InodeRow, moved: InodeRow): void {
  if (isBelow(tables, target, moved)) {
    throw new ServiceError('bad-request', `Cannot move directory ${moved.id} below itself`);
  }
}

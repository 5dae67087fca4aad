import { ServiceError } from '../../base/errors.ts';
import { type CommandOf, type CommandResults, UPLOAD_NOTE } from '../../wire/catalog-api.ts';
import { attributesOf } from '../attributes.ts';
import { chargeOf, chargeQuotas } from '../charges.ts';
import { assertMayGain, assertMayLose, assertUnprotected } from '../flags.ts';
import { inheritedQuota } from '../inherited-quota.ts';
import type { InodeRow } from '../inode-rows.ts';
import { timeCheck } from '../names.ts';
import { assertBytesAllowed, assertInodesAllowed, isOfBytes, quotasOf } from '../quota.ts';
import { KIND_DIRECTORY, KIND_FILE, POLICIES } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { inodeOf } from '../tree.ts';
import { DIRECTORY_QUOTAS_VERSION } from '../versions.ts';
import type { ResolvedName } from '../walk.ts';
import { inheritAcl } from './acls.ts';
import { MODE_SETGID, removeLink, resolveName } from './entries.ts';
import { assertExpected } from './expectation.ts';
import { goesToTrash } from './removal.ts';
import { setNewXattrs } from './set-attributes.ts';

type Replacement = CommandOf<'replace'> | CommandOf<'replace-with-contents'>;

/** With this policy a majority suffices for contents that no client has seen. */
const QUORUM = POLICIES.indexOf('quorum');

/** Gives an orphan its first name: a free one, or that of a file, which it replaces. */
export function replace(
  tables: Tables,
  command: CommandOf<'replace'>,
  atNs: string,
): CommandResults['replace'] {
  const orphan = inodeOf(tables, command.inode);
  if (orphan.orphanedNs === null || orphan.trashed === 1) {
    throw new ServiceError('bad-request', `Inode ${orphan.id} is no file without a name`);
  }
  assertUnprotected(tables, orphan);
  const spot = resolveName(tables, command.place, 'is-directory', true);
  if (spot.directory.volume !== orphan.volume) {
    throw new ServiceError('cross-volume', `File ${orphan.id} is of volume "${orphan.volumeName}"`);
  }
  assertReplaceable(tables, spot, command);
  return linkInPlaceOf(tables, command, spot, orphan, atNs);
}

/** Creates the inode of a file whose contents are stored, and links it. */
export function replaceWithContents(
  tables: Tables,
  command: CommandOf<'replace-with-contents'>,
  atNs: string,
): CommandResults['replace-with-contents'] {
  const spot = resolveName(tables, command.place, 'is-directory', true);
  assertReplaceable(tables, spot, command);
  return linkInPlaceOf(tables, command, spot, createUnlinked(tables, command, spot, atNs), atNs);
}

/** @throws ServiceError if the entry cannot be replaced, or is not the expected one */
function assertReplaceable(
  tables: Tables,
  { directory, name, inode: old }: ResolvedName,
  { expect }: Replacement,
): void {
  if (old?.kind === KIND_DIRECTORY) throw new ServiceError('is-directory', `"${name}" is a directory`);
  assertExpected(expect, name, old);
  if (old === undefined) assertMayGain(tables, directory);
  else assertMayLose(tables, directory, old);
}

/** @returns the unlinked inode; a later refusal undoes its creation */
function createUnlinked(
  tables: Tables,
  command: CommandOf<'replace-with-contents'>,
  { directory }: ResolvedName,
  atNs: string,
): InodeRow {
  const { inode: id, owner, replicas, objectBytes, mode, uid, gid, sizeBytes, contents } = command;
  const volume = tables.volumes.row(directory.volume);
  if (objectBytes !== volume.objectBytes || volume.policy !== QUORUM)
    throw new ServiceError('bad-request', `Files of volume "${volume.name}" are stored otherwise`);
  const quota = inheritedQuota(tables, directory);
  const members = tables.numbers.reservedMembers(id) ?? [];
  // A file has one member set per view: the reservation's.
  if (!areSame(members, replicas) || !tables.numbers.takeReserved(owner, id, volume.id))
    throw new ServiceError(
      'bad-request',
      `Inode ${id} is not reserved for ${replicas.join()}, or not any more`,
    );
  tables.inodes.insertWithContents({
    ...{ id, volume: volume.id, mode, uid, gid, sizeBytes },
    ...{ accessedNs: atNs, modifiedNs: timeCheck(command.modifiedNs), changedNs: atNs },
    createdNs: atNs,
    replicas: replicas.join(','),
    objectBytes,
    contentsEpoch: contents.epoch,
    contentsSeq: contents.seq,
    policy: volume.policy,
    allowed: quotasOf(tables, volume, quota).some(isOfBytes) ? sizeBytes : null,
    placement: directory.placement,
    quota,
  });
  tables.volumes.count(volume.id, 1, sizeBytes);
  tables.placements.addToCounts(replicas.join(','), 1);
  return tables.inodes.existing(id);
}

function areSame(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((member) => b.includes(member));
}

function linkInPlaceOf(
  tables: Tables,
  command: Replacement,
  { directory, name, inode: old }: ResolvedName,
  file: InodeRow,
  atNs: string,
): CommandResults['replace'] {
  const volume = tables.volumes.row(file.volume);
  const quota = inheritedQuota(tables, directory);
  const quotas = quotasOf(tables, volume, quota);
  const isFreed = old?.links === 1 && !goesToTrash(volume, old, command);
  // Members of earlier releases do not count a file that replaces one with other names.
  if (!isFreed && ((old?.links ?? 1) === 1 || tables.version.current >= DIRECTORY_QUOTAS_VERSION))
    assertInodesAllowed(quotas);
  assertBytesAllowed(quotas, chargeOf(file), isFreed ? chargeOf(old) : 0);

  // Upload metadata does not belong to the file.
  tables.xattrs.delete(file.id, UPLOAD_NOTE);
  if (old?.kind === KIND_FILE) {
    tables.xattrs.copy(old.id, file.id);
    tables.inodes.setAttributes(file.id, old.mode, old.uid, old.gid, atNs);
  } else {
    const gid = (directory.mode & MODE_SETGID) !== 0 ? directory.gid : file.gid;
    const { mode, storeAcl } = inheritAcl(tables, directory, { mode: file.mode, kind: KIND_FILE });
    tables.inodes.setAttributes(file.id, mode, file.uid, gid, atNs);
    storeAcl(file.id);
  }
  setNewXattrs(tables, file.id, command.xattrs);
  // An upload was in no directory until now.
  if (file.placement !== directory.placement) tables.inodes.setPlacement(file.id, directory.placement);
  if (file.quota !== quota) tables.inodes.setQuota(file.id, quota);
  tables.inodes.setLinks(file.id, 1, null, atNs);
  chargeQuotas(tables, { volume: directory.volume, quota }, 1, chargeOf(file));
  if (old === undefined) {
    tables.entries.insert(directory.id, name, file.id);
  } else {
    tables.entries.setInode(directory.id, name, file.id);
    removeLink(tables, old, { directory, name }, command, atNs);
  }
  tables.inodes.touchDirectory(directory.id, 0, atNs);
  return { attributes: attributesOf(tables.inodes.existing(file.id)), replaced: old?.id ?? null };
}

import { ServiceError } from '../../base/errors.ts';
import { type CommandOf, type CommandResults, type NewXattrs, UPLOAD_NOTE } from '../../wire/catalog-api.ts';
import { isAclName } from '../acl.ts';
import { attributesOf, contentsCompare } from '../attributes.ts';
import { assertUnprotected, flagBits, isImmutable, protectedError } from '../flags.ts';
import type { InodeRow } from '../inode-rows.ts';
import { timeCheck } from '../names.ts';
import { KIND_DIRECTORY, KIND_FILE } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { inodeOf } from '../tree.ts';
import { adaptAclToMode, setAcl } from './acls.ts';

/** Bytes of an extended attribute's value, as in Linux. */
export const XATTR_BYTES_MAX = 64 * 1024;
/** Extended attributes per inode, so that one call can list their names. */
export const XATTRS_MAX = 255;

const MODE_SETUID = 0o4000;
const MODE_SETGID = 0o2000;
const MODE_GROUP_EXECUTE = 0o010;

export function setAttributes(
  tables: Tables,
  command: CommandOf<'set-attributes'>,
  atNs: string,
): CommandResults['set-attributes'] {
  const inode = inodeOf(tables, command.inode);
  const { accessedNs, modifiedNs, unchangedNs } = command;
  if (unchangedNs !== undefined && unchangedNs !== inode.changedNs)
    throw new ServiceError('precondition-failed', `Inode ${inode.id} has changed since ${unchangedNs}`);
  const newOwner = command.uid !== undefined || command.gid !== undefined;
  if (command.mode === undefined && !newOwner && accessedNs === undefined && modifiedNs === undefined) {
    return { attributes: attributesOf(inode) };
  }
  if (command.touches !== true || command.mode !== undefined || newOwner) assertUnprotected(tables, inode);
  else if (isImmutable(tables, inode)) throw protectedError(tables, inode);
  const at = (ns: string): string => (command.touches === true ? atNs : timeCheck(ns));
  // A program must not run with the privileges of an owner that did not request it.
  const kept = newOwner && inode.kind !== KIND_DIRECTORY ? withoutPrivileges(inode.mode) : inode.mode;
  const mode = command.mode ?? kept;
  tables.inodes.setAttributes(inode.id, mode, command.uid ?? inode.uid, command.gid ?? inode.gid, atNs);
  if (command.mode !== undefined) adaptAclToMode(tables, inode, mode);
  if (accessedNs !== undefined) tables.inodes.setAccessed(inode.id, at(accessedNs));
  if (modifiedNs !== undefined) setModified(tables, inode, at(modifiedNs), command.contents);
  return { attributes: attributesOf(tables.inodes.existing(inode.id)) };
}

/** Sets and clears flags. Refuses a live file, as only its primary knows whether it changes: it is settled first. */
export function setFlags(
  tables: Tables,
  command: CommandOf<'set-flags'>,
  atNs: string,
): CommandResults['set-flags'] {
  const inode = inodeOf(tables, command.inode);
  if (inode.kind !== KIND_FILE && inode.kind !== KIND_DIRECTORY)
    throw new ServiceError(
      'bad-request',
      `Inode ${inode.id} is neither a file nor a directory: it has no flags`,
    );
  const flags = (inode.flags & ~flagBits(command.clear)) | flagBits(command.set);
  if (flags === inode.flags) return { attributes: attributesOf(inode) };
  if (inode.live === 1) throw stillLive(inode.id);
  tables.inodes.setFlags(inode.id, flags, atNs);
  return { attributes: attributesOf(tables.inodes.existing(inode.id)) };
}

export function stillLive(inode: number): ServiceError {
  return new ServiceError('busy', `Cannot protect file ${inode}: it is being written`, {
    retryAfterMs: 100,
  });
}

/** As in Linux: without group execute, the setgid bit does not grant the group's privileges. */
function withoutPrivileges(mode: number): number {
  const cleared = mode & ~MODE_SETUID;
  return (cleared & MODE_GROUP_EXECUTE) === 0 ? cleared : cleared & ~MODE_SETGID;
}

/** Sets a time that holds until contents arrive that are newer than those the caller or the catalog knows. */
function setModified(
  tables: Tables,
  inode: InodeRow,
  modifiedNs: string,
  contents: CommandOf<'set-attributes'>['contents'],
): void {
  let [epoch, seq] = [inode.modifiedEpoch, inode.modifiedSeq];
  if (contentsCompare(inode.contentsEpoch, inode.contentsSeq, epoch, seq) > 0) {
    [epoch, seq] = [inode.contentsEpoch, inode.contentsSeq];
  }
  if (contents !== undefined && contentsCompare(contents.epoch, contents.seq, epoch, seq) > 0) {
    [epoch, seq] = [contents.epoch, contents.seq];
  }
  tables.inodes.setModified(inode.id, modifiedNs, epoch, seq);
}

export function setXattr(
  tables: Tables,
  command: CommandOf<'set-xattr'>,
  atNs: string,
): CommandResults['set-xattr'] {
  const inode = inodeOf(tables, command.inode);
  assertUnprotected(tables, inode);
  xattrNameCheck(command.name);
  const value = xattrValue(command.value);
  if (isAclName(command.name)) {
    setAcl(tables, inode, { name: command.name, value, clearsSetgid: command.clearsSetgid ?? false }, atNs);
    return {};
  }
  const exists = tables.xattr(inode.id, command.name) !== undefined;
  if (exists && command.mode === 'create') {
    throw new ServiceError('exists', `Inode ${inode.id} has an attribute "${command.name}" already`);
  }
  if (!exists && command.mode === 'replace') throw noAttribute(inode.id, command.name);
  if (!exists && tables.xattrs.count(inode.id) >= XATTRS_MAX) throw tooManyXattrs(inode.id);
  tables.xattrs.put(inode.id, command.name, value);
  tables.inodes.setChanged(inode.id, atNs);
  return {};
}

/** Sets the attributes that a file or directory gets with its name. @throws ServiceError `bad-request`, `too-large` */
export function setNewXattrs(tables: Tables, inode: number, xattrs: NewXattrs = []): void {
  if (xattrs.length === 0) return;
  for (const { name, value } of xattrs) {
    xattrNameCheck(name);
    if (isAclName(name))
      throw new ServiceError('bad-request', `"${name}" is set once the file has its name, by "set-xattr"`);
    if (value === null) tables.xattrs.delete(inode, name);
    else tables.xattrs.put(inode, name, xattrValue(value));
  }
  if (tables.xattrs.count(inode) > XATTRS_MAX) throw tooManyXattrs(inode);
}

/** @throws ServiceError `precondition-failed` unless the inode has the attribute, with this value in base64 */
export function assertHasXattr(
  tables: Tables,
  { id }: InodeRow,
  { name, value }: { readonly name: string; readonly value: string },
): void {
  const found = tables.xattr(id, name);
  if (found !== undefined && Buffer.from(value, 'base64').equals(found)) return;
  throw new ServiceError('precondition-failed', `Inode ${id} has no such attribute "${name}" any more`);
}

export function removeXattr(
  tables: Tables,
  command: CommandOf<'remove-xattr'>,
  atNs: string,
): CommandResults['remove-xattr'] {
  const inode = inodeOf(tables, command.inode);
  assertUnprotected(tables, inode);
  if (tables.xattr(inode.id, command.name) === undefined) {
    // A missing list is the requested state, as in other file systems.
    if (isAclName(command.name)) return {};
    throw noAttribute(inode.id, command.name);
  }
  tables.xattrs.delete(inode.id, command.name);
  tables.inodes.setChanged(inode.id, atNs);
  return {};
}

export function noAttribute(inode: number, name: string): ServiceError {
  return new ServiceError('no-attribute', `Inode ${inode} has no attribute "${name}"`);
}

function xattrValue(base64: string): Buffer {
  const value = Buffer.from(base64, 'base64');
  if (value.length <= XATTR_BYTES_MAX) return value;
  throw new ServiceError('too-large', `An extended attribute holds at most ${XATTR_BYTES_MAX} bytes`);
}

function tooManyXattrs(inode: number): ServiceError {
  return new ServiceError('too-large', `Inode ${inode} may have at most ${XATTRS_MAX} extended attributes`);
}

function xattrNameCheck(name: string): void {
  if (name === '' || name.includes('\0') || !name.isWellFormed()) {
    throw new ServiceError('bad-request', 'The name of an extended attribute is malformed');
  }
  if (name === UPLOAD_NOTE) {
    throw new ServiceError('bad-request', `"${name}" is what an upload notes of itself, and nobody else`);
  }
  if (Buffer.byteLength(name) > 255) {
    throw new ServiceError('name-too-long', 'The name of an extended attribute is longer than 255 bytes');
  }
}

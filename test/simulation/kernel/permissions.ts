import { constants } from 'node:fs';
import type { Inode } from './inode.ts';
import { KernelError } from './kernel-error.ts';

/** The caller: `struct cred`, with all capabilities for user 0 and none for others. */
export interface Credentials {
  readonly uid: number;
  readonly gid: number;
  readonly groups: readonly number[];
}

export const MAY = { exec: 1, write: 2, read: 4 } as const;

export interface AclEntry {
  readonly tag: number;
  readonly permissions: number;
  readonly id: number;
}
export type Acl = readonly AclEntry[];
/** Queries the ACL; null if there is none. */
type AskAcl = (() => Promise<Acl | null>) | null;

const S_ISVTX = 0o1000;
const ACL_VERSION = 2;
const TAG = { userObject: 1, user: 2, groupObject: 4, group: 8, mask: 16, other: 32 } as const;

/** @returns null without an ACL; @throws KernelError EINVAL for an invalid one */
export function readAcl(value: Buffer): Acl | null {
  if (value.length === 0) return null;
  if (value.length < 4 || value.readUInt32LE(0) !== ACL_VERSION || (value.length - 4) % 8 !== 0)
    throw new KernelError('EOPNOTSUPP', 'Not an access control list');
  const entries: AclEntry[] = [];
  for (let at = 4; at < value.length; at += 8)
    entries.push({
      tag: value.readUInt16LE(at),
      permissions: value.readUInt16LE(at + 2),
      id: value.readUInt32LE(at + 4),
    });
  return entries.length === 0 ? null : entries;
}

export function isCapable({ uid }: Credentials): boolean {
  return uid === 0;
}

export function isInGroup({ gid, groups }: Credentials, group: number): boolean {
  return gid === group || groups.includes(group);
}

export function isOwner(who: Credentials, inode: Inode): boolean {
  return who.uid === inode.attributes.uid || isCapable(who);
}

/** generic_permission (fs/namei.c) */
export async function mayAccess(
  who: Credentials,
  inode: Inode,
  wanted: number,
  acl: AskAcl,
): Promise<boolean> {
  if (await modeAllows(who, inode, wanted, acl)) return true;
  if (!isCapable(who)) return false;
  if (inode.isDirectory) return true;
  const { mode } = inode.attributes;
  return (wanted & MAY.exec) === 0 || (mode & 0o111) !== 0;
}

async function modeAllows(who: Credentials, inode: Inode, wanted: number, acl: AskAcl): Promise<boolean> {
  const { mode, uid, gid } = inode.attributes;
  if (acl === null && ((wanted * 0o111) & ~mode) === 0) return true;
  if (who.uid === uid) return (wanted & ~(mode >> 6)) === 0;
  if (acl !== null && (mode & 0o070) !== 0) {
    const list = await acl();
    if (list !== null) return aclAllows(who, inode, wanted, list);
  }
  const bits = isInGroup(who, gid) ? mode >> 3 : mode;
  return (wanted & ~bits) === 0;
}

/** posix_acl_permission (fs/posix_acl.c) */
function aclAllows(who: Credentials, { attributes }: Inode, wanted: number, acl: Acl): boolean {
  const mask = acl.find(({ tag }) => tag === TAG.mask)?.permissions ?? 7;
  let isGroupFound = false;
  for (const { tag, permissions, id } of acl) {
    switch (tag) {
      case TAG.userObject:
        if (who.uid === attributes.uid) return (wanted & ~permissions) === 0;
        break;
      case TAG.user:
        if (who.uid === id) return (wanted & ~(permissions & mask)) === 0;
        break;
      case TAG.groupObject:
      case TAG.group:
        if (!isInGroup(who, tag === TAG.group ? id : attributes.gid)) break;
        isGroupFound = true;
        if ((wanted & ~permissions) === 0) return (wanted & ~(permissions & mask)) === 0;
        break;
      case TAG.other:
        return !isGroupFound && (wanted & ~permissions) === 0;
      default:
    }
  }
  return false;
}

/** check_sticky */
export function isSticky(who: Credentials, directory: Inode, victim: Inode): boolean {
  if ((directory.attributes.mode & S_ISVTX) === 0) return false;
  return who.uid !== victim.attributes.uid && who.uid !== directory.attributes.uid && !isCapable(who);
}

/** Settings of /proc/sys/fs: from 1 on, the kernel protects such files in sticky directories. */
export interface ProtectedFiles {
  readonly protectedFifos?: number;
  readonly protectedRegular?: number;
}

/**
 * may_create_in_sticky: O_CREAT of another user's file in a directory that others may write. Root is refused, too.
 * Other kinds than files and fifos are always protected.
 */
export function mayCreateInSticky(
  who: Credentials,
  { attributes: directory }: Inode,
  { type, isFile, attributes }: Inode,
  { protectedFifos = 0, protectedRegular = 0 }: ProtectedFiles,
): boolean {
  const isFifo = type === constants.S_IFIFO;
  const guard = isFile ? protectedRegular : isFifo ? protectedFifos : 1;
  if ((directory.mode & S_ISVTX) === 0 || guard === 0) return true;
  if (attributes.uid === directory.uid || attributes.uid === who.uid) return true;
  const isForGroup = (directory.mode & 0o020) !== 0 && (isFile || isFifo) && guard >= 2;
  return (directory.mode & 0o002) === 0 && !isForGroup;
}

/** setattr_should_drop_suidgid: whether a write by `who` removes set-id bits. */
export function dropsPrivileges(who: Credentials, { attributes: { mode } }: Inode): boolean {
  const setsGroup = (mode & 0o2010) === 0o2010;
  return ((mode & 0o4000) !== 0 || setsGroup) && !isCapable(who);
}

import { ServiceError } from '../base/errors.ts';

/** Access control lists (POSIX 1003.1e draft 17) in Linux's xattr form, stored as set: replicas have equal bytes. */

export const ACCESS_ACL = 'system.posix_acl_access';
/** The list that new entries of a directory start with. */
export const DEFAULT_ACL = 'system.posix_acl_default';

/** Linux's tag numbers, which also give the order of entries. */
const TAG = { owner: 1, user: 2, owningGroup: 4, group: 8, mask: 16, other: 32 } as const;
const TAGS: readonly number[] = Object.values(TAG);

interface AclEntry {
  readonly tag: number;
  readonly permissions: number;
  /** The named user or group; all bits set if none. */
  readonly id: number;
}

export type Acl = readonly AclEntry[];

const VERSION = 2;
const HEADER_BYTES = 4;
const ENTRY_BYTES = 8;
const ID_NONE = 0xffff_ffff;

export function isAclName(name: string): boolean {
  return name === ACCESS_ACL || name === DEFAULT_ACL;
}

/** @throws ServiceError `bad-request` unless valid: one entry per class, named entries only with a mask */
export function decodeAcl(bytes: Uint8Array): Acl {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const count = (buffer.length - HEADER_BYTES) / ENTRY_BYTES;
  if (!Number.isInteger(count) || count < 0 || buffer.readUInt32LE(0) !== VERSION) throw malformed();
  const acl = Array.from({ length: count }, (_, index): AclEntry => {
    const at = HEADER_BYTES + index * ENTRY_BYTES;
    return {
      tag: buffer.readUInt16LE(at),
      permissions: buffer.readUInt16LE(at + 2),
      id: buffer.readUInt32LE(at + 4),
    };
  });
  if (!isValid(acl)) throw malformed();
  return acl;
}

export function encodeAcl(acl: Acl): Uint8Array {
  const bytes = Buffer.alloc(HEADER_BYTES + acl.length * ENTRY_BYTES);
  bytes.writeUInt32LE(VERSION, 0);
  for (const [index, { tag, permissions, id }] of acl.entries()) {
    const at = HEADER_BYTES + index * ENTRY_BYTES;
    bytes.writeUInt16LE(tag, at);
    bytes.writeUInt16LE(permissions, at + 2);
    bytes.writeUInt32LE(id, at + 4);
  }
  return bytes;
}

function isValid(acl: Acl): boolean {
  const countOf = (tag: number): number => acl.filter((entry) => entry.tag === tag).length;
  const named = acl.filter(isNamed);
  return (
    acl.every(({ tag, permissions }) => TAGS.includes(tag) && permissions <= 7) &&
    acl.every(({ tag }, index) => index === 0 || (acl[index - 1]?.tag ?? 0) <= tag) &&
    [TAG.owner, TAG.owningGroup, TAG.other].every((tag) => countOf(tag) === 1) &&
    countOf(TAG.mask) <= 1 &&
    (named.length === 0 || countOf(TAG.mask) === 1) &&
    named.every(({ id }) => id !== ID_NONE) &&
    new Set(named.map(({ tag, id }) => `${tag}:${id}`)).size === named.length
  );
}

function isNamed({ tag }: AclEntry): boolean {
  return tag === TAG.user || tag === TAG.group;
}

function malformed(): ServiceError {
  return new ServiceError('bad-request', 'An access control list is malformed');
}

/** Whether the mode's permission bits express the whole list. */
export function isMinimal(acl: Acl): boolean {
  return acl.every(({ tag }) => tag !== TAG.mask && !isNamed({ tag, permissions: 0, id: 0 }));
}

/** @returns the mode with the list's permission bits; a mask, if any, gives the group bits */
export function modeWithAcl(mode: number, acl: Acl): number {
  return (mode & ~0o777) | (permissionsOf(acl, TAG.owner) << 6) | (groupBits(acl) << 3) | otherBits(acl);
}

/** @returns the list after a chmod: the group bits become the mask, if there is one */
export function aclWithMode(acl: Acl, mode: number): Acl {
  return withClasses(acl, (mode >> 6) & 7, (mode >> 3) & 7, mode & 7);
}

/** ACL and mode of a new entry under a default list: limited by the list and the requested mode; no umask. */
export function inheritedAcl(defaults: Acl, mode: number): { readonly acl: Acl; readonly mode: number } {
  const owner = permissionsOf(defaults, TAG.owner) & (mode >> 6);
  const acl = withClasses(defaults, owner & 7, groupBits(defaults) & (mode >> 3), otherBits(defaults) & mode);
  return { acl, mode: modeWithAcl(mode, acl) };
}

function withClasses(acl: Acl, owner: number, group: number, other: number): Acl {
  const groupTag = acl.some(({ tag }) => tag === TAG.mask) ? TAG.mask : TAG.owningGroup;
  const classes = new Map<number, number>([
    [TAG.owner, owner],
    [groupTag, group],
    [TAG.other, other],
  ]);
  return acl.map((entry) => ({ ...entry, permissions: classes.get(entry.tag) ?? entry.permissions }));
}

function groupBits(acl: Acl): number {
  return permissionsOf(acl, acl.some(({ tag }) => tag === TAG.mask) ? TAG.mask : TAG.owningGroup);
}

function otherBits(acl: Acl): number {
  return permissionsOf(acl, TAG.other);
}

function permissionsOf(acl: Acl, tag: number): number {
  return acl.find((entry) => entry.tag === tag)?.permissions ?? 0;
}

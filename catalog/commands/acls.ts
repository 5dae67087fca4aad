import { ServiceError } from '../../base/errors.ts';
import {
  ACCESS_ACL,
  type Acl,
  aclWithMode,
  DEFAULT_ACL,
  decodeAcl,
  encodeAcl,
  inheritedAcl,
  isMinimal,
  modeWithAcl,
} from '../acl.ts';
import type { InodeRow } from '../inode-rows.ts';
import { KIND_DIRECTORY, KIND_SYMLINK } from '../schema.ts';
import type { Tables } from '../tables.ts';

const MODE_SETGID = 0o2000;

/** Sets a list and the mode with it; a list that the mode expresses is not stored. */
export function setAcl(
  tables: Tables,
  inode: InodeRow,
  list: { readonly name: string; readonly value: Uint8Array; readonly clearsSetgid: boolean },
  atNs: string,
): void {
  const acl = decodeAcl(list.value);
  if (inode.kind === KIND_SYMLINK) {
    throw new ServiceError('bad-request', 'A symbolic link has no access control list');
  }
  if (list.name === DEFAULT_ACL) {
    if (inode.kind !== KIND_DIRECTORY) {
      throw new ServiceError('not-directory', 'Only a directory has a default access control list');
    }
    tables.xattrs.put(inode.id, DEFAULT_ACL, encodeAcl(acl));
    tables.inodes.setChanged(inode.id, atNs);
    return;
  }
  storeAccessAcl(tables, inode.id, acl);
  const mode = modeWithAcl(inode.mode, acl) & (list.clearsSetgid ? ~MODE_SETGID : ~0);
  tables.inodes.setAttributes(inode.id, mode, inode.uid, inode.gid, atNs);
}

function storeAccessAcl(tables: Tables, id: number, acl: Acl): void {
  if (isMinimal(acl)) tables.xattrs.delete(id, ACCESS_ACL);
  else tables.xattrs.put(id, ACCESS_ACL, encodeAcl(acl));
}

/** Adapts the access list, if the inode has one, to the mode of a chmod. */
export function adaptAclToMode(tables: Tables, inode: InodeRow, mode: number): void {
  const value = inode.xattrs === 0 ? undefined : tables.xattr(inode.id, ACCESS_ACL);
  if (value !== undefined) {
    tables.xattrs.put(inode.id, ACCESS_ACL, encodeAcl(aclWithMode(decodeAcl(value), mode)));
  }
}

/** Mode of a new inode, and a function that stores the lists it inherits. Without a default list the umask applies. */
export function inheritAcl(
  tables: Tables,
  directory: InodeRow,
  node: { readonly mode: number; readonly umask?: number | undefined; readonly kind: number },
): { readonly mode: number; readonly storeAcl: (id: number) => void } {
  const hasDefault = node.kind !== KIND_SYMLINK && directory.xattrs > 0;
  const defaults = hasDefault ? tables.xattr(directory.id, DEFAULT_ACL) : undefined;
  if (defaults === undefined) return { mode: node.mode & ~(node.umask ?? 0), storeAcl: () => undefined };
  const { acl, mode } = inheritedAcl(decodeAcl(defaults), node.mode);
  return {
    mode,
    storeAcl: (id) => {
      storeAccessAcl(tables, id, acl);
      if (node.kind === KIND_DIRECTORY) tables.xattrs.put(id, DEFAULT_ACL, defaults);
    },
  };
}

/**
 * Kinds of extended attributes by name, see xattr(7). The kernel requests `security.capability` when a program starts
 * and before a first write. `virtual`: computed by the mount. `none`: not supported; the kernel and programs that
 * list files request these often, so they are refused without a request to the cluster.
 */
export type XattrKind = 'kept' | 'security' | 'acl' | 'virtual' | 'none';

const ACL_NAMES: readonly string[] = ['system.posix_acl_access', 'system.posix_acl_default'];
export const CAPABILITY_NAME = 'security.capability';
/** `ls -l` requests it of each file, until a file system answers once that it has no labels. */
const LABEL_NAME = 'security.selinux';

/** The virtual attribute that can be set: until when a file is retained. */
export const RETAIN_UNTIL = 'leasehold.retain_until';

export function xattrKind(name: string): XattrKind {
  if (name.startsWith('user.') || isTrusted(name)) return 'kept';
  if (ACL_NAMES.includes(name)) return 'acl';
  if (name.startsWith('security.')) return name === LABEL_NAME ? 'none' : 'security';
  return name.startsWith('system.') ? 'none' : 'virtual';
}

export function isSettable(kind: XattrKind): boolean {
  return kind === 'kept' || kind === 'security' || kind === 'acl';
}

export function isTrusted(name: string): boolean {
  return name.startsWith('trusted.');
}

export function isNamespaceAlone(name: string): boolean {
  return name === 'user.' || name === 'trusted.' || name === 'security.';
}

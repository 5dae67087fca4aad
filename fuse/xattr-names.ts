/**
 * Kinds of extended attributes by their names, see xattr(7).
 *
 * - `kept`: stored, where a program sets it.
 * - `security`: stored as well. The kernel asks for `security.capability` when a program starts and before a first write.
 * - `acl`: an access control list, which the kernel asks for and checks.
 * - `fact`: what the cluster tells of a file.
 * - `none`: of a kind that no file here has. The kernel and programs that list files ask for them at every turn: they are
 *   answered on the spot, as by a file system that has none of their kind, and stop asking where they can.
 */
export type XattrKind = 'kept' | 'security' | 'acl' | 'fact' | 'none';

const ACL_NAMES: readonly string[] = ['system.posix_acl_access', 'system.posix_acl_default'];
export const CAPABILITY_NAME = 'security.capability';
/** `ls -l` asks for it of each file, until a file system answers once that it has no labels. */
const LABEL_NAME = 'security.selinux';

export function xattrKind(name: string): XattrKind {
  if (name.startsWith('user.') || isTrusted(name)) return 'kept';
  if (ACL_NAMES.includes(name)) return 'acl';
  if (name.startsWith('security.')) return name === LABEL_NAME ? 'none' : 'security';
  return name.startsWith('system.') ? 'none' : 'fact';
}

/** @returns whether a program may set such an attribute */
export function isSettable(kind: XattrKind): boolean {
  return kind === 'kept' || kind === 'security' || kind === 'acl';
}

/** @returns whether only root may know of it */
export function isTrusted(name: string): boolean {
  return name.startsWith('trusted.');
}

/** @returns whether the name is a namespace alone, which names no attribute */
export function isNamespaceAlone(name: string): boolean {
  return name === 'user.' || name === 'trusted.' || name === 'security.';
}

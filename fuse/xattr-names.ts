/**
 * Kinds of extended attributes by their names, see xattr(7).
 *
 * - `kept`: stored, where a program sets it.
 * - `acl`: an access control list, which the kernel asks for and checks.
 * - `fact`: what the cluster tells of a file.
 * - `none`: of a kind that no file here has. The kernel and programs that list files ask for them at every turn: they are
 *   answered on the spot, as by a file system that has none of their kind, and stop asking where they can.
 */
export type XattrKind = 'kept' | 'acl' | 'fact' | 'none';

const ACL_NAMES: readonly string[] = ['system.posix_acl_access', 'system.posix_acl_default'];

export function xattrKind(name: string): XattrKind {
  if (name.startsWith('user.') || isTrusted(name)) return 'kept';
  if (ACL_NAMES.includes(name)) return 'acl';
  return name.startsWith('security.') || name.startsWith('system.') ? 'none' : 'fact';
}

/** @returns whether only root may know of it */
export function isTrusted(name: string): boolean {
  return name.startsWith('trusted.');
}

/** @returns whether nothing stands behind `user.` or `trusted.`, which names no attribute */
export function isNamespaceAlone(name: string): boolean {
  return name === 'user.' || name === 'trusted.';
}

/** Names of extended attributes. Namespaces and what they mean: xattr(7). */

/** The cluster stores such an attribute, where a program sets it. */
export function xattrIsKept(name: string): boolean {
  return name.startsWith('user.') || name.startsWith('trusted.');
}

/**
 * Whether a file may have such an attribute at all. The kernel and programs that list files ask at every turn for those that
 * none has: they are answered on the spot, as by a file system that has none of their kind, and stop asking where they can.
 */
export function xattrIsOfFiles(name: string): boolean {
  return !name.startsWith('security.') && !name.startsWith('system.');
}

/** Flags of inodes, as `chattr` of Linux sets them (`+i`, `+a`). */
export const INODE_FLAGS = ['immutable', 'append-only'] as const;
export type InodeFlag = (typeof INODE_FLAGS)[number];

/**
 * @param text names, separated by commas
 * @param refusal the error for a name that is no flag
 */
export function parseInodeFlags(text: string, refusal: (name: string) => Error): InodeFlag[] {
  const names = text.split(',').filter((name) => name !== '');
  return names.map((name) => {
    const flag = INODE_FLAGS.find((one) => one === name);
    if (flag === undefined) throw refusal(name);
    return flag;
  });
}

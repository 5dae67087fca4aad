/** Inode flags of Linux's `chattr` (`+i`, `+a`). */
export const INODE_FLAGS = ['immutable', 'append-only'] as const;
export type InodeFlag = (typeof INODE_FLAGS)[number];

/** @param text comma-separated names. @param refusal creates the error for an unknown name */
export function parseInodeFlags(text: string, refusal: (name: string) => Error): InodeFlag[] {
  const names = text.split(',').filter((name) => name !== '');
  return names.map((name) => {
    const flag = INODE_FLAGS.find((one) => one === name);
    if (flag === undefined) throw refusal(name);
    return flag;
  });
}

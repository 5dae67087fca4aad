/** Bit of `inodes.flags` beside those of `FLAGS`: the inode has a row in `retentions`. */
export const RETAINED = 4;

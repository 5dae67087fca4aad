/** The last possible byte (OFFSET_MAX of Linux): a range that ends here extends to the end of the file. */
export const LOCK_END = 2n ** 63n - 1n;

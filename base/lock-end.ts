/** The last byte there can be (OFFSET_MAX of Linux): a range that ends here reaches to the end of the file, wherever that is. */
export const LOCK_END = 2n ** 63n - 1n;

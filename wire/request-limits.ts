/** What one request may hold. Whoever asks gathers no more; schemas, which only servers need, say the same. */

/** Names that one command takes away at the most. */
export const UNLINKS_MAX = 256;
/** Inodes that one command tells of as read at the most. */
export const ACCESSES_MAX = 500;
/** Directories of a request that their owner is not to be told of at the most. */
export const FORGETS_MAX = 16;
/** New files that travel in one request with all of their contents at the most. */
export const BIRTHS_MAX = 256;
/** Sessions that one flush of the catalog names at the most. */
export const FLUSH_SESSIONS_MAX = 100;

/** Limits per request: clients batch no more, and servers' schemas enforce them. */

/** Entries removed by one command. */
export const UNLINKS_MAX = 256;
/** Inodes whose reads one command reports. */
export const ACCESSES_MAX = 500;
/** Directories that a client drops from its cache with a request. */
export const FORGETS_MAX = 16;
/** New files sent with contents. */
export const NEW_FILES_MAX = 256;
/** Sessions that a catalog flush names. */
export const FLUSH_SESSIONS_MAX = 100;
/** Longest maintenance of a server: a week. */
export const MAINTENANCE_MS_MAX = 604_800_000;

/** Inodes and names in one page of the differences of two snapshots, which takes some milliseconds. */
export const CHANGES_MAX = 50;

/** The longest retention, a century: times in nanoseconds have 64 bits. */
export const RETENTION_MS_MAX = 3_155_760_000_000;

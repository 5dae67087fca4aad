/** Locks per file; adjacent ones of one owner and type count as one. */
export const LOCKS_PER_FILE_MAX = 10_000;
/** Locks per client and file; a renewal lists all of them. */
export const LOCKS_PER_CLIENT_MAX = 4_096;
/** Waiting lock requests per file. */
export const LOCK_WAITERS_MAX = 1_024;
/** Lock requests under way per client and file. */
export const LOCK_REQUESTS_PENDING_MAX = 256;

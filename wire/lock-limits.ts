/** Locks that one file can have; neighbours of one owner and type count as one. */
export const LOCKS_PER_FILE_MAX = 10_000;
/** Of these, one client's. A renewal names all of them. */
export const LOCKS_PER_CLIENT_MAX = 4_096;
/** Requests that wait for a lock on one file at the same time. */
export const LOCK_WAITERS_MAX = 1_024;
/** Requests of one client for one file that are under way at the same time. */
export const LOCK_REQUESTS_PENDING_MAX = 256;

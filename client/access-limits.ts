import { ACCESSES_MAX } from '../wire/request-limits.ts';

/** What one command that tells of reads takes at the most. */
export const ACCESS_LIMITS = { inodes: ACCESSES_MAX } as const;

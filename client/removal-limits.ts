import { FORGETS_MAX, UNLINKS_MAX } from '../wire/request-limits.ts';

/** What one command that removes files takes at the most. */
export const REMOVAL_LIMITS = {
  files: UNLINKS_MAX,
  /** Directories that it changes, each of which it names. */
  directories: FORGETS_MAX,
} as const;

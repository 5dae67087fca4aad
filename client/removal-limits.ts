import { FORGETS_MAX } from '../wire/births.ts';
import { UNLINKS_MAX } from '../wire/catalog-api.ts';

/** What one command that removes files takes at the most. */
export const REMOVAL_LIMITS = {
  files: UNLINKS_MAX,
  /** Directories that it changes, each of which it names. */
  directories: FORGETS_MAX,
} as const;

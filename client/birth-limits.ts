import { BIRTH_BYTES_MAX, BIRTHS_BYTES_MAX } from '../wire/births.ts';
import { BIRTHS_MAX, FORGETS_MAX } from '../wire/request-limits.ts';

/** What one request for births takes at the most. */
export const BIRTH_LIMITS = {
  files: BIRTHS_MAX,
  /** Of one file. */
  fileBytes: BIRTH_BYTES_MAX,
  /** Of all files together. */
  bytes: BIRTHS_BYTES_MAX,
  /** Directories that it changes, each of which it names. */
  directories: FORGETS_MAX,
} as const;

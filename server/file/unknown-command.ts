import { ServiceError } from '../../base/errors.ts';

/**
 * Whether the catalog does not know a command: an earlier primary rejects it; one of this release names the members
 * that may not know it.
 */
export function isUnknownCommand(error: unknown): boolean {
  return (
    error instanceof ServiceError && (error.code === 'bad-request' || error.details.outdated !== undefined)
  );
}

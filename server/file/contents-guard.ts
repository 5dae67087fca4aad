import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import type { WriteGuard } from '../../wire/http-api.ts';

/**
 * Checks what a write expects of the file.
 * @param now the state after the newest ordered operation; by that on disk, two concurrent writes would both pass
 * @throws ServiceError `precondition-failed`
 */
export function assertGuard(
  file: FileId,
  { contents, sizeBytes, changedNs }: WriteGuard,
  now: Omit<Required<WriteGuard>, 'changedNs'> & { readonly changedNs: string | null },
): void {
  if (sizeBytes !== undefined && sizeBytes !== now.sizeBytes) {
    const why = `it has ${now.sizeBytes} bytes, not ${sizeBytes}`;
    throw new ServiceError('precondition-failed', `Cannot write file ${file}: ${why}`);
  }
  const hasContents = contents === undefined || isSame(contents, now.contents);
  const hasEntries = changedNs === undefined || now.changedNs === null || changedNs === now.changedNs;
  if (hasContents && hasEntries) return;
  throw new ServiceError(
    'precondition-failed',
    `Cannot write file ${file}: it has changed since it was read; read it again, and retry`,
  );
}

export function assertUnchanged(file: FileId, expected: ContentVersion, now: ContentVersion): void {
  if (isSame(expected, now)) return;
  throw new ServiceError(
    'precondition-failed',
    `Cannot seal file ${file}: it has changed since; retry with its current version`,
  );
}

function isSame(a: ContentVersion, b: ContentVersion): boolean {
  return a.epoch === b.epoch && a.seq === b.seq;
}

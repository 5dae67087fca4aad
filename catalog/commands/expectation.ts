import { unreachable } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { ContentVersion, Expectation } from '../../wire/catalog-api.ts';
import { attributesOf } from '../attributes.ts';
import type { InodeRow } from '../inode-rows.ts';

/** Compares an expectation with the entry's inode at execution. @throws ServiceError `precondition-failed` */
export function assertExpected(expect: Expectation, name: string, old: InodeRow | undefined): void {
  switch (expect.kind) {
    case 'anything':
      return;
    case 'nothing':
      if (old === undefined) return;
      throw new ServiceError('precondition-failed', `There is a "${name}" already`);
    case 'inode':
      if (old?.id === expect.inode) return;
      throw new ServiceError('precondition-failed', `"${name}" is no longer inode ${expect.inode}`);
    case 'contents':
      if (old?.id === expect.inode && hasVersion(old, expect.contents)) return;
      throw new ServiceError(
        'precondition-failed',
        `"${name}" has no longer the contents that were expected`,
      );
    default:
      unreachable(expect);
  }
}

/** Compares the contents that an unlink's sender saw with the file's. @throws ServiceError `fence-lost` */
export function assertUnwritten(name: string, file: InodeRow, seen: ContentVersion): void {
  if (hasVersion(file, seen)) return;
  throw new ServiceError('fence-lost', `"${name}" was written since its removal was acknowledged`);
}

/** Compares versions. False for a live file: only its primary knows its version, and the mark precedes visible data. */
function hasVersion(old: InodeRow, wanted: ContentVersion): boolean {
  const { live, contents } = attributesOf(old);
  return !live && contents.epoch === wanted.epoch && contents.seq === wanted.seq;
}

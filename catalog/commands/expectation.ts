import { unreachable } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { ContentVersion, Expectation } from '../../wire/catalog-api.ts';
import { attributesOf } from '../attributes.ts';
import type { InodeRow } from '../inode-rows.ts';

/**
 * Holds what a command expects against what has the name. It is decided here, in the order of commands, so
 * that of two who expect the same only one goes on.
 *
 * @throws ServiceError `precondition-failed`
 */
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
      if (old?.id === expect.inode && hasContents(old, expect.contents)) return;
      throw new ServiceError(
        'precondition-failed',
        `"${name}" has no longer the contents that were expected`,
      );
    default:
      unreachable(expect);
  }
}

/**
 * Holds the contents that the sender of a removal has seen against those of the file.
 *
 * @throws ServiceError `fence-lost`
 */
export function assertUnwritten(name: string, file: InodeRow, seen: ContentVersion): void {
  if (hasContents(file, seen)) return;
  throw new ServiceError('fence-lost', `"${name}" was written since its removal was acknowledged`);
}

/** Of a live file only its primary knows the contents: whoever writes marks the file before anybody sees what is written. */
function hasContents(old: InodeRow, wanted: ContentVersion): boolean {
  const { live, contents } = attributesOf(old);
  return !live && contents.epoch === wanted.epoch && contents.seq === wanted.seq;
}

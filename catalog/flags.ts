import { ServiceError } from '../base/errors.ts';
import { INODE_FLAGS, type InodeFlag } from '../wire/inode-flags.ts';
import type { InodeRow } from './inode-rows.ts';
import { assertNoJunction } from './junction-refusals.ts';

/** Bits of the inode flags in the tables. A bit is never reused. */
const FLAGS: Readonly<Record<InodeFlag, number>> = { immutable: 1, 'append-only': 2 };
const ALL = FLAGS.immutable | FLAGS['append-only'];

type Flagged = Pick<InodeRow, 'id' | 'flags'>;

export function flagNames(flags: number): readonly InodeFlag[] {
  return INODE_FLAGS.filter((name) => (flags & FLAGS[name]) !== 0);
}

export function flagBits(names: readonly InodeFlag[]): number {
  return names.reduce((bits, name) => bits | FLAGS[name], 0);
}

export function isImmutable({ flags }: Flagged): boolean {
  return (flags & FLAGS.immutable) !== 0;
}

export function isAppendOnly({ flags }: Flagged): boolean {
  return (flags & FLAGS['append-only']) !== 0;
}

/** Checks before attributes change or a link is added. @throws ServiceError `protected` if the inode has flags */
export function assertUnprotected(inode: Flagged): void {
  if ((inode.flags & ALL) !== 0) throw protectedError(inode);
}

/** Checks before a directory gains an entry. @throws ServiceError `protected`, `cross-volume` */
export function assertMayGain(directory: Flagged & Pick<InodeRow, 'junction'>): void {
  assertNoJunction(directory);
  if (isImmutable(directory)) throw protectedError(directory);
}

/** Checks before an entry is removed or replaced. @throws ServiceError `protected` */
export function assertMayLose(directory: Flagged, inode: Flagged): void {
  assertUnprotected(directory);
  assertUnprotected(inode);
}

export function protectedError(inode: Flagged): ServiceError {
  const flags = flagNames(inode.flags).join(' and ');
  return new ServiceError('protected', `Cannot change inode ${inode.id}: it is ${flags}`);
}

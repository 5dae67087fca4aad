import { ServiceError } from '../base/errors.ts';
import { INODE_FLAGS, type InodeFlag } from '../wire/inode-flags.ts';
import type { InodeRow } from './inode-rows.ts';

/** Flags of inodes by the bits that the tables have for them. A bit is given once. */
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

/** Before attributes change, or a name is added. @throws ServiceError `protected` unless the inode has no flags */
export function assertUnprotected(inode: Flagged): void {
  if ((inode.flags & ALL) !== 0) throw protectedError(inode);
}

/** Before a directory gains a name. @throws ServiceError `protected` */
export function assertMayGain(directory: Flagged): void {
  if (isImmutable(directory)) throw protectedError(directory);
}

/** Before a directory loses a name, or the name stands for another inode. @throws ServiceError `protected` */
export function assertMayLose(directory: Flagged, inode: Flagged): void {
  assertUnprotected(directory);
  assertUnprotected(inode);
}

export function protectedError(inode: Flagged): ServiceError {
  const flags = flagNames(inode.flags).join(' and ');
  return new ServiceError('protected', `Cannot change inode ${inode.id}: it is ${flags}`);
}

import { dateOfNs } from '../base/dates.ts';
import { ServiceError } from '../base/errors.ts';
import { INODE_FLAGS, type InodeFlag } from '../wire/inode-flags.ts';
import type { InodeRow } from './inode-rows.ts';
import { assertNoJunction } from './junction-refusals.ts';
import { RETAINED } from './retained-flag.ts';
import type { Tables } from './tables.ts';

/** Bits of the inode flags in the tables. A bit is never reused. */
const FLAGS: Readonly<Record<InodeFlag, number>> = { immutable: 1, 'append-only': 2 };
const ALL = FLAGS.immutable | FLAGS['append-only'];

type Flagged = Pick<InodeRow, 'id' | 'flags' | 'retainNs'>;
/** With the clock of retentions. */
type Clock = Pick<Tables, 'retentions'>;

export function flagNames(flags: number): readonly InodeFlag[] {
  return INODE_FLAGS.filter((name) => (flags & FLAGS[name]) !== 0);
}

export function flagBits(names: readonly InodeFlag[]): number {
  return names.reduce((bits, name) => bits | FLAGS[name], 0);
}

export function withRetention(flags: number): number {
  return flags | RETAINED;
}

/** Whether no command changes it at all: it is immutable, or retained. */
export function isImmutable(clock: Clock, inode: Flagged): boolean {
  return (inode.flags & FLAGS.immutable) !== 0 || isRetained(clock, inode);
}

function isRetained({ retentions }: Clock, { flags, retainNs }: Flagged): boolean {
  return (flags & RETAINED) !== 0 && retainNs !== null && retentions.isAhead(retainNs);
}

export function isAppendOnly({ flags }: Flagged): boolean {
  return (flags & FLAGS['append-only']) !== 0;
}

/** Checks before attributes change or a link is added. @throws ServiceError `protected`: by flags, or retained */
export function assertUnprotected(clock: Clock, inode: Flagged): void {
  if (inode.flags !== 0 && ((inode.flags & ALL) !== 0 || isRetained(clock, inode)))
    throw protectedError(clock, inode);
}

/** Checks before a directory gains an entry. @throws ServiceError `protected`, `cross-volume` */
export function assertMayGain(clock: Clock, directory: Flagged & Pick<InodeRow, 'junction'>): void {
  assertNoJunction(directory);
  if (isImmutable(clock, directory)) throw protectedError(clock, directory);
}

/** Checks before an entry is removed or replaced. @throws ServiceError `protected` */
export function assertMayLose(clock: Clock, directory: Flagged, inode: Flagged): void {
  assertUnprotected(clock, directory);
  assertUnprotected(clock, inode);
}

export function protectedError(clock: Clock, inode: Flagged): ServiceError {
  const { id, flags, retainNs } = inode;
  const retained =
    isRetained(clock, inode) && retainNs !== null ? [`retained until ${dateOfNs(retainNs)}`] : [];
  return new ServiceError(
    'protected',
    `Cannot change inode ${id}: it is ${[...flagNames(flags), ...retained].join(' and ')}`,
  );
}

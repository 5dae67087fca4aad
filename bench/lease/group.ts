import type { ServerId } from '../../base/ids.ts';

/**
 * @param size at most the number of members
 * @returns the servers that vote on a cell: `self` and others, which change from cell to cell so that all have equal
 * load
 * @throws RangeError if there are fewer members
 */
export function groupOf(
  cell: number,
  self: ServerId,
  members: readonly ServerId[],
  size: number,
): readonly ServerId[] {
  if (size < 1 || size > members.length)
    throw new RangeError(`No group of ${size} among ${members.length} servers`);
  const others = members.filter((member) => member !== self);
  return [
    self,
    ...Array.from({ length: size - 1 }, (_, index) => others[(cell + index) % others.length] as ServerId),
  ];
}

import type { ServerId } from '../../base/ids.ts';

/**
 * The servers that vote on a cell: `self` and others in turn, from one cell to the next, so that all bear alike.
 *
 * @param size at most as many as there are members
 * @throws RangeError when there are fewer members than that
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

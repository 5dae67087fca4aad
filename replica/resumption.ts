import type { Position } from './epoch.ts';
import { epochEqual } from './epoch.ts';
import type { Standing } from './standing.ts';
import type { View } from './view.ts';

/**
 * Ordering without a lease, by an epoch that this process has ended in good order. A lease decides who may answer reads, and keeps candidates from
 * deposing each other; what is ordered needs the epoch alone. docs/replication.md.
 */

type Here = Pick<Standing, 'promised' | 'installed' | 'seq' | 'issuedSeq' | 'trust' | 'view' | 'install'>;

/**
 * Whether the process that has ended an epoch, in this life, may order in it again.
 *
 * @param place the epoch, and the last operation that was ordered in it: all of them were committed when it ended
 * @param here the own replica: it has promised nothing larger since, has all of it, and has forgotten nothing
 */
export function mayBeResumed(
  place: Position,
  { promised, installed, seq, issuedSeq, trust, view, install }: Here,
): boolean {
  if (!epochEqual(promised, place.epoch) || !epochEqual(installed, place.epoch)) return false;
  const isHere = seq === place.seq && issuedSeq === place.seq && seq > 0 && install === null;
  return isHere && trust === 'intact' && needsMajorityAlone(view);
}

/** Where more is needed for an answer, who leads waits for it, and says who is missing. */
function needsMajorityAlone({ joint, policy = 'quorum' }: View): boolean {
  return joint === undefined && policy === 'quorum';
}

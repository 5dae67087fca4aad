import type { Position } from './epoch.ts';
import { epochEqual } from './epoch.ts';
import type { ReplicaState } from './replica-state.ts';
import type { View } from './view.ts';

/**
 * Ordering without a lease, in an epoch that this process ended in good order. A lease decides which server answers
 * reads, and keeps candidates from deposing each other; ordering needs only the epoch. docs/replication.md.
 */

type LocalReplica = Pick<
  ReplicaState,
  'promised' | 'installed' | 'seq' | 'issuedSeq' | 'trust' | 'view' | 'install'
>;

/**
 * Whether the process that ended an epoch in this incarnation may order in it again.
 * @param position the epoch and its last operation: all were committed when it ended
 * @param here the local replica: it promised no larger epoch, has all of it and lost nothing
 */
export function mayBeResumed(
  position: Position,
  { promised, installed, seq, issuedSeq, trust, view, install }: LocalReplica,
): boolean {
  if (!epochEqual(promised, position.epoch) || !epochEqual(installed, position.epoch)) return false;
  const isHere = seq === position.seq && issuedSeq === position.seq && seq > 0 && install === null;
  return isHere && trust === 'intact' && needsMajorityAlone(view);
}

/** Whether a majority of one set of members commits. Otherwise a primary must wait, which reports missing servers. */
function needsMajorityAlone({ joint, policy = 'quorum' }: View): boolean {
  return joint === undefined && policy === 'quorum';
}

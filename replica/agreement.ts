import type { ServerId } from '../base/ids.ts';
import type { Position } from './epoch.ts';
import { epochEqual } from './epoch.ts';
import type { ReplicaRecord, Trust } from './record.ts';
import type { View } from './view.ts';
import { viewHasMajority } from './view.ts';

/**
 * Reads without a primary. If a majority of replicas have the same position and none is bound by a guard, it is the
 * newest state and stays so. This is the read phase of a quorum as in [Boichat et al.]; nothing is written back,
 * because the agreeing replicas already have the state. Decision 0055, docs/replication.md.
 */

/** @returns the replica's position; null if it has no epoch or an unreliable store, so that no quorum read counts it */
export function positionForQuorumRead({ installed, seq }: ReplicaRecord, trust: Trust): Position | null {
  return trust === 'intact' && installed.counter > 0 ? { epoch: installed, seq } : null;
}

/** At a replica asked after a quorum read began: whether it has the reader's position and view, and no joint view. */
export function agrees(record: ReplicaRecord, trust: Trust, position: Position, viewNumber: number): boolean {
  const own = positionForQuorumRead(record, trust);
  const isSame = own !== null && epochEqual(own.epoch, position.epoch) && own.seq === position.seq;
  return isSame && record.view.number === viewNumber && record.view.joint === undefined;
}

/** Whether the servers that agree, with the one that reads, are a majority of a view that is not changing. */
export function hasQuorum(view: View, agreeing: ReadonlySet<ServerId>): boolean {
  return view.joint === undefined && viewHasMajority(view, (server) => agreeing.has(server));
}

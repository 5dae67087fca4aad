import type { ServerId } from '../base/ids.ts';
import type { Position } from './epoch.ts';
import { epochEqual } from './epoch.ts';
import type { ReplicaRecord, Trust } from './record.ts';
import type { View } from './view.ts';
import { viewHasMajority } from './view.ts';

/**
 * Reads without a primary: where a majority of the replicas stand at one place, and none of them is bound by a guard, that is the newest state, and
 * it stays. It is the read phase of a quorum, as in [Boichat et al.]; nothing has to be written back, because those who agree have it
 * already. Decision 0055, docs/replication.md.
 */

/** Where a replica stands, if that counts towards an agreement: it has begun, and its store has forgotten nothing. */
export function standpointOf({ installed, seq }: ReplicaRecord, trust: Trust): Position | null {
  return trust === 'intact' && installed.counter > 0 ? { epoch: installed, seq } : null;
}

/** Whether a replica agrees: asked after the read began, it stands at the same place, by the same view. */
export function agrees(record: ReplicaRecord, trust: Trust, place: Position, viewNumber: number): boolean {
  const own = standpointOf(record, trust);
  const isSame = own !== null && epochEqual(own.epoch, place.epoch) && own.seq === place.seq;
  return isSame && record.view.number === viewNumber && record.view.joint === undefined;
}

/** Whether those who agree are enough, the one who reads among them. */
export function isAgreed(view: View, agreeing: ReadonlySet<ServerId>): boolean {
  return view.joint === undefined && viewHasMajority(view, (server) => agreeing.has(server));
}

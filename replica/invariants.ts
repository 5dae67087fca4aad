import { assert } from '../base/assert.ts';
import { epochCompare, epochEqual, positionCompare } from './epoch.ts';
import type { ReplicaInspection } from './replica.ts';

/** Checks a replica between two steps. */
export function assertReplica(state: ReplicaInspection): void {
  const { role, promised, stored, installed, ownEpoch } = state;
  assert(epochCompare(stored, promised) <= 0, 'Only what was promised is stored');
  assert(epochCompare(installed, stored) <= 0, 'Only what was promised on disk is installed');
  assert(state.seq <= state.issuedSeq, 'Only what was ordered is applied');
  assert(state.committedSeq <= state.seq, 'What is known to be committed is here');
  if (ownEpoch !== null) {
    assert(epochEqual(ownEpoch, promised), 'A candidate or primary has promised no larger epoch');
    assert(
      state.leaseUntilMs > 0 || role === 'resumed',
      'Only the holder of the lease is candidate or primary',
    );
  }
  if (role === 'active' || role === 'stopping' || role === 'resumed') {
    assert(ownEpoch !== null && epochEqual(ownEpoch, installed), 'A primary has its own epoch installed');
  }
}

/** Checks what one step changes within one incarnation. */
export function assertStep(before: ReplicaInspection, after: ReplicaInspection): void {
  assertReplica(after);
  assert(epochCompare(after.promised, before.promised) >= 0, 'A promise never moves back');
  assert(epochCompare(after.stored, before.stored) >= 0, 'A stored promise never moves back');
  assert(
    positionCompare(
      { epoch: after.installed, seq: after.seq },
      { epoch: before.installed, seq: before.seq },
    ) >= 0,
    'A position never moves back',
  );
  // A fetched state of a new epoch starts with its own commit point.
  const sameEpoch = epochEqual(after.installed, before.installed);
  assert(!sameEpoch || after.committedSeq >= before.committedSeq, 'What is committed stays committed');
  if (before.role === 'failed') assert(after.role === 'failed', 'A failed disk stays failed');
  if (after.role === 'active' && before.role !== 'active') {
    const candidates = ['installing', 'preparing', 'beginning'];
    // The only replica of a new subject needs no other: it was stored before the lease came.
    const hasBegun = after.ownEpoch !== null && epochEqual(before.installed, after.ownEpoch);
    assert(hasBegun || candidates.includes(before.role), 'No replica is primary without a reset');
  }
}

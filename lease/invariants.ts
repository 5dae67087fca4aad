import { assert } from '../base/assert.ts';
import { ballotCompare } from './ballot.ts';
import type { CellState } from './cell.ts';
import { CLOCK_DRIFT_MAX, type LeaseParameters } from './parameters.ts';

/** Checks a step on a cell within one incarnation; too costly for production. `null`: the cell did not exist. */
export function assertCellStep(
  before: CellState | null,
  after: CellState | null,
  nowMs: number,
  parameters: LeaseParameters,
): void {
  if (after === null) {
    assert(before === null || before.own === null, 'A held cell is not forgotten');
    return;
  }
  assertCellState(after, nowMs, parameters);
  if (before === null) return;
  const { register, own } = after;
  assert(
    ballotCompare(register.readBallot, before.register.readBallot) >= 0,
    'A promise never moves back ([Register] R1)',
  );
  assert(
    ballotCompare(register.writeBallot, before.register.writeBallot) >= 0,
    'A write is replaced by larger ballots only ([Register] R2)',
  );
  if (
    register.lease !== before.register.lease &&
    before.register.lease?.released !== register.lease?.released
  ) {
    const sameWrite = ballotCompare(register.writeBallot, before.register.writeBallot) === 0;
    assert(!sameWrite || register.lease?.released === true, 'A release is not taken back');
  }
  if (own !== null && before.own !== null) {
    assert(own.untilMs >= before.own.untilMs, 'A renewal never shortens');
  }
}

function assertCellState(state: CellState, nowMs: number, parameters: LeaseParameters): void {
  const { register, own, known, attempt } = state;
  const { self, incarnation, leaseMs, clockSkewMaxMs } = parameters;
  assert(
    (register.lease === null) === (register.writeBallot.round === 0),
    'A register has a lease exactly if it has a write ballot',
  );
  if (register.lease !== null) {
    assert(
      ballotCompare(register.lease.uid, register.writeBallot) <= 0,
      'A lease is written by its own ballot or by a later one that helps',
    );
    assert(
      register.lease.untilMs <= nowMs + leaseMs * (1 + CLOCK_DRIFT_MAX) + clockSkewMaxMs,
      'No lease ends later than a clock within bounds can have set it',
    );
  }
  if (own !== null) {
    assert(own.holder === self && own.incarnation === incarnation, 'The own lease names this incarnation');
    assert(own.untilMs <= nowMs + leaseMs, 'The own lease is counted from the past');
  }
  if (known !== null) {
    assert(
      known.holder !== self || known.incarnation !== incarnation,
      'The known lease is another incarnation’s',
    );
  }
  if (attempt !== null) {
    assert(attempt.startedMs <= nowMs, 'An attempt started in the past');
    const { server } = attempt.ballot;
    assert(server === self && attempt.ballot.incarnation === incarnation, 'An attempt has an own ballot');
  }
}

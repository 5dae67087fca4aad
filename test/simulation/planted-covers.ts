/** Defences that cover each other: what is taken away together with a bug, so that it shows. */
import type { Mutation } from './planted.ts';

/**
 * An acceptor refuses to replace a lease that is valid on its own clock. That covers most bugs of the
 * register as long as clocks are right.
 */
export const STILL_VALID_OFF: Mutation = {
  file: 'lease/flease.ts',
  find: "if (acquires && registerStillValid(register, lease, nowMs)) return 'still-valid';",
  replace: '',
};

export const WAIT_OFF: Mutation = {
  file: 'lease/recovery.ts',
  find: 'untilMs: lastMs + parameters.recoveryMs,',
  replace: 'untilMs: nowMs,',
};

export const FLOOR_OFF: Mutation = {
  file: 'lease/recovery.ts',
  find: "if (k.interval <= floor) return 'old';",
  replace: '',
};

export const OLD_OFF: Mutation = {
  file: 'lease/recovery.ts',
  find: "if ((k.interval + 1) * intervalMs + leaseMs + clockSkewMaxMs < nowMs) return 'old';",
  replace: '',
};

export const ATTEMPT_LIMIT_OFF: Mutation = {
  file: 'lease/cell.ts',
  find: 'if (nowMs - attempt.startedMs > attempt.bidder.readMaxMs) {',
  replace: 'if (nowMs < attempt.startedMs) {',
};

export const DEADLINE_OFF: Mutation = {
  file: 'lease/attempt.ts',
  find: "return startedMs + bidder.readMaxMs + (phase === 'reading' ? 0 : parameters.attemptMaxMs);",
  replace: "return startedMs + bidder.readMaxMs * (phase === 'reading' ? 10 : 20) + parameters.leaseMs * 10;",
};

export const COUNTED_FROM_PROPOSE: Mutation = {
  file: 'lease/cell.ts',
  find: 'const bid = attempt.bidder.bid(finding, attempt, nowMs);',
  replace: 'const bid = attempt.bidder.bid(finding, { ...attempt, startedMs: nowMs }, nowMs);',
};

export const HOLDER_CLOCK_OFF: Mutation = {
  file: 'lease/cell.ts',
  find: 'return nowMs < this.#table.beliefUntilMs(this.#row) && this.#isOwn();',
  replace: 'return nowMs < Infinity && this.#isOwn();',
};

/** The observer of forgetfulness would notice every start without a wait, whatever else is wrong. */
export const AMNESIA_UNSEEN: Mutation = {
  file: 'test/simulation/lease-observers.ts',
  find: 'if (untilMs > nowMs) this.#demandReleased(server, key, untilMs);',
  replace: 'if (untilMs > Infinity) this.#demandReleased(server, key, untilMs);',
};

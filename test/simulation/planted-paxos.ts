/** Known bugs of PaxosLease; see `planted.ts`. */
import { type Mutation, type Planted, plantedIn } from './planted.ts';
import { ATTEMPT_LIMIT_OFF, COUNTED_FROM_PROPOSE, DEADLINE_OFF } from './planted-covers.ts';

const lease = plantedIn('lease');

const HOLDER_MARGIN_OFF: Mutation = {
  file: 'lease/paxos-lease.ts',
  find: 'return startedMs + spanMs * (1 - CLOCK_DRIFT_MAX);',
  replace: 'return startedMs + spanMs;',
};

const ACCEPTOR_MARGIN_OFF: Mutation = {
  file: 'lease/paxos-lease.ts',
  find: 'const untilMs = nowMs + lease.untilMs * (1 + CLOCK_DRIFT_MAX);',
  replace: 'const untilMs = nowMs + lease.untilMs;',
};

/** An acceptor lets nobody replace a lease that runs by its own clock. */
const RUNNING_REPLACED: Mutation = {
  file: 'lease/paxos-lease.ts',
  find: "return registerStillValid(register, write.lease, nowMs) ? 'still-valid' : null;",
  replace: 'return registerStillValid(register, write.lease, nowMs) ? null : null;',
};

export const PLANTED_PAXOS: readonly Planted[] = [
  lease(
    '24a',
    'PaxosLease: T is counted from the propose',
    COUNTED_FROM_PROPOSE,
    { directed: 'paxos-late-propose', says: 'L1' },
    { also: [ATTEMPT_LIMIT_OFF, DEADLINE_OFF, RUNNING_REPLACED] },
  ),
  lease(
    '24b',
    'PaxosLease: the span of the holder is counted from the accepts',
    {
      file: 'lease/cell.ts',
      find: '    const { lease, ballot } = attempt;\n    const { voters, view } = this.#group();',
      replace:
        "    const { ballot } = attempt;\n    const own = !rules.helps && attempt.reason !== 'help' && attempt.lease.claim === null;\n    const lease = own ? { ...attempt.lease, untilMs: rules.endMs(nowMs, attempt.spanMs) } : attempt.lease;\n    const { voters, view } = this.#group();",
    },
    { directed: 'paxos-late-accepts', seeds: 400 },
  ),
  lease(
    '24c',
    'PaxosLease: an extension counts when it is proposed',
    {
      file: 'lease/cell.ts',
      find: '      this.#ask(work, writing, bits, nowMs, out);',
      replace:
        "      this.#ask(work, writing, bits, nowMs, out);\n      if (bid.reason === 'renew' && !rules.helps && bid.lease.claim === null && this.#isOwn()) this.#table.setBelief(this.#row, bid.lease);",
    },
    { directed: 'paxos-extension-accepted', seeds: 400 },
  ),
  lease(
    '24d',
    'PaxosLease: the end of an old proposal clears a newer one at the acceptor',
    {
      file: 'lease/paxos-lease.ts',
      find: 'return { ...lease, untilMs: same ? Math.max(before.untilMs, untilMs) : untilMs };',
      replace: 'return { ...lease, untilMs: same && nowMs < before.untilMs ? before.untilMs : untilMs };',
    },
    { directed: 'paxos-newer-end', seeds: 400 },
  ),
  lease(
    '24e',
    'PaxosLease: the silence after a start is shorter than T',
    {
      file: 'lease/paxos-lease.ts',
      find: 'untilMs: startedMs + parameters.recoveryMs * (1 + CLOCK_DRIFT_MAX), floor: 0',
      replace: 'untilMs: startedMs + parameters.leaseMs / 2, floor: 0',
    },
    { directed: 'paxos-restart-waits', seeds: 400 },
  ),
  lease('24f', 'PaxosLease: the holder has no margin for the drift of clocks', HOLDER_MARGIN_OFF, {
    directed: 'paxos-clocks-drift',
  }),
  lease('24f2', 'PaxosLease: the acceptors have no margin for the drift of clocks', ACCEPTOR_MARGIN_OFF, {
    directed: 'paxos-clocks-drift',
  }),
  lease(
    '24h',
    'PaxosLease: a proposal of somebody else among the answers is overlooked',
    {
      file: 'lease/paxos-lease.ts',
      find: 'if (mine !== attempt.bidder.isMine(attempt.lease)) return !mine;',
      replace: 'if (mine !== attempt.bidder.isMine(attempt.lease)) return mine;',
    },
    { directed: 'paxos-foreign-proposal', says: 'L1' },
    { also: [RUNNING_REPLACED] },
  ),
  lease(
    '24i',
    'PaxosLease as published: an old propose replaces a running lease after its promise was forgotten',
    RUNNING_REPLACED,
    { directed: 'old-propose' },
  ),
  lease(
    '24j',
    'PaxosLease: a holder that is long gone hides the one after it, who is disturbed at each renewal',
    {
      file: 'lease/cell.ts',
      find: 'const isRunning = known !== null && nowMs <= known.untilMs;',
      replace: 'const isRunning = known !== null;',
    },
    { directed: 'paxos-smaller-ballots', says: 'too many READs' },
  ),
];

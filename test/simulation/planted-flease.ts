/** Known bugs of what both lease algorithms share, and of Flease; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';
import {
  AMNESIA_UNSEEN,
  ATTEMPT_LIMIT_OFF,
  COUNTED_FROM_PROPOSE,
  DEADLINE_OFF,
  FLOOR_OFF,
  HOLDER_CLOCK_OFF,
  OLD_OFF,
  STILL_VALID_OFF,
  WAIT_OFF,
} from './planted-covers.ts';

const lease = plantedIn('lease');

export const PLANTED_FLEASE: readonly Planted[] = [
  lease(
    '1',
    'a valid lease of another that was read is reported without writing it back',
    {
      file: 'lease/cell.ts',
      find: '      this.#ask(work, writing, bits, nowMs, out);',
      replace:
        "      if (bid.reason === 'help') return this.#decide(work, writing, nowMs, out);\n      this.#ask(work, writing, bits, nowMs, out);",
    },
    { directed: 'found-lease-is-written', seeds: 400 },
  ),
  lease(
    '2',
    'the own renewal is not written',
    {
      file: 'lease/cell.ts',
      find: '      this.#ask(work, writing, bits, nowMs, out);',
      replace:
        "      if (bid.reason === 'renew') return this.#decide(work, writing, nowMs, out);\n      this.#ask(work, writing, bits, nowMs, out);",
    },
    { directed: 'renewal-is-written', seeds: 400 },
  ),
  lease('3', 'no wait after a restart', WAIT_OFF, { directed: 'restart-waits', seeds: 400 }),
  lease(
    '4',
    'no wait after an orderly restart',
    {
      file: 'lease/recovery.ts',
      find: 'untilMs: lastMs + parameters.recoveryMs,',
      replace:
        "untilMs: lastMs + ((globalThis as Record<string, unknown>)['leaseholdStoppedInOrder'] ? 0 : parameters.recoveryMs),",
    },
    { directed: 'orderly-restart-waits', says: 'L1' },
    { also: [AMNESIA_UNSEEN] },
  ),
  lease(
    '5',
    'the wait after a restart is half a lease',
    {
      file: 'lease/parameters.ts',
      find: 'return leaseMs + 2 * clockSkewMaxMs;',
      replace: 'return leaseMs / 2 + 0 * clockSkewMaxMs;',
    },
    { directed: 'restart-waits-long-enough', seeds: 400, says: 'L1' },
    { also: [AMNESIA_UNSEEN] },
  ),
  lease(
    '5b',
    'the wait after a restart is one lease, and clocks are slewed',
    {
      file: 'lease/parameters.ts',
      find: 'return leaseMs + 2 * clockSkewMaxMs;',
      replace: 'return leaseMs + 0 * clockSkewMaxMs;',
    },
    { directed: 'restart-waits-slewed', seeds: 400 },
  ),
  lease(
    '6',
    'the skew of the clocks is ignored',
    {
      file: 'lease/lease.ts',
      find: 'if (nowMs <= lease.untilMs + clockSkewMaxMs)',
      replace: 'if (nowMs <= lease.untilMs)',
    },
    { directed: 'clocks-apart', seeds: 400 },
  ),
  lease(
    '7',
    'the grace period has the wrong sign',
    {
      file: 'lease/lease.ts',
      find: 'if (nowMs <= lease.untilMs + clockSkewMaxMs)',
      replace: 'if (nowMs <= lease.untilMs - clockSkewMaxMs)',
    },
    { directed: 'clocks-apart', seeds: 400 },
  ),
  lease(
    '8',
    'one reading of the clock for validity, another for expiry',
    {
      file: 'lease/flease.ts',
      find: "if (lease === null || age === 'expired') return { kind: 'free' };",
      replace:
        "if (lease === null || age === 'expired' || (age === 'grace' && attempt.startedMs <= lease.untilMs)) return { kind: 'free' };",
    },
    { directed: 'one-reading', seeds: 4000 },
  ),
  lease(
    '9',
    'ballots without time: a counter that begins anew with every start',
    {
      file: 'lease/ballot.ts',
      find: 'return Math.floor(clockMs / parameters.intervalMs);',
      replace: 'return clockMs > 0 && parameters.intervalMs > 0 ? 1 : 1;',
    },
    { directed: 'ballots-outlive-restarts', seeds: 400 },
    { also: [FLOOR_OFF, OLD_OFF, STILL_VALID_OFF] },
  ),
  lease(
    '10',
    'ballots are compared by server before time',
    {
      file: 'lease/ballot.ts',
      find: '  if (a.interval !== b.interval) return a.interval - b.interval;',
      replace: '  if (a.server !== b.server) return serverIdCompare(a.server, b.server);',
    },
    { directed: 'small-id-succeeds', seeds: 400 },
  ),
  lease(
    '11',
    'two servers may have the same ballot',
    {
      file: 'lease/ballot.ts',
      find: 'return serverIdCompare(a.server, b.server) || a.incarnation - b.incarnation;',
      replace: 'return serverIdCompare(a.server, a.server);',
    },
    { directed: 'same-instant', seeds: 400 },
    { also: [STILL_VALID_OFF] },
  ),
  lease(
    '12',
    "another's valid lease is taken for the own one and renewed",
    {
      file: 'lease/server-bidder.ts',
      find: 'return lease.holder === self && lease.incarnation === incarnation && lease.claim === null;',
      replace: 'return lease.holder === self || lease.incarnation !== incarnation;',
    },
    { directed: 'not-yours', seeds: 400 },
  ),
  lease(
    '13',
    'half of the members count as a majority',
    {
      file: 'base/quorum.ts',
      find: 'return Math.floor(count / 2) + 1;',
      replace: 'return Math.ceil(count / 2);',
    },
    { directed: 'halves', seeds: 400 },
  ),
  lease(
    '14a',
    'an acceptor forgets what it promised to a READ',
    {
      file: 'lease/register.ts',
      find: 'const next = { readBallot: k, writeBallot, lease };',
      replace: 'const next = { ...register };',
    },
    { directed: 'promise-is-kept', seeds: 400 },
    { also: [STILL_VALID_OFF] },
  ),
  lease(
    '14b',
    'an acceptor refuses no WRITE',
    {
      file: 'lease/register.ts',
      find: "if (ballotCompare(standing, k) > 0) return [register, { kind: 'nack-write', ballot: k, standing }];",
      replace: '',
    },
    { directed: 'late-write', seeds: 400 },
    { also: [STILL_VALID_OFF] },
  ),
  lease(
    '14c',
    'a reader believes the oldest answer instead of the newest',
    {
      file: 'lease/flease.ts',
      find: 'return order > 0 ||',
      replace: 'return attempt.lease === null || order < 0 ||',
    },
    { directed: 'newest-wins', seeds: 400 },
    { also: [STILL_VALID_OFF] },
  ),
  lease(
    '15',
    'the lease is counted from after the READ, however long ago the attempt began',
    COUNTED_FROM_PROPOSE,
    { directed: 'late-attempts' },
    { also: [FLOOR_OFF, ATTEMPT_LIMIT_OFF, DEADLINE_OFF, STILL_VALID_OFF] },
  ),
  lease(
    '16a',
    'ballots from before a start are not void',
    FLOOR_OFF,
    { directed: 'late-attempts', says: 'L1' },
    { also: [COUNTED_FROM_PROPOSE, ATTEMPT_LIMIT_OFF, DEADLINE_OFF, STILL_VALID_OFF], paired: true },
  ),
  lease(
    '16b',
    'ballots name no life',
    {
      file: 'lease/ballot.ts',
      find: 'return serverIdCompare(a.server, b.server) || a.incarnation - b.incarnation;',
      replace: 'return serverIdCompare(a.server, b.server);',
    },
    { directed: 'ballot-drawn-twice', says: 'L2' },
    { also: [WAIT_OFF, FLOOR_OFF, AMNESIA_UNSEEN, STILL_VALID_OFF], paired: true },
  ),
  lease(
    '17',
    'an answer that arrives twice counts twice',
    {
      file: 'lease/attempt.ts',
      find: 'if (((tally.acks | tally.nacks) & bit) !== 0) return null;',
      replace:
        'if ((tally.acks & bit) !== 0) return { acks: tally.acks | (tally.acks + 1), nacks: tally.nacks };',
    },
    { directed: 'counted-once', seeds: 400 },
  ),
  lease(
    '18',
    'the holder never looks at the clock',
    HOLDER_CLOCK_OFF,
    { directed: 'cut-off-past-end', seeds: 100 },
    {
      also: [
        {
          file: 'lease/cell.ts',
          find: 'if (nowMs < table.beliefUntilMs(this.#row) || !this.#isOwn()) return;',
          replace: 'if (nowMs < Infinity || !this.#isOwn()) return;',
        },
        {
          file: 'lease/cell.ts',
          find: 'const ownMs = this.#isOwn() ? this.#table.beliefUntilMs(row) : Infinity;',
          replace: 'const ownMs = Infinity;',
        },
      ],
    },
  ),
  lease('19', 'the end of a lease is a flag that a timer sets', HOLDER_CLOCK_OFF, {
    directed: 'pause-past-end',
    seeds: 400,
  }),
  lease(
    '20',
    'a renewal may shorten, after the clock went back',
    {
      file: 'lease/flease.ts',
      find: 'return Math.max(foundMs, untilMs);',
      replace: 'return untilMs + 0 * foundMs;',
    },
    { directed: 'clock-steps-back', says: 'shortens' },
    {
      also: [
        {
          file: 'lease/host.ts',
          find: "assert(nowMs >= this.#lastMs, 'The lease clock never goes back');",
          replace: '',
        },
        {
          file: 'lease/cell.ts',
          find: "assert(!held || lease.untilMs >= this.#table.beliefUntilMs(this.#row), 'A renewal never shortens');",
          replace: '',
        },
      ],
      paired: true,
    },
  ),
  lease(
    '21a',
    'a lease is given back while its holder still acts on it',
    {
      file: 'lease/cell.ts',
      find: "      this.#table.setBelief(this.#row, null);\n      out.push({ kind: 'lost', cell: this.id });\n      this.#trace(out, 'released', '');",
      replace: "      this.#trace(out, 'released', '');",
    },
    { directed: 'stops-before-release', seeds: 100 },
  ),
  lease(
    '21b',
    'a RELEASE is matched by its holder only',
    {
      file: 'lease/register.ts',
      find: 'if (ballotCompare(lease.uid, uid) > 0) return register;',
      replace: '',
    },
    { directed: 'late-release', seeds: 400 },
  ),
  lease(
    '22',
    'a clock far in the future is believed',
    {
      file: 'lease/recovery.ts',
      find: "if (k.interval > ballotInterval(nowMs + clockSkewMaxMs, parameters)) return 'future';",
      replace: '',
    },
    { directed: 'far-future' },
    {
      also: [
        {
          file: 'lease/flease.ts',
          find: 'return lease.untilMs > nowMs + leaseMs + clockSkewMaxMs;',
          replace: 'return lease.untilMs > nowMs + leaseMs + clockSkewMaxMs + Infinity;',
        },
        {
          file: 'lease/clock-monitor.ts',
          find: 'if (lowMs > limitMs || highMs < -limitMs) peer.violatedMs = nowMs;',
          replace: 'if (lowMs > Infinity) peer.violatedMs = nowMs;',
        },
        {
          file: 'lease/invariants.ts',
          find: 'register.lease.untilMs <= nowMs + leaseMs * (1 + CLOCK_DRIFT_MAX) + clockSkewMaxMs,',
          replace: 'register.lease.untilMs <= nowMs + leaseMs * (1 + CLOCK_DRIFT_MAX) + Infinity,',
        },
      ],
    },
  ),
  lease(
    'starved-read',
    'answers to a renewal are thrown away after a sixth of a lease',
    {
      file: 'lease/parameters.ts',
      find: "ownReadMaxMs: config.algorithm === 'paxoslease' ? attemptMaxMs : leaseMs / 2,",
      replace: 'ownReadMaxMs: attemptMaxMs,',
    },
    { directed: 'starved-holder-stays' },
  ),
  lease(
    'starved-thrift',
    'where answers are slow, no more voters are asked than a majority needs',
    {
      file: 'lease/flow.ts',
      find: 'return nowMs < this.#slowUntilMs;',
      replace: 'return nowMs < 0;',
    },
    { test: { file: 'test/lease/host.test.ts', name: 'thrifty' } },
  ),
  lease(
    '23',
    'a server that started anew takes the lease of its earlier life for its own',
    {
      file: 'lease/server-bidder.ts',
      find: 'return lease.holder === self && lease.incarnation === incarnation && lease.claim === null;',
      replace: 'return lease.holder === self && incarnation > 0;',
    },
    { directed: 'own-ghost', seeds: 100, says: 'L2' },
    { also: [WAIT_OFF, AMNESIA_UNSEEN] },
  ),
  lease('2.7', 'a forgotten cell accepts what is older than its memory', OLD_OFF, {
    directed: 'forgotten-cell',
  }),
];

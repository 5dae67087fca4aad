/**
 * Known bugs, each a change of one line in a copy of the real code. A simulation counts once it has
 * caught them all: one that cannot tell the broken protocol from the right one proves nothing about
 * either. There are no switches in the production code.
 */

export type PlantedLayer = 'lease' | 'replica';

/** A change of one line. `find` occurs exactly once in `file`; the copy has `replace` there instead. */
export interface Mutation {
  /** Path from the root of the repository. */
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

/** One bug. */
export interface Planted extends Mutation {
  /** Number in the list of bugs, unique with the layer. */
  readonly row: string;
  readonly layer: PlantedLayer;
  readonly what: string;
  /** Defences that cover the bug and are taken away with it, so that it shows. */
  readonly also?: readonly Mutation[];
  /** Who must notice: the directed scenario of that name, random seeds 1 to `seeds`, or each of both. */
  readonly caughtBy: { readonly seeds?: number; readonly directed?: string };
}

/** What the simulation of a layer exports as `campaign`. Both return the first violation, or null. */
export interface Campaign {
  /** Scripted schedules, by name. Each passes on the unchanged code. */
  readonly scenarios: Readonly<Record<string, () => string | null>>;
  /** One random run. Equal seeds give equal runs. */
  runSeed(seed: number): string | null;
}

/** The module in this folder that exports the `campaign` of a layer. */
export const CAMPAIGN_MODULES: Readonly<Record<PlantedLayer, string>> = {
  lease: 'lease-campaign.ts',
  replica: 'replica-world.ts',
};

/**
 * An acceptor refuses to replace a lease that is valid on its own clock. That covers most bugs of the
 * register as long as clocks are right.
 */
const STILL_VALID_OFF: Mutation = {
  file: 'lease/flease.ts',
  find: "if (acquires && registerStillValid(register, lease, nowMs)) return 'still-valid';",
  replace: '',
};

const WAIT_OFF: Mutation = {
  file: 'lease/recovery.ts',
  find: 'untilMs: nowMs + parameters.recoveryMs,',
  replace: 'untilMs: nowMs,',
};

const FLOOR_OFF: Mutation = {
  file: 'lease/recovery.ts',
  find: "if (k.interval <= floor) return 'old';",
  replace: '',
};

const OLD_OFF: Mutation = {
  file: 'lease/recovery.ts',
  find: "if ((k.interval + 1) * intervalMs + leaseMs + clockSkewMaxMs < nowMs) return 'old';",
  replace: '',
};

const ATTEMPT_LIMIT_OFF: Mutation = {
  file: 'lease/cell.ts',
  find: 'if (nowMs - attempt.startedMs > parameters.attemptMaxMs) {',
  replace: 'if (nowMs < attempt.startedMs) {',
};

const DEADLINE_OFF: Mutation = {
  file: 'lease/proposer.ts',
  find: "return attempt.startedMs + (attempt.phase === 'reading' ? 1 : 2) * parameters.attemptMaxMs;",
  replace: 'return attempt.startedMs + parameters.leaseMs * 10;',
};

const lease = (
  row: string,
  what: string,
  mutation: Mutation,
  caughtBy: Planted['caughtBy'],
  also: readonly Mutation[] = [],
): Planted => ({ row, layer: 'lease', what, ...mutation, also, caughtBy });

export const PLANTED_LEASE: readonly Planted[] = [
  lease(
    '1',
    'a valid lease of another that was read is reported without writing it back',
    {
      file: 'lease/cell.ts',
      find: '      work.attempt = writing;',
      replace:
        "      if (bid.reason === 'help') return this.#decide(work, writing, nowMs, out);\n      work.attempt = writing;",
    },
    { directed: 'found-lease-is-written', seeds: 400 },
  ),
  lease(
    '2',
    'the own renewal is not written',
    {
      file: 'lease/cell.ts',
      find: '      work.attempt = writing;',
      replace:
        "      if (bid.reason === 'renew') return this.#decide(work, writing, nowMs, out);\n      work.attempt = writing;",
    },
    { directed: 'renewal-is-written', seeds: 400 },
  ),
  lease('3', 'no wait after a restart', WAIT_OFF, { directed: 'restart-waits', seeds: 400 }),
  lease(
    '4',
    'no wait after an orderly restart',
    {
      file: 'lease/recovery.ts',
      find: 'untilMs: nowMs + parameters.recoveryMs,',
      replace:
        "untilMs: nowMs + ((globalThis as Record<string, unknown>)['leaseholdStoppedInOrder'] ? 0 : parameters.recoveryMs),",
    },
    { directed: 'orderly-restart-waits' },
  ),
  lease(
    '5',
    'the wait after a restart is half a lease',
    {
      file: 'lease/parameters.ts',
      find: 'recoveryMs: leaseMs + 2 * clockSkewMaxMs,',
      replace: 'recoveryMs: leaseMs / 2,',
    },
    { directed: 'restart-waits-long-enough', seeds: 400 },
  ),
  lease(
    '5b',
    'the wait after a restart is one lease, and clocks are slewed',
    {
      file: 'lease/parameters.ts',
      find: 'recoveryMs: leaseMs + 2 * clockSkewMaxMs,',
      replace: 'recoveryMs: leaseMs,',
    },
    { seeds: 400 },
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
    [FLOOR_OFF, OLD_OFF, STILL_VALID_OFF],
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
    [STILL_VALID_OFF],
  ),
  lease(
    '12',
    "another's valid lease is taken for the own one and renewed",
    {
      file: 'lease/proposer.ts',
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
    [STILL_VALID_OFF],
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
    [STILL_VALID_OFF],
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
    [STILL_VALID_OFF],
  ),
  lease(
    '15',
    'the lease is counted from after the READ, however long ago the attempt began',
    {
      file: 'lease/cell.ts',
      find: 'const bid = attempt.bidder.bid(finding, attempt, nowMs);',
      replace: 'const bid = attempt.bidder.bid(finding, { ...attempt, startedMs: nowMs }, nowMs);',
    },
    { directed: 'late-attempts' },
    [FLOOR_OFF, ATTEMPT_LIMIT_OFF, DEADLINE_OFF, STILL_VALID_OFF],
  ),
  lease(
    '17',
    'an answer that arrives twice counts twice',
    {
      file: 'lease/proposer.ts',
      find: 'if (((tally.acks | tally.nacks) & bit) !== 0) return null;',
      replace:
        'if ((tally.acks & bit) !== 0) return { acks: tally.acks | (tally.acks + 1), nacks: tally.nacks };',
    },
    { directed: 'counted-once', seeds: 400 },
  ),
  lease(
    '18',
    'the holder does not look at the clock when it acts',
    {
      file: 'lease/cell.ts',
      find: 'return nowMs < this.#table.beliefUntilMs(this.#row) && this.#isOwn();',
      replace: 'return nowMs < Infinity && this.#isOwn();',
    },
    { directed: 'pause-past-end', seeds: 400 },
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
    [
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
  ),
  lease(
    '23',
    'a server that started anew takes the lease of its earlier life for its own',
    {
      file: 'lease/proposer.ts',
      find: 'return lease.holder === self && lease.incarnation === incarnation && lease.claim === null;',
      replace: 'return lease.holder === self && incarnation > 0;',
    },
    { directed: 'own-ghost', seeds: 400 },
    [WAIT_OFF],
  ),
  lease('2.7', 'a forgotten cell accepts what is older than its memory', OLD_OFF, {
    directed: 'forgotten-cell',
  }),
  lease(
    '24i',
    'PaxosLease as published: an old propose replaces a running lease after its promise was forgotten',
    {
      file: 'lease/paxos-lease.ts',
      find: "return registerStillValid(register, write.lease, nowMs) ? 'still-valid' : null;",
      replace: 'return registerStillValid(register, write.lease, nowMs) ? null : null;',
    },
    { directed: 'old-propose' },
  ),
];

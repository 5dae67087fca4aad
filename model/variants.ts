export type ModelName = 'flease' | 'paxos-lease';

/**
 * The expected result. `verified`: all reachable states are good. `counter-example`: the planted bug shows.
 * `reached`: the claim that something never happens is refuted.
 */
export type Expectation = 'verified' | 'counter-example' | 'reached';

export interface Variant {
  readonly name: string;
  readonly model: ModelName;
  readonly expectation: Expectation;
  /** Preprocessor definitions, without `-D`. */
  readonly defines: readonly string[];
  /** `quick`: seconds; `deep`: minutes. */
  readonly effort: 'quick' | 'full' | 'deep';
  readonly about: string;
}

const CALM = 'SILENT=0';
const THREE = 'ATTEMPTS=3';
const FINE = ['EPS=2', 'TMAX=4'];

function flease(
  name: string,
  expectation: Expectation,
  effort: Variant['effort'],
  about: string,
  ...defines: string[]
): Variant {
  // Only correct clocks and waits guarantee that no ballot is refused as from the future.
  const planted = expectation === 'counter-example' || name.startsWith('without-') ? ['PLANTED'] : [];
  return { name, model: 'flease', expectation, effort, about, defines: [...defines, ...planted] };
}

function paxosLease(
  name: string,
  expectation: Expectation,
  effort: Variant['effort'],
  about: string,
  ...defines: string[]
): Variant {
  return { name: `paxos-${name}`, model: 'paxos-lease', expectation, effort, about, defines };
}

/** All runs, correct rules first. */
export const VARIANTS: readonly Variant[] = [
  flease('flease-small', 'verified', 'quick', 'no restarts, two attempts', CALM),
  flease('flease', 'verified', 'full', 'restarts, two attempts'),
  flease('flease-three-attempts', 'verified', 'full', 'no restarts, three attempts', CALM, THREE),
  flease('flease-fine-clocks', 'verified', 'full', 'no restarts, ε of two ticks', CALM, ...FINE),
  flease('flease-deep', 'verified', 'deep', 'restarts, ε of two ticks', ...FINE),

  flease('renewed', 'reached', 'full', 'a holder renews', CALM, 'NEVER_RENEWED'),
  flease('helped', 'reached', 'quick', 'a found lease is written back and decided', CALM, 'NEVER_HELPED'),
  flease(
    'taken-over',
    'reached',
    'full',
    'a lease ends and another server takes it',
    CALM,
    'NEVER_TAKEN_OVER',
  ),
  flease('after-restart', 'reached', 'full', 'a server that restarted holds again', 'NEVER_AFTER_RESTART'),

  flease('no-wait', 'counter-example', 'full', 'no silence after a restart', 'WAIT=0'),
  flease('wait-of-a-lease', 'counter-example', 'full', 'silence of t_max', 'WAIT=TMAX'),
  flease('wait-of-one-skew', 'counter-example', 'full', 'silence of t_max + ε', 'WAIT=TMAX+EPS'),
  flease('acts-at-end', 'counter-example', 'full', 'a holder still acts at the end itself', 'ACTS_AT_END'),
  flease('skew-ignored', 'counter-example', 'full', 'no grace', CALM, ...FINE, 'EPS_IGNORED'),
  flease(
    'clock-read-twice',
    'counter-example',
    'full',
    'one reading for validity, another for expiry',
    CALM,
    ...FINE,
    'CLOCK_READ_TWICE',
  ),
  flease(
    'found-not-written',
    'counter-example',
    'quick',
    'a found lease is believed, not written back',
    CALM,
    THREE,
    'NO_WRITE_BACK',
  ),
  flease(
    'renewal-not-written',
    'counter-example',
    'full',
    'a renewal is believed, not written',
    CALM,
    THREE,
    'RENEWAL_NOT_WRITTEN',
  ),
  flease(
    'half-is-majority',
    'counter-example',
    'full',
    '⌊n/2⌋ acknowledgements suffice',
    CALM,
    'HALF_IS_MAJORITY',
  ),
  flease(
    'promise-forgotten',
    'counter-example',
    'quick',
    'an acceptor does not keep the promise of a READ',
    CALM,
    'PROMISE_FORGOTTEN',
  ),
  flease(
    'duplicates-count',
    'counter-example',
    'quick',
    'a repeated answer counts as a second one',
    CALM,
    'DUPLICATES_COUNT',
  ),
  flease(
    'earlier-life-is-mine',
    'counter-example',
    'full',
    'no silence as proposer, incarnations ignored',
    'PROPOSER_NOT_SILENT',
    'INCARNATION_IGNORED',
  ),
  flease(
    'end-as-published',
    'counter-example',
    'full',
    'end counted from after READ, no floor, no limits of age',
    'END_FROM_AFTER_READ',
    'NO_FLOOR',
    'NO_ATTEMPT_LIMIT',
    'NO_OLD_TEST',
  ),

  flease('without-floor', 'verified', 'full', 'no floor; the other rules cover for it', 'NO_FLOOR'),
  flease(
    'without-incarnation',
    'verified',
    'full',
    'an earlier life’s lease taken for one’s own; the silence covers for it',
    'INCARNATION_IGNORED',
  ),
  flease(
    'without-silent-proposer',
    'verified',
    'full',
    'a restarted proposer is not silent; incarnations cover for it',
    'PROPOSER_NOT_SILENT',
  ),

  paxosLease('lease-small', 'verified', 'quick', 'restarts, two attempts', 'ATTEMPTS=2'),
  paxosLease('lease', 'verified', 'full', 'restarts, three attempts'),
  paxosLease(
    'published-without-extension',
    'verified',
    'full',
    'as published, nobody extends',
    'PUBLISHED',
    'EXTENDS_NEVER',
  ),

  paxosLease('extended', 'reached', 'quick', 'a holder extends', 'NEVER_EXTENDED'),
  paxosLease('taken-over', 'reached', 'full', 'a lease ends and another server takes it', 'NEVER_TAKEN_OVER'),
  paxosLease(
    'lower-ballot',
    'reached',
    'full',
    'a ballot below a forgotten one wins',
    'NEVER_WITH_LOWER_BALLOT',
  ),

  paxosLease(
    'published',
    'counter-example',
    'full',
    'acceptors take a proposal while another’s lease runs',
    'PUBLISHED',
  ),
  paxosLease(
    'published-holders-extend',
    'counter-example',
    'full',
    'the same, and only who still holds extends',
    'PUBLISHED',
    'EXTENDS_WHILE_HOLDING',
  ),
  paxosLease(
    'published-from-propose',
    'counter-example',
    'full',
    'as published, T counted from the propose',
    'PUBLISHED',
    'EXTENDS_NEVER',
    'COUNTED_FROM_PROPOSE',
  ),
  paxosLease(
    'published-promise-forgotten',
    'counter-example',
    'quick',
    'as published, a promise is not kept',
    'PUBLISHED',
    'EXTENDS_NEVER',
    'PROMISE_FORGOTTEN',
  ),
  paxosLease(
    'from-accept',
    'counter-example',
    'full',
    'T counted from when a majority has accepted',
    'COUNTED_FROM_ACCEPT',
  ),
  paxosLease('short-silence', 'counter-example', 'full', 'a silence shorter than T', 'SILENCE=T-1'),
  paxosLease(
    'extension-not-accepted',
    'counter-example',
    'full',
    'an extension counts before a majority accepted it',
    'EXTENSION_NOT_ACCEPTED',
  ),
  paxosLease(
    'drift-ignored',
    'counter-example',
    'full',
    'holder and acceptor count the same T',
    'DRIFT_IGNORED',
  ),
  paxosLease(
    'half-is-majority',
    'counter-example',
    'quick',
    '⌊n/2⌋ acknowledgements suffice',
    'HALF_IS_MAJORITY',
  ),
  paxosLease(
    'duplicates-count',
    'counter-example',
    'quick',
    'a repeated answer counts as a second one',
    'DUPLICATES_COUNT',
  ),
  paxosLease(
    'without-promises',
    'verified',
    'full',
    'promises are not kept; the acceptor’s own test covers for it',
    'PROMISE_FORGOTTEN',
  ),
  paxosLease(
    'without-early-count',
    'verified',
    'full',
    'T counted from the propose; the acceptor’s own test covers for it',
    'COUNTED_FROM_PROPOSE',
  ),
];

import { assert } from '../base/assert.ts';
import type { CellId, Incarnation, ServerId } from '../base/ids.ts';
import type { KnownView } from './group.ts';

/** Counts incompatible changes of the protocol; part of the hash below. */
const PROTOCOL_VERSION = 2;

/** ρ: a clock runs at most this much faster or slower than true time. */
export const CLOCK_DRIFT_MAX = 0.005;

/** A timer may be this share of a lease late; the wheel of all timers turns in such steps. */
const TIMER_LATE_SHARE = 1 / 1000;

/** Timing that all servers of a cluster must share; a hash of it travels with every frame. In milliseconds. */
export interface LeaseTiming {
  /** Length of a lease, t_max in the papers. At least ten times `clockSkewMaxMs`. */
  readonly leaseMs: number;
  /** ε: any two lease clocks differ by at most this, at any moment. */
  readonly clockSkewMaxMs: number;
}

/**
 * `flease`: leases end at a moment of synchronized clocks, and everybody who heard of one can tell when it is over.
 * `paxoslease`: every server counts spans on its own clock, so nothing is asked of clocks but their rate.
 */
export type LeaseAlgorithm = 'flease' | 'paxoslease';

export interface LeaseConfig extends LeaseTiming {
  readonly self: ServerId;
  readonly incarnation: Incarnation;
  /** The same on all servers of a cluster. `flease` if absent. */
  readonly algorithm?: LeaseAlgorithm;
  /**
   * While peers are known to answer, ask no more of them than a majority needs, and the rest only when somebody
   * refuses or is slow. Two fifths of the messages less; true if absent. Flease only.
   */
  readonly thrifty?: boolean;
  /**
   * The longest silence that an earlier life with other timing would have kept, in milliseconds: what it gave
   * out may run for so long. The silence after this start is no shorter.
   */
  readonly formerSilenceMs?: number;
  /**
   * The latest reading of the lease clock at which an earlier life may have voted or drawn a ballot, where ballots have
   * to rise over restarts whatever became of the clock. The silence is counted from the later of it and the start.
   */
  readonly formerClockMs?: number;
  /**
   * Spread of those who compete for a lease that is over, in milliseconds: the shorter, the sooner it is taken, and
   * the oftener two of them refuse each other and have to begin anew. A twentieth of a lease if absent, at most 100.
   */
  readonly jitterMaxMs?: number;
  /**
   * The view of a cell as it is on disk here, where its members ever changed; null for all other cells. What this
   * layer was told of a cell is forgotten with the cell; by this it never votes by a view that is over.
   */
  readonly knownView?: (cell: CellId) => KnownView | null;
  /**
   * Where all cells have voters by one view, which the layer above has on disk: its number. A message of another view
   * is refused. Until the event `voters` names a later one.
   */
  readonly view?: number;
}

/** What follows from the configuration. All times in milliseconds of the lease clock. */
export interface LeaseParameters {
  readonly self: ServerId;
  readonly incarnation: Incarnation;
  readonly algorithm: LeaseAlgorithm;
  /** t_max: length of a lease. */
  readonly leaseMs: number;
  /** ε: any two lease clocks differ by at most this. */
  readonly clockSkewMaxMs: number;
  /** L: width of a ballot interval. At most the recovery wait less 2ε, so that ballots from after a restart are larger. */
  readonly intervalMs: number;
  /** W: silence after every start. */
  readonly recoveryMs: number;
  /** See `LeaseConfig`; −Infinity where the start is later for certain, or ballots need not rise. */
  readonly formerClockMs: number;
  /** How long a phase of an attempt for a client may take. */
  readonly attemptMaxMs: number;
  /**
   * The same of the first phase for this server itself. On a machine that starves an answer may need a good part of a
   * lease, and an attempt that is dropped takes its answers with it; half a lease is left of one that is not.
   */
  readonly ownReadMaxMs: number;
  /** Unanswered READs and WRITEs are repeated with this period. */
  readonly repeatMs: number;
  /** A lease is renewed when less than this is left of it. */
  readonly renewBeforeMs: number;
  readonly backoffMinMs: number;
  readonly backoffMaxMs: number;
  /** Spread of those who compete for a lease that has ended. */
  readonly jitterMaxMs: number;
  /** A cell untouched for so long is forgotten: everything that could be said of it is too old to be heard. */
  readonly forgetMs: number;
  /** Whether no more voters are asked than a majority needs, as long as they answer. */
  readonly thrifty: boolean;
  /** Who was heard from within this is taken to be there. */
  readonly livelyMs: number;
  /** Timers fire up to this late. */
  readonly timerLateMs: number;
  /** Equal on servers that agree about timing and protocol. */
  readonly hash: number;
}

export function leaseParameters(config: LeaseConfig): LeaseParameters {
  const { leaseMs, clockSkewMaxMs } = config;
  assert(clockSkewMaxMs > 0, 'Clocks differ');
  assert(leaseMs >= 10 * clockSkewMaxMs, 'A lease outlasts the clock skew ten times');
  const attemptMaxMs = leaseMs / 6;
  return {
    self: config.self,
    incarnation: config.incarnation,
    algorithm: config.algorithm ?? 'flease',
    leaseMs,
    clockSkewMaxMs,
    intervalMs: leaseMs - clockSkewMaxMs,
    recoveryMs: Math.max(leaseSilenceMs(config), config.formerSilenceMs ?? 0),
    formerClockMs: config.formerClockMs ?? -Infinity,
    attemptMaxMs,
    // PaxosLease is searched by its model with the shorter limit.
    ownReadMaxMs: config.algorithm === 'paxoslease' ? attemptMaxMs : leaseMs / 2,
    repeatMs: attemptMaxMs / 4,
    renewBeforeMs: (leaseMs * 2) / 3,
    backoffMinMs: Math.min(50, leaseMs / 30),
    backoffMaxMs: leaseMs / 30,
    jitterMaxMs: config.jitterMaxMs ?? Math.min(100, leaseMs / 20),
    forgetMs: 2 * leaseMs + 2 * clockSkewMaxMs,
    // In PaxosLease nobody but the holder can tell the rest, so all have to be asked.
    thrifty: (config.thrifty ?? true) && config.algorithm !== 'paxoslease',
    livelyMs: leaseMs / 4,
    timerLateMs: leaseMs * TIMER_LATE_SHARE,
    hash: leaseParametersHash(config),
  };
}

/**
 * W: how long a server with this timing is silent after a start, in milliseconds of its clock. [Flease] §3.5 has
 * t_max; clocks slewed within ε during the wait defeat less than this.
 */
export function leaseSilenceMs({ leaseMs, clockSkewMaxMs }: LeaseTiming): number {
  return leaseMs + 2 * clockSkewMaxMs;
}

/** FNV-1a over what all servers of a cluster must share. */
export function leaseParametersHash(timing: LeaseTiming & { readonly algorithm?: LeaseAlgorithm }): number {
  const { leaseMs, clockSkewMaxMs, algorithm = 'flease' } = timing;
  const text = `${PROTOCOL_VERSION}/${algorithm}/${leaseMs}/${clockSkewMaxMs}`;
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193) >>> 0;
  return hash;
}

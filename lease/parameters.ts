import { assert } from '../base/assert.ts';
import type { CellId, Incarnation, ServerId } from '../base/ids.ts';
import type { KnownView } from './group.ts';

/** Counts incompatible protocol changes; part of the hash. */
const PROTOCOL_VERSION = 2;

/** ρ: the most that a clock's rate differs from true time, as a fraction. */
export const CLOCK_DRIFT_MAX = 0.005;

/** A timer may be late by this share of a lease; it is the tick of the timing wheel. */
const TIMER_LATE_SHARE = 1 / 1000;

/** Timing that all servers of a cluster share, in milliseconds; every frame carries a hash of it. */
export interface LeaseTiming {
  readonly leaseMs: number;
  /** ε: any two lease clocks differ by at most this, at any moment; at most a tenth of `leaseMs` (t_max). */
  readonly clockSkewMaxMs: number;
}

/** `flease`: leases end by synchronized clocks. `paxoslease`: servers count spans; only clocks' rates are bounded. */
export type LeaseAlgorithm = 'flease' | 'paxoslease';

export interface LeaseConfig extends LeaseTiming {
  readonly self: ServerId;
  readonly incarnation: Incarnation;
  /** The same on all servers of a cluster. `flease` if absent. */
  readonly algorithm?: LeaseAlgorithm;
  /** Ask only a majority while peers answer; saves two fifths of the messages. True if absent; Flease only. */
  readonly thrifty?: boolean;
  /** The recovery wait that earlier timing would need, in milliseconds. This server's wait is no shorter. */
  readonly earlierRecoveryMs?: number;
  /**
   * The latest lease clock reading at which an earlier incarnation may have voted or drawn a ballot; set if ballots
   * must rise over restarts. The recovery wait counts from the later of it and the start.
   */
  readonly earlierClockMs?: number;
  /** Largest random delay of competitors, in milliseconds. Default: a twentieth of a lease, at most 100. */
  readonly jitterMaxMs?: number;
  /** Whether the cell is renewed at the same moments as all others of which that is true. Absent: none is. */
  readonly renewsTogether?: (cell: CellId) => boolean;
  /** The view of a cell on disk if its members ever changed, so that no removed cell returns with an outdated one. */
  readonly knownView?: (cell: CellId) => KnownView | null;
  /** Number of the one view of all cells' voters, if they share one; messages of other views are refused. */
  readonly view?: number;
}

/** Derived from the configuration. All times in milliseconds of the lease clock. */
export interface LeaseParameters {
  readonly self: ServerId;
  readonly incarnation: Incarnation;
  readonly algorithm: LeaseAlgorithm;
  readonly leaseMs: number;
  readonly clockSkewMaxMs: number;
  /** L: width of a ballot interval. At most the recovery wait less 2ε, so that ballots after a restart are larger. */
  readonly ballotIntervalMs: number;
  /** W: the recovery wait after every start. */
  readonly recoveryMs: number;
  readonly earlierClockMs: number;
  /** Time limit for each phase of a client's attempt. */
  readonly attemptMaxMs: number;
  /** The same for the first phase of a server's own attempt: longer, as a dropped attempt loses its answers. */
  readonly serverReadMaxMs: number;
  readonly repeatMs: number;
  /** A lease is renewed this long, and a random part of `jitterMaxMs`, before its end. */
  readonly renewBeforeMs: number;
  readonly renewsTogether: (cell: CellId) => boolean;
  readonly backoffMinMs: number;
  readonly backoffMaxMs: number;
  readonly jitterMaxMs: number;
  /** A cell idle for this long is removed: every message about it is too old to count. */
  readonly forgetMs: number;
  readonly thrifty: boolean;
  /** A peer whose last frame is at most this old counts as present. */
  readonly presentMs: number;
  readonly timerLateMs: number;
  readonly hash: number;
}

export function leaseParameters(config: LeaseConfig): LeaseParameters {
  const { leaseMs, clockSkewMaxMs } = config;
  assert(clockSkewMaxMs > 0, 'The clock skew is positive');
  assert(leaseMs >= 10 * clockSkewMaxMs, 'A lease outlasts the clock skew ten times');
  const attemptMaxMs = leaseMs / 6;
  return {
    self: config.self,
    incarnation: config.incarnation,
    algorithm: config.algorithm ?? 'flease',
    leaseMs,
    clockSkewMaxMs,
    // [Flease]: t_max − ε.
    ballotIntervalMs: leaseMs - clockSkewMaxMs,
    recoveryMs: Math.max(leaseRecoveryMs(config), config.earlierRecoveryMs ?? 0),
    earlierClockMs: config.earlierClockMs ?? -Infinity,
    attemptMaxMs,
    // The model checks PaxosLease with the shorter limit.
    serverReadMaxMs: config.algorithm === 'paxoslease' ? attemptMaxMs : leaseMs / 2,
    repeatMs: attemptMaxMs / 4,
    renewBeforeMs: (leaseMs * 2) / 3,
    renewsTogether: config.renewsTogether ?? (() => false),
    backoffMinMs: Math.min(50, leaseMs / 30),
    backoffMaxMs: leaseMs / 30,
    jitterMaxMs: config.jitterMaxMs ?? Math.min(100, leaseMs / 20),
    forgetMs: 2 * leaseMs + 2 * clockSkewMaxMs,
    // In PaxosLease only the holder can inform the other voters, so all of them are asked.
    thrifty: (config.thrifty ?? true) && config.algorithm !== 'paxoslease',
    presentMs: leaseMs / 4,
    timerLateMs: leaseMs * TIMER_LATE_SHARE,
    hash: leaseParametersHash(config),
  };
}

/** W, in milliseconds of the local clock. t_max of [Flease] §3.5 is too short for clocks slewed within ε meanwhile. */
export function leaseRecoveryMs({ leaseMs, clockSkewMaxMs }: LeaseTiming): number {
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

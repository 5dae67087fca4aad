import type { Incarnation, ServerId } from '../base/ids.ts';
import type { Ballot } from './ballot.ts';

/** What a client has of a lease that a server got for it. */
export interface Claim {
  /** A number below 2^53 that the client has drawn: whoever knows it is the holder. */
  readonly session: number;
  /** Fencing token: larger for each later holder of the cell. */
  readonly token: number;
  /** What the holder wants others to read with the lease. */
  readonly note: string;
}

/** λ: one life of one server may act as primary until a moment of the lease clock. */
export interface Lease {
  /** The server that set `untilMs`: the holder itself, or the server that a claim's holder asked. */
  readonly holder: ServerId;
  /** A lease of the same server's earlier life is a stranger's lease: wait for its end. */
  readonly incarnation: Incarnation;
  readonly untilMs: number;
  /** Ballot of the WRITE that set `untilMs`. Stays when others write the lease back. */
  readonly uid: Ballot;
  /** Its holder gave it back: it need not be waited for. */
  readonly released: boolean;
  /** Present where a client holds the lease, and no server. */
  readonly claim: Claim | null;
}

/**
 * `valid`: its holder may be acting. `grace`: over on this clock, perhaps not on the holder's.
 * `expired`: over on every clock, or released, or never written.
 */
export type LeaseAge = 'valid' | 'grace' | 'expired';

/**
 * How a lease stands at one reading of the clock.
 *
 * The paper's Alg. 4 reads the clock for validity and again for expiry. A pause between the two turns
 * a valid lease into an expired one without the grace period, so here one reading serves both.
 * The boundaries: the holder stops strictly before `untilMs`, others start strictly after
 * `untilMs + ε`; with anything weaker, two clocks ε apart have an instant in common.
 */
export function leaseAge(lease: Lease | null, nowMs: number, clockSkewMaxMs: number): LeaseAge {
  if (lease === null || lease.released) return 'expired';
  if (nowMs <= lease.untilMs) return 'valid';
  if (nowMs <= lease.untilMs + clockSkewMaxMs) return 'grace';
  return 'expired';
}

/** Whether two leases belong to the same life of the same server, or to the same session of a client. */
export function leaseSameHolder(a: Lease, b: Lease): boolean {
  if (a.claim !== null || b.claim !== null) return a.claim?.session === b.claim?.session;
  return a.holder === b.holder && a.incarnation === b.incarnation;
}

/** For traces: `a until 1234.5`. */
export function leaseText(lease: Lease | null): string {
  if (lease === null) return '⊥';
  return `${lease.holder} until ${lease.untilMs}${lease.released ? ', released' : ''}`;
}

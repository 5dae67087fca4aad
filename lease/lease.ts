import type { Incarnation, ServerId } from '../base/ids.ts';
import type { Ballot } from './ballot.ts';

/** A client as the holder of a lease. */
export interface Claim {
  /** The holder's secret: a random number below 2^53 drawn by the client. */
  readonly session: number;
  /** Fencing token: larger for each later holder of the cell. */
  readonly token: number;
  readonly note: string;
}

/** λ: one incarnation of a server may act as primary until a moment of the lease clock. */
export interface Lease {
  /** The server that set `untilMs`: the holder itself, or the one that served a claim's holder. */
  readonly holder: ServerId;
  /** An earlier incarnation's lease counts as another server's: wait for its end. */
  readonly incarnation: Incarnation;
  readonly untilMs: number;
  /** Ballot of the WRITE that set `untilMs`; unchanged when others write the lease back. */
  readonly uid: Ballot;
  /** Its holder released it: no server has to wait for its end. */
  readonly released: boolean;
  /** Set if a client holds the lease instead of a server. */
  readonly claim: Claim | null;
}

/** `valid`: its holder may act. `grace`: maybe not over on the holder's clock. `expired`: over, released or absent. */
export type LeaseAge = 'valid' | 'grace' | 'expired';

/**
 * The state of a lease at one clock reading. The paper's Alg. 4 reads the clock once for validity and again for
 * expiry; a pause in between would skip the grace. The holder stops strictly before `untilMs`, others start strictly
 * after `untilMs + ε`: with anything weaker, two clocks ε apart share an instant.
 */
export function leaseAge(lease: Lease | null, nowMs: number, clockSkewMaxMs: number): LeaseAge {
  if (lease === null || lease.released) return 'expired';
  if (nowMs <= lease.untilMs) return 'valid';
  if (nowMs <= lease.untilMs + clockSkewMaxMs) return 'grace';
  return 'expired';
}

/** Whether two leases have the same server incarnation, or the same client session, as holder. */
export function leaseSameHolder(a: Lease, b: Lease): boolean {
  if (a.claim !== null || b.claim !== null) return a.claim?.session === b.claim?.session;
  return a.holder === b.holder && a.incarnation === b.incarnation;
}

export function leaseText(lease: Lease | null): string {
  if (lease === null) return '⊥';
  return `${lease.holder} until ${lease.untilMs}${lease.released ? ', released' : ''}`;
}

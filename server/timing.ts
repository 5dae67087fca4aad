import { leaseSilenceMs } from '../lease/parameters.ts';
import { DRIFT_MAX } from '../replica/guard.ts';
import type { ServerConfig } from './config.ts';
import type { Silences } from './storage/data-folder.ts';

/** Heartbeats of a primary in one lease. */
const HEARTBEATS_PER_LEASE = 10;
const HEARTBEAT_MS_MAX = 500;
/** The same for a file on which nothing is under way. */
const QUIET_HEARTBEATS_PER_LEASE = 1;
/** A replica that missed this many heartbeats is reported unreachable. */
const HEARTBEATS_MISSED = 4;
/** A backup's right to answer reads, which is as long as a write waits for one that died. */
const READ_LEASES_PER_LEASE = 4;
const READ_LEASE_MS_MAX = 1_000;
/**
 * Whoever holds a lock lives on through a fail-over, which takes about a lease, and through a second one where the next primary
 * fails at once: at least five sixths of a lock lease are left at any moment.
 */
const LOCK_LEASE_LEASES = 3;
/** The longest that a client believes what it was told without a word from the catalog's primary. */
const CACHE_LEASE_MS_MAX = 5_000;

/** What a server's replicas, locks and clients' caches have of time, all in milliseconds. */
export interface Timing {
  readonly heartbeatMs: number;
  readonly quietHeartbeatMs: number;
  /** A replica of which nothing was heard for so long counts as unreachable. */
  readonly silentMs: number;
  readonly readLeaseMs: number;
  /** A replica that was started anew keeps off from what an earlier life may have promised for so long. */
  readonly startGuardMs: number;
  readonly lockLeaseMs: number;
  readonly cacheLeaseMsMax: number;
}

/** @param former the silences that an earlier life of this server, perhaps with other timing, would have kept */
export function timingOf({ leaseMs }: ServerConfig, former: Silences): Timing {
  const heartbeatMs = Math.min(HEARTBEAT_MS_MAX, leaseMs / HEARTBEATS_PER_LEASE);
  const quietHeartbeatMs = leaseMs / QUIET_HEARTBEATS_PER_LEASE;
  return {
    heartbeatMs,
    quietHeartbeatMs,
    silentMs: quietHeartbeatMs + heartbeatMs * HEARTBEATS_MISSED,
    readLeaseMs: Math.min(READ_LEASE_MS_MAX, leaseMs / READ_LEASES_PER_LEASE),
    startGuardMs: Math.max(leaseMs, former.filesMs) * (1 + DRIFT_MAX),
    lockLeaseMs: LOCK_LEASE_LEASES * leaseMs,
    cacheLeaseMsMax: Math.min(CACHE_LEASE_MS_MAX, leaseMs),
  };
}

/** How long this server says nothing about leases after its next start, when it may have forgotten some. */
export function silencesOf({ leaseMs, namedLeaseMaxMs, clockSkewMaxMs }: ServerConfig): Silences {
  return {
    filesMs: leaseSilenceMs({ leaseMs, clockSkewMaxMs }),
    namesMs: leaseSilenceMs({ leaseMs: namedLeaseMaxMs, clockSkewMaxMs }),
  };
}

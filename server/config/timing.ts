import { leaseRecoveryMs } from '../../lease/parameters.ts';
import { DRIFT_MAX } from '../../replica/guard.ts';
import type { Silences } from '../storage/folder-meta.ts';
import type { ServerConfig } from './config.ts';

const HEARTBEATS_PER_LEASE = 10;
const HEARTBEAT_MS_MAX = 500;
/** Heartbeats to the backups of an idle file. */
const QUIET_HEARTBEATS_PER_LEASE = 1;
const HEARTBEATS_MISSED = 4;
/** A backup's right to answer reads; a write waits for so long for a backup that died. */
const READ_LEASES_PER_LEASE = 4;
const READ_LEASE_MS_MAX = 1_000;
/**
 * A lock survives a failover, which takes about a lease, and a second one if the next primary fails at once: at least
 * five sixths of a lock lease are left at any moment.
 */
const LOCK_LEASE_LEASES = 3;
/** Longest validity of a client's cache without a message from the catalog's primary. */
const CACHE_LEASE_MS_MAX = 5_000;

/** Times of replicas, locks and caches, in milliseconds. */
export interface Timing {
  readonly heartbeatMs: number;
  readonly quietHeartbeatMs: number;
  /** A replica without messages for this long counts as unreachable. */
  readonly silentMs: number;
  readonly readLeaseMs: number;
  /** A restarted replica honors what an earlier process may have promised for this long. */
  readonly startGuardMs: number;
  readonly lockLeaseMs: number;
  readonly cacheLeaseMsMax: number;
}

/** @param earlier the recovery waits of earlier processes of this server, perhaps with other timing */
export function timingOf({ leaseMs }: ServerConfig, earlier: Silences): Timing {
  const heartbeatMs = Math.min(HEARTBEAT_MS_MAX, leaseMs / HEARTBEATS_PER_LEASE);
  const quietHeartbeatMs = leaseMs / QUIET_HEARTBEATS_PER_LEASE;
  return {
    heartbeatMs,
    quietHeartbeatMs,
    silentMs: quietHeartbeatMs + heartbeatMs * HEARTBEATS_MISSED,
    readLeaseMs: Math.min(READ_LEASE_MS_MAX, leaseMs / READ_LEASES_PER_LEASE),
    startGuardMs: Math.max(leaseMs, earlier.filesMs) * (1 + DRIFT_MAX),
    lockLeaseMs: LOCK_LEASE_LEASES * leaseMs,
    cacheLeaseMsMax: Math.min(CACHE_LEASE_MS_MAX, leaseMs),
  };
}

/** The recovery waits of the next start, which will have forgotten the leases of this one. */
export function silencesOf({ leaseMs, namedLeaseMaxMs, clockSkewMaxMs }: ServerConfig): Silences {
  return {
    filesMs: leaseRecoveryMs({ leaseMs, clockSkewMaxMs }),
    namesMs: leaseRecoveryMs({ leaseMs: namedLeaseMaxMs, clockSkewMaxMs }),
  };
}

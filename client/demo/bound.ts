/**
 * How long writes may wait when a primary dies, in milliseconds. The parts:
 *
 * - lease: the primary may have renewed its lease just before it died, so all of it has to pass;
 * - skew: the others wait that much longer, since their clocks may be ahead of the dead primary's;
 * - election: the spread of the competitors for the free lease, an attempt that fails because they met, its backoff,
 *   and an attempt that succeeds;
 * - reset: the new primary collects a majority's promises, each stored durably, and the state it may lack;
 * - retry: the pauses of the forwarding server and of the client, in which the new primary may appear, and the write.
 */
export interface WriteGapBound {
  readonly leaseMs: number;
  readonly clockSkewMs: number;
  readonly electionMs: number;
  readonly resetMs: number;
  readonly retryMs: number;
  readonly totalMs: number;
}

const RESET_MS = 500;
const RETRY_MS = 500;

export function writeGapBound(leaseMs: number, clockSkewMs: number): WriteGapBound {
  const spreadMs = leaseMs / 20;
  const attemptMs = leaseMs / 6;
  const backoffMs = leaseMs / 10;
  const electionMs = Math.ceil(spreadMs + attemptMs + backoffMs + attemptMs);
  const totalMs = leaseMs + clockSkewMs + electionMs + RESET_MS + RETRY_MS;
  return { leaseMs, clockSkewMs, electionMs, resetMs: RESET_MS, retryMs: RETRY_MS, totalMs };
}

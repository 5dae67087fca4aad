import type { PeerStatus } from './actions.ts';
import type { OrderContext } from './order-context.ts';
import type { Progress } from './progress.ts';
import type { View } from './view.ts';
import { viewVoters } from './view.ts';

/** @returns all replicas in the view's order as the primary sees them, itself included if it votes */
export function peerStatuses(
  context: OrderContext,
  view: View,
  committedSeq: number,
  nowMs: number,
): PeerStatus[] {
  const { peers, config, state } = context;
  const voters = viewVoters(view);
  const statuses: PeerStatus[] = [...peers].map((peer) => {
    const lagOperations = Math.max(0, committedSeq - peer.ackedSeq);
    const isCurrent = peer.isInstalled && lagOperations === 0;
    return {
      server: peer.server,
      role: voters.includes(peer.server) ? 'backup' : 'learner',
      state: peers.isSilent(peer, nowMs) ? 'unreachable' : isCurrent ? 'current' : 'catching-up',
      seq: peer.ackedSeq,
      lagOperations,
      lagBytes: isCurrent ? 0 : lagBytes(context, peer, committedSeq),
      behindMs: isCurrent ? 0 : nowMs - behindSinceMs(context, peer),
    };
  });
  if (!voters.includes(config.self)) return statuses;
  const own = { server: config.self, role: 'primary', state: 'current', seq: state.seq } as const;
  statuses.push({ ...own, lagOperations: 0, lagBytes: 0, behindMs: 0 });
  return statuses.sort((a, b) => voters.indexOf(a.server) - voters.indexOf(b.server));
}

/** A peer beyond the majority, which gets operations a moment later, is behind by that moment. */
function behindSinceMs({ log, startedMs }: OrderContext, peer: Progress): number {
  const missing = peer.isInstalled ? log.findKept(peer.ackedSeq + 1) : undefined;
  return missing?.numberedMs ?? startedMs;
}

function lagBytes({ log }: OrderContext, peer: Progress, committedSeq: number): number | null {
  if (!peer.isInstalled || peer.ackedSeq + 1 < log.firstSeq) return null;
  return log.bytesUpTo(committedSeq) - log.bytesUpTo(peer.ackedSeq);
}

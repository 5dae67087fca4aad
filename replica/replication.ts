import type { ServerId } from '../base/ids.ts';
import { majority } from '../base/quorum.ts';
import type { CommitPoint } from './commit-point.ts';
import type { Heartbeats } from './heartbeats.ts';
import type { MemberChange } from './member-change.ts';
import { INCARNATION_UNKNOWN } from './messages.ts';
import type { OrderContext } from './order-context.ts';
import type { Progress } from './progress.ts';
import { viewVoters } from './view.ts';

/** Unacknowledged bytes to a replica above which the next operation waits. */
const WINDOW_BYTES_MAX = 16 * 1024 * 1024;

export const NO_PEERS: ReadonlySet<ServerId> = new Set();

/** Sends operations, install requests, heartbeats and flushes to the peers in the epoch that this server orders. */
export class Replication {
  readonly #context: OrderContext;
  readonly #members: MemberChange;
  readonly #heartbeats: Heartbeats;
  readonly #commit: CommitPoint;

  constructor(context: OrderContext, members: MemberChange, heartbeats: Heartbeats, commit: CommitPoint) {
    this.#context = context;
    this.#members = members;
    this.#heartbeats = heartbeats;
    this.#commit = commit;
  }

  /** Sends a peer missing operations, in order, within the window; if the log lacks them, has it fetch the state. */
  pump(peer: Progress, deferrable: boolean = false): void {
    const { log, state, out } = this.#context;
    if (peer.isNotRequested) this.#requestFirstInstall(peer, deferrable);
    if (!peer.takesOperations) return;
    if (peer.nextSeq < log.firstSeq) {
      peer.startFetch(state.seq);
      this.sendInstall(peer);
      return;
    }
    const ackedBytes = log.bytesUpTo(peer.ackedSeq);
    while (peer.nextSeq <= log.lastSeq) {
      if (log.bytesUpTo(peer.nextSeq - 1) - ackedBytes > WINDOW_BYTES_MAX) return;
      const { message } = log.get(peer.nextSeq);
      out.push({ kind: 'send', to: peer.server, message, deferrable });
      peer.noteSent();
    }
  }

  /** Requests the install of an epoch that began without a reset from all peers not asked yet. */
  establish(): void {
    for (const peer of this.#context.peers) if (peer.isNotRequested) this.#requestFirstInstall(peer, false);
  }

  /** Requests the install of an epoch that began without a reset; operations are sent before it is confirmed. */
  #requestFirstInstall(peer: Progress, deferrable: boolean): void {
    const { out, base, epoch } = this.#context;
    peer.installRequested(this.#heartbeats.number);
    const message = { epoch, view: this.#members.committedView } as const;
    if (base.seq === 0) {
      out.send(peer.server, { kind: 'begin', ...message }, deferrable);
    } else {
      // A replica that has the base only confirms.
      const install = { kind: 'install', ...message, base, to: INCARNATION_UNKNOWN, urgent: true } as const;
      out.send(peer.server, install, deferrable);
    }
  }

  sendInstall(peer: Progress): void {
    if (!this.#heartbeats.mayInstall(peer)) return;
    const { out, epoch, state, base, peerIncarnations } = this.#context;
    // A peer that lags within the epoch fetches the present state. So does one in doubt: it may have acknowledged
    // more than the base.
    const isCurrent = peer.isInstalled || peer.trust !== 'intact';
    out.send(peer.server, {
      kind: 'install',
      epoch,
      view: this.#members.committedView,
      base: isCurrent ? { epoch, seq: state.seq } : base,
      to: isCurrent ? peerIncarnations.of(peer.server) : INCARNATION_UNKNOWN,
      urgent: false,
    });
  }

  sendFlush(peer: Progress, seq: number): void {
    if (!peer.isInstalled || peer.flushedSeq >= seq) return;
    this.#context.out.send(peer.server, { kind: 'flush', epoch: this.#context.epoch, seq });
  }

  /** The transport reached the replica again: all that it did not acknowledge may be lost. */
  reconnected(peer: Progress): void {
    peer.disconnected();
    this.#sendHeartbeat(peer, 0);
    if (!peer.isInstalled || peer.isFetching) return;
    peer.resendFrom(peer.ackedSeq + 1);
    this.pump(peer);
  }

  /** Sends heartbeats, and repeats installs and flushes that may be lost. */
  heartbeat(flushSeq: number, nowMs: number): void {
    const { peers } = this.#context;
    const guardMs = this.#heartbeats.startNext(nowMs);
    const voters = viewVoters(this.#members.committedView);
    this.establish();
    const extra = this.extraPeers(nowMs);
    for (const peer of peers) {
      this.#sendHeartbeat(peer, guardMs, extra.has(peer.server));
      // A heartbeat creates no replica at a learner, which its view does not contain.
      const isLearner = !voters.includes(peer.server);
      if (isLearner && (!peer.isInstalled || peers.isSilent(peer, nowMs))) this.sendInstall(peer);
      this.sendFlush(peer, flushSeq);
    }
  }

  /** @param guardMs 0 if only this replica gets the heartbeat, so that its answer does not count */
  #sendHeartbeat(peer: Progress, guardMs: number, deferrable: boolean = false): void {
    const { out, epoch } = this.#context;
    const message = {
      kind: 'heartbeat',
      epoch,
      view: this.#members.committedView,
      committedSeq: this.#commit.committedSeq,
      sentSeq: peer.sentSeq,
      beat: guardMs === 0 ? 0 : this.#heartbeats.number,
      guardMs,
    } as const;
    out.send(peer.server, message, deferrable);
  }

  /**
   * Peers whose messages may be deferred: those beyond a majority that keeps up. Their acks decide nothing. The same
   * servers for each subject, so that messages share frames. If one of the majority lags, another takes its place.
   */
  extraPeers(nowMs: number): ReadonlySet<ServerId> {
    const { peers, base, grants } = this.#context;
    const view = this.#members.countedView;
    if (this.#members.isUnderWay || view.policy === 'all') return NO_PEERS;
    let missing = majority(view.members.length) - 1;
    const extra = new Set<ServerId>();
    for (const peer of peers.inNameOrder()) {
      if (missing > 0 && peer.keepsUp(this.#commit.committedSeq, base.seq)) missing--;
      else extra.add(peer.server);
    }
    if (missing > 0) return NO_PEERS;
    // Nothing commits without read lease holders.
    for (const server of grants.holders(nowMs)) extra.delete(server);
    return extra;
  }
}

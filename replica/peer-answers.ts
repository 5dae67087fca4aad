import { assert, unreachable } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import type { CommitPoint } from './commit-point.ts';
import type { Position } from './epoch.ts';
import { epochEqual } from './epoch.ts';
import type { Heartbeats } from './heartbeats.ts';
import type { MemberChange } from './member-change.ts';
import type { Answer } from './messages.ts';
import type { OrderContext } from './order-context.ts';
import type { Progress } from './progress.ts';
import type { Trust } from './record.ts';
import type { Replication } from './replication.ts';

/** Handles peers' answers in the epoch that this server orders. */
export class PeerAnswers {
  readonly #context: OrderContext;
  readonly #members: MemberChange;
  readonly #heartbeats: Heartbeats;
  readonly #commit: CommitPoint;
  readonly #replication: Replication;
  readonly #advance: (nowMs: number) => void;

  constructor(
    context: OrderContext,
    members: MemberChange,
    heartbeats: Heartbeats,
    commit: CommitPoint,
    replication: Replication,
    advance: (nowMs: number) => void,
  ) {
    this.#context = context;
    this.#members = members;
    this.#heartbeats = heartbeats;
    this.#commit = commit;
    this.#replication = replication;
    this.#advance = advance;
  }

  receive(from: ServerId, message: Answer, nowMs: number): void {
    switch (message.kind) {
      case 'promise':
        // Too late to be part of the majority: it gets the base now.
        this.#heartbeats.reported(this.#context.peers.get(from), message.trust);
        this.#stateNeeded(from, nowMs);
        return;
      case 'installed':
      case 'ack':
        this.#acknowledged(from, message.seq, nowMs);
        return;
      case 'resend':
        this.#resend(from, message.fromSeq, nowMs);
        return;
      case 'need-state':
        this.#stateNeeded(from, nowMs);
        return;
      case 'heartbeat-ack':
        this.#heartbeatAnswered(from, message.position, message.beat, message.trust, nowMs);
        return;
      case 'flushed':
        this.#flushed(from, message.seq, nowMs);
        return;
      case 'read-request':
      case 'read-returned':
        // Only an active primary grants read leases; its role handles these.
        return;
      default:
        unreachable(message);
    }
  }

  /** A peer's answer shows that it installed an epoch that began without a reset; before its ack counts. */
  receiveFirst(from: ServerId, message: Answer): void {
    const seq = installedSeq(message, this.#context);
    if (seq === null) return;
    const peer = this.#context.peers.find(from);
    if (peer?.isInstalled === false) this.#installed(peer, seq);
  }

  /** The replica restarted: forgets what it acknowledged, until it reports its position again. */
  restarted(server: ServerId): void {
    const { peers, log } = this.#context;
    peers.find(server)?.restarted(log.firstSeq - 1, this.#heartbeats.number);
  }

  #acknowledged(from: ServerId, seq: number, nowMs: number): void {
    const { peers, log, state } = this.#context;
    const peer = peers.received(from, nowMs);
    assert(seq <= log.lastSeq, 'No replica has an operation of this epoch that was not sequenced');
    if (!peer.isInstalled) this.#installed(peer, seq);
    // A peer votes by the new view, so this server does too.
    if (this.#members.isViewKnownAt(seq)) state.reportView();
    peer.acknowledged(seq, log.firstSeq);
    this.#advance(nowMs);
    this.#replication.pump(peer);
  }

  #installed(peer: Progress, seq: number): void {
    // Its read lease of an earlier epoch ended with the promise to this one.
    this.#context.grants.endEarlier(peer.server, this.#context.epoch);
    peer.installed(seq);
  }

  #heartbeatAnswered(from: ServerId, position: Position, beat: number, trust: Trust, nowMs: number): void {
    const { peers, epoch } = this.#context;
    const answering = peers.get(from);
    this.#heartbeats.answered(answering, beat, trust, this.#commit.committedSeq, nowMs);
    if (epochEqual(position.epoch, epoch)) {
      this.#acknowledged(from, position.seq, nowMs);
      const peer = peers.find(from);
      if (peer === undefined) return;
      // After a power loss it must have, and confirm, all that it may have acknowledged before.
      if (peer.isFetching || trust !== 'intact') this.#replication.sendInstall(peer);
    } else {
      // A replica re-created in the same process has nothing of what it acknowledged.
      if (answering.isInstalled) this.restarted(from);
      // It answers the first heartbeat after the install request while it stores the epoch.
      if (!answering.isInstalling(beat)) this.#stateNeeded(from, nowMs);
    }
  }

  /** The replica reported that it lacks this epoch, maybe before it was installed: sends it the install request. */
  #stateNeeded(from: ServerId, nowMs: number): void {
    const peer = this.#context.peers.received(from, nowMs);
    if (peer.isInstalled) return;
    peer.lacksEpoch();
    this.#replication.sendInstall(peer);
  }

  #resend(from: ServerId, fromSeq: number, nowMs: number): void {
    const { peers, out } = this.#context;
    const peer = peers.received(from, nowMs);
    if (!peer.isInstalled || fromSeq <= peer.ackedSeq || fromSeq >= peer.nextSeq) return;
    out.trace('resent', `to ${from} from operation ${fromSeq}`);
    peer.resendFrom(fromSeq);
    this.#replication.pump(peer);
  }

  #flushed(from: ServerId, seq: number, nowMs: number): void {
    const peer = this.#context.peers.received(from, nowMs);
    peer.flushedSeq = Math.max(peer.flushedSeq, seq);
    this.#advance(nowMs);
  }
}

/** @returns the position in this epoch that an answer reports; null if none */
function installedSeq(message: Answer, { epoch }: OrderContext): number | null {
  switch (message.kind) {
    case 'ack':
    case 'installed':
      return message.seq;
    case 'heartbeat-ack':
      // It replaces an acknowledgement that may be lost.
      return epochEqual(message.position.epoch, epoch) ? message.position.seq : null;
    default:
      return null;
  }
}

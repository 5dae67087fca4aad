import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import { majority } from '../base/quorum.ts';
import type { Epoch, Operation, PeerStatus, Position, ReplicaConfig, View } from './actions.ts';
import { epochEqual } from './epoch.ts';
import type { LocalFlush } from './local-flush.ts';
import type { ReplicaMessage } from './messages.ts';
import type { Outbox } from './outbox.ts';
import type { SessionTable } from './sessions.ts';
import { type Standing, sessionsAfter } from './standing.ts';

/** Bytes sent to a replica and not acknowledged by it, beyond which the next operation waits. */
const WINDOW_BYTES_MAX = 16 * 1024 * 1024;

/** What an operation costs in memory beside its bytes. */
const OPERATION_OVERHEAD_BYTES = 128;

/** An operation with its place in the sequence. */
interface Sequenced {
  readonly operation: Operation;
  /** The session table after it. */
  readonly sessions: SessionTable;
  readonly message: ReplicaMessage;
  /** Bytes of all operations of this epoch up to and with this one. */
  readonly bytesEnd: number;
  /** Clients that wait for it. */
  tickets: readonly number[];
}

/** Another replica, as far as it is known in this epoch. */
interface Peer {
  readonly server: ServerId;
  /** It has told that this epoch is installed there; before, nothing it holds counts. */
  installed: boolean;
  /** It is fetching the state, because operations it lacks are kept no longer. */
  fetching: boolean;
  /** The last operation it has applied. */
  ackedSeq: number;
  /** The next operation to be sent to it. */
  nextSeq: number;
  /** While it is not installed or is fetching: it will come back with at least this. */
  floorSeq: number;
  /** The last operation that survives loss of power there. */
  flushedSeq: number;
  heardMs: number;
}

interface PendingFlush {
  readonly ticket: number;
  readonly seq: number;
}

/**
 * The primary's half of a write, in one epoch: number the operation, send it, collect
 * acknowledgements, commit in order. Lives as long as the epoch is led from here.
 */
export class WriteOrder {
  readonly epoch: Epoch;
  readonly #config: ReplicaConfig;
  readonly #view: View;
  readonly #out: Outbox;
  readonly #standing: Standing;
  readonly #localFlush: LocalFlush;
  readonly #base: Position;
  readonly #peers = new Map<ServerId, Peer>();
  readonly #majority: number;
  /** Operations from `#firstSeq` to `#lastSeq`; those after the commit point are always here. */
  readonly #operations = new Map<number, Sequenced>();
  #firstSeq: number;
  #lastSeq: number;
  /** The session table as of `#lastSeq`. */
  #sessions: SessionTable;
  #committedSeq: number;
  /** `bytesEnd` of the last operation, and of the last one dropped. */
  #bytesEnd = 0;
  #bytesDropped = 0;
  #flushes: PendingFlush[] = [];

  /**
   * @param base what a majority has installed: all of it is committed
   * @param installed members that have told so
   */
  constructor(
    config: ReplicaConfig,
    view: View,
    out: Outbox,
    standing: Standing,
    localFlush: LocalFlush,
    base: Position,
    installed: ReadonlyMap<ServerId, number>,
    nowMs: number,
  ) {
    assert(standing.seq === base.seq, 'The base is here');
    this.epoch = standing.installed;
    this.#config = config;
    this.#view = view;
    this.#out = out;
    this.#standing = standing;
    this.#localFlush = localFlush;
    this.#base = base;
    this.#majority = majority(view.members.length);
    this.#firstSeq = base.seq + 1;
    this.#lastSeq = base.seq;
    this.#committedSeq = base.seq;
    this.#sessions = standing.sessions;
    for (const server of view.members) {
      if (server === config.self) continue;
      const seq = installed.get(server);
      this.#peers.set(server, {
        server,
        installed: seq !== undefined,
        fetching: false,
        ackedSeq: seq ?? 0,
        nextSeq: (seq ?? base.seq) + 1,
        floorSeq: base.seq,
        flushedSeq: -1,
        heardMs: nowMs,
      });
    }
  }

  get committedSeq(): number {
    return this.#committedSeq;
  }

  /** Nothing is under way: no operation, no flush. */
  get isIdle(): boolean {
    return this.#committedSeq === this.#lastSeq && this.#flushes.length === 0;
  }

  /** Nothing is under way, and every member has all there is: there is nothing to say but that one is here. */
  get isQuiet(): boolean {
    if (!this.isIdle) return false;
    for (const peer of this.#peers.values())
      if (!peer.installed || peer.ackedSeq < this.#lastSeq) return false;
    return true;
  }

  // From clients -----------------------------------------------------------------------------------

  submit(ticket: number, operation: Operation): void {
    const { request } = operation;
    const answer = request === null ? null : this.#sessions.find(request);
    if (answer?.kind === 'expired') {
      this.#out.trace('session-expired', `session ${request?.session} number ${request?.number}`);
      this.#out.push({ kind: 'refused', ticket, reason: 'session-expired' });
      return;
    }
    if (answer?.kind === 'known') {
      if (answer.seq <= this.#committedSeq) {
        this.#out.trace('answered-again', `operation ${answer.seq}`);
        this.#out.push({ kind: 'committed', ticket, seq: answer.seq, result: answer.result });
        return;
      }
      this.#out.trace('joined', `operation ${answer.seq}`);
      const sequenced = this.#operation(answer.seq);
      sequenced.tickets = [...sequenced.tickets, ticket];
      return;
    }
    this.#sequence(ticket, operation);
  }

  /** Numbers the operation and sends it at once: it need not wait for those before it. */
  #sequence(ticket: number, operation: Operation): void {
    const seq = this.#lastSeq + 1;
    this.#sessions = sessionsAfter(this.#sessions, seq, operation);
    this.#bytesEnd += operation.body.length + operation.result.length + OPERATION_OVERHEAD_BYTES;
    this.#operations.set(seq, {
      operation,
      sessions: this.#sessions,
      message: this.#out.message({
        kind: 'write',
        epoch: this.epoch,
        seq,
        committedSeq: this.#committedSeq,
        operation,
      }),
      bytesEnd: this.#bytesEnd,
      tickets: [ticket],
    });
    this.#lastSeq = seq;
    for (const peer of this.#peers.values()) this.#pump(peer);
    this.advance();
  }

  flush(ticket: number): void {
    const seq = this.#committedSeq;
    this.#flushes.push({ ticket, seq });
    this.#localFlush.want(seq);
    for (const peer of this.#peers.values()) {
      if (peer.installed && peer.flushedSeq < seq) this.#sendFlush(peer.server, seq);
    }
    this.advance();
  }

  /** No longer primary of this epoch: what is under way may have happened or not. */
  abandon(): void {
    for (let seq = this.#committedSeq + 1; seq <= this.#lastSeq; seq++) {
      for (const ticket of this.#operation(seq).tickets) this.#tellUnknown(ticket);
    }
    for (const { ticket } of this.#flushes) this.#tellUnknown(ticket);
    this.#operations.clear();
    this.#flushes = [];
  }

  #tellUnknown(ticket: number): void {
    this.#out.trace('told-unknown', `ticket ${ticket}`);
    this.#out.push({ kind: 'unknown', ticket });
  }

  // From replicas ----------------------------------------------------------------------------------

  /** The replica has this epoch installed and all operations up to `seq` applied. */
  acknowledged(from: ServerId, seq: number, nowMs: number): void {
    const peer = this.#heard(from, nowMs);
    assert(seq <= this.#lastSeq, 'Nobody has an operation of this epoch that was not sequenced');
    if (!peer.installed) {
      peer.installed = true;
      peer.ackedSeq = seq;
      peer.nextSeq = seq + 1;
    }
    peer.ackedSeq = Math.max(peer.ackedSeq, seq);
    peer.nextSeq = Math.max(peer.nextSeq, peer.ackedSeq + 1);
    if (peer.fetching && peer.ackedSeq + 1 >= this.#firstSeq) {
      peer.fetching = false;
      peer.nextSeq = peer.ackedSeq + 1;
    }
    this.advance();
    this.#pump(peer);
  }

  /** The replica answers a heartbeat from where it stands. */
  heartbeatAnswered(from: ServerId, position: Position, nowMs: number): void {
    if (epochEqual(position.epoch, this.epoch)) {
      this.acknowledged(from, position.seq, nowMs);
      const peer = this.#peer(from);
      if (peer.fetching) this.#sendInstall(peer);
    } else {
      this.stateNeeded(from, nowMs);
    }
  }

  /** The replica does not have this epoch installed (or did not, when it said so). */
  stateNeeded(from: ServerId, nowMs: number): void {
    const peer = this.#heard(from, nowMs);
    if (!peer.installed) this.#sendInstall(peer);
  }

  resend(from: ServerId, fromSeq: number, nowMs: number): void {
    const peer = this.#heard(from, nowMs);
    if (!peer.installed || fromSeq <= peer.ackedSeq || fromSeq >= peer.nextSeq) return;
    this.#out.trace('resent', `to ${from} from operation ${fromSeq}`);
    peer.nextSeq = fromSeq;
    this.#pump(peer);
  }

  flushedAt(from: ServerId, seq: number, nowMs: number): void {
    const peer = this.#heard(from, nowMs);
    peer.flushedSeq = Math.max(peer.flushedSeq, seq);
    this.advance();
  }

  /** The transport reached the replica again: all that it has not acknowledged may be lost. */
  connected(server: ServerId): void {
    const peer = this.#peer(server);
    this.#sendHeartbeat(peer);
    if (!peer.installed || peer.fetching) return;
    peer.nextSeq = peer.ackedSeq + 1;
    this.#pump(peer);
  }

  /** The replica came back as another process: it tells anew where it stands. */
  forget(server: ServerId): void {
    const peer = this.#peer(server);
    peer.installed = false;
    peer.fetching = false;
    peer.ackedSeq = 0;
    peer.flushedSeq = -1;
    peer.floorSeq = this.#firstSeq - 1;
  }

  // Progress ---------------------------------------------------------------------------------------

  /** Does what has become possible: own applies, commits, flushes, dropping what nobody needs. */
  advance(): void {
    this.#applyOwn();
    this.#commit();
    this.#finishFlushes();
  }

  /** Repeats what may be lost, and lets the others know that a primary is here. */
  heartbeat(nowMs: number): void {
    const flushSeq = this.#flushes.at(-1)?.seq ?? -1;
    for (const peer of this.#peers.values()) {
      this.#sendHeartbeat(peer);
      if (peer.installed && peer.flushedSeq < flushSeq) this.#sendFlush(peer.server, flushSeq);
    }
    this.#drop(nowMs);
  }

  /**
   * The own copy. `first`: as soon as it is sequenced. `last`: once the others of a majority have
   * it, so that applying it commits it.
   */
  #applyOwn(): void {
    while (this.#standing.issuedSeq < this.#lastSeq) {
      const seq = this.#standing.issuedSeq + 1;
      if (this.#config.appliesAtPrimary === 'last' && this.#othersWith(seq) < this.#majority - 1) break;
      const { operation, sessions } = this.#operation(seq);
      this.#standing.apply(operation, sessions);
    }
  }

  /**
   * The commit point: what a majority, this replica included, has applied in this epoch. Acks are
   * cumulative, so the k-th largest tells it. Acks of older epochs never get here: the same number
   * named another operation then.
   */
  #commit(): void {
    const seqs = [this.#standing.seq];
    for (const peer of this.#peers.values()) seqs.push(peer.installed ? peer.ackedSeq : 0);
    seqs.sort((a, b) => b - a);
    const majoritySeq = seqs[this.#majority - 1] ?? 0;
    const committedSeq = Math.min(majoritySeq, this.#standing.seq);
    if (committedSeq <= this.#committedSeq) return;
    const from = this.#committedSeq + 1;
    this.#committedSeq = committedSeq;
    this.#out.push({ kind: 'advanced', committedSeq });
    for (let seq = from; seq <= committedSeq; seq++) {
      const sequenced = this.#operation(seq);
      const { result } = sequenced.operation;
      for (const ticket of sequenced.tickets) this.#out.push({ kind: 'committed', ticket, seq, result });
      sequenced.tickets = [];
    }
    this.#drop(null);
  }

  #finishFlushes(): void {
    if (this.#flushes.length === 0) return;
    const ownSeq = this.#localFlush.flushedSeq;
    const waiting: PendingFlush[] = [];
    for (const flush of this.#flushes) {
      let count = ownSeq >= flush.seq ? 1 : 0;
      for (const peer of this.#peers.values()) if (peer.flushedSeq >= flush.seq) count++;
      if (ownSeq >= flush.seq && count >= this.#majority) {
        this.#out.push({ kind: 'flushed', ticket: flush.ticket });
      } else {
        waiting.push(flush);
      }
    }
    this.#flushes = waiting;
  }

  /** Sends what the replica lacks, in order, as far as the window allows. */
  #pump(peer: Peer): void {
    if (!peer.installed || peer.fetching) return;
    if (peer.nextSeq < this.#firstSeq) {
      peer.fetching = true;
      peer.floorSeq = this.#standing.seq;
      this.#sendInstall(peer);
      return;
    }
    const ackedBytes = this.#operations.get(peer.ackedSeq)?.bytesEnd ?? this.#bytesDropped;
    while (peer.nextSeq <= this.#lastSeq) {
      const before = this.#operations.get(peer.nextSeq - 1)?.bytesEnd ?? this.#bytesDropped;
      if (before - ackedBytes > WINDOW_BYTES_MAX) return;
      const { message } = this.#operation(peer.nextSeq);
      this.#out.push({ kind: 'send', to: peer.server, message });
      peer.nextSeq++;
    }
  }

  /**
   * Drops operations that every replica within reach has, and, where room is short, also those that
   * only laggards lack: they fetch the state instead. Never what is not committed and applied here.
   *
   * @param nowMs null where silence need not be judged anew
   */
  #drop(nowMs: number | null): void {
    const doneSeq = Math.min(this.#committedSeq, this.#standing.seq);
    let neededSeq = doneSeq;
    for (const peer of this.#peers.values()) {
      if (nowMs !== null && this.#isSilent(peer, nowMs)) continue;
      neededSeq = Math.min(neededSeq, peer.installed && !peer.fetching ? peer.ackedSeq : peer.floorSeq);
    }
    while (this.#firstSeq <= neededSeq) this.#dropFirst();
    if (this.#bytesEnd - this.#bytesDropped <= this.#config.retainedBytesMax) return;
    const firstSeq = this.#firstSeq;
    while (this.#firstSeq <= doneSeq && this.#bytesEnd - this.#bytesDropped > this.#config.retainedBytesMax) {
      this.#dropFirst();
    }
    if (this.#firstSeq > firstSeq)
      this.#out.trace('retained-dropped', `up to operation ${this.#firstSeq - 1}`);
  }

  #dropFirst(): void {
    this.#bytesDropped = this.#operation(this.#firstSeq).bytesEnd;
    this.#operations.delete(this.#firstSeq);
    this.#firstSeq++;
  }

  // Messages ---------------------------------------------------------------------------------------

  #sendInstall(peer: Peer): void {
    // Who has the epoch but lags behind fetches the state as it is here now.
    const base = peer.installed ? this.#standing.position : this.#base;
    this.#out.send(peer.server, {
      kind: 'install',
      epoch: this.epoch,
      members: this.#view.members,
      base,
    });
  }

  #sendHeartbeat(peer: Peer): void {
    this.#out.send(peer.server, {
      kind: 'heartbeat',
      epoch: this.epoch,
      members: this.#view.members,
      committedSeq: this.#committedSeq,
      sentSeq: peer.installed ? peer.nextSeq - 1 : 0,
    });
  }

  #sendFlush(server: ServerId, seq: number): void {
    this.#out.send(server, { kind: 'flush', epoch: this.epoch, seq });
  }

  // Lookups ----------------------------------------------------------------------------------------

  peers(nowMs: number): PeerStatus[] {
    const { self } = this.#config;
    return this.#view.members.map((server): PeerStatus => {
      if (server === self) return { server, role: 'primary', state: 'current', seq: this.#standing.seq };
      const peer = this.#peer(server);
      const current = peer.installed && peer.ackedSeq >= this.#committedSeq;
      const state = this.#isSilent(peer, nowMs) ? 'unreachable' : current ? 'current' : 'catching-up';
      return { server, role: 'backup', state, seq: peer.ackedSeq };
    });
  }

  #othersWith(seq: number): number {
    let count = 0;
    for (const peer of this.#peers.values()) if (peer.installed && peer.ackedSeq >= seq) count++;
    return count;
  }

  #isSilent(peer: Peer, nowMs: number): boolean {
    return nowMs - peer.heardMs > this.#config.silentMs;
  }

  #heard(from: ServerId, nowMs: number): Peer {
    const peer = this.#peer(from);
    peer.heardMs = nowMs;
    return peer;
  }

  #peer(server: ServerId): Peer {
    const peer = this.#peers.get(server);
    assert(peer !== undefined, 'Strangers are sent away at the door');
    return peer;
  }

  #operation(seq: number): Sequenced {
    const sequenced = this.#operations.get(seq);
    assert(sequenced !== undefined, 'Operations are kept until they are committed and applied');
    return sequenced;
  }
}

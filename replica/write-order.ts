import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import type { PeerStatus } from './actions.ts';
import { CommitPoint } from './commit-point.ts';
import type { Epoch, Position } from './epoch.ts';
import { DRIFT_MAX } from './guard.ts';
import { Heartbeats } from './heartbeats.ts';
import { MemberChange } from './member-change.ts';
import type { Operation } from './operation.ts';
import { OperationLog } from './operation-log.ts';
import type { OrderContext, WriteOrderParts } from './order-context.ts';
import { PeerAnswers } from './peer-answers.ts';
import { peerStatuses } from './peer-status.ts';
import { type PeerStart, Progress, ProgressTracker } from './progress.ts';
import { QuorumFlush } from './quorum-flush.ts';
import { NO_PEERS, Replication } from './replication.ts';
import { viewHasMajority, viewVoters } from './view.ts';

/** With what an epoch that this server orders begins. */
export interface OrderStart {
  /** Installed by a majority: all of it is committed. */
  readonly base: Position;
  /** Members that reported it, with their last operation. */
  readonly installed: ReadonlyMap<ServerId, number>;
  /** Other members: `unasked` in an epoch without a reset; `asked` if they had all of it when it ended here. */
  readonly start: PeerStart;
  /** False without a lease: others may begin another epoch at the same time. */
  readonly hasLease: boolean;
}

/** Orders writes in one epoch: numbers operations, sends them, collects acknowledgements, commits in order. */
export class WriteOrder {
  readonly epoch: Epoch;
  readonly heartbeats: Heartbeats;
  readonly answers: PeerAnswers;
  readonly #context: OrderContext;
  readonly #members: MemberChange;
  readonly #commit: CommitPoint;
  readonly #replication: Replication;
  readonly #flushes: QuorumFlush;

  constructor(parts: WriteOrderParts, { base, installed, start, hasLease }: OrderStart, nowMs: number) {
    const { config, out, state, grants } = parts;
    assert(state.seq === base.seq, 'The base is here');
    const epoch = state.installed;
    const peers = new ProgressTracker(config.self, config.silentMs);
    const log = new OperationLog(epoch, out, config.retainedBytesMax, base.seq, state.sessions);
    const context: OrderContext = { ...parts, epoch, base, hasLease, startedMs: nowMs, peers, log };
    this.epoch = epoch;
    this.#context = context;
    this.#members = new MemberChange(context);
    this.heartbeats = new Heartbeats(context, this.#members);
    this.#commit = new CommitPoint(context, this.#members);
    this.#flushes = new QuorumFlush(context, this.#members);
    this.#replication = new Replication(context, this.#members, this.heartbeats, this.#commit);
    this.answers = new PeerAnswers(
      context,
      this.#members,
      this.heartbeats,
      this.#commit,
      this.#replication,
      (atMs) => this.advance(atMs),
    );
    for (const server of viewVoters(state.view)) {
      if (server === config.self) continue;
      peers.add(new Progress(server, installed.get(server) ?? null, base.seq, nowMs, start));
    }
    // A peer with this epoch installed has dropped its read lease of an earlier one.
    for (const server of installed.keys()) grants.endEarlier(server, epoch);
  }

  get committedSeq(): number {
    return this.#commit.committedSeq;
  }

  /** @see MemberChange.future */
  get futureMembers(): readonly ServerId[] {
    return this.#members.future;
  }

  get lastSeq(): number {
    return this.#context.log.lastSeq;
  }

  /** No operation and no flush is under way. */
  get isIdle(): boolean {
    return this.committedSeq === this.lastSeq && this.#flushes.isIdle;
  }

  /** Idle, and every member has everything: heartbeats only show that there is a primary. */
  get isQuiet(): boolean {
    if (!this.isIdle) return false;
    for (const peer of this.#context.peers) {
      if (!peer.isInstalled || peer.ackedSeq < this.lastSeq) return false;
    }
    return true;
  }

  /** Whether a majority installed the epoch, so that no later one can miss it. */
  get isEstablished(): boolean {
    const { peers, config } = this.#context;
    const hasInstalled = (server: ServerId): boolean =>
      server === config.self || peers.find(server)?.isInstalled === true;
    return viewHasMajority(this.#members.countedView, hasInstalled);
  }

  get isRemoved(): boolean {
    return this.#members.isRemoved;
  }

  submit(ticket: number, operation: Operation, nowMs: number): void {
    const { out, log } = this.#context;
    const { request } = operation;
    const answer = request === null ? null : log.find(request);
    if (answer?.kind === 'expired') {
      out.trace('session-expired', `session ${request?.session} number ${request?.number}`);
      out.push({ kind: 'refused', ticket, reason: 'session-expired' });
      return;
    }
    if (answer?.kind === 'known') {
      if (answer.seq <= this.#commit.answeredSeq) {
        out.trace('answered-again', `operation ${answer.seq}`);
        out.push({ kind: 'committed', ticket, seq: answer.seq, result: answer.result });
        return;
      }
      out.trace('joined', `operation ${answer.seq}`);
      const sequenced = log.get(answer.seq);
      sequenced.tickets = [...sequenced.tickets, ticket];
      return;
    }
    this.#sequence([ticket], operation, nowMs, this.#replication.extraPeers(nowMs));
    this.advance(nowMs);
  }

  /** Numbers and sends the operation, without waiting for earlier ones. @param extra peers that may get it later */
  #sequence(
    tickets: readonly number[],
    operation: Operation,
    nowMs: number,
    extra: ReadonlySet<ServerId>,
  ): number {
    const { log, peers } = this.#context;
    const seq = log.append(tickets, operation, this.committedSeq, nowMs);
    for (const peer of peers) this.#replication.pump(peer, extra.has(peer.server));
    return seq;
  }

  flush(ticket: number, nowMs: number): void {
    const seq = this.committedSeq;
    this.#flushes.wait(ticket, seq);
    for (const peer of this.#context.peers) this.#replication.sendFlush(peer, seq);
    this.advance(nowMs);
  }

  /** Begins a change of members: new ones fetch the state. Peers of a change that this one replaces are dropped. */
  changeMembers(ticket: number, servers: readonly ServerId[], nowMs: number): void {
    if (!this.#members.request(ticket, servers)) return;
    const { peers, config, state } = this.#context;
    const voters = viewVoters(this.#members.view);
    for (const server of peers.servers()) {
      if (!voters.includes(server) && !servers.includes(server)) peers.remove(server);
    }
    for (const server of servers) {
      if (server === config.self || peers.has(server)) continue;
      const peer = peers.add(new Progress(server, null, state.seq, nowMs, 'unknown'));
      this.#replication.sendInstall(peer);
    }
    this.advance(nowMs);
  }

  /** No longer primary of this epoch: operations under way have an unknown outcome. */
  abandon(): void {
    const { log, out } = this.#context;
    for (let seq = this.#commit.answeredSeq + 1; seq <= log.lastSeq; seq++) {
      for (const ticket of log.get(seq).tickets) out.unknown(ticket);
    }
    this.#flushes.abandon();
    this.#members.abandon();
    log.clear();
  }

  hasPeer(server: ServerId): boolean {
    return this.#context.peers.has(server);
  }

  /** The transport reached the replica again: messages to it may be lost. */
  reconnected(server: ServerId): void {
    const peer = this.#context.peers.find(server);
    if (peer !== undefined) this.#replication.reconnected(peer);
  }

  /** Does what became possible: local applies, commits, flushes, changes of members. */
  advance(nowMs: number): void {
    this.heartbeats.applied(this.committedSeq);
    const sequence = (operation: Operation): number => this.#sequence([], operation, nowMs, NO_PEERS);
    for (;;) {
      const before = this.committedSeq;
      if (this.#commit.advance(nowMs)) this.#drop(null);
      const hasMoved = this.#members.advance(this.committedSeq, sequence);
      if (!hasMoved && this.committedSeq === before) break;
    }
    this.#flushes.advance();
  }

  /** Drops operations, committed and applied here, that no peer needs. @param nowMs silent peers count if null */
  #drop(nowMs: number | null): void {
    const { state, log, peers } = this.#context;
    const doneSeq = Math.min(this.#commit.answeredSeq, state.seq);
    log.drop(peers.doneSeq(doneSeq, nowMs), doneSeq);
  }

  /** Sends heartbeats, repeats what may be lost, and drops operations that no reachable peer needs. */
  heartbeat(nowMs: number): void {
    this.#replication.heartbeat(this.#flushes.wantedSeq, nowMs);
    this.#drop(nowMs);
  }

  /** Requests the install of an epoch that began without a reset from all peers not asked yet. */
  establish(): void {
    this.#replication.establish();
  }

  nextCommitMs(nowMs: number): number {
    return this.#commit.nextCommitMs(nowMs);
  }

  peers(nowMs: number): PeerStatus[] {
    return peerStatuses(this.#context, this.#members.view, this.committedSeq, nowMs);
  }

  /** Grants a read lease to a replica that has all that is committed, for at most as long as this server may read. */
  grantReadLease(from: ServerId, nonce: number, nowMs: number): void {
    const { peers, config, lease, grants, out, epoch } = this.#context;
    const peer = peers.received(from, nowMs);
    if (!peer.isInstalled || peer.isFetching || peer.ackedSeq < this.#commit.committedSeq) return;
    // A slow replica with a read lease would slow down all writes.
    const isSlow = this.#commit.waitedForReaderMs(nowMs) > config.readLeaseMs;
    if (isSlow && peer.ackedSeq < this.lastSeq) return;
    const endMs = Math.min(lease.untilMs, this.heartbeats.guardEndMs());
    const durationMs = Math.floor(Math.min(config.readLeaseMs, (endMs - nowMs) / (1 + DRIFT_MAX)));
    if (durationMs <= 0) return;
    grants.grant(from, epoch, nowMs, durationMs);
    out.send(from, { kind: 'read-grant', epoch, nonce, durationMs, startSeq: this.lastSeq });
  }

  /** @returns whether read leases and clients' caches of this epoch are over; `again` revokes them */
  revokeReads(nowMs: number, again: boolean): boolean {
    const { grants, out, epoch } = this.#context;
    const holders = grants.holders(nowMs);
    if (again) for (const server of holders) out.send(server, { kind: 'read-revoke', epoch });
    return holders.length === 0 && !grants.isCached(nowMs);
  }

  /** Frees this server and all peers from the guard, as no server answers reads in this epoch any more. */
  yield(): void {
    const { guard, peers, out, epoch } = this.#context;
    guard.lift(epoch);
    for (const server of peers.servers()) out.send(server, { kind: 'yield', epoch });
  }
}

import { assert } from '../base/assert.ts';
import type { Incarnation, ServerId } from '../base/ids.ts';
import { majority } from '../base/quorum.ts';
import type { PeerStatus, ReplicaConfig } from './actions.ts';
import type { Epoch, Position } from './epoch.ts';
import { epochEqual } from './epoch.ts';
import { DRIFT_MAX, type Guard } from './guard.ts';
import type { LocalFlush } from './local-flush.ts';
import { LIFE_UNKNOWN } from './messages.ts';
import type { Operation } from './operation.ts';
import { OperationLog } from './operation-log.ts';
import type { Outbox } from './outbox.ts';
import { type PeerStart, Progress, ProgressTracker } from './progress.ts';
import type { ReadGrants } from './read-lease.ts';
import type { Trust } from './record.ts';
import type { Standing } from './standing.ts';
import type { View } from './view.ts';
import {
  sameServers,
  viewHasMajority,
  viewIsAt,
  viewJoint,
  viewReached,
  viewSettled,
  viewVoters,
} from './view.ts';

/** Bytes sent to a replica and not acknowledged by it, beyond which the next operation waits. */
const WINDOW_BYTES_MAX = 16 * 1024 * 1024;

const NOBODY: ReadonlySet<ServerId> = new Set();

/** Heartbeats whose answers still count. */
const BEATS_MAX = 64;

/** A change of members on its way: the new ones fetch the state, then both sets vote, then the new set alone. */
type MemberChange = { readonly tickets: readonly number[] } & (
  | { readonly stage: 'learning'; readonly target: readonly ServerId[] }
  /** `decisions`: how often the lease had been decided when the joint view was committed; null before. */
  | { readonly stage: 'joint'; readonly seq: number; readonly decisions: number | null }
  | { readonly stage: 'settling'; readonly seq: number }
);

interface Beat {
  readonly sentMs: number;
  readonly guardMs: number;
}

interface PendingFlush {
  readonly ticket: number;
  readonly seq: number;
}

/** What a write order works with: most of it lives longer than an epoch. */
export interface WriteOrderParts {
  readonly config: ReplicaConfig;
  readonly out: Outbox;
  readonly standing: Standing;
  readonly localFlush: LocalFlush;
  readonly guard: Guard;
  readonly grants: ReadGrants;
  readonly lease: LeaseReading;
  /** Which life of a server was heard last; 0 where none was. */
  lifeOf(server: ServerId): Incarnation;
}

/** The own lease, as it is when it is asked for. */
export interface LeaseReading {
  readonly untilMs: number;
  /** Number of the newest view in which it was decided. */
  readonly view: number;
  /** How often it was decided, renewals included. */
  readonly decisions: number;
}

/**
 * The primary's half of a write, in one epoch: number the operation, send it, collect
 * acknowledgements, commit in order. Lives as long as the epoch is led from here.
 */
export class WriteOrder {
  readonly epoch: Epoch;
  readonly #config: ReplicaConfig;
  readonly #out: Outbox;
  readonly #standing: Standing;
  readonly #localFlush: LocalFlush;
  readonly #base: Position;
  readonly #guard: Guard;
  readonly #grants: ReadGrants;
  readonly #lease: LeaseReading;
  readonly #lifeOf: (server: ServerId) => Incarnation;
  readonly #peers: ProgressTracker;
  readonly #log: OperationLog;
  /** As of `#lastSeq`. */
  #view: View;
  /** What others are told, who may know of none: never what may vanish. */
  #committedView: View;
  /** By which operations are counted. While the end of a change is under way, still the joint one. */
  #countedView: View;
  #change: MemberChange | null = null;
  /** When this server began to order by it. */
  readonly #beganMs: number;
  readonly #isLed: boolean;
  readonly #beats = new Map<number, Beat>();
  #beat = 0;
  #beatMs = -Infinity;
  /** Since when a commit waits for a holder of a read lease, and for nothing else; Infinity where none does. */
  #waitsSinceMs = Infinity;
  #committedSeq: number;
  /** The last operation whose clients were told: with policy `all` it may be behind what is committed. */
  #answeredSeq: number;
  #flushes: PendingFlush[] = [];
  /**
   * All that was numbered before the newest of the members' guards began: a member that was not bound may have agreed
   * to a quorum read that showed it.
   */
  #shownSeq: number;
  /** The own disk lacked some of that when the guard began. */
  #isBehindShown = false;

  /**
   * @param base what a majority has installed: all of it is committed
   * @param installed members that have told so
   * @param start what the others have been asked: `unasked` to begin with a first epoch, or whether they have the base of one that is gone on with;
   *   `asked` where they said when it ended that they have all of it
   * @param isLed false where this server has no lease: others may begin another epoch at the same time
   */
  constructor(
    parts: WriteOrderParts,
    base: Position,
    installed: ReadonlyMap<ServerId, number>,
    nowMs: number,
    start: PeerStart,
    isLed: boolean,
  ) {
    const { config, out, standing, localFlush, guard, grants, lease, lifeOf } = parts;
    assert(standing.seq === base.seq, 'The base is here');
    const { view } = standing;
    this.epoch = standing.installed;
    this.#config = config;
    this.#out = out;
    this.#standing = standing;
    this.#localFlush = localFlush;
    this.#guard = guard;
    this.#grants = grants;
    this.#lease = lease;
    this.#lifeOf = lifeOf;
    this.#base = base;
    this.#beganMs = nowMs;
    this.#isLed = isLed;
    this.#view = view;
    this.#committedView = view;
    this.#countedView = view;
    if (view.joint !== undefined)
      this.#change = { stage: 'joint', seq: base.seq, decisions: null, tickets: [] };
    this.#peers = new ProgressTracker(config.self, config.silentMs);
    this.#log = new OperationLog(this.epoch, out, config.retainedBytesMax, base.seq, standing.sessions);
    this.#committedSeq = base.seq;
    this.#answeredSeq = base.seq;
    this.#shownSeq = base.seq;
    for (const server of viewVoters(view)) {
      if (server === config.self) continue;
      this.#peers.add(new Progress(server, installed.get(server) ?? null, base.seq, nowMs, start));
    }
    // Who has this epoch installed has given up what it was allowed in an earlier one.
    for (const server of installed.keys()) grants.followed(server, this.epoch);
  }

  get committedSeq(): number {
    return this.#committedSeq;
  }

  get lastSeq(): number {
    return this.#log.lastSeq;
  }

  /** Nothing is under way: no operation, no flush. */
  get isIdle(): boolean {
    return this.#committedSeq === this.#log.lastSeq && this.#flushes.length === 0;
  }

  /** Nothing is under way, and every member has all there is: there is nothing to say but that one is here. */
  get isQuiet(): boolean {
    if (!this.isIdle) return false;
    for (const peer of this.#peers) if (!peer.isInstalled || peer.ackedSeq < this.#log.lastSeq) return false;
    return true;
  }

  // From clients -----------------------------------------------------------------------------------

  submit(ticket: number, operation: Operation, nowMs: number): void {
    const { request } = operation;
    const answer = request === null ? null : this.#log.find(request);
    if (answer?.kind === 'expired') {
      this.#out.trace('session-expired', `session ${request?.session} number ${request?.number}`);
      this.#out.push({ kind: 'refused', ticket, reason: 'session-expired' });
      return;
    }
    if (answer?.kind === 'known') {
      if (answer.seq <= this.#answeredSeq) {
        this.#out.trace('answered-again', `operation ${answer.seq}`);
        this.#out.push({ kind: 'committed', ticket, seq: answer.seq, result: answer.result });
        return;
      }
      this.#out.trace('joined', `operation ${answer.seq}`);
      const sequenced = this.#log.get(answer.seq);
      sequenced.tickets = [...sequenced.tickets, ticket];
      return;
    }
    this.#sequence([ticket], operation, nowMs, this.#spare(nowMs));
    this.advance(nowMs);
  }

  /**
   * Numbers the operation and sends it at once: it need not wait for those before it.
   *
   * @param spare who may be sent it a moment later
   */
  #sequence(
    tickets: readonly number[],
    operation: Operation,
    nowMs: number,
    spare: ReadonlySet<ServerId>,
  ): number {
    const seq = this.#log.append(tickets, operation, this.#committedSeq, nowMs);
    for (const peer of this.#peers) this.#pump(peer, spare.has(peer.server));
    return seq;
  }

  flush(ticket: number, nowMs: number): void {
    const seq = this.#committedSeq;
    this.#flushes.push({ ticket, seq });
    this.#localFlush.want(seq);
    for (const peer of this.#peers) {
      if (peer.isInstalled && peer.flushedSeq < seq) this.#sendFlush(peer.server, seq);
    }
    this.advance(nowMs);
  }

  /** The replicas are to be at `servers`. */
  changeMembers(ticket: number, servers: readonly ServerId[], nowMs: number): void {
    const change = this.#change;
    if (change === null && viewIsAt(this.#view, servers)) {
      this.#out.push({ kind: 'members-changed', ticket, view: this.#view });
      return;
    }
    const same = change?.stage === 'learning' ? change.target : this.#view.joint;
    if (change?.stage === 'joint' && same !== undefined && sameServers(same, servers)) {
      this.#change = { ...change, tickets: [...change.tickets, ticket] };
      return;
    }
    if (change !== null && change.stage !== 'learning') {
      this.#out.push({ kind: 'refused', ticket, reason: 'busy' });
      return;
    }
    const again = same !== undefined && sameServers(same, servers);
    if (!again) for (const waiting of change?.tickets ?? []) this.#tellUnknown(waiting);
    this.#change = {
      stage: 'learning',
      target: servers,
      tickets: again ? [...(change?.tickets ?? []), ticket] : [ticket],
    };
    const voters = viewVoters(this.#view);
    for (const server of this.#peers.servers()) {
      if (!voters.includes(server) && !servers.includes(server)) this.#peers.remove(server);
    }
    for (const server of servers) {
      if (server === this.#config.self || this.#peers.has(server)) continue;
      const peer = new Progress(server, null, this.#standing.seq, nowMs, 'unknown');
      this.#sendInstall(this.#peers.add(peer));
    }
    this.advance(nowMs);
  }

  /** No longer primary of this epoch: what is under way may have happened or not. */
  abandon(): void {
    for (let seq = this.#answeredSeq + 1; seq <= this.#log.lastSeq; seq++) {
      for (const ticket of this.#log.get(seq).tickets) this.#tellUnknown(ticket);
    }
    for (const { ticket } of this.#flushes) this.#tellUnknown(ticket);
    for (const ticket of this.#change?.tickets ?? []) this.#tellUnknown(ticket);
    this.#log.clear();
    this.#flushes = [];
    this.#change = null;
  }

  #tellUnknown(ticket: number): void {
    this.#out.trace('told-unknown', `ticket ${ticket}`);
    this.#out.push({ kind: 'unknown', ticket });
  }

  // From replicas ----------------------------------------------------------------------------------

  /** The replica has this epoch installed and all operations up to `seq` applied. */
  acknowledged(from: ServerId, seq: number, nowMs: number): void {
    const peer = this.#peers.heard(from, nowMs);
    assert(seq <= this.#log.lastSeq, 'Nobody has an operation of this epoch that was not sequenced');
    if (!peer.isInstalled) this.#noteInstalled(peer, seq);
    // Another goes by the new view now, and asks and votes by it: so does this server.
    const change = this.#change;
    if (change !== null && change.stage !== 'learning' && seq >= change.seq) this.#standing.tellView();
    peer.acknowledged(seq, this.#log.firstSeq);
    this.advance(nowMs);
    this.#pump(peer);
  }

  #noteInstalled(peer: Progress, seq: number): void {
    // What it was allowed in an earlier epoch ended with the promise that this one needed.
    this.#grants.followed(peer.server, this.epoch);
    peer.installed(seq);
  }

  /** In a first epoch: the replica has begun with it. */
  begunAt(from: ServerId, seq: number): void {
    const peer = this.#peers.find(from);
    if (peer?.isInstalled === false) this.#noteInstalled(peer, seq);
  }

  /** Whether a majority has the epoch installed, so that no later one can miss it. */
  get isEstablished(): boolean {
    const { self } = this.#config;
    return viewHasMajority(
      this.#countedView,
      (server) => server === self || this.#peers.find(server)?.isInstalled === true,
    );
  }

  /** Asks all who were not asked yet to begin with the first epoch. */
  establish(): void {
    for (const peer of this.#peers) if (peer.isUnasked) this.#begin(peer, false);
  }

  #begin(peer: Progress, deferrable: boolean): void {
    peer.asked(this.#beat);
    const message = { epoch: this.epoch, view: this.#committedView } as const;
    if (this.#base.seq === 0) {
      this.#out.send(peer.server, { kind: 'begin', ...message }, deferrable);
    } else {
      // Who has what was borne only says so.
      const base = { base: this.#base, to: LIFE_UNKNOWN, urgent: true };
      this.#out.send(peer.server, { kind: 'install', ...message, ...base }, deferrable);
    }
  }

  /** The replica answers a heartbeat from where it stands. */
  heartbeatAnswered(from: ServerId, position: Position, beat: number, trust: Trust, nowMs: number): void {
    this.#noteTrust(from, trust);
    const answering = this.#peers.get(from);
    // One of an earlier span of the same epoch says nothing of this one.
    if (beat <= this.#beat) answering.answeredBeat = Math.max(answering.answeredBeat, beat);
    // A promise to another that went with its disk does not bind it: its answer excludes nobody.
    if (trust !== 'lost') this.#noteGuard(from, beat, nowMs);
    if (epochEqual(position.epoch, this.epoch)) {
      this.acknowledged(from, position.seq, nowMs);
      const peer = this.#peers.find(from);
      if (peer === undefined) return;
      // After a loss of power it has to have all that it may have acknowledged before, and say so.
      if (peer.isFetching || trust !== 'intact') this.#sendInstall(peer);
    } else {
      // Made anew in the same life of its process, it has nothing any more of what it acknowledged.
      if (this.#peers.find(from)?.isInstalled === true) this.forget(from);
      // The first heartbeat behind what asked it to begin it answers while it stores that.
      if (this.#peers.find(from)?.isInstalling(beat) !== true) this.stateNeeded(from, nowMs);
    }
  }

  /** The replica does not have this epoch installed (or did not, when it said so). */
  stateNeeded(from: ServerId, nowMs: number): void {
    const peer = this.#peers.heard(from, nowMs);
    if (peer.isInstalled) return;
    peer.lacksEpoch();
    this.#sendInstall(peer);
  }

  /** The replica has promised the epoch that is led already. */
  promisedLate(from: ServerId, trust: Trust, nowMs: number): void {
    this.#noteTrust(from, trust);
    this.stateNeeded(from, nowMs);
  }

  resend(from: ServerId, fromSeq: number, nowMs: number): void {
    const peer = this.#peers.heard(from, nowMs);
    if (!peer.isInstalled || fromSeq <= peer.ackedSeq || fromSeq >= peer.nextSeq) return;
    this.#out.trace('resent', `to ${from} from operation ${fromSeq}`);
    peer.resendFrom(fromSeq);
    this.#pump(peer);
  }

  flushedAt(from: ServerId, seq: number, nowMs: number): void {
    const peer = this.#peers.heard(from, nowMs);
    peer.flushedSeq = Math.max(peer.flushedSeq, seq);
    this.advance(nowMs);
  }

  /** The transport reached the replica again: all that it has not acknowledged may be lost. */
  connected(server: ServerId): void {
    const peer = this.#peers.find(server);
    if (peer === undefined) return;
    peer.disconnected();
    this.#sendHeartbeat(peer, 0);
    if (!peer.isInstalled || peer.isFetching) return;
    peer.resendFrom(peer.ackedSeq + 1);
    this.#pump(peer);
  }

  /** The replica came back as another process: it tells anew where it stands. */
  forget(server: ServerId): void {
    this.#peers.find(server)?.restarted(this.#log.firstSeq - 1, this.#beat);
  }

  // Progress ---------------------------------------------------------------------------------------

  knows(server: ServerId): boolean {
    return this.#peers.has(server);
  }

  /** Does what has become possible: own applies, commits, flushes, changes of members. */
  advance(nowMs: number): void {
    this.#noteOwn();
    for (;;) {
      this.#applyOwn(nowMs);
      const before = this.#committedSeq;
      const answered = this.#answeredSeq;
      this.#commit(nowMs);
      this.#answer();
      if (this.#committedSeq > before || this.#answeredSeq > answered) this.#drop(null);
      if (!this.#advanceChange(nowMs) && this.#committedSeq === before) break;
    }
    this.#finishFlushes();
  }

  /** Reads that waited for the own copy go on. */
  #noteOwn(): void {
    if (!this.#isBehindShown || !this.hasWhatWasShown) return;
    this.#isBehindShown = false;
    this.#out.push({ kind: 'advanced', committedSeq: this.#committedSeq });
  }

  /** Repeats what may be lost, and lets the others know that a primary is here. */
  heartbeat(nowMs: number): void {
    const flushSeq = this.#flushes.at(-1)?.seq ?? -1;
    const guardMs = this.#nextBeat(nowMs);
    const voters = viewVoters(this.#committedView);
    this.establish();
    const spare = this.#spare(nowMs);
    for (const peer of this.#peers) {
      this.#sendHeartbeat(peer, guardMs, spare.has(peer.server));
      // Where no replica was made yet a heartbeat makes none: its view does not name that server.
      const isLearner = !voters.includes(peer.server);
      if (isLearner && (!peer.isInstalled || this.#peers.isSilent(peer, nowMs))) this.#sendInstall(peer);
      if (peer.isInstalled && peer.flushedSeq < flushSeq) this.#sendFlush(peer.server, flushSeq);
    }
    this.#drop(nowMs);
  }

  /**
   * The own copy. `first`: as soon as it is sequenced. `last`: once the others of a majority have
   * it, so that applying it commits it.
   */
  #applyOwn(nowMs: number): void {
    while (this.#standing.issuedSeq < this.#log.lastSeq) {
      const seq = this.#standing.issuedSeq + 1;
      if (this.#config.appliesAtPrimary === 'last' && this.#reachedWith(Infinity, nowMs) < seq) break;
      const { operation, sessions } = this.#log.get(seq);
      this.#standing.apply(operation, sessions, false);
    }
  }

  /**
   * The commit point: what a majority, this replica included, has applied in this epoch, and all who may answer
   * reads have applied. Acks are cumulative, so the k-th largest tells it. Acks of older epochs never get here:
   * the same number named another operation then.
   */
  #commit(nowMs: number): void {
    const committedSeq = Math.min(this.#reachedWith(this.#standing.seq, nowMs), this.#standing.seq);
    if (committedSeq <= this.#committedSeq) return;
    const from = this.#committedSeq + 1;
    this.#committedSeq = committedSeq;
    this.#out.push({ kind: 'advanced', committedSeq });
    for (let seq = from; seq <= committedSeq; seq++) {
      const { view } = this.#log.get(seq).operation;
      if (view === undefined) continue;
      this.#committedView = view;
      this.#standing.tellView();
    }
    for (const server of this.#grants.holders(nowMs)) {
      // What is not known to be committed is not read there: the sooner it is, the better.
      if (this.#peers.has(server))
        this.#out.send(server, { kind: 'commit', epoch: this.epoch, committedSeq });
    }
  }

  /** Tells clients of what is committed; with policy `all` of what every member has. Reads need not wait for that. */
  #answer(): void {
    let answeredSeq = this.#committedSeq;
    // Members change by majorities even where writes need all: one that is gone for ever has to be replaced.
    if (this.#view.policy === 'all' && this.#countedView.joint === undefined) {
      const ackedSeq = (server: ServerId): number => this.#peers.ackedSeq(server, this.#standing.seq);
      answeredSeq = Math.min(answeredSeq, viewReached(this.#countedView, ackedSeq, true));
    }
    while (this.#answeredSeq < answeredSeq) {
      this.#answeredSeq++;
      const sequenced = this.#log.get(this.#answeredSeq);
      const { result } = sequenced.operation;
      const seq = this.#answeredSeq;
      for (const ticket of sequenced.tickets) this.#out.push({ kind: 'committed', ticket, seq, result });
      sequenced.tickets = [];
    }
  }

  /** How far operations have come if this replica has `ownSeq`. */
  #reachedWith(ownSeq: number, nowMs: number): number {
    const { self } = this.#config;
    const ackedSeq = (server: ServerId): number => this.#peers.ackedSeq(server, ownSeq);
    const reached = viewReached(this.#countedView, ackedSeq);
    let atReaders = reached;
    for (const server of this.#grants.holders(nowMs)) {
      if (server !== self) atReaders = Math.min(atReaders, Math.max(this.#committedSeq, ackedSeq(server)));
    }
    const waits = atReaders < reached && atReaders < this.#log.lastSeq && reached > this.#committedSeq;
    if (waits && this.#waitsSinceMs === Infinity) {
      this.#out.trace('waited-for-reader', `at operation ${reached}`);
      this.#waitsSinceMs = nowMs;
    } else if (!waits) {
      this.#waitsSinceMs = Infinity;
    }
    // The end of a change of members needs both sets; what comes after it only the new one.
    const change = this.#change;
    if (change?.stage === 'settling') return Math.min(atReaders, change.seq);
    return atReaders;
  }

  /** When a commit may be possible without a message: a read lease that it waits for is over then. */
  nextCommitMs(nowMs: number): number {
    return this.#waitsSinceMs === Infinity ? Infinity : this.#grants.nextEndMs(nowMs);
  }

  #finishFlushes(): void {
    if (this.#flushes.length === 0) return;
    const ownSeq = this.#localFlush.flushedSeq;
    const { self } = this.#config;
    const flushedSeq = (server: ServerId): number =>
      server === self ? ownSeq : (this.#peers.find(server)?.flushedSeq ?? -1);
    const reached = Math.min(ownSeq, viewReached(this.#countedView, flushedSeq));
    const waiting: PendingFlush[] = [];
    for (const flush of this.#flushes) {
      if (reached >= flush.seq) this.#out.push({ kind: 'flushed', ticket: flush.ticket });
      else waiting.push(flush);
    }
    this.#flushes = waiting;
  }

  // Members ----------------------------------------------------------------------------------------

  /**
   * One step of a change of members, if it is time. Both sets vote from when the first step is *sequenced*; the
   * second follows once the first is committed and a lease was decided by both sets, so that a majority of the
   * new set knows of it.
   *
   * @returns whether something was sequenced or is complete
   */
  #advanceChange(nowMs: number): boolean {
    const change = this.#change;
    if (change === null) return false;
    switch (change.stage) {
      case 'learning':
        if (!this.#haveLearned(change.target)) return false;
        this.#view = viewJoint(this.#view, change.target, this.epoch.counter);
        this.#countedView = this.#view;
        this.#change = {
          stage: 'joint',
          tickets: change.tickets,
          decisions: null,
          seq: this.#sequenceView(nowMs),
        };
        return true;
      case 'joint':
        if (this.#committedSeq < change.seq) return false;
        // A lease that was decided before a majority knew the view for good does not count: a voter that did not
        // know it may start anew, and go by the older one once more.
        if (change.decisions === null) {
          this.#change = { ...change, decisions: this.#lease.decisions };
          return false;
        }
        if (this.#lease.decisions === change.decisions || this.#lease.view < this.#view.number) return false;
        this.#view = viewSettled(this.#view);
        this.#change = { stage: 'settling', tickets: change.tickets, seq: this.#sequenceView(nowMs) };
        return true;
      case 'settling':
        if (this.#committedSeq < change.seq) return false;
        this.#settleChange(change.tickets);
        return true;
    }
  }

  #sequenceView(nowMs: number): number {
    const nothing = new Uint8Array(0);
    const operation = { request: null, result: nothing, body: nothing, view: this.#view };
    return this.#sequence([], operation, nowMs, NOBODY);
  }

  /** New members have the state, so that they hold up nothing when they begin to vote. */
  #haveLearned(target: readonly ServerId[]): boolean {
    const hasIt = (server: ServerId): boolean => {
      if (server === this.#config.self) return true;
      const peer = this.#peers.get(server);
      const whole = peer.isInstalled && !peer.isFetching && peer.trust !== 'lost';
      return whole && peer.ackedSeq >= this.#committedSeq;
    };
    // From then on nothing goes without a majority of them, and one that lost its disk is none.
    const ready = target.filter(hasIt).length >= majority(target.length);
    const voters = viewVoters(this.#view);
    return ready && target.every((server) => voters.includes(server) || hasIt(server));
  }

  #settleChange(tickets: readonly number[]): void {
    const view = this.#view;
    this.#change = null;
    this.#countedView = view;
    this.#out.trace('members-changed', `${view.number}: ${view.members.join()}`);
    for (const ticket of tickets) this.#out.push({ kind: 'members-changed', ticket, view });
    for (const server of this.#peers.servers()) {
      if (view.members.includes(server)) continue;
      // It was sent the operation that tells it so; this tells it that it is committed.
      this.#out.send(server, { kind: 'commit', epoch: this.epoch, committedSeq: this.#committedSeq });
      this.#peers.remove(server);
    }
  }

  /** This server votes on the subject no more: another has to lead. */
  get isOut(): boolean {
    return this.#change === null && !viewVoters(this.#view).includes(this.#config.self);
  }

  // Reads ------------------------------------------------------------------------------------------

  /** Until when no other primary can be, by what a majority has answered; this replica binds itself, too. */
  guardEndMs(): number {
    const guardUntilMs = (server: ServerId): number =>
      server === this.#config.self ? Infinity : (this.#peers.find(server)?.guardUntilMs ?? -Infinity);
    return viewReached(this.#countedView, guardUntilMs);
  }

  /** Whether the own disk has all that a quorum read without a primary can have shown (decision 0055). */
  get hasWhatWasShown(): boolean {
    return this.#standing.seq >= this.#shownSeq;
  }

  /** How long ago replicas were last asked to keep the guard, in milliseconds. */
  sinceBeatMs(nowMs: number): number {
    return nowMs - this.#beatMs;
  }

  /** @returns for how long the next heartbeat asks for the guard */
  #nextBeat(nowMs: number): number {
    // Who does not lead answers no reads that a guard would be for.
    const guardMs = this.#isLed ? Math.max(0, Math.floor(this.#lease.untilMs - nowMs)) : 0;
    this.#beat++;
    this.#beatMs = nowMs;
    this.#beats.set(this.#beat, { sentMs: nowMs, guardMs });
    this.#beats.delete(this.#beat - BEATS_MAX);
    this.#guard.hold(this.epoch, nowMs, guardMs);
    return guardMs;
  }

  /** Counted from before the heartbeat left, so that it ends here before it ends there. */
  #noteGuard(from: ServerId, number: number, nowMs: number): void {
    const peer = this.#peers.find(from);
    const beat = this.#beats.get(number);
    if (peer === undefined || beat === undefined) return;
    const wasKept = nowMs < this.guardEndMs();
    const wasBound = nowMs < peer.guardUntilMs;
    peer.guardUntilMs = Math.max(peer.guardUntilMs, beat.sentMs + beat.guardMs * (1 - DRIFT_MAX));
    // Each member by itself: the answers of a quorum read differ in time, and the guard may move between them.
    if (!wasBound && nowMs < peer.guardUntilMs) {
      this.#shownSeq = this.#log.lastSeq;
      this.#isBehindShown = !this.hasWhatWasShown;
    }
    if (!wasKept && nowMs < this.guardEndMs())
      this.#out.push({ kind: 'advanced', committedSeq: this.#committedSeq });
  }

  #noteTrust(from: ServerId, trust: Trust): void {
    const peer = this.#peers.find(from);
    if (peer === undefined) return;
    peer.trust = trust;
    if (trust !== 'lost') peer.lostSinceBeat = null;
    else peer.lostSinceBeat ??= this.#beat;
  }

  /**
   * Whether the replica may be given the state. One that has lost its promises with its disk may have promised a
   * larger epoch, and would follow this one all the same: so a majority of the others has to confirm first, after
   * the loss was known, that there is none. Or all others, where its set has no majority without it: whoever began
   * a larger epoch before the loss is one of them, or the process that went with the disk.
   */
  #mayInstall(peer: Progress): boolean {
    const { lostSinceBeat } = peer;
    const voters = viewVoters(this.#countedView);
    if (lostSinceBeat === null || !voters.includes(peer.server)) return true;
    // Nothing keeps another candidate from having its promise, and the others' only after they have confirmed.
    if (!this.#isLed) return false;
    const confirms = (server: ServerId): boolean =>
      server === this.#config.self || (this.#peers.find(server)?.answeredBeat ?? 0) > lostSinceBeat;
    if (voters.every((server) => server === peer.server || confirms(server))) return true;
    // What another one without its disk has promised to whoever asked it is forgotten, too.
    const isSure = (server: ServerId): boolean =>
      this.#peers.find(server)?.trust !== 'lost' && confirms(server);
    return viewHasMajority(this.#countedView, isSure);
  }

  /**
   * A replica wants to answer reads by itself. Only one that has all that is committed is allowed to, and for
   * no longer than this server may answer them itself.
   */
  readRequested(from: ServerId, nonce: number, nowMs: number): void {
    const peer = this.#peers.heard(from, nowMs);
    if (!peer.isInstalled || peer.isFetching || peer.ackedSeq < this.#committedSeq) return;
    // A slow replica that may read would make all writes as slow.
    const isSlow = nowMs - this.#waitsSinceMs > this.#config.readLeaseMs && peer.ackedSeq < this.#log.lastSeq;
    if (isSlow) return;
    const endMs = Math.min(this.#lease.untilMs, this.guardEndMs());
    const durationMs = Math.floor(Math.min(this.#config.readLeaseMs, (endMs - nowMs) / (1 + DRIFT_MAX)));
    if (durationMs <= 0) return;
    this.#grants.grant(from, this.epoch, nowMs, durationMs);
    this.#out.send(from, {
      kind: 'read-grant',
      epoch: this.epoch,
      nonce,
      durationMs,
      startSeq: this.#log.lastSeq,
    });
  }

  /** @returns whether nobody may answer reads of this epoch any more; asks for it where somebody may */
  takeReadsBack(nowMs: number, again: boolean): boolean {
    const holders = this.#grants.holders(nowMs);
    if (again)
      for (const server of holders) this.#out.send(server, { kind: 'read-revoke', epoch: this.epoch });
    return holders.length === 0 && !this.#grants.isBelieved(nowMs);
  }

  readsReturned(from: ServerId): void {
    this.#grants.returned(from);
  }

  /** The end: nobody need wait for the guard of this epoch. */
  yield(): void {
    this.#guard.lift(this.epoch);
    for (const server of this.#peers.servers()) this.#out.send(server, { kind: 'yield', epoch: this.epoch });
  }

  /**
   * Whose acknowledgement decides nothing if the others go on answering as they did: who is beyond a majority of those that
   * keep up. It is the same servers whatever the subject, so that what they are sent of many subjects shares frames. Where
   * one of the majority falls behind the commit point, others take its place until it has caught up.
   */
  #spare(nowMs: number): ReadonlySet<ServerId> {
    const view = this.#countedView;
    if (this.#change !== null || view.policy === 'all') return NOBODY;
    let missing = majority(view.members.length) - 1;
    const spare = new Set<ServerId>();
    for (const peer of this.#peers.inNameOrder()) {
      if (missing > 0 && peer.keepsUp(this.#committedSeq, this.#base.seq)) missing--;
      else spare.add(peer.server);
    }
    if (missing > 0) return NOBODY;
    // Nothing commits without them.
    for (const server of this.#grants.holders(nowMs)) spare.delete(server);
    return spare;
  }

  /** Sends what the replica lacks, in order, as far as the window allows. */
  #pump(peer: Progress, deferrable: boolean = false): void {
    if (peer.isUnasked) this.#begin(peer, deferrable);
    if (!peer.takesOperations) return;
    if (peer.nextSeq < this.#log.firstSeq) {
      peer.fetches(this.#standing.seq);
      this.#sendInstall(peer);
      return;
    }
    const ackedBytes = this.#log.bytesUpTo(peer.ackedSeq);
    while (peer.nextSeq <= this.#log.lastSeq) {
      const before = this.#log.bytesUpTo(peer.nextSeq - 1);
      if (before - ackedBytes > WINDOW_BYTES_MAX) return;
      const { message } = this.#log.get(peer.nextSeq);
      this.#out.push({ kind: 'send', to: peer.server, message, deferrable });
      peer.sent();
    }
  }

  /**
   * Drops operations that every replica within reach has, and, where room is short, also those that
   * only laggards lack: they fetch the state instead. Never what is not committed and applied here.
   *
   * @param nowMs null where silence need not be judged anew
   */
  #drop(nowMs: number | null): void {
    const doneSeq = Math.min(this.#answeredSeq, this.#standing.seq);
    this.#log.drop(this.#peers.doneSeq(doneSeq, nowMs), doneSeq);
  }

  // Messages ---------------------------------------------------------------------------------------

  #sendInstall(peer: Progress): void {
    if (!this.#mayInstall(peer)) return;
    // Who has the epoch but lags behind fetches the state as it is here now; so does who is in doubt, because
    // the base of the epoch is not all that it may have acknowledged in it.
    const current = peer.isInstalled || peer.trust !== 'intact';
    const base = current ? { epoch: this.epoch, seq: this.#standing.seq } : this.#base;
    this.#out.send(peer.server, {
      kind: 'install',
      epoch: this.epoch,
      view: this.#committedView,
      base,
      to: current ? this.#lifeOf(peer.server) : LIFE_UNKNOWN,
      urgent: false,
    });
  }

  /** @param guardMs 0 where only this replica is spoken to, so that no answer is counted */
  #sendHeartbeat(peer: Progress, guardMs: number, deferrable: boolean = false): void {
    const message = {
      kind: 'heartbeat',
      epoch: this.epoch,
      view: this.#committedView,
      committedSeq: this.#committedSeq,
      sentSeq: peer.sentSeq,
      beat: guardMs === 0 ? 0 : this.#beat,
      guardMs,
    } as const;
    this.#out.send(peer.server, message, deferrable);
  }

  #sendFlush(server: ServerId, seq: number): void {
    this.#out.send(server, { kind: 'flush', epoch: this.epoch, seq });
  }

  // Lookups ----------------------------------------------------------------------------------------

  peers(nowMs: number): PeerStatus[] {
    const { self } = this.#config;
    const voters = viewVoters(this.#view);
    const statuses: PeerStatus[] = [...this.#peers].map((peer) => {
      const lagOperations = Math.max(0, this.#committedSeq - peer.ackedSeq);
      const current = peer.isInstalled && lagOperations === 0;
      return {
        server: peer.server,
        role: voters.includes(peer.server) ? 'backup' : 'learner',
        state: this.#peers.isSilent(peer, nowMs) ? 'unreachable' : current ? 'current' : 'catching-up',
        seq: peer.ackedSeq,
        lagOperations,
        lagBytes: current ? 0 : this.#lagBytes(peer),
        behindMs: current ? 0 : nowMs - this.#behindSinceMs(peer),
      };
    });
    if (!voters.includes(self)) return statuses;
    const own = { server: self, role: 'primary', state: 'current', seq: this.#standing.seq } as const;
    statuses.push({ ...own, lagOperations: 0, lagBytes: 0, behindMs: 0 });
    return statuses.sort((a, b) => voters.indexOf(a.server) - voters.indexOf(b.server));
  }

  /** Who comes after every operation a moment later, as a spare replica does, is behind by that moment. */
  #behindSinceMs(peer: Progress): number {
    const missing = peer.isInstalled ? this.#log.findKept(peer.ackedSeq + 1) : undefined;
    return missing?.numberedMs ?? this.#beganMs;
  }

  #lagBytes(peer: Progress): number | null {
    if (!peer.isInstalled || peer.ackedSeq + 1 < this.#log.firstSeq) return null;
    return this.#log.bytesUpTo(this.#committedSeq) - this.#log.bytesUpTo(peer.ackedSeq);
  }
}

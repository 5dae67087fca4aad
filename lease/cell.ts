import { assert, unreachable } from '../base/assert.ts';
import type { CellId, ServerId } from '../base/ids.ts';
import type { Prng } from '../base/prng.ts';
import type { Acceptor } from './acceptor.ts';
import type { LeaseAction, LeaseMark, LeaseOutcome, LeaseView } from './actions.ts';
import {
  type Attempt,
  attemptDeadlineMs,
  attemptStart,
  attemptWrite,
  type ReadingAttempt,
  readingMerge,
  tallyAdd,
  tallyLost,
  tallyWon,
  type WritingAttempt,
} from './attempt.ts';
import { type BallotSequence, ballotCompare } from './ballot.ts';
import type { Belief, CellTable } from './cell-table.ts';
import type { ClientBidder } from './client-bidder.ts';
import type { ClockMonitor } from './clock-monitor.ts';
import type { Flow } from './flow.ts';
import type { KnownView } from './group.ts';
import { type Group, groupAll, groupSome } from './group.ts';
import { type Lease, leaseText } from './lease.ts';
import type {
  AckReadMessage,
  AckWriteMessage,
  LearnMessage,
  LeaseMessage,
  NackMessage,
  QueryMessage,
  ReadMessage,
  RefusedMessage,
  ReleaseMessage,
  WriteMessage,
  WrongViewMessage,
} from './messages.ts';
import type { LeaseParameters } from './parameters.ts';
import { type Register, registerStanding } from './register.ts';
import type { LeaseRules } from './rules.ts';
import type { ServerBidder } from './server-bidder.ts';
import type { Wheel } from './wheel.ts';
import { type Work, workBegin, workDueMs, workIsDone } from './work.ts';

/** What all cells of a server share. */
export interface CellContext {
  readonly parameters: LeaseParameters;
  readonly rules: LeaseRules;
  readonly ballots: BallotSequence;
  readonly acceptor: Acceptor;
  readonly bidder: ServerBidder;
  readonly flow: Flow;
  readonly monitor: ClockMonitor;
  readonly prng: Prng;
  readonly table: CellTable;
  readonly wheel: Wheel;
}

/** A RELEASE is not answered; it is said so many times. A lost one costs others the wait, no more. */
const RELEASES_MAX = 3;

/** What a test may look at. */
export interface CellState {
  readonly register: Register;
  readonly own: Belief | null;
  readonly known: Belief | null;
  readonly attempt: Attempt | null;
}

/**
 * One cell on one server: its proposer (at most one attempt), what is known of its holder, and when it
 * does what; its acceptor stands in `acceptor.ts`. Takes events and the time, appends actions. [Flease], [PaxosLease]
 *
 * There is one such object for all cells. `at` turns it to a row of the table, which is all that is
 * left of a cell at rest; a cell at which something is under way has a `Work` beside its row.
 */
export class Cell {
  readonly #context: CellContext;
  readonly #table: CellTable;
  readonly #works = new Map<number, Work>();
  #row = -1;
  #work: Work | null = null;

  constructor(context: CellContext) {
    this.#context = context;
    this.#table = context.table;
  }

  /** Turns to the cell of a row. @returns itself */
  at(row: number): this {
    this.#row = row;
    this.#work = this.#works.size === 0 ? null : (this.#works.get(row) ?? null);
    return this;
  }

  /** Drops what is remembered beside the row, which is about to be removed. */
  forget(): void {
    assert(this.#work === null, 'A cell at work is not forgotten');
    this.#context.acceptor.forget(this.#row);
    this.#context.flow.forget(this.#row);
  }

  get row(): number {
    return this.#row;
  }

  get id(): CellId {
    return this.#table.cell(this.#row);
  }

  // What others ask ------------------------------------------------------------------------------

  /** Whether this server may act as holder at this reading of the clock. Strictly before the end. */
  holds(nowMs: number): boolean {
    return nowMs < this.#table.beliefUntilMs(this.#row) && this.#isOwn();
  }

  view(nowMs: number): LeaseView {
    const belief = this.#table.belief(this.#row);
    if (belief === null) return { holder: null, own: false, remainingMs: 0 };
    const { holder, untilMs } = belief;
    if (this.#isOwn()) {
      if (nowMs < untilMs) return { holder, own: true, remainingMs: untilMs - nowMs };
    } else if (nowMs <= untilMs) {
      // An earlier life of this server is waited for, but nobody is sent to it.
      const alive = holder === this.#context.parameters.self ? null : holder;
      return { holder: alive, own: false, remainingMs: untilMs - nowMs };
    }
    return { holder: null, own: false, remainingMs: 0 };
  }

  /** What this server's acceptor holds: a lease that was perhaps decided. */
  accepted(): Lease | null {
    return this.#table.register(this.#row).lease;
  }

  state(): CellState {
    const belief = this.#table.belief(this.#row);
    const own = belief !== null && this.#isOwn();
    return {
      register: this.#table.register(this.#row),
      own: own ? belief : null,
      known: own ? null : belief,
      attempt: this.#work?.attempt ?? null,
    };
  }

  /** Whether nobody here needs the cell, so that it may be forgotten when it is due. */
  get isIdle(): boolean {
    return this.#work === null && !this.#table.isOpen(this.#row) && !this.#isOwn();
  }

  /**
   * Ends the work of the cell if nothing is under way. @returns when `tick` has something to do, or
   * null for when it had so far. For a cell that nobody needs that is when everything that could be
   * said of it is too old to be heard.
   */
  settle(nowMs: number): number | null {
    const { parameters } = this.#context;
    const row = this.#row;
    const work = this.#work;
    const open = this.#table.isOpen(row);
    if (work === null && open) return null;
    const ownMs = this.#isOwn() ? this.#table.beliefUntilMs(row) : Infinity;
    if (work !== null && !workIsDone(work)) return Math.min(ownMs, workDueMs(work, open, parameters));
    if (work !== null) {
      this.#works.delete(row);
      this.#work = null;
      if (open) return Math.min(ownMs, work.attemptAtMs);
    }
    return Math.min(ownMs, nowMs + parameters.forgetMs);
  }

  // Events ---------------------------------------------------------------------------------------

  open(
    view: number,
    members: readonly ServerId[],
    joint: readonly ServerId[] | undefined,
    handicapMs: number,
    nowMs: number,
    out: LeaseAction[],
  ): void {
    const { parameters, acceptor } = this.#context;
    const table = this.#table;
    const row = this.#row;
    this.#expire(nowMs, out);
    const before = table.group(row);
    const group = acceptor.regroup(row, view, members, joint);
    assert(group.voters.includes(parameters.self), 'Who opens a cell is one of its members');
    const changed = group !== before;
    const wasOpen = table.isOpen(row);
    if (wasOpen && !changed && (this.#work?.handicapMs ?? 0) === handicapMs) return;
    const work = this.#begin();
    table.setOpen(row, true);
    if (changed) this.#end(work);
    work.handicapMs = handicapMs;
    if (wasOpen && !changed) return;
    work.backoffMs = 0;
    const belief = table.belief(row);
    if (belief !== null && this.#isOwn()) {
      out.push({ kind: 'held', cell: this.id, untilMs: belief.untilMs, view: 0 });
      work.attemptAtMs = changed ? nowMs : this.#renewalMs(belief.untilMs);
    } else if (belief !== null && nowMs <= belief.untilMs) {
      this.#pushLearned(belief, out);
      work.attemptAtMs = this.#afterEndMs(belief.untilMs, nowMs);
    } else {
      work.attemptAtMs = nowMs + handicapMs;
    }
    this.#attemptIfDue(nowMs, out);
  }

  /**
   * Votes by this view from now on, or by a newer one that it has heard of. What the own replica says is the truth also
   * where the view before was newer: that one was never committed. Both share acceptors with the one that counts.
   */
  follow({ view, members, joint }: KnownView): void {
    const { acceptor } = this.#context;
    if (view === this.#group().view) return;
    assert(!this.#table.isOpen(this.#row), 'An open cell is opened anew with its new view');
    acceptor.regroup(this.#row, view, members, joint);
  }

  succeed(from: ServerId): void {
    if (this.#table.isOpen(this.#row) && !this.#isOwn()) this.#begin().succeeds = from;
  }

  close(nowMs: number, out: LeaseAction[]): void {
    this.#expire(nowMs, out);
    this.#table.setOpen(this.#row, false);
    const work = this.#work;
    if (work === null || work.asks.length > 0) return;
    this.#end(work);
    work.attemptAtMs = Infinity;
    work.backoffMs = 0;
    work.handicapMs = 0;
    work.succeeds = null;
  }

  /**
   * Gives the lease back. The caller has stopped acting on it; only now does RELEASE go out. It names
   * the latest ballot of this server, so that an unfinished renewal is void as well.
   */
  release(nowMs: number, out: LeaseAction[]): void {
    this.#expire(nowMs, out);
    const { parameters, ballots } = this.#context;
    const held = this.#isOwn();
    const work = this.#begin();
    this.#end(work);
    work.attemptAtMs = nowMs + parameters.renewBeforeMs;
    if (held) {
      this.#table.setBelief(this.#row, null);
      out.push({ kind: 'lost', cell: this.id });
      this.#trace(out, 'released', '');
      const uid = ballots.last;
      this.#context.acceptor.release(this.#row, uid);
      work.releasing = { uid, atMs: nowMs, left: RELEASES_MAX };
      this.#repeatRelease(work, nowMs, out);
    }
  }

  /** A client wants something of the cell, through this server. */
  ask(bidder: ClientBidder, nowMs: number, out: LeaseAction[]): void {
    assert(!this.#table.isOpen(this.#row), 'A cell belongs to servers or to clients');
    const work = this.#begin();
    work.asks.push(bidder);
    if (work.attempt === null && work.backoffMs === 0) work.attemptAtMs = nowMs;
    this.#attemptIfDue(nowMs, out);
  }

  /** The voters changed: no attempt counts votes of two views. @returns whether one may have been under way */
  forsake(out: LeaseAction[]): boolean {
    const work = this.#work;
    if (work === null) return false;
    this.#end(work);
    for (const { ask } of work.asks) out.push(answered(ask, { kind: 'unknown' }));
    work.asks = [];
    work.backoffMs = 0;
    work.attemptAtMs = Infinity;
    return true;
  }

  /** Own clock is wrong: whatever was held is not to be acted on. */
  fault(out: LeaseAction[]): void {
    if (this.#isOwn()) out.push({ kind: 'lost', cell: this.id });
    for (const { ask } of this.#work?.asks ?? []) out.push(answered(ask, { kind: 'unknown' }));
    this.#table.setBelief(this.#row, null);
    this.#table.setOpen(this.#row, false);
    this.#works.delete(this.#row);
    this.#work = null;
  }

  /** During the silence after a start: take the hint, touch nothing, answer nothing. */
  hint(lease: Lease, nowMs: number, out: LeaseAction[]): void {
    const heard = this.#context.rules.heard(lease, nowMs);
    if (lease.claim === null && !this.#context.rules.isTooLong(lease, nowMs)) this.#learn(heard, nowMs, out);
  }

  message(from: ServerId, message: LeaseMessage, nowMs: number, out: LeaseAction[]): void {
    this.#expire(nowMs, out);
    this.#onMessage(from, message, nowMs, out);
    if (this.#work !== null && this.#work.asks.length > 0) this.#attemptIfDue(nowMs, out);
  }

  /** Its turn to acquire has come, if it still wants to. */
  turn(nowMs: number, out: LeaseAction[]): void {
    if (!this.#table.isOpen(this.#row) || this.#isOwn()) return;
    const work = this.#begin();
    work.attemptAtMs = Math.min(work.attemptAtMs, nowMs);
    this.#attemptIfDue(nowMs, out);
  }

  tick(nowMs: number, out: LeaseAction[]): void {
    this.#expire(nowMs, out);
    if (this.#work === null && !this.#table.isOpen(this.#row)) return;
    const work = this.#begin();
    this.#expireAsks(work, nowMs, out);
    const { attempt } = work;
    if (attempt !== null && nowMs >= attemptDeadlineMs(attempt, this.#context.parameters)) {
      this.#trace(out, 'timed-out', attempt.phase);
      this.#abort(work, nowMs);
    } else if (attempt !== null && nowMs >= attempt.repeatAtMs) {
      this.#repeat(work, attempt, nowMs, out);
    }
    this.#attemptIfDue(nowMs, out);
    this.#repeatRelease(work, nowMs, out);
  }

  #onMessage(from: ServerId, message: LeaseMessage, nowMs: number, out: LeaseAction[]): void {
    switch (message.kind) {
      case 'read':
      case 'query':
      case 'write':
        out.push({
          kind: 'send',
          to: from,
          message: this.#context.acceptor.accept(this.#row, message, nowMs, out),
        });
        break;
      case 'ack-read':
        this.#onAckRead(from, message, nowMs, out);
        break;
      case 'ack-write':
        this.#onAckWrite(from, message, nowMs, out);
        break;
      case 'nack-read':
      case 'nack-write':
      case 'refused-read':
      case 'refused-write':
        this.#onRefused(from, message, nowMs, out);
        break;
      case 'wrong-view':
        this.#onWrongView(message, nowMs, out);
        break;
      case 'learn':
        this.#onLearn(message, nowMs, out);
        break;
      case 'release':
        this.#onRelease(message, nowMs, out);
        break;
      default:
        unreachable(message);
    }
  }

  // News -----------------------------------------------------------------------------------------

  /** A decided lease, for the acceptor and for the proposer. */
  #onLearn(message: LearnMessage, nowMs: number, out: LeaseAction[]): void {
    const { acceptor, rules } = this.#context;
    if (!acceptor.learn(this.#row, message, nowMs)) return;
    const { lease } = message;
    if (lease.claim !== null) out.push({ kind: 'claimed', cell: this.id });
    else this.#learn(rules.heard(lease, nowMs), nowMs, out);
  }

  #onRelease(message: ReleaseMessage, nowMs: number, out: LeaseAction[]): void {
    const { uid } = message;
    this.#context.acceptor.release(this.#row, uid);
    const belief = this.#table.belief(this.#row);
    if (belief === null || belief.holder !== uid.server || belief.incarnation !== uid.incarnation) return;
    if (ballotCompare(belief.uid, uid) > 0 || this.#isOwn()) return;
    this.#table.setBelief(this.#row, null);
    if (!this.#table.isOpen(this.#row)) return;
    const work = this.#begin();
    const isChosen = work.succeeds === uid.server;
    work.succeeds = null;
    if (work.attempt !== null) return;
    work.attemptAtMs = isChosen ? nowMs : nowMs + this.#jitterMs() + work.handicapMs;
    if (isChosen) this.#attemptIfDue(nowMs, out);
  }

  // Proposer -------------------------------------------------------------------------------------

  /** Begins attempts as long as one is due: a lone voter decides at once, and the next may ask. */
  #attemptIfDue(nowMs: number, out: LeaseAction[]): void {
    for (;;) {
      const work = this.#work;
      if (work === null || work.attempt !== null || nowMs < work.attemptAtMs) return;
      if (work.asks.length === 0 && !this.#table.isOpen(this.#row)) return;
      if (!this.#attemptBegin(work, nowMs, out)) return;
    }
  }

  #attemptBegin(work: Work, nowMs: number, out: LeaseAction[]): boolean {
    const { parameters, ballots, rules, bidder, acceptor, flow } = this.#context;
    if (nowMs < rules.recovery.untilMs) {
      work.attemptAtMs = rules.recovery.untilMs + this.#jitterMs() + work.handicapMs;
      return false;
    }
    const asking = work.asks[0];
    const held = this.#isOwn();
    if (asking === undefined && !held) {
      // While somebody else is known to hold the lease, a READ would only disturb its renewals.
      const knownMs = this.#table.beliefUntilMs(this.#row);
      if (nowMs <= knownMs) {
        work.attemptAtMs = this.#afterEndMs(knownMs, nowMs);
        return false;
      }
    }
    if (flow.isFull && asking === undefined && !held) {
      flow.wait(this.#row);
      work.attemptAtMs = nowMs + parameters.repeatMs;
      return false;
    }
    flow.begin();
    // Each order goes by its own members: those of two names that share a cell may differ.
    if (asking !== undefined) acceptor.regroup(this.#row, asking.view, asking.members, asking.joint);
    const register = this.#table.register(this.#row);
    const attempting = asking ?? bidder;
    const query = attempting.queriesFirst(register.lease, nowMs);
    const attempt = attemptStart(
      attempting,
      ballots.next(nowMs, registerStanding(register)),
      query,
      nowMs,
      parameters,
    );
    this.#ask(work, attempt, this.#first(nowMs), nowMs, out);
    return true;
  }

  /** Asks some of the voters, a bit each; the own acceptor without the network, and last. */
  #ask(work: Work, attempt: Attempt, bits: number, nowMs: number, out: LeaseAction[]): void {
    const { self } = this.#context.parameters;
    const { voters, view } = this.#group();
    work.attempt = { ...attempt, asked: attempt.asked | bits };
    const message = this.#request(attempt, view);
    let asksSelf = false;
    for (let index = 0; index < voters.length; index++) {
      if ((bits & (1 << index)) === 0) continue;
      const to = voters[index] as ServerId;
      if (to === self) asksSelf = true;
      else out.push({ kind: 'send', to, message });
    }
    if (!asksSelf) return;
    this.#onMessage(self, this.#context.acceptor.accept(this.#row, message, nowMs, out), nowMs, out);
  }

  /** Whom to ask first: everybody, or as many as a majority needs. Safety knows no difference. */
  #first(nowMs: number): number {
    const { parameters, monitor, flow } = this.#context;
    const group = this.#group();
    if (!parameters.thrifty || flow.isSlow(nowMs)) return groupAll(group);
    // Who had the lease before may be about to end, and be one of few who are asked.
    const { lease } = this.#table.register(this.#row);
    if (lease !== null && lease.holder !== parameters.self && lease.claim === null) return groupAll(group);
    const sinceMs = nowMs - parameters.livelyMs;
    return groupSome(group, parameters.self, (peer) => monitor.heardMs(peer) >= sinceMs);
  }

  #request(attempt: Attempt, view: number): ReadMessage | QueryMessage | WriteMessage {
    const { ballot } = attempt;
    if (attempt.phase === 'reading') {
      return { kind: attempt.query ? 'query' : 'read', cell: this.id, view, ballot };
    }
    const lease = this.#context.rules.asked(attempt.lease, attempt.spanMs);
    return { kind: 'write', cell: this.id, view, ballot, lease, acquires: attempt.reason === 'acquire' };
  }

  /** Whoever has not answered is asked again, or for the first time. */
  #repeat(work: Work, attempt: Attempt, nowMs: number, out: LeaseAction[]): void {
    if (this.#isLost(attempt.tally)) {
      this.#trace(out, 'overruled', attempt.phase);
      this.#abort(work, nowMs);
      return;
    }
    this.#trace(out, 'repeated', attempt.phase);
    this.#context.flow.noteSlow(nowMs);
    const repeated = { ...attempt, repeatAtMs: nowMs + this.#context.parameters.repeatMs };
    const { acks, nacks } = attempt.tally;
    this.#ask(work, repeated, groupAll(this.#group()) & ~(acks | nacks), nowMs, out);
  }

  #onAckRead(from: ServerId, message: AckReadMessage, nowMs: number, out: LeaseAction[]): void {
    const work = this.#work;
    const attempt = work?.attempt;
    if (work === null || !attempt || attempt.phase !== 'reading') return;
    if (ballotCompare(message.ballot, attempt.ballot) !== 0) return;
    if (message.lease !== null && !attempt.bidder.knows(message.lease)) return;
    const group = this.#group();
    const tally = tallyAdd(attempt.tally, group, from, 'ack');
    if (tally === null) return;
    const { rules } = this.#context;
    const lease = message.lease === null ? null : rules.heard(message.lease, nowMs);
    const outranks = rules.outranks(attempt, message.written, lease);
    const merged = readingMerge(attempt, tally, message.written, lease, outranks);
    work.attempt = merged;
    if (tallyWon(tally, group)) this.#propose(work, merged, nowMs, out);
  }

  /** A majority has promised. One reading of the clock serves every decision here. */
  #propose(work: Work, attempt: ReadingAttempt, nowMs: number, out: LeaseAction[]): void {
    const { parameters, rules, flow } = this.#context;
    assert(nowMs >= attempt.startedMs, 'Answers come after questions');
    if (nowMs - attempt.startedMs > attempt.bidder.readMaxMs) {
      this.#trace(out, 'timed-out', 'reading');
      this.#abort(work, nowMs);
      return;
    }
    const finding = rules.finding(attempt, nowMs);
    const bid = attempt.bidder.bid(finding, attempt, nowMs);
    if (bid.kind === 'write') {
      const writing = attemptWrite(attempt, bid, nowMs, parameters);
      // Those that have promised are a majority; the others learn the outcome.
      const isThrifty = parameters.thrifty && !flow.isSlow(nowMs);
      const bits = isThrifty ? attempt.tally.acks : groupAll(this.#group());
      this.#ask(work, writing, bits, nowMs, out);
      return;
    }
    this.#end(work);
    if (bid.kind === 'done') {
      this.#answer(work, nowMs, out);
      return;
    }
    if (finding.kind === 'grace') this.#trace(out, 'waited-out-grace', leaseText(attempt.lease));
    work.attemptAtMs = bid.untilMs <= nowMs ? nowMs : bid.untilMs + this.#jitterMs();
    if (finding.kind === 'held') this.#learn(finding.lease, nowMs, out);
  }

  #onAckWrite(from: ServerId, message: AckWriteMessage, nowMs: number, out: LeaseAction[]): void {
    const work = this.#work;
    const attempt = work?.attempt;
    if (work === null || !attempt || attempt.phase !== 'writing') return;
    if (ballotCompare(message.ballot, attempt.ballot) !== 0) return;
    const group = this.#group();
    const tally = tallyAdd(attempt.tally, group, from, 'ack');
    if (tally === null) return;
    const counted = { ...attempt, tally };
    work.attempt = counted;
    if (tallyWon(tally, group)) this.#decide(work, counted, nowMs, out);
  }

  /** A majority has accepted λ: it is the cell's lease. */
  #decide(work: Work, attempt: WritingAttempt, nowMs: number, out: LeaseAction[]): void {
    const { self, incarnation } = this.#context.parameters;
    const { rules } = this.#context;
    const { lease, ballot } = attempt;
    const { voters, view } = this.#group();
    this.#end(work);
    work.backoffMs = 0;
    const told = rules.told(lease, nowMs) ?? (lease.claim === null ? null : { ...lease, untilMs: 0 });
    if (told !== null) {
      const message = { kind: 'learn', cell: this.id, view, ballot, lease: told } as const;
      for (const to of voters) if (to !== self) out.push({ kind: 'send', to, message });
    }
    if (lease.claim !== null) {
      if (voters.includes(self)) out.push({ kind: 'claimed', cell: this.id });
      // Decided too late to be of use: the client is owed one that runs, or a refusal.
      const over = attempt.reason !== 'help' && !lease.released && nowMs >= lease.untilMs;
      if (over) this.#abort(work, nowMs);
      else this.#answer(work, nowMs, out);
    } else if (lease.holder !== self || lease.incarnation !== incarnation) {
      this.#trace(out, 'helped', leaseText(lease));
      work.attemptAtMs = this.#afterEndMs(lease.untilMs, nowMs);
      this.#learn(lease, nowMs, out);
    } else if (nowMs < lease.untilMs) {
      const held = this.#isOwn();
      assert(!held || lease.untilMs >= this.#table.beliefUntilMs(this.#row), 'A renewal never shortens');
      this.#trace(out, held ? 'renewed' : 'decided', '');
      this.#table.setBelief(this.#row, lease);
      work.attemptAtMs = this.#renewalMs(lease.untilMs);
      out.push({ kind: 'held', cell: this.id, untilMs: lease.untilMs, view: this.#group().view });
    } else {
      // Decided too late to be acted on. It harms nobody: others see that it is over.
      work.attemptAtMs = nowMs + this.#nextBackoffMs(work);
    }
  }

  #onRefused(from: ServerId, message: NackMessage | RefusedMessage, nowMs: number, out: LeaseAction[]): void {
    const work = this.#work;
    const attempt = work?.attempt;
    if (work === null || !attempt || ballotCompare(message.ballot, attempt.ballot) !== 0) return;
    const phase = message.kind === 'nack-read' || message.kind === 'refused-read' ? 'reading' : 'writing';
    if (phase !== attempt.phase) return;
    if (message.kind === 'nack-read' || message.kind === 'nack-write') {
      this.#context.ballots.overtake(message.standing);
    }
    const group = this.#group();
    const tally = tallyAdd(attempt.tally, group, from, 'nack');
    if (tally === null) return;
    const refused = { ...attempt, tally };
    work.attempt = refused;
    if (this.#isLost(tally)) {
      this.#trace(out, 'overruled', message.kind);
      this.#abort(work, nowMs);
      return;
    }
    const rest = groupAll(group) & ~attempt.asked;
    if (rest !== 0) this.#ask(work, refused, rest, nowMs, out);
  }

  #isLost(tally: Attempt['tally']): boolean {
    return tallyLost(tally, this.#group(), (voter) => this.#context.monitor.isAway(voter));
  }

  /** Members have changed and this server does not know it yet: whoever opened the cell opens it anew. */
  #onWrongView(message: WrongViewMessage, nowMs: number, out: LeaseAction[]): void {
    const work = this.#work;
    const attempt = work?.attempt;
    if (work === null || !attempt || ballotCompare(message.ballot, attempt.ballot) !== 0) return;
    this.#trace(out, 'wrong-view', `${this.#group().view} < ${message.view}`);
    this.#abort(work, nowMs);
  }

  /** No attempt is under way any more. */
  #end(work: Work): void {
    if (work.attempt === null) return;
    work.attempt = null;
    this.#context.flow.end();
  }

  /** Gives the attempt up. If its WRITE left, the lease may yet be chosen: nothing is concluded from this. */
  #abort(work: Work, nowMs: number): void {
    this.#end(work);
    work.attemptAtMs = nowMs + this.#nextBackoffMs(work);
  }

  // Clients --------------------------------------------------------------------------------------

  /** The attempt for the client that asked first has come to its end. */
  #answer(work: Work, nowMs: number, out: LeaseAction[]): void {
    const first = work.asks.shift();
    assert(first !== undefined, 'A claim is asked for');
    out.push(answered(first.ask, first.outcome));
    work.backoffMs = 0;
    work.attemptAtMs = work.asks.length === 0 ? Infinity : nowMs;
  }

  /** What was written for a client whose time is over may or may not come about. */
  #expireAsks(work: Work, nowMs: number, out: LeaseAction[]): void {
    if (work.asks.length === 0) return;
    const first = work.asks[0];
    const left = work.asks.filter(({ deadlineMs }) => nowMs < deadlineMs);
    if (left.length === work.asks.length) return;
    for (const { ask, deadlineMs } of work.asks) {
      if (nowMs >= deadlineMs) out.push(answered(ask, { kind: 'unknown' }));
    }
    work.asks = left;
    if (left[0] === first) return;
    this.#end(work);
    work.backoffMs = 0;
    work.attemptAtMs = left.length === 0 ? Infinity : nowMs;
  }

  // Knowledge ------------------------------------------------------------------------------------

  /** News of a lease of another server, on this server's clock. */
  #learn(lease: Lease, nowMs: number, out: LeaseAction[]): void {
    const { bidder } = this.#context;
    if (lease.claim !== null || lease.released || nowMs > lease.untilMs) return;
    if (bidder.isMine(lease)) return;
    const table = this.#table;
    // An own lease that still runs is not given up for what others say; the clocks decide.
    const held = this.#isOwn();
    const known = table.belief(this.#row);
    // What is over bars nothing: without common clocks the next holder's ballots may be smaller.
    const isRunning = known !== null && nowMs <= known.untilMs;
    if (isRunning && !held && ballotCompare(lease.uid, known.uid) <= 0) return;
    this.#pushLearned(lease, out);
    if (held) return;
    table.setBelief(this.#row, lease);
    const work = this.#work;
    if (work?.attempt?.phase === 'writing' || !table.isOpen(this.#row)) return;
    const begun = this.#begin();
    this.#end(begun);
    begun.attemptAtMs = this.#afterEndMs(lease.untilMs, nowMs);
  }

  #pushLearned(lease: Belief, out: LeaseAction[]): void {
    const { holder, incarnation, untilMs } = lease;
    // An earlier life of this server is nobody to redirect to.
    if (holder === this.#context.parameters.self) return;
    out.push({ kind: 'learned', cell: this.id, holder, incarnation, untilMs });
  }

  /** Notices that the own lease is over. Says so late if nobody looked; `holds` never does. */
  #expire(nowMs: number, out: LeaseAction[]): void {
    const table = this.#table;
    if (nowMs < table.beliefUntilMs(this.#row) || !this.#isOwn()) return;
    table.setBelief(this.#row, null);
    this.#trace(out, 'expired', '');
    out.push({ kind: 'lost', cell: this.id });
  }

  #isOwn(): boolean {
    const { self, incarnation } = this.#context.parameters;
    return this.#table.beliefIsOf(this.#row, self, incarnation);
  }

  // Row and work ---------------------------------------------------------------------------------

  #group(): Group {
    return this.#table.group(this.#row);
  }

  /** The work at this cell, begun if there is none. */
  #begin(): Work {
    if (this.#work !== null) return this.#work;
    const { wheel } = this.#context;
    const work = workBegin(this.#table.isOpen(this.#row) ? wheel.dueMs(this.#row) : Infinity);
    this.#works.set(this.#row, work);
    this.#work = work;
    return work;
  }

  // Time -----------------------------------------------------------------------------------------

  /** When to renew: spread, so that leases acquired together are not renewed together for ever. */
  #renewalMs(untilMs: number): number {
    const { renewBeforeMs, jitterMaxMs } = this.#context.parameters;
    return untilMs - renewBeforeMs - this.#context.prng.next() * jitterMaxMs;
  }

  /**
   * When to compete for a lease of somebody else: after its end on every clock, the lagging ones later.
   * Whoever's clock is ahead would always come first, so it waits for the slowest: all begin together,
   * and chance decides.
   */
  #afterEndMs(untilMs: number, nowMs: number): number {
    const { parameters, rules, monitor } = this.#context;
    const aheadMs = rules.comparesClocks ? monitor.aheadMs(nowMs) : 0;
    const handicapMs = this.#work?.handicapMs ?? 0;
    return untilMs + parameters.clockSkewMaxMs + aheadMs + this.#jitterMs() + handicapMs;
  }

  #jitterMs(): number {
    return 1 + this.#context.prng.next() * this.#context.parameters.jitterMaxMs;
  }

  /** Doubles while attempts fail, with a random part: two that collide must not collide again in step. */
  #nextBackoffMs(work: Work): number {
    const { backoffMinMs, backoffMaxMs } = this.#context.parameters;
    work.backoffMs = Math.min(Math.max(backoffMinMs, work.backoffMs * 2), backoffMaxMs);
    return work.backoffMs * (1 + 2 * this.#context.prng.next());
  }

  #repeatRelease(work: Work, nowMs: number, out: LeaseAction[]): void {
    const { releasing } = work;
    if (releasing === null || nowMs < releasing.atMs) return;
    const { self, repeatMs } = this.#context.parameters;
    const { uid, left } = releasing;
    const { voters, view } = this.#group();
    const message = { kind: 'release', cell: this.id, view, uid } as const;
    for (const to of voters) if (to !== self) out.push({ kind: 'send', to, message });
    work.releasing = left > 1 ? { uid, atMs: nowMs + repeatMs, left: left - 1 } : null;
  }

  #trace(out: LeaseAction[], mark: LeaseMark, detail: string): void {
    out.push({ kind: 'trace', mark, cell: this.id, detail });
  }
}

function answered(ask: number, outcome: LeaseOutcome): LeaseAction {
  return { kind: 'answered', ask, outcome };
}

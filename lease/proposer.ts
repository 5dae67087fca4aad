import { assert, unreachable } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import { answeredAction, type LeaseAction } from './actions.ts';
import {
  type Attempt,
  attemptStart,
  attemptWrite,
  type ReadingAttempt,
  readingMerge,
  tallyAdd,
  tallyLost,
  tallyWon,
  type WritingAttempt,
} from './attempt.ts';
import type { AttemptTiming } from './attempt-timing.ts';
import { ballotCompare } from './ballot.ts';
import type { CellContext, CellCursor } from './cell-cursor.ts';
import { groupAll, groupMajority } from './group.ts';
import type { HolderKnowledge } from './holder-knowledge.ts';
import { leaseText } from './lease.ts';
import type {
  AckReadMessage,
  AckWriteMessage,
  NackMessage,
  QueryMessage,
  ReadMessage,
  RefusedMessage,
  WriteMessage,
  WrongViewMessage,
} from './messages.ts';
import { registerBallotMax } from './register.ts';
import type { CellWork } from './work.ts';

type AcceptorAnswer = AckReadMessage | AckWriteMessage | NackMessage | RefusedMessage | WrongViewMessage;

/** The proposer of a cell: one attempt at a time, for this server or a client. [Flease] Alg. 4, [PaxosLease] §4. */
export class Proposer {
  readonly #context: CellContext;
  readonly #cursor: CellCursor;
  readonly #timing: AttemptTiming;
  readonly #knowledge: HolderKnowledge;

  constructor(context: CellContext, cursor: CellCursor, timing: AttemptTiming, knowledge: HolderKnowledge) {
    this.#context = context;
    this.#cursor = cursor;
    this.#timing = timing;
    this.#knowledge = knowledge;
  }

  /** Starts an attempt if one is due. Repeats: a single voter decides at once, and the next order may start. */
  attemptIfDue(nowMs: number, out: LeaseAction[]): void {
    for (;;) {
      const work = this.#cursor.work;
      if (work === null || work.attempt !== null || nowMs < work.attemptAtMs) return;
      if (work.orders.length === 0 && !this.#cursor.isOpen) return;
      if (!this.#startAttempt(work, nowMs, out)) return;
    }
  }

  /** Asks voters for the first order, else for this server. @returns false if postponed to a new `attemptAtMs` */
  #startAttempt(work: CellWork, nowMs: number, out: LeaseAction[]): boolean {
    const { parameters, ballots, rules, serverBidder, acceptor, attemptLimit } = this.#context;
    if (nowMs < rules.recovery.untilMs) {
      work.attemptAtMs = rules.recovery.untilMs + this.#timing.jitterMs() + work.handicapMs;
      return false;
    }
    const client = work.orders[0];
    const held = this.#cursor.isOwn;
    if (client === undefined && !held) {
      // A READ would only disturb the renewals of the known holder.
      const knownMs = this.#context.table.knownUntilMs(this.#cursor.row);
      if (nowMs <= knownMs) {
        work.attemptAtMs = this.#timing.afterEndMs(knownMs, nowMs);
        return false;
      }
    }
    if (attemptLimit.isFull && client === undefined && !held) {
      attemptLimit.queue(this.#cursor.row);
      work.attemptAtMs = nowMs + parameters.repeatMs;
      return false;
    }
    attemptLimit.begin();
    // Each order has its own members: two names that share a cell may have different ones.
    if (client !== undefined) acceptor.regroup(this.#cursor.row, client.view, client.members, client.joint);
    const register = this.#context.table.register(this.#cursor.row);
    const attemptBidder = client ?? serverBidder;
    const query = attemptBidder.queriesFirst(register.lease, nowMs);
    const attempt = attemptStart(
      attemptBidder,
      ballots.next(nowMs, registerBallotMax(register)),
      query,
      nowMs,
      parameters,
    );
    this.#ask(work, attempt, this.#votersAskedFirst(nowMs), nowMs, out);
    return true;
  }

  /** Asks the voters of `bits`; the local acceptor last, without the network. */
  #ask(work: CellWork, attempt: Attempt, bits: number, nowMs: number, out: LeaseAction[]): void {
    const { self } = this.#context.parameters;
    const { voters, view } = this.#cursor.group;
    work.attempt = attempt;
    attempt.asked |= bits;
    const message = this.#requestMessage(attempt, view);
    let asksSelf = false;
    for (let index = 0; index < voters.length; index++) {
      if ((bits & (1 << index)) === 0) continue;
      const to = voters[index] as ServerId;
      if (to === self) asksSelf = true;
      else out.push({ kind: 'send', to, message });
    }
    if (!asksSelf) return;
    this.receive(self, this.#context.acceptor.accept(this.#cursor.row, message, nowMs, out), nowMs, out);
  }

  /** Bits of the voters to ask first: all, or just a majority. Both are safe. `repeat` asks the others. */
  #votersAskedFirst(nowMs: number): number {
    const { parameters, monitor, attemptLimit } = this.#context;
    const group = this.#cursor.group;
    if (!parameters.thrifty || attemptLimit.hasSlowVoters(nowMs)) return groupAll(group);
    // The last holder may have failed. If only a majority with it were asked, the attempt would wait for its answer.
    const { lease } = this.#context.table.register(this.#cursor.row);
    if (lease !== null && lease.holder !== parameters.self && lease.claim === null) return groupAll(group);
    const sinceMs = nowMs - parameters.presentMs;
    return groupMajority(group, parameters.self, (peer) => monitor.lastFrameMs(peer) >= sinceMs);
  }

  #requestMessage(attempt: Attempt, view: number): ReadMessage | QueryMessage | WriteMessage {
    const { ballot } = attempt;
    if (attempt.phase === 'reading') {
      return { kind: attempt.query ? 'query' : 'read', cell: this.#cursor.id, view, ballot };
    }
    const lease = this.#context.rules.leaseToWrite(attempt.lease, attempt.spanMs);
    return {
      kind: 'write',
      cell: this.#cursor.id,
      view,
      ballot,
      lease,
      acquires: attempt.reason === 'acquire',
    };
  }

  /** Asks the voters that did not answer, and those not asked yet. */
  repeat(work: CellWork, attempt: Attempt, nowMs: number, out: LeaseAction[]): void {
    if (this.#isLost(attempt.tally)) {
      this.#cursor.trace(out, 'overruled', attempt.phase);
      this.abort(work, nowMs);
      return;
    }
    this.#cursor.trace(out, 'repeated', attempt.phase);
    this.#context.attemptLimit.noteSlowVoters(nowMs);
    attempt.repeatAtMs = nowMs + this.#context.parameters.repeatMs;
    const { acks, nacks } = attempt.tally;
    this.#ask(work, attempt, groupAll(this.#cursor.group) & ~(acks | nacks), nowMs, out);
  }

  receive(from: ServerId, message: AcceptorAnswer, nowMs: number, out: LeaseAction[]): void {
    switch (message.kind) {
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
      default:
        unreachable(message);
    }
  }

  #onAckRead(from: ServerId, message: AckReadMessage, nowMs: number, out: LeaseAction[]): void {
    const work = this.#cursor.work;
    const attempt = work?.attempt;
    if (work === null || !attempt || attempt.phase !== 'reading') return;
    if (ballotCompare(message.ballot, attempt.ballot) !== 0) return;
    if (message.lease !== null && !attempt.bidder.isOwnKind(message.lease)) return;
    const group = this.#cursor.group;
    const tally = tallyAdd(attempt.tally, group, from, 'ack');
    if (tally === null) return;
    const { rules } = this.#context;
    const lease = message.lease === null ? null : rules.leaseReceived(message.lease, nowMs);
    const outranks = rules.outranks(attempt, message.written, lease);
    readingMerge(attempt, tally, message.written, lease, outranks);
    if (tallyWon(tally, group)) this.#propose(work, attempt, nowMs, out);
  }

  /** A majority promised: the bidder writes a lease, waits, or is done, by one clock reading. */
  #propose(work: CellWork, attempt: ReadingAttempt, nowMs: number, out: LeaseAction[]): void {
    const { parameters, rules, attemptLimit } = this.#context;
    assert(nowMs >= attempt.startedMs, 'Answers come after questions');
    if (nowMs - attempt.startedMs > attempt.bidder.readMaxMs) {
      this.#cursor.trace(out, 'timed-out', 'reading');
      this.abort(work, nowMs);
      return;
    }
    const finding = rules.finding(attempt, nowMs);
    const bid = attempt.bidder.bid(finding, attempt, nowMs);
    if (bid.kind === 'write') {
      const writing = attemptWrite(attempt, bid, nowMs, parameters);
      // The voters that promised are a majority; the others learn the outcome.
      const isThrifty = parameters.thrifty && !attemptLimit.hasSlowVoters(nowMs);
      const bits = isThrifty ? attempt.tally.acks : groupAll(this.#cursor.group);
      this.#ask(work, writing, bits, nowMs, out);
      return;
    }
    this.#cursor.endAttempt(work);
    if (bid.kind === 'done') {
      this.#answerFirstOrder(work, nowMs, out);
      return;
    }
    if (finding.kind === 'grace') this.#cursor.trace(out, 'waited-out-grace', leaseText(attempt.lease));
    work.attemptAtMs = bid.untilMs <= nowMs ? nowMs : bid.untilMs + this.#timing.jitterMs();
    if (finding.kind === 'held') this.#knowledge.learn(finding.lease, nowMs, out);
  }

  #onAckWrite(from: ServerId, message: AckWriteMessage, nowMs: number, out: LeaseAction[]): void {
    const work = this.#cursor.work;
    const attempt = work?.attempt;
    if (work === null || !attempt || attempt.phase !== 'writing') return;
    if (ballotCompare(message.ballot, attempt.ballot) !== 0) return;
    const group = this.#cursor.group;
    const tally = tallyAdd(attempt.tally, group, from, 'ack');
    if (tally === null) return;
    attempt.tally = tally;
    if (tallyWon(tally, group)) this.#decide(work, attempt, nowMs, out);
  }

  /** A majority accepted λ: it is the cell's lease. */
  #decide(work: CellWork, attempt: WritingAttempt, nowMs: number, out: LeaseAction[]): void {
    const { self, incarnation } = this.#context.parameters;
    const { rules } = this.#context;
    const { lease, ballot } = attempt;
    const { voters, view } = this.#cursor.group;
    this.#cursor.endAttempt(work);
    work.backoffMs = 0;
    // Null if the lease is over in PaxosLease. Members must still learn that a claim ended.
    const sent = rules.leaseToSend(lease, nowMs) ?? (lease.claim === null ? null : { ...lease, untilMs: 0 });
    if (sent !== null) {
      const message = { kind: 'learn', cell: this.#cursor.id, view, ballot, lease: sent } as const;
      for (const to of voters) if (to !== self) out.push({ kind: 'send', to, message });
    }
    if (lease.claim !== null) {
      if (voters.includes(self)) out.push({ kind: 'claimed', cell: this.#cursor.id });
      // Decided too late: the client needs a running lease, or a refusal.
      const isTooLate = attempt.reason !== 'help' && !lease.released && nowMs >= lease.untilMs;
      if (isTooLate) this.abort(work, nowMs);
      else this.#answerFirstOrder(work, nowMs, out);
    } else if (lease.holder !== self || lease.incarnation !== incarnation) {
      this.#cursor.trace(out, 'helped', leaseText(lease));
      work.attemptAtMs = this.#timing.afterEndMs(lease.untilMs, nowMs);
      this.#knowledge.learn(lease, nowMs, out);
    } else if (nowMs < lease.untilMs) {
      const held = this.#cursor.isOwn;
      assert(
        !held || lease.untilMs >= this.#context.table.knownUntilMs(this.#cursor.row),
        'A renewal never shortens',
      );
      this.#cursor.trace(out, held ? 'renewed' : 'decided', '');
      this.#context.table.setKnownLease(this.#cursor.row, lease);
      work.attemptAtMs = this.#timing.renewalMs(lease.untilMs);
      out.push({
        kind: 'held',
        cell: this.#cursor.id,
        untilMs: lease.untilMs,
        view: this.#cursor.group.view,
      });
    } else {
      // Decided too late to act on. Harmless: others see that it is over.
      work.attemptAtMs = nowMs + this.#timing.nextBackoffMs(work);
    }
  }

  /** Counts a refusal: aborts if a majority has become impossible, else asks the voters that were not asked. */
  #onRefused(from: ServerId, message: NackMessage | RefusedMessage, nowMs: number, out: LeaseAction[]): void {
    const work = this.#cursor.work;
    const attempt = work?.attempt;
    if (work === null || !attempt || ballotCompare(message.ballot, attempt.ballot) !== 0) return;
    const phase = message.kind === 'nack-read' || message.kind === 'refused-read' ? 'reading' : 'writing';
    if (phase !== attempt.phase) return;
    if (message.kind === 'nack-read' || message.kind === 'nack-write') {
      this.#context.ballots.raiseAbove(message.largestBallot);
    }
    const group = this.#cursor.group;
    const tally = tallyAdd(attempt.tally, group, from, 'nack');
    if (tally === null) return;
    attempt.tally = tally;
    if (this.#isLost(tally)) {
      this.#cursor.trace(out, 'overruled', message.kind);
      this.abort(work, nowMs);
      return;
    }
    const rest = groupAll(group) & ~attempt.asked;
    if (rest !== 0) this.#ask(work, attempt, rest, nowMs, out);
  }

  #isLost(tally: Attempt['tally']): boolean {
    return tallyLost(tally, this.#cursor.group, (voter) => this.#context.monitor.isDisconnected(voter));
  }

  /** Aborts: members changed, and this server does not know it yet. An event brings the new view. */
  #onWrongView(message: WrongViewMessage, nowMs: number, out: LeaseAction[]): void {
    const work = this.#cursor.work;
    const attempt = work?.attempt;
    if (work === null || !attempt || ballotCompare(message.ballot, attempt.ballot) !== 0) return;
    this.#cursor.trace(out, 'wrong-view', `${this.#cursor.group.view} < ${message.view}`);
    this.abort(work, nowMs);
  }

  /** Aborts the attempt. If its WRITE was sent, the lease may still be chosen; no conclusion is drawn. */
  abort(work: CellWork, nowMs: number): void {
    this.#cursor.endAttempt(work);
    work.attemptAtMs = nowMs + this.#timing.nextBackoffMs(work);
  }

  #answerFirstOrder(work: CellWork, nowMs: number, out: LeaseAction[]): void {
    const first = work.orders.shift();
    assert(first !== undefined, 'An order waits');
    out.push(answeredAction(first.ask, first.outcome));
    work.backoffMs = 0;
    work.attemptAtMs = work.orders.length === 0 ? Infinity : nowMs;
  }

  /** Ends orders past their deadline as unknown: their WRITEs may or may not be decided. */
  expireAsks(work: CellWork, nowMs: number, out: LeaseAction[]): void {
    if (work.orders.length === 0) return;
    const first = work.orders[0];
    const left = work.orders.filter(({ deadlineMs }) => nowMs < deadlineMs);
    if (left.length === work.orders.length) return;
    for (const { ask, deadlineMs } of work.orders) {
      if (nowMs >= deadlineMs) out.push(answeredAction(ask, { kind: 'unknown' }));
    }
    work.orders = left;
    if (left[0] === first) return;
    this.#cursor.endAttempt(work);
    work.backoffMs = 0;
    work.attemptAtMs = left.length === 0 ? Infinity : nowMs;
  }
}

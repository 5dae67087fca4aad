import { assert, unreachable } from '../base/assert.ts';
import type { CellId, ServerId } from '../base/ids.ts';
import type { Prng } from '../base/prng.ts';
import type { LeaseAction, LeaseMark, LeaseView } from './actions.ts';
import {
  BALLOT_ZERO,
  type Ballot,
  type BallotSequence,
  ballotCompare,
  ballotMax,
  ballotText,
} from './ballot.ts';
import { type Lease, leaseAge, leaseText } from './lease.ts';
import type {
  AckReadMessage,
  AckWriteMessage,
  LearnMessage,
  LeaseMessage,
  NackMessage,
  ReadMessage,
  RefusedMessage,
  ReleaseMessage,
  WriteMessage,
  WrongViewMessage,
} from './messages.ts';
import type { LeaseParameters } from './parameters.ts';
import {
  type Attempt,
  attemptDeadlineMs,
  attemptStart,
  attemptWrite,
  MEMBERS_MAX,
  proposalChoose,
  type ReadingAttempt,
  readingMerge,
  tallyAdd,
  tallyAwaits,
  tallyLost,
  tallyWon,
  type WritingAttempt,
} from './proposer.ts';
import { ballotRefusal, type Recovery } from './recovery.ts';
import {
  REGISTER_EMPTY,
  type Register,
  registerRead,
  registerRelease,
  registerStanding,
  registerStillValid,
  registerWrite,
} from './register.ts';

/** What all cells of a server share. */
export interface CellContext {
  readonly parameters: LeaseParameters;
  readonly recovery: Recovery;
  readonly ballots: BallotSequence;
  readonly prng: Prng;
}

/** A RELEASE is not answered; it is said so many times. A lost one costs others the wait, no more. */
const RELEASES_MAX = 3;

const NO_MEMBERS: readonly ServerId[] = [];

/** A RELEASE being repeated. */
interface Releasing {
  readonly uid: Ballot;
  readonly atMs: number;
  readonly left: number;
}

/** What a test may look at. */
export interface CellState {
  readonly register: Register;
  readonly own: Lease | null;
  readonly known: Lease | null;
  readonly attempt: Attempt | null;
}

/**
 * One cell on one server: its acceptor (a register), its proposer (at most one attempt), and what is
 * known of its holder. Takes events and the time, appends actions. [Flease]
 */
export class Cell {
  readonly id: CellId;
  /** Earliest entry in the timer heap, kept by the host. */
  timerMs = Infinity;

  readonly #context: CellContext;
  /** The view this server opened the cell with, and the members it has. */
  #view = 0;
  #members = NO_MEMBERS;
  /** The newest view anybody asked us by: older ones are refused from then on. */
  #viewSeen = 0;
  #open = false;
  #handicapMs = 0;
  #register = REGISTER_EMPTY;
  /** The lease this server acts on. `holds` decides at each use; this being set decides nothing. */
  #own: Lease | null = null;
  /** The newest lease of another that was decided, as far as this server heard. A hint. */
  #known: Lease | null = null;
  #attempt: Attempt | null = null;
  /** Ballot of the latest attempt, also of one that was given up: its WRITE may still be under way. */
  #lastBallot: Ballot = BALLOT_ZERO;
  /** No attempt before this. */
  #attemptAtMs = Infinity;
  #backoffMs = 0;
  #releasing: Releasing | null = null;
  #touchedMs: number;

  constructor(id: CellId, context: CellContext, nowMs: number) {
    this.id = id;
    this.#context = context;
    this.#touchedMs = nowMs;
  }

  // What others ask ------------------------------------------------------------------------------

  /** Whether this server may act as holder at this reading of the clock. Strictly before the end. */
  holds(nowMs: number): boolean {
    return this.#own !== null && nowMs < this.#own.untilMs;
  }

  view(nowMs: number): LeaseView {
    if (this.#own !== null && this.holds(nowMs)) {
      const { holder, untilMs } = this.#own;
      return { holder, own: true, remainingMs: untilMs - nowMs };
    }
    const known = this.#knownValid(nowMs);
    if (known === null) return { holder: null, own: false, remainingMs: 0 };
    const { holder, untilMs } = known;
    // An earlier life of this server is waited for, but nobody is sent to it.
    const alive = holder === this.#context.parameters.self ? null : holder;
    return { holder: alive, own: false, remainingMs: untilMs - nowMs };
  }

  state(): CellState {
    return { register: this.#register, own: this.#own, known: this.#known, attempt: this.#attempt };
  }

  /** When `tick` has something to do. */
  dueMs(): number {
    const { parameters } = this.#context;
    let dueMs = Infinity;
    if (this.#own !== null) dueMs = this.#own.untilMs;
    if (this.#attempt !== null) {
      dueMs = Math.min(dueMs, this.#attempt.repeatAtMs, attemptDeadlineMs(this.#attempt, parameters));
    } else if (this.#open) {
      dueMs = Math.min(dueMs, this.#attemptAtMs);
    }
    if (this.#releasing !== null) dueMs = Math.min(dueMs, this.#releasing.atMs);
    return this.#isIdle() ? this.#touchedMs + parameters.forgetMs : dueMs;
  }

  /** Nobody here needs the cell, and all that could be said of it is too old to be heard. */
  isForgettable(nowMs: number): boolean {
    return this.#isIdle() && nowMs >= this.#touchedMs + this.#context.parameters.forgetMs;
  }

  // Events ---------------------------------------------------------------------------------------

  open(
    view: number,
    members: readonly ServerId[],
    handicapMs: number,
    nowMs: number,
    out: LeaseAction[],
  ): void {
    const { self } = this.#context.parameters;
    assert(members.includes(self), 'Who opens a cell is one of its members');
    assert(members.length <= MEMBERS_MAX, 'Members fit a tally');
    this.#expire(nowMs, out);
    const changed = view !== this.#view || members.join() !== this.#members.join();
    if (changed) this.#attempt = null;
    const again = this.#open && !changed;
    this.#view = view;
    this.#viewSeen = Math.max(this.#viewSeen, view);
    this.#members = members;
    this.#handicapMs = handicapMs;
    this.#open = true;
    if (again) return;
    this.#backoffMs = 0;
    if (this.#own !== null) {
      out.push({ kind: 'held', cell: this.id, untilMs: this.#own.untilMs });
      this.#attemptAtMs = changed ? nowMs : this.#renewalMs(this.#own);
    } else {
      const known = this.#knownValid(nowMs);
      if (known !== null) this.#pushLearned(known, out);
      this.#attemptAtMs = known === null ? nowMs + handicapMs : this.#afterEndMs(known);
    }
    this.#attemptIfDue(nowMs, out);
  }

  close(nowMs: number, out: LeaseAction[]): void {
    this.#expire(nowMs, out);
    this.#open = false;
    this.#attempt = null;
    this.#attemptAtMs = Infinity;
    this.#touchedMs = nowMs;
  }

  /**
   * Gives the lease back. The caller has stopped acting on it; only now does RELEASE go out. It names
   * the largest ballot this server may have written, so that an unfinished renewal is void as well.
   */
  release(nowMs: number, out: LeaseAction[]): void {
    this.#expire(nowMs, out);
    const own = this.#own;
    this.#attempt = null;
    this.#attemptAtMs = nowMs + this.#context.parameters.renewBeforeMs;
    this.#touchedMs = nowMs;
    if (own === null) return;
    this.#own = null;
    out.push({ kind: 'lost', cell: this.id });
    this.#trace(out, 'released', '');
    const uid = ballotMax(own.uid, this.#lastBallot);
    this.#register = registerRelease(this.#register, uid);
    this.#releasing = { uid, atMs: nowMs, left: RELEASES_MAX };
    this.#repeatRelease(nowMs, out);
  }

  /** Own clock is wrong: whatever was held is not to be acted on. */
  fault(out: LeaseAction[]): void {
    if (this.#own !== null) out.push({ kind: 'lost', cell: this.id });
    this.#own = null;
    this.#known = null;
    this.#attempt = null;
    this.#releasing = null;
    this.#open = false;
  }

  /** During the silence after a start: take the hint, touch nothing, answer nothing. */
  hint(lease: Lease, nowMs: number, out: LeaseAction[]): void {
    this.#touchedMs = nowMs;
    this.#learn(lease, nowMs, out);
  }

  message(from: ServerId, message: LeaseMessage, nowMs: number, out: LeaseAction[]): void {
    this.#expire(nowMs, out);
    switch (message.kind) {
      case 'read':
      case 'write': {
        const reply = this.#accept(message, nowMs, out);
        out.push({ kind: 'send', to: from, message: reply });
        break;
      }
      case 'ack-read':
        this.#onAckRead(from, message, nowMs, out);
        break;
      case 'ack-write':
        this.#onAckWrite(from, message, nowMs, out);
        break;
      case 'nack-read':
      case 'nack-write':
        this.#context.ballots.overtake(message.standing);
        this.#onRefused(from, message, nowMs, out);
        break;
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
        this.#onRelease(message, nowMs);
        break;
      default:
        unreachable(message);
    }
  }

  tick(nowMs: number, out: LeaseAction[]): void {
    this.#expire(nowMs, out);
    const attempt = this.#attempt;
    if (attempt !== null && nowMs >= attemptDeadlineMs(attempt, this.#context.parameters)) {
      this.#trace(out, 'timed-out', attempt.phase);
      this.#abort(nowMs);
    } else if (attempt !== null && nowMs >= attempt.repeatAtMs) {
      this.#repeat(attempt, nowMs, out);
    }
    this.#attemptIfDue(nowMs, out);
    this.#repeatRelease(nowMs, out);
  }

  // Acceptor -------------------------------------------------------------------------------------

  #accept(
    message: ReadMessage | WriteMessage,
    nowMs: number,
    out: LeaseAction[],
  ): ReadReplyMessage | WriteReplyMessage {
    const { cell, ballot } = message;
    const { parameters, recovery } = this.#context;
    assert(nowMs >= recovery.untilMs, 'An acceptor that may have forgotten something keeps silent');
    this.#touchedMs = nowMs;
    const { view } = message;
    if (view < this.#viewSeen) {
      this.#trace(out, 'wrong-view', `${view} < ${this.#viewSeen}`);
      return { kind: 'wrong-view', cell, view: this.#viewSeen, ballot };
    }
    this.#viewSeen = view;
    const refused = message.kind === 'read' ? 'refused-read' : 'refused-write';
    const reason =
      ballotRefusal(ballot, recovery.floor, nowMs, parameters) ??
      (message.kind === 'write' ? this.#leaseRefusal(message, nowMs) : null);
    if (reason !== null) {
      this.#trace(out, `refused-${reason}`, ballotText(ballot));
      return { kind: refused, cell, view, ballot, reason };
    }
    const [register, reply] =
      message.kind === 'read'
        ? registerRead(this.#register, ballot)
        : registerWrite(this.#register, ballot, message.lease);
    this.#register = register;
    return { ...reply, cell, view };
  }

  #leaseRefusal(message: WriteMessage, nowMs: number): 'future' | 'still-valid' | null {
    const { lease, acquires } = message;
    if (this.#isFuture(lease, nowMs)) return 'future';
    if (acquires && registerStillValid(this.#register, lease, nowMs)) return 'still-valid';
    return null;
  }

  /** No clock within bounds can have set such an end; accepted, it would block the cell until then. */
  #isFuture(lease: Lease, nowMs: number): boolean {
    const { leaseMs, clockSkewMaxMs } = this.#context.parameters;
    return lease.untilMs > nowMs + leaseMs + clockSkewMaxMs;
  }

  /** A decided lease: a WRITE that wants no answer, and news for the proposer. */
  #onLearn(message: LearnMessage, nowMs: number, out: LeaseAction[]): void {
    const { ballot, lease } = message;
    const { parameters, recovery } = this.#context;
    if (message.view < this.#viewSeen) return;
    if (ballotRefusal(ballot, recovery.floor, nowMs, parameters) !== null) return;
    if (this.#isFuture(lease, nowMs)) return;
    this.#touchedMs = nowMs;
    const [register] = registerWrite(this.#register, ballot, lease);
    this.#register = register;
    this.#learn(lease, nowMs, out);
  }

  #onRelease(message: ReleaseMessage, nowMs: number): void {
    const { uid } = message;
    this.#touchedMs = nowMs;
    this.#register = registerRelease(this.#register, uid);
    const known = this.#known;
    if (known === null || known.holder !== uid.server || known.incarnation !== uid.incarnation) return;
    if (ballotCompare(known.uid, uid) > 0) return;
    this.#known = null;
    if (this.#open && this.#attempt === null && this.#own === null) {
      this.#attemptAtMs = nowMs + this.#jitterMs() + this.#handicapMs;
    }
  }

  // Proposer -------------------------------------------------------------------------------------

  #attemptIfDue(nowMs: number, out: LeaseAction[]): void {
    if (!this.#open || this.#attempt !== null || nowMs < this.#attemptAtMs) return;
    const { parameters, ballots, recovery } = this.#context;
    if (nowMs < recovery.untilMs) {
      this.#attemptAtMs = recovery.untilMs + this.#jitterMs() + this.#handicapMs;
      return;
    }
    // While somebody else is known to hold the lease, a READ would only disturb its renewals.
    const known = this.#own === null ? this.#knownValid(nowMs) : null;
    if (known !== null) {
      this.#attemptAtMs = this.#afterEndMs(known);
      return;
    }
    ballots.overtake(registerStanding(this.#register));
    const attempt = attemptStart(ballots.next(nowMs), nowMs, parameters);
    this.#attempt = attempt;
    this.#lastBallot = attempt.ballot;
    this.#sendAttempt(attempt, nowMs, out);
  }

  /** Asks the members that have not answered; the own acceptor is asked without the network, and last. */
  #sendAttempt(attempt: Attempt, nowMs: number, out: LeaseAction[]): void {
    const { self } = this.#context.parameters;
    const message = this.#request(attempt);
    this.#members.forEach((to, index) => {
      if (to !== self && tallyAwaits(attempt.tally, index)) out.push({ kind: 'send', to, message });
    });
    if (!tallyAwaits(attempt.tally, this.#members.indexOf(self))) return;
    this.message(self, this.#accept(message, nowMs, out), nowMs, out);
  }

  #request(attempt: Attempt): ReadMessage | WriteMessage {
    const { ballot } = attempt;
    if (attempt.phase === 'reading') return { kind: 'read', cell: this.id, view: this.#view, ballot };
    const { lease, acquires } = attempt;
    return { kind: 'write', cell: this.id, view: this.#view, ballot, lease, acquires };
  }

  #repeat(attempt: Attempt, nowMs: number, out: LeaseAction[]): void {
    this.#trace(out, 'repeated', attempt.phase);
    const repeated = { ...attempt, repeatAtMs: nowMs + this.#context.parameters.repeatMs };
    this.#attempt = repeated;
    this.#sendAttempt(repeated, nowMs, out);
  }

  #onAckRead(from: ServerId, message: AckReadMessage, nowMs: number, out: LeaseAction[]): void {
    const attempt = this.#attempt;
    if (attempt === null || attempt.phase !== 'reading') return;
    if (ballotCompare(message.ballot, attempt.ballot) !== 0) return;
    const tally = tallyAdd(attempt.tally, this.#members, from, 'ack');
    if (tally === null) return;
    const merged = readingMerge(attempt, tally, message.written, message.lease);
    this.#attempt = merged;
    if (tallyWon(tally, this.#members.length)) this.#propose(merged, nowMs, out);
  }

  /** A majority has promised. One reading of the clock serves every decision here. */
  #propose(attempt: ReadingAttempt, nowMs: number, out: LeaseAction[]): void {
    const { parameters } = this.#context;
    if (nowMs - attempt.startedMs > parameters.attemptMaxMs) {
      this.#trace(out, 'timed-out', 'reading');
      this.#abort(nowMs);
      return;
    }
    const proposal = proposalChoose(attempt, nowMs, parameters);
    if (proposal.kind === 'wait') {
      this.#trace(out, 'waited-out-grace', leaseText(attempt.lease));
      this.#attempt = null;
      this.#attemptAtMs = proposal.untilMs + this.#jitterMs();
      return;
    }
    const writing = attemptWrite(attempt, proposal.lease, proposal.acquires, nowMs, parameters);
    this.#attempt = writing;
    this.#sendAttempt(writing, nowMs, out);
  }

  #onAckWrite(from: ServerId, message: AckWriteMessage, nowMs: number, out: LeaseAction[]): void {
    const attempt = this.#attempt;
    if (attempt === null || attempt.phase !== 'writing') return;
    if (ballotCompare(message.ballot, attempt.ballot) !== 0) return;
    const tally = tallyAdd(attempt.tally, this.#members, from, 'ack');
    if (tally === null) return;
    this.#attempt = { ...attempt, tally };
    if (tallyWon(tally, this.#members.length)) this.#decide(attempt, nowMs, out);
  }

  /** A majority has accepted λ: it is the cell's lease. */
  #decide(attempt: WritingAttempt, nowMs: number, out: LeaseAction[]): void {
    const { self, incarnation } = this.#context.parameters;
    const { lease, ballot } = attempt;
    this.#attempt = null;
    this.#backoffMs = 0;
    for (const to of this.#members) {
      if (to === self) continue;
      out.push({
        kind: 'send',
        to,
        message: { kind: 'learn', cell: this.id, view: this.#view, ballot, lease },
      });
    }
    if (lease.holder !== self || lease.incarnation !== incarnation) {
      this.#trace(out, 'helped', leaseText(lease));
      this.#attemptAtMs = this.#afterEndMs(lease);
      this.#learn(lease, nowMs, out);
    } else if (nowMs < lease.untilMs) {
      assert(this.#own === null || lease.untilMs >= this.#own.untilMs, 'A renewal never shortens');
      this.#trace(out, this.#own === null ? 'decided' : 'renewed', '');
      this.#own = lease;
      this.#known = null;
      this.#attemptAtMs = this.#renewalMs(lease);
      out.push({ kind: 'held', cell: this.id, untilMs: lease.untilMs });
    } else {
      // Decided too late to be acted on. It harms nobody: others see that it is over.
      this.#attemptAtMs = nowMs + this.#nextBackoffMs();
    }
  }

  #onRefused(from: ServerId, message: NackMessage | RefusedMessage, nowMs: number, out: LeaseAction[]): void {
    const attempt = this.#attempt;
    if (attempt === null || ballotCompare(message.ballot, attempt.ballot) !== 0) return;
    const phase = message.kind === 'nack-read' || message.kind === 'refused-read' ? 'reading' : 'writing';
    if (phase !== attempt.phase) return;
    const tally = tallyAdd(attempt.tally, this.#members, from, 'nack');
    if (tally === null) return;
    this.#attempt = attempt.phase === 'reading' ? { ...attempt, tally } : { ...attempt, tally };
    if (!tallyLost(tally, this.#members.length)) return;
    this.#trace(out, 'overruled', message.kind);
    this.#abort(nowMs);
  }

  /** Members have changed and this server does not know it yet: whoever opened the cell opens it anew. */
  #onWrongView(message: WrongViewMessage, nowMs: number, out: LeaseAction[]): void {
    const attempt = this.#attempt;
    if (attempt === null || ballotCompare(message.ballot, attempt.ballot) !== 0) return;
    this.#trace(out, 'wrong-view', `${this.#view} < ${message.view}`);
    this.#abort(nowMs);
  }

  /** Gives the attempt up. If its WRITE left, the lease may yet be chosen: nothing is concluded from this. */
  #abort(nowMs: number): void {
    this.#attempt = null;
    this.#attemptAtMs = nowMs + this.#nextBackoffMs();
  }

  // Knowledge ------------------------------------------------------------------------------------

  #learn(lease: Lease, nowMs: number, out: LeaseAction[]): void {
    const { self, incarnation } = this.#context.parameters;
    if (lease.released || nowMs > lease.untilMs || this.#isFuture(lease, nowMs)) return;
    if (lease.holder === self && lease.incarnation === incarnation) return;
    if (this.#known !== null && ballotCompare(lease.uid, this.#known.uid) <= 0) return;
    this.#known = lease;
    this.#pushLearned(lease, out);
    if (this.#own !== null || this.#attempt?.phase === 'writing') return;
    this.#attempt = null;
    if (this.#open) this.#attemptAtMs = this.#afterEndMs(lease);
  }

  #knownValid(nowMs: number): Lease | null {
    const known = this.#known;
    return known !== null && leaseAge(known, nowMs, 0) === 'valid' ? known : null;
  }

  #pushLearned(lease: Lease, out: LeaseAction[]): void {
    const { holder, incarnation, untilMs } = lease;
    // An earlier life of this server is nobody to redirect to.
    if (holder === this.#context.parameters.self) return;
    out.push({ kind: 'learned', cell: this.id, holder, incarnation, untilMs });
  }

  /** Notices that the own lease is over. Says so late if nobody looked; `holds` never does. */
  #expire(nowMs: number, out: LeaseAction[]): void {
    if (this.#own === null || this.holds(nowMs)) return;
    this.#own = null;
    this.#touchedMs = nowMs;
    this.#trace(out, 'expired', '');
    out.push({ kind: 'lost', cell: this.id });
  }

  // Time -----------------------------------------------------------------------------------------

  #isIdle(): boolean {
    return !this.#open && this.#own === null && this.#attempt === null && this.#releasing === null;
  }

  /** When to renew: spread, so that leases acquired together are not renewed together for ever. */
  #renewalMs(own: Lease): number {
    const { renewBeforeMs, jitterMaxMs } = this.#context.parameters;
    return own.untilMs - renewBeforeMs - this.#context.prng.next() * jitterMaxMs;
  }

  /** When to compete for a lease of somebody else: after its end on every clock, the lagging ones later. */
  #afterEndMs(lease: Lease): number {
    const { clockSkewMaxMs } = this.#context.parameters;
    return lease.untilMs + clockSkewMaxMs + this.#jitterMs() + this.#handicapMs;
  }

  #jitterMs(): number {
    return 1 + this.#context.prng.next() * this.#context.parameters.jitterMaxMs;
  }

  /** Doubles while attempts fail, with a random part: two that collide must not collide again in step. */
  #nextBackoffMs(): number {
    const { backoffMinMs, backoffMaxMs } = this.#context.parameters;
    this.#backoffMs = Math.min(Math.max(backoffMinMs, this.#backoffMs * 2), backoffMaxMs);
    return this.#backoffMs * (1 + 2 * this.#context.prng.next());
  }

  #repeatRelease(nowMs: number, out: LeaseAction[]): void {
    const releasing = this.#releasing;
    if (releasing === null || nowMs < releasing.atMs) return;
    const { self, repeatMs } = this.#context.parameters;
    const { uid, left } = releasing;
    for (const to of this.#members) {
      if (to === self) continue;
      out.push({ kind: 'send', to, message: { kind: 'release', cell: this.id, view: this.#view, uid } });
    }
    this.#releasing = left > 1 ? { uid, atMs: nowMs + repeatMs, left: left - 1 } : null;
    this.#touchedMs = nowMs;
  }

  #trace(out: LeaseAction[], mark: LeaseMark, detail: string): void {
    out.push({ kind: 'trace', mark, cell: this.id, detail });
  }
}

type ReadReplyMessage = AckReadMessage | NackMessage | RefusedMessage | WrongViewMessage;
type WriteReplyMessage = AckWriteMessage | NackMessage | RefusedMessage | WrongViewMessage;

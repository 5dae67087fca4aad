import { assert } from '../base/assert.ts';
import type { CellId, ServerId } from '../base/ids.ts';
import { answeredAction, type LeaseAction, type LeaseView } from './actions.ts';
import { type Attempt, attemptDeadlineMs } from './attempt.ts';
import { AttemptTiming } from './attempt-timing.ts';
import { ballotCompare } from './ballot.ts';
import { type CellContext, CellCursor } from './cell-cursor.ts';
import type { CellTable, KnownLease } from './cell-table.ts';
import type { ClientBidder } from './client-bidder.ts';
import type { KnownView } from './group.ts';
import { HolderKnowledge } from './holder-knowledge.ts';
import type { Lease } from './lease.ts';
import type { LeaseMessage, ReleaseMessage } from './messages.ts';
import { Proposer } from './proposer.ts';
import type { Register } from './register.ts';
import { type CellWork, workDueMs, workIsDone } from './work.ts';

/** How often a RELEASE is sent, as it has no answer. If all are lost, others wait for the lease's end. */
const RELEASES_MAX = 3;

export interface CellState {
  readonly register: Register;
  readonly own: KnownLease | null;
  readonly known: KnownLease | null;
  readonly attempt: Attempt | null;
}

/**
 * One cell on one server: takes events and the time, appends actions. [Flease], [PaxosLease].
 *
 * One object serves all cells: `moveTo` moves its cursor to a row of the table. An idle cell is only that row; a cell
 * with an attempt, a release or an order under way also has a `CellWork`.
 */
export class Cell {
  readonly #context: CellContext;
  readonly #table: CellTable;
  readonly #cursor: CellCursor;
  readonly #timing: AttemptTiming;
  readonly #knowledge: HolderKnowledge;
  readonly #proposer: Proposer;

  constructor(context: CellContext) {
    this.#context = context;
    this.#table = context.table;
    this.#cursor = new CellCursor(context);
    this.#timing = new AttemptTiming(context, this.#cursor);
    this.#knowledge = new HolderKnowledge(context, this.#cursor, this.#timing);
    this.#proposer = new Proposer(context, this.#cursor, this.#timing, this.#knowledge);
  }

  moveTo(row: number): this {
    this.#cursor.moveTo(row);
    return this;
  }

  forget(): void {
    assert(this.#cursor.work === null, 'A cell at work is not forgotten');
    this.#context.acceptor.forget(this.#cursor.row);
    this.#context.attemptLimit.unqueue(this.#cursor.row);
  }

  get row(): number {
    return this.#cursor.row;
  }

  get id(): CellId {
    return this.#cursor.id;
  }

  /** Whether this server may act as holder at this clock reading: strictly before the end. */
  holds(nowMs: number): boolean {
    return nowMs < this.#table.knownUntilMs(this.#cursor.row) && this.#cursor.isOwn;
  }

  view(nowMs: number): LeaseView {
    return this.#knowledge.view(nowMs);
  }

  /** The local acceptor's lease; it may or may not be decided. */
  accepted(): Lease | null {
    return this.#table.register(this.#cursor.row).lease;
  }

  state(): CellState {
    const known = this.#table.knownLease(this.#cursor.row);
    const own = known !== null && this.#cursor.isOwn;
    return {
      register: this.#table.register(this.#cursor.row),
      own: own ? known : null,
      known: own ? null : known,
      attempt: this.#cursor.work?.attempt ?? null,
    };
  }

  /** Whether no part of this server needs the cell, so that it may be removed when it is due. */
  get isIdle(): boolean {
    return this.#cursor.work === null && !this.#cursor.isOpen && !this.#cursor.isOwn;
  }

  /** After each event: drops finished work. @returns when `tick` (idle: removal) is due; null: as set before */
  finishStep(nowMs: number): number | null {
    const { parameters } = this.#context;
    const row = this.#cursor.row;
    const work = this.#cursor.work;
    const open = this.#table.isOpen(row);
    if (work === null && open) return null;
    const ownMs = this.#cursor.isOwn ? this.#table.knownUntilMs(row) : Infinity;
    if (work !== null && !workIsDone(work)) return Math.min(ownMs, workDueMs(work, open, parameters));
    if (work !== null) {
      this.#cursor.dropWork();
      if (open) return Math.min(ownMs, work.attemptAtMs);
    }
    return Math.min(ownMs, nowMs + parameters.forgetMs);
  }

  /** Competes for the cell from now on, or takes a changed view or handicap, as the event `open` says. */
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
    const row = this.#cursor.row;
    this.#knowledge.expire(nowMs, out);
    const before = table.group(row);
    const group = acceptor.regroup(row, view, members, joint);
    assert(group.voters.includes(parameters.self), 'A cell is opened by one of its members');
    const changed = group !== before;
    const wasOpen = table.isOpen(row);
    if (wasOpen && !changed && (this.#cursor.work?.handicapMs ?? 0) === handicapMs) return;
    const work = this.#cursor.workOrNew();
    table.setOpen(row, true);
    if (changed) this.#cursor.endAttempt(work);
    work.handicapMs = handicapMs;
    if (wasOpen && !changed) return;
    work.backoffMs = 0;
    const known = table.knownLease(row);
    if (known !== null && this.#cursor.isOwn) {
      out.push({ kind: 'held', cell: this.#cursor.id, untilMs: known.untilMs, view: 0 });
      work.attemptAtMs = changed ? nowMs : this.#timing.renewalMs(known.untilMs);
    } else if (known !== null && nowMs <= known.untilMs) {
      this.#knowledge.announce(known, out);
      work.attemptAtMs = this.#timing.afterEndMs(known.untilMs, nowMs);
    } else {
      work.attemptAtMs = nowMs + handicapMs;
    }
    this.#proposer.attemptIfDue(nowMs, out);
  }

  /**
   * Sets the view that the local acceptor votes by, unless a request has a newer one. The local replica's view counts
   * even if the previous one was newer: that one was never committed, and both share acceptors with the committed view.
   */
  setView({ view, members, joint }: KnownView): void {
    const { acceptor } = this.#context;
    if (view === this.#cursor.group.view) return;
    assert(!this.#cursor.isOpen, 'An open cell gets its new view by the event open');
    acceptor.regroup(this.#cursor.row, view, members, joint);
  }

  /** Notes that the holder `from` chose this server: its RELEASE then starts an attempt without a random delay. */
  expectRelease(from: ServerId): void {
    if (this.#cursor.isOpen && !this.#cursor.isOwn) this.#cursor.workOrNew().predecessor = from;
  }

  /** This server stops competing: a lease that it holds runs out. Clients' orders continue. */
  close(nowMs: number, out: LeaseAction[]): void {
    this.#knowledge.expire(nowMs, out);
    this.#table.setOpen(this.#cursor.row, false);
    const work = this.#cursor.work;
    if (work === null || work.orders.length > 0) return;
    this.#cursor.endAttempt(work);
    work.attemptAtMs = Infinity;
    work.backoffMs = 0;
    work.handicapMs = 0;
    work.predecessor = null;
  }

  /** Releases a lease that the caller no longer uses. RELEASE has the latest ballot: it voids an open renewal too. */
  release(nowMs: number, out: LeaseAction[]): void {
    this.#knowledge.expire(nowMs, out);
    const { parameters, ballots } = this.#context;
    const held = this.#cursor.isOwn;
    const work = this.#cursor.workOrNew();
    this.#cursor.endAttempt(work);
    work.attemptAtMs = nowMs + parameters.renewBeforeMs;
    if (held) {
      this.#table.setKnownLease(this.#cursor.row, null);
      out.push({ kind: 'lost', cell: this.#cursor.id });
      this.#cursor.trace(out, 'released', '');
      const uid = ballots.last;
      this.#context.acceptor.release(this.#cursor.row, uid);
      work.releasing = { uid, atMs: nowMs, left: RELEASES_MAX };
      this.#sendReleaseIfDue(work, nowMs, out);
    }
  }

  addOrder(bidder: ClientBidder, nowMs: number, out: LeaseAction[]): void {
    assert(!this.#cursor.isOpen, 'A cell belongs to servers or to clients');
    const work = this.#cursor.workOrNew();
    work.orders.push(bidder);
    if (work.attempt === null && work.backoffMs === 0) work.attemptAtMs = nowMs;
    this.#proposer.attemptIfDue(nowMs, out);
  }

  /** Ends attempts and orders: no attempt counts votes of two views. @returns whether the cell had work */
  endWork(out: LeaseAction[]): boolean {
    const work = this.#cursor.work;
    if (work === null) return false;
    this.#cursor.endAttempt(work);
    for (const { ask } of work.orders) out.push(answeredAction(ask, { kind: 'unknown' }));
    work.orders = [];
    work.backoffMs = 0;
    work.attemptAtMs = Infinity;
    return true;
  }

  endByClockFault(out: LeaseAction[]): void {
    if (this.#cursor.isOwn) out.push({ kind: 'lost', cell: this.#cursor.id });
    for (const { ask } of this.#cursor.work?.orders ?? []) out.push(answeredAction(ask, { kind: 'unknown' }));
    this.#table.setKnownLease(this.#cursor.row, null);
    this.#table.setOpen(this.#cursor.row, false);
    this.#cursor.dropWork();
  }

  /** Takes a decided lease as a hint during the recovery wait; changes no register, sends nothing. */
  hint(lease: Lease, nowMs: number, out: LeaseAction[]): void {
    const { rules } = this.#context;
    if (lease.claim !== null || rules.isTooLong(lease, nowMs)) return;
    this.#knowledge.learn(rules.leaseReceived(lease, nowMs), nowMs, out);
  }

  message(from: ServerId, message: LeaseMessage, nowMs: number, out: LeaseAction[]): void {
    this.#knowledge.expire(nowMs, out);
    const { acceptor } = this.#context;
    switch (message.kind) {
      case 'read':
      case 'query':
      case 'write':
        out.push({ kind: 'send', to: from, message: acceptor.accept(this.#cursor.row, message, nowMs, out) });
        break;
      case 'learn':
        this.#knowledge.receiveDecided(message, nowMs, out);
        break;
      case 'release':
        this.#onRelease(message, nowMs, out);
        break;
      default:
        this.#proposer.receive(from, message, nowMs, out);
    }
    if (this.#cursor.work !== null && this.#cursor.work.orders.length > 0)
      this.#proposer.attemptIfDue(nowMs, out);
  }

  /** Starts an attempt that had to wait for `AttemptLimit`, if the cell is still open and not this server's. */
  startQueued(nowMs: number, out: LeaseAction[]): void {
    if (!this.#cursor.isOpen || this.#cursor.isOwn) return;
    const work = this.#cursor.workOrNew();
    work.attemptAtMs = Math.min(work.attemptAtMs, nowMs);
    this.#proposer.attemptIfDue(nowMs, out);
  }

  /** At a due time: ends a lapsed lease, aborts or repeats the attempt, starts one that is due, sends a due release. */
  tick(nowMs: number, out: LeaseAction[]): void {
    this.#knowledge.expire(nowMs, out);
    if (this.#cursor.work === null && !this.#cursor.isOpen) return;
    const work = this.#cursor.workOrNew();
    this.#proposer.expireAsks(work, nowMs, out);
    const { attempt } = work;
    if (attempt !== null && nowMs >= attemptDeadlineMs(attempt, this.#context.parameters)) {
      this.#cursor.trace(out, 'timed-out', attempt.phase);
      this.#proposer.abort(work, nowMs);
    } else if (attempt !== null && nowMs >= attempt.repeatAtMs) {
      this.#proposer.repeat(work, attempt, nowMs, out);
    }
    this.#proposer.attemptIfDue(nowMs, out);
    this.#sendReleaseIfDue(work, nowMs, out);
  }

  /** A holder released its lease: competes at once if it chose this server as the next, else after a random delay. */
  #onRelease(message: ReleaseMessage, nowMs: number, out: LeaseAction[]): void {
    const { uid } = message;
    this.#context.acceptor.release(this.#cursor.row, uid);
    if (!this.#table.knownLeaseIsOf(this.#cursor.row, uid.server, uid.incarnation) || this.#cursor.isOwn)
      return;
    const known = this.#table.knownLease(this.#cursor.row);
    if (known === null || ballotCompare(known.uid, uid) > 0) return;
    this.#table.setKnownLease(this.#cursor.row, null);
    if (!this.#cursor.isOpen) return;
    const work = this.#cursor.workOrNew();
    const isChosen = work.predecessor === uid.server;
    work.predecessor = null;
    if (work.attempt !== null) return;
    work.attemptAtMs = isChosen ? nowMs : nowMs + this.#timing.jitterMs() + work.handicapMs;
    if (isChosen) this.#proposer.attemptIfDue(nowMs, out);
  }

  #sendReleaseIfDue(work: CellWork, nowMs: number, out: LeaseAction[]): void {
    const { releasing } = work;
    if (releasing === null || nowMs < releasing.atMs) return;
    const { self, repeatMs } = this.#context.parameters;
    const { uid, left } = releasing;
    const { voters, view } = this.#cursor.group;
    const message = { kind: 'release', cell: this.#cursor.id, view, uid } as const;
    for (const to of voters) if (to !== self) out.push({ kind: 'send', to, message });
    work.releasing = left > 1 ? { uid, atMs: nowMs + repeatMs, left: left - 1 } : null;
  }
}

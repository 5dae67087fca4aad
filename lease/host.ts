import { assert, unreachable } from '../base/assert.ts';
import { CATALOG_CELL, type CellId, type Incarnation, type ServerId } from '../base/ids.ts';
import { Prng } from '../base/prng.ts';
import { Acceptor } from './acceptor.ts';
import {
  CLAIM_NOTE_MAX,
  type ClaimedLease,
  type LeaseAction,
  type LeaseEvent,
  type LeaseMark,
  type LeaseView,
} from './actions.ts';
import { AttemptLimit } from './attempt-limit.ts';
import { BallotSequence } from './ballot.ts';
import type { CellState } from './cell.ts';
import type { CellContext } from './cell-cursor.ts';
import { CellTable } from './cell-table.ts';
import { Cells } from './cells.ts';
import { ClientBidder } from './client-bidder.ts';
import { ClockMonitor, type ClockOffset } from './clock-monitor.ts';
import { FleaseRules } from './flease.ts';
import type { LeaseEnvelope, LeaseMessage } from './messages.ts';
import type { LeaseConfig } from './parameters.ts';
import { type LeaseParameters, leaseParameters } from './parameters.ts';
import { PaxosLeaseRules } from './paxos-lease.ts';
import type { LeaseRules } from './rules.ts';
import { ServerBidder } from './server-bidder.ts';
import { TimingWheel } from './timing-wheel.ts';

/** After a slow answer all voters are asked at once, for this many lease lengths. */
const SLOW_LEASES = 2;

type FrameEvent = Extract<LeaseEvent, { kind: 'frame' }>;
type AskEvent = Extract<LeaseEvent, { kind: 'ask' }>;

/** All lease cells of one process. A cell is created when opened or named by a message, and removed when idle. */
export class LeaseHost {
  readonly #parameters: LeaseParameters;
  readonly #context: CellContext;
  readonly #monitor: ClockMonitor;
  readonly #startedMs: number;
  readonly #cells: Cells;
  /** Number of the voters' view of all cells; null if each cell has its own view. */
  #view: number | null;
  #clockFault = false;
  #recovered = false;
  #lastMs: number;

  /** @param nowMs lease clock at process start: the recovery wait counts from here */
  constructor(config: LeaseConfig, nowMs: number) {
    const parameters = leaseParameters(config);
    this.#parameters = parameters;
    this.#view = config.view ?? null;
    const rules = rulesOf(parameters, nowMs);
    const table = new CellTable();
    const wheel = new TimingWheel(table, nowMs, parameters.timerLateMs);
    this.#monitor = new ClockMonitor(nowMs, parameters.clockSkewMaxMs, parameters.leaseMs);
    this.#context = {
      parameters,
      rules,
      ballots: new BallotSequence(parameters),
      acceptor: new Acceptor(rules, table, parameters),
      serverBidder: new ServerBidder(parameters, rules),
      attemptLimit: new AttemptLimit(SLOW_LEASES * parameters.leaseMs),
      monitor: this.#monitor,
      prng: new Prng(config.incarnation),
      table,
      wheel,
    };
    this.#cells = new Cells(this.#context, config.knownView ?? (() => null));
    this.#startedMs = nowMs;
    this.#lastMs = nowMs;
  }

  /** Takes an event at one reading of the lease clock. @returns the actions in their order */
  step(event: LeaseEvent, nowMs: number): LeaseAction[] {
    assert(nowMs >= this.#lastMs, 'The lease clock never goes back');
    this.#lastMs = nowMs;
    const out: LeaseAction[] = [];
    if (this.#clockFault) return out;
    if (!this.#recovered && !this.#isRecovering(nowMs)) {
      this.#recovered = true;
      this.#trace(out, 'recovered', '');
    }
    switch (event.kind) {
      case 'open': {
        const { view, members, joint, handicapMs } = event;
        const cell = this.#cells.findOrAdd(event.cell, nowMs);
        cell.open(view, members, joint, handicapMs, nowMs, out);
        this.#cells.reschedule(cell, nowMs);
        break;
      }
      case 'disconnected':
        this.#monitor.disconnected(event.peer);
        break;
      case 'view':
        // A missing cell gets its view when it is created.
        this.#cells.find(event.cell)?.setView(event);
        break;
      case 'succeed': {
        const cell = this.#cells.find(event.cell);
        if (cell === null) break;
        cell.expectRelease(event.from);
        this.#cells.reschedule(cell, nowMs);
        break;
      }
      case 'close':
      case 'release': {
        const cell = this.#cells.find(event.cell);
        if (cell === null) break;
        if (event.kind === 'close') cell.close(nowMs, out);
        else cell.release(nowMs, out);
        this.#cells.reschedule(cell, nowMs);
        break;
      }
      case 'ask':
        this.#onAsk(event, nowMs, out);
        break;
      case 'voters':
        this.#onVoters(event.view, nowMs, out);
        break;
      case 'frame':
        this.#onFrame(event, nowMs, out);
        break;
      case 'clock-fault':
        this.#stopForClockFault('reported', out);
        break;
      case 'tick':
        this.#onTick(nowMs, out);
        break;
      default:
        unreachable(event);
    }
    this.#startQueued(nowMs, out);
    return out;
  }

  /** Whether this server may act as holder at `nowMs`, which must be read for this very use. No timer is involved. */
  owns(cell: CellId, nowMs: number): boolean {
    return !this.#clockFault && (this.#cells.find(cell)?.holds(nowMs) ?? false);
  }

  /** The holder as far as this server knows; for redirects and reports. */
  view(cell: CellId, nowMs: number): LeaseView {
    return this.#cells.find(cell)?.view(nowMs) ?? { holder: null, own: false, remainingMs: 0 };
  }

  /** A client's lease as this member has it, until its grace ends. A hint: a majority may have a newer one. */
  claim(cell: CellId, nowMs: number): ClaimedLease | null {
    const lease = this.#cells.find(cell)?.accepted() ?? null;
    if (lease === null || lease.claim === null || lease.released) return null;
    const remainingMs = lease.untilMs + this.#parameters.clockSkewMaxMs - nowMs;
    return remainingMs < 0 ? null : { ...lease.claim, remainingMs };
  }

  /** Milliseconds left of the recovery wait; 0 after it. */
  recoveringMs(nowMs: number): number {
    return Math.max(0, this.#context.rules.recovery.untilMs - nowMs);
  }

  /** When the driver must send the next `tick` event; null if no cell waits for anything. */
  nextWakeMs(): number | null {
    return this.#clockFault ? null : this.#cells.firstDueMs();
  }

  /** The header of a frame that is sent to a peer now. */
  envelope(to: ServerId, nowMs: number): LeaseEnvelope {
    return {
      incarnation: this.#parameters.incarnation,
      startedMs: this.#startedMs,
      parametersHash: this.#parameters.hash,
      clockMs: nowMs,
      echoMs: this.#monitor.echoMs(to, nowMs),
    };
  }

  get clockFault(): boolean {
    return this.#clockFault;
  }

  clockOffset(peer: ServerId): ClockOffset | null {
    return this.#monitor.offset(peer);
  }

  get cellCount(): number {
    return this.#cells.size;
  }

  inspect(cell: CellId): CellState | null {
    return this.#cells.find(cell)?.state() ?? null;
  }

  #onFrame(event: FrameEvent, nowMs: number, out: LeaseAction[]): void {
    const { from, envelope, messages } = event;
    if (envelope.parametersHash !== this.#parameters.hash) {
      this.#trace(out, 'parameters-differ', from);
      return;
    }
    const verdict = this.#monitor.observe(from, envelope, nowMs);
    if (this.#context.rules.comparesClocks) {
      if (this.#monitor.isOutlier(nowMs)) {
        this.#stopForClockFault('most peers disagree', out);
        return;
      }
      if (verdict !== 'accept') {
        this.#trace(out, verdict, from);
        return;
      }
    }
    const silent = this.#isRecovering(nowMs);
    if (silent) this.#trace(out, 'kept-silent', '');
    for (const message of messages) {
      if (!isFromBallotOwner(message, from, envelope.incarnation) || !this.#cells.canAddIncarnations)
        continue;
      if (this.#isOfOtherView(message)) this.#refuseView(from, message, silent, out);
      else if (silent) this.#onHint(message, nowMs, out);
      else this.#onMessage(from, message, nowMs, out);
    }
  }

  #onMessage(from: ServerId, message: LeaseMessage, nowMs: number, out: LeaseAction[]): void {
    const { kind } = message;
    const createsCell = kind === 'read' || kind === 'query' || kind === 'write' || kind === 'learn';
    // An answer or a RELEASE for a cell that was removed is too late.
    const cell = createsCell ? this.#cells.findOrAdd(message.cell, nowMs) : this.#cells.find(message.cell);
    if (cell === null) return;
    cell.message(from, message, nowMs, out);
    this.#cells.reschedule(cell, nowMs);
  }

  /** The voters of clients' leases changed: ends all attempts and orders, whose votes are of the previous view. */
  #onVoters(view: number, nowMs: number, out: LeaseAction[]): void {
    assert(this.#view !== null && view > this.#view, 'Views of voters are numbered in their order');
    this.#view = view;
    for (const cell of this.#cells) {
      if (cell.endWork(out)) this.#cells.reschedule(cell, nowMs);
    }
  }

  /** Votes are given and counted by one view only: the one on this server's disk. */
  #isOfOtherView({ kind, view }: LeaseMessage): boolean {
    // In a `wrong-view` message `view` is the peer's newer one. The message ends the attempt that it answers.
    return this.#view !== null && kind !== 'wrong-view' && view !== this.#view;
  }

  /** Reports this server's view to a peer with an older one; a peer with a newer view gets no answer. */
  #refuseView(from: ServerId, message: LeaseMessage, silent: boolean, out: LeaseAction[]): void {
    const { kind, cell, view } = message;
    const own = this.#view ?? view;
    this.#trace(out, 'wrong-view', `${view} ≠ ${own}`, cell);
    if (silent || view > own || (kind !== 'read' && kind !== 'query' && kind !== 'write')) return;
    const { ballot } = message;
    out.push({ kind: 'send', to: from, message: { kind: 'wrong-view', cell, view: own, ballot } });
  }

  #onAsk(event: AskEvent, nowMs: number, out: LeaseAction[]): void {
    const { order } = event;
    assert(this.#view === null || event.view === this.#view, 'An order uses the view of this server');
    const { parameters, rules } = this.#context;
    if (order.kind === 'acquire' || order.kind === 'refresh') {
      assert(order.spanMs > 0 && order.spanMs <= parameters.leaseMs, 'A claim is at most a lease long');
      const note = order.kind === 'acquire' ? order.note : (order.note?.text ?? '');
      assert(note.length <= CLAIM_NOTE_MAX, 'A note has its bounds');
    }
    const cell = this.#cells.findOrAdd(event.cell, nowMs);
    cell.addOrder(new ClientBidder(event, nowMs, parameters, rules), nowMs, out);
    this.#cells.reschedule(cell, nowMs);
  }

  /** During the recovery wait: reports the holder of a server's decided lease (`learned`), ignores everything else. */
  #onHint(message: LeaseMessage, nowMs: number, out: LeaseAction[]): void {
    if (message.kind !== 'learn') return;
    const cell = this.#cells.findOrAdd(message.cell, nowMs);
    cell.hint(message.lease, nowMs, out);
    this.#cells.reschedule(cell, nowMs);
  }

  /** Handles each cell that is due: removes an idle one, else repeats, starts or aborts what is due. */
  #onTick(nowMs: number, out: LeaseAction[]): void {
    for (let cell = this.#cells.takeDue(nowMs); cell !== null; cell = this.#cells.takeDue(nowMs)) {
      if (cell.isIdle) {
        this.#trace(out, 'forgotten', '', cell.id);
        this.#cells.remove(cell);
      } else {
        cell.tick(nowMs, out);
        this.#cells.putBack(cell, nowMs);
      }
    }
  }

  /** Starts attempts that wait for `AttemptLimit`, while it allows more. */
  #startQueued(nowMs: number, out: LeaseAction[]): void {
    const { attemptLimit } = this.#context;
    for (let row = attemptLimit.takeQueued(); row !== null; row = attemptLimit.takeQueued()) {
      const cell = this.#cells.atRow(row);
      cell.startQueued(nowMs, out);
      this.#cells.reschedule(cell, nowMs);
    }
  }

  #stopForClockFault(detail: string, out: LeaseAction[]): void {
    this.#clockFault = true;
    this.#trace(out, 'clock-fault', detail);
    for (const cell of this.#cells) cell.endByClockFault(out);
  }

  #isRecovering(nowMs: number): boolean {
    return nowMs < this.#context.rules.recovery.untilMs;
  }

  #trace(out: LeaseAction[], mark: LeaseMark, detail: string, cell: CellId = CATALOG_CELL): void {
    out.push({ kind: 'trace', mark, cell, detail });
  }
}

/** Whether a request's ballot is of its sender's incarnation: no server speaks for another. Answers are not checked. */
function isFromBallotOwner(message: LeaseMessage, from: ServerId, incarnation: Incarnation): boolean {
  switch (message.kind) {
    case 'read':
    case 'query':
    case 'write':
    case 'learn':
      return message.ballot.server === from && message.ballot.incarnation === incarnation;
    case 'release':
      return message.uid.server === from && message.uid.incarnation === incarnation;
    default:
      return true;
  }
}

function rulesOf(parameters: LeaseParameters, startedMs: number): LeaseRules {
  const { algorithm } = parameters;
  switch (algorithm) {
    case 'flease':
      return new FleaseRules(parameters, startedMs);
    case 'paxoslease':
      return new PaxosLeaseRules(parameters, startedMs);
    default:
      return unreachable(algorithm);
  }
}

import { assert, unreachable } from '../base/assert.ts';
import { CATALOG_CELL, type CellId, type ServerId } from '../base/ids.ts';
import { Prng } from '../base/prng.ts';
import type { LeaseAction, LeaseConfig, LeaseEvent, LeaseMark, LeaseView } from './actions.ts';
import { BallotSequence } from './ballot.ts';
import { Cell, type CellContext, type CellState } from './cell.ts';
import { ClockMonitor, type ClockOffset } from './clock-monitor.ts';
import type { LeaseEnvelope, LeaseMessage } from './messages.ts';
import { type LeaseParameters, leaseParameters } from './parameters.ts';
import { recoveryStart } from './recovery.ts';
import { TimerHeap } from './timers.ts';

type FrameEvent = Extract<LeaseEvent, { kind: 'frame' }>;

/**
 * All lease cells of one life of one server, and what they share: incarnation, recovery wait, ballots,
 * knowledge of the peers' clocks. Cells come into being when they are opened or asked about, and are
 * forgotten when nobody has touched them for long enough.
 */
export class LeaseHost {
  readonly #parameters: LeaseParameters;
  readonly #context: CellContext;
  readonly #monitor: ClockMonitor;
  readonly #startedMs: number;
  readonly #cells = new Map<CellId, Cell>();
  readonly #timers = new TimerHeap();
  #clockFault = false;
  #recovered = false;
  #lastMs: number;

  /** @param nowMs lease clock at the start of the process: the recovery wait is counted from here */
  constructor(config: LeaseConfig, nowMs: number) {
    const parameters = leaseParameters(config);
    this.#parameters = parameters;
    this.#context = {
      parameters,
      recovery: recoveryStart(nowMs, parameters),
      ballots: new BallotSequence(parameters),
      prng: new Prng(config.incarnation),
    };
    this.#monitor = new ClockMonitor(nowMs, parameters.clockSkewMaxMs, parameters.leaseMs);
    this.#startedMs = nowMs;
    this.#lastMs = nowMs;
  }

  /** Takes an event at one reading of the lease clock. @returns what to do, in this order */
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
        const cell = this.#cell(event.cell, nowMs);
        cell.open(event.view, event.members, event.handicapMs, nowMs, out);
        this.#schedule(cell);
        break;
      }
      case 'close':
      case 'release': {
        const cell = this.#cells.get(event.cell);
        if (cell === undefined) break;
        if (event.kind === 'close') cell.close(nowMs, out);
        else cell.release(nowMs, out);
        this.#schedule(cell);
        break;
      }
      case 'frame':
        this.#onFrame(event, nowMs, out);
        break;
      case 'clock-fault':
        this.#fault('reported', out);
        break;
      case 'tick':
        this.#onTick(nowMs, out);
        break;
      default:
        unreachable(event);
    }
    return out;
  }

  /**
   * Whether this server may act as the cell's holder at `nowMs`, a reading taken for this very use.
   * Nothing that a timer has set takes part in the answer.
   */
  owns(cell: CellId, nowMs: number): boolean {
    return !this.#clockFault && (this.#cells.get(cell)?.holds(nowMs) ?? false);
  }

  /** Who holds the cell, as far as this server knows. For redirects and reports. */
  view(cell: CellId, nowMs: number): LeaseView {
    return this.#cells.get(cell)?.view(nowMs) ?? { holder: null, own: false, remainingMs: 0 };
  }

  /** How long the silence after the start still lasts; 0 when it is over. */
  recoveringMs(nowMs: number): number {
    return Math.max(0, this.#context.recovery.untilMs - nowMs);
  }

  /** Lease clock at which `tick` has something to do, or null. */
  nextWakeMs(): number | null {
    return this.#clockFault ? null : this.#timers.firstMs();
  }

  /** What a frame to `to` says about its sender. */
  envelope(to: ServerId, nowMs: number): LeaseEnvelope {
    return {
      incarnation: this.#parameters.incarnation,
      startedMs: this.#startedMs,
      parametersHash: this.#parameters.hash,
      clockMs: nowMs,
      echoMs: this.#monitor.echoMs(to),
    };
  }

  /** This server's clock is out of bounds; it takes part in nothing until restarted. */
  get clockFault(): boolean {
    return this.#clockFault;
  }

  /** How far a peer's lease clock is ahead of ours, or null as long as that is unknown. */
  clockOffset(peer: ServerId): ClockOffset | null {
    return this.#monitor.offset(peer);
  }

  /** Number of cells remembered. */
  get cellCount(): number {
    return this.#cells.size;
  }

  /** For tests and simulations, which compare the state before and after each step. */
  inspect(cell: CellId): CellState | null {
    return this.#cells.get(cell)?.state() ?? null;
  }

  #onFrame(event: FrameEvent, nowMs: number, out: LeaseAction[]): void {
    const { from, envelope, messages } = event;
    if (envelope.parametersHash !== this.#parameters.hash) {
      this.#trace(out, 'parameters-differ', from);
      return;
    }
    const verdict = this.#monitor.observe(from, envelope, nowMs);
    if (this.#monitor.isOutlier()) {
      this.#fault('most peers disagree', out);
      return;
    }
    if (verdict !== 'accept') {
      this.#trace(out, verdict, from);
      return;
    }
    if (this.#isRecovering(nowMs)) {
      this.#keepSilent(messages, nowMs, out);
      return;
    }
    for (const message of messages) this.#onMessage(from, message, nowMs, out);
  }

  #onMessage(from: ServerId, message: LeaseMessage, nowMs: number, out: LeaseAction[]): void {
    const asks = message.kind === 'read' || message.kind === 'write' || message.kind === 'learn';
    // An answer for a cell that is not remembered is an answer to nobody.
    const cell = asks ? this.#cell(message.cell, nowMs) : this.#cells.get(message.cell);
    if (cell === undefined) return;
    cell.message(from, message, nowMs, out);
    this.#schedule(cell);
  }

  /** Neither ack nor nack while recovering; only the news who holds what is of use already. */
  #keepSilent(messages: readonly LeaseMessage[], nowMs: number, out: LeaseAction[]): void {
    this.#trace(out, 'kept-silent', '');
    for (const message of messages) {
      if (message.kind !== 'learn') continue;
      const cell = this.#cell(message.cell, nowMs);
      cell.hint(message.lease, nowMs, out);
      this.#schedule(cell);
    }
  }

  #onTick(nowMs: number, out: LeaseAction[]): void {
    for (;;) {
      const dueMs = this.#timers.firstMs();
      if (dueMs === null || dueMs > nowMs) return;
      const cell = this.#timers.pop();
      if (cell.timerMs !== dueMs) continue;
      cell.timerMs = Infinity;
      if (cell.isForgettable(nowMs)) {
        this.#cells.delete(cell.id);
        this.#trace(out, 'forgotten', '', cell.id);
        continue;
      }
      if (cell.dueMs() <= nowMs) cell.tick(nowMs, out);
      assert(cell.dueMs() > nowMs, 'A tick leaves nothing due');
      this.#schedule(cell);
    }
  }

  #fault(detail: string, out: LeaseAction[]): void {
    this.#clockFault = true;
    this.#trace(out, 'clock-fault', detail);
    for (const cell of this.#cells.values()) cell.fault(out);
  }

  #isRecovering(nowMs: number): boolean {
    return nowMs < this.#context.recovery.untilMs;
  }

  #cell(id: CellId, nowMs: number): Cell {
    let cell = this.#cells.get(id);
    if (cell === undefined) {
      cell = new Cell(id, this.#context, nowMs);
      this.#cells.set(id, cell);
    }
    return cell;
  }

  #schedule(cell: Cell): void {
    const dueMs = cell.dueMs();
    if (dueMs >= cell.timerMs) return;
    cell.timerMs = dueMs;
    this.#timers.push(dueMs, cell);
  }

  #trace(out: LeaseAction[], mark: LeaseMark, detail: string, cell: CellId = CATALOG_CELL): void {
    out.push({ kind: 'trace', mark, cell, detail });
  }
}

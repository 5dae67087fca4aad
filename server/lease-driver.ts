import type { Logger } from 'pino';
import { unreachable } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import type { CellId, Incarnation, ServerId } from '../base/ids.ts';
import type { LeaseAction, LeaseEvent, LeaseMark, LeaseTiming, LeaseView } from '../lease/actions.ts';
import { decodeLeaseFrame, encodeLeaseFrame } from '../lease/codec.ts';
import { LeaseHost } from '../lease/host.ts';
import type { LeaseMessage } from '../lease/messages.ts';
import type { View } from '../replica/actions.ts';
import { MalformedError } from '../wire/bytes.ts';
import type { Clock } from './clock.ts';
import { CHANNEL_LEASE, type Transport } from './transport/transport.ts';
import type { WakeQueue } from './wake-queue.ts';

/** How often the wall clock is compared with the lease clock, and peers without other news are told ours. */
const CLOCK_CHECK_MS = 1_000;
/** The part of ε by which the wall clock may move against the lease clock before the lease layer begins anew. */
const WALL_DRIFT_SHARE = 0.25;

export interface LeaseDriverParts extends LeaseTiming {
  readonly self: ServerId;
  readonly peers: readonly ServerId[];
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly log: Logger;
  drawIncarnation(): Incarnation;
  /** The transport, which is made after its handlers, of which this driver is one. */
  transport(): Transport;
  /** Own lease of `cell` until `untilMs` (the process clock); 0 when it is held no longer. */
  changed(cell: CellId, untilMs: number): void;
  fatal(error: unknown): void;
}

/**
 * Runs the lease layer: frames of many cells to one peer leave together at the end of a turn, one
 * timer serves all cells. Keeps the offset between the process clock, which never steps, and the
 * lease clock, which begins anew from the wall clock after a clock fault.
 */
export class LeaseDriver {
  readonly #parts: LeaseDriverParts;
  readonly #outgoing = new Map<ServerId, LeaseMessage[]>();
  readonly #listeners = new Map<CellId, Set<() => void>>();
  readonly #marks = new Map<LeaseMark, number>();
  readonly #clockTimer: NodeJS.Timeout;
  /** What is wanted here, for a lease layer that begins anew. */
  readonly #opened = new Map<CellId, View>();
  #host: LeaseHost;
  /** Lease clock minus process clock. */
  #offsetMs = 0;
  #flushing = false;
  #wakeAtMs = Infinity;
  #faultedWallMs: number | null = null;
  #retired = false;

  constructor(parts: LeaseDriverParts) {
    this.#parts = parts;
    this.#host = this.#begin();
    this.#clockTimer = setInterval(() => this.#checkClock(), CLOCK_CHECK_MS);
    this.#scheduleWake();
  }

  /** This server wants the cell to have a holder, and is willing to be it. */
  open(cell: CellId, view: View): void {
    this.#opened.set(cell, view);
    this.#step({ kind: 'open', cell, view: view.number, members: view.members, handicapMs: 0 });
  }

  close(cell: CellId): void {
    this.#opened.delete(cell);
    this.#step({ kind: 'close', cell });
  }

  /** The replica has stopped acting as primary. */
  release(cell: CellId): void {
    this.#step({ kind: 'release', cell });
  }

  view(cell: CellId): LeaseView {
    return this.#host.view(cell, this.#nowMs());
  }

  recoveringMs(): number {
    return this.#host.recoveringMs(this.#nowMs());
  }

  get clockFault(): boolean {
    return this.#host.clockFault;
  }

  /**
   * Whether the wall clock stands where the lease clock expects it, at this very moment. It does not
   * after the machine slept, when the monotonic clock stood still: a lease may be over without its clock showing it.
   */
  isClockSound(): boolean {
    const movedMs = Math.abs(this.#parts.clock.wallDriftMs() - this.#offsetMs);
    return !this.#host.clockFault && movedMs <= this.#parts.clockSkewMaxMs * WALL_DRIFT_SHARE;
  }

  /** The server is about to end: it wants no lease any more. */
  retire(): void {
    this.#retired = true;
  }

  /** @throws ServiceError `not-primary`, `clock-fault` or `recovering` while this server takes part in no lease */
  assertUsable(): void {
    if (this.#retired) throw new ServiceError('not-primary', `Server ${this.#parts.self} is about to end`);
    if (this.#host.clockFault) {
      throw new ServiceError('clock-fault', `The clock of server ${this.#parts.self} is out of bounds`, {
        retryAfterMs: CLOCK_CHECK_MS,
      });
    }
    const leftMs = this.recoveringMs();
    if (leftMs > 0) {
      throw new ServiceError(
        'recovering',
        `Server ${this.#parts.self} waits ${Math.ceil(leftMs)} ms more for leases from before its start to end`,
        { retryAfterMs: Math.ceil(leftMs) },
      );
    }
  }

  /** How far each peer's lease clock is ahead of ours, where that is known, in milliseconds. */
  clockOffsetsMs(): Record<string, number> {
    const offsets: Record<string, number> = {};
    for (const peer of this.#parts.peers) {
      const offset = this.#host.clockOffset(peer);
      if (offset !== null) offsets[peer] = Math.round(offset.offsetMs * 100) / 100;
    }
    return offsets;
  }

  /** How often each mark of the lease layer was reached since the start. */
  marks(): ReadonlyMap<LeaseMark, number> {
    return this.#marks;
  }

  get cellCount(): number {
    return this.#host.cellCount;
  }

  /** Calls back when anything about the cell's lease changes, until the returned function is called. */
  onChange(cell: CellId, listener: () => void): () => void {
    const listeners = this.#listeners.get(cell) ?? new Set();
    listeners.add(listener);
    this.#listeners.set(cell, listeners);
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0) this.#listeners.delete(cell);
    };
  }

  /** A frame of a peer. Malformed ones are logged and dropped. */
  receive(from: ServerId, payload: Uint8Array): void {
    try {
      const { envelope, messages } = decodeLeaseFrame(payload);
      this.#step({ kind: 'frame', from, envelope, messages });
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      this.#parts.log.warn({ from, reason: error.message }, 'a malformed lease frame was dropped');
    }
  }

  closeDriver(): void {
    clearInterval(this.#clockTimer);
    this.#flush();
  }

  #nowMs(): number {
    return this.#parts.clock.nowMs() + this.#offsetMs;
  }

  #begin(): LeaseHost {
    const { self, leaseMs, clockSkewMaxMs } = this.#parts;
    this.#offsetMs = this.#parts.clock.wallDriftMs();
    const config = { self, leaseMs, clockSkewMaxMs, incarnation: this.#parts.drawIncarnation() };
    return new LeaseHost(config, this.#nowMs());
  }

  #step(event: LeaseEvent): void {
    try {
      for (const action of this.#host.step(event, this.#nowMs())) this.#perform(action);
    } catch (error) {
      this.#parts.fatal(error);
      throw error;
    }
    this.#scheduleWake();
  }

  #perform(action: LeaseAction): void {
    switch (action.kind) {
      case 'send':
        this.#enqueue(action.to, action.message);
        return;
      case 'held':
        this.#parts.changed(action.cell, action.untilMs - this.#offsetMs);
        this.#notify(action.cell);
        return;
      case 'lost':
        this.#parts.changed(action.cell, 0);
        this.#notify(action.cell);
        return;
      case 'learned':
        this.#notify(action.cell);
        return;
      case 'trace':
        this.#mark(action.mark, action.cell, action.detail);
        return;
      default:
        unreachable(action);
    }
  }

  #mark(mark: LeaseMark, cell: CellId, detail: string): void {
    this.#marks.set(mark, (this.#marks.get(mark) ?? 0) + 1);
    if (mark === 'clock-fault') {
      this.#parts.log.error(
        { detail },
        'the lease clock is out of bounds: this server takes part in no lease',
      );
    } else if (mark === 'parameters-differ') {
      this.#parts.log.error(
        { peer: detail },
        'a peer has another --lease or --clock-skew: its messages are refused',
      );
    } else if (mark === 'recovered') {
      this.#parts.log.info('leases from before the start have ended: this server takes part again');
    } else {
      this.#parts.log.trace({ mark, cell }, detail);
    }
  }

  #notify(cell: CellId): void {
    for (const listener of [...(this.#listeners.get(cell) ?? [])]) listener();
  }

  #enqueue(to: ServerId, message: LeaseMessage): void {
    const waiting = this.#outgoing.get(to);
    if (waiting === undefined) this.#outgoing.set(to, [message]);
    else waiting.push(message);
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(() => this.#flush());
  }

  #flush(): void {
    this.#flushing = false;
    for (const [to, messages] of this.#outgoing) {
      this.#outgoing.delete(to);
      const frame = encodeLeaseFrame(this.#host.envelope(to, this.#nowMs()), messages);
      this.#parts.transport().send(to, CHANNEL_LEASE, frame);
    }
  }

  #scheduleWake(): void {
    const leaseMs = this.#host.nextWakeMs();
    if (leaseMs === null) return;
    const atMs = leaseMs - this.#offsetMs;
    if (atMs >= this.#wakeAtMs) return;
    this.#wakeAtMs = atMs;
    this.#parts.wakes.at(atMs, () => {
      if (this.#wakeAtMs === atMs) this.#wakeAtMs = Infinity;
      this.#step({ kind: 'tick' });
    });
  }

  /**
   * A wall clock that moves against the lease clock was set, or the machine slept: either clock may
   * be the wrong one. All leases end; once the wall clock has kept still for a while, the lease layer
   * begins anew with the silence of a restart. An empty frame lets peers compare clocks.
   */
  #checkClock(): void {
    const movedMs = this.#parts.clock.wallDriftMs() - this.#offsetMs;
    if (!this.#host.clockFault) {
      if (!this.isClockSound()) {
        this.#parts.log.error({ movedMs: Math.round(movedMs) }, 'the wall clock moved');
        this.#step({ kind: 'clock-fault' });
        return;
      }
      for (const peer of this.#parts.peers) {
        const frame = encodeLeaseFrame(this.#host.envelope(peer, this.#nowMs()), []);
        this.#parts.transport().send(peer, CHANNEL_LEASE, frame);
      }
      return;
    }
    const still = this.#faultedWallMs !== null && Math.abs(movedMs - this.#faultedWallMs) < 1;
    this.#faultedWallMs = movedMs;
    if (!still) return;
    this.#faultedWallMs = null;
    this.#outgoing.clear();
    this.#host = this.#begin();
    this.#parts.log.warn({ silentMs: Math.ceil(this.recoveringMs()) }, 'the lease layer begins anew');
    for (const [cell, view] of this.#opened) this.open(cell, view);
    this.#scheduleWake();
  }
}

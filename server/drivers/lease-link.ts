import type { Logger } from 'pino';
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import type { LeaseAction, LeaseEvent, LeaseMark } from '../../lease/actions.ts';
import { LeaseFrameReader, LeaseFrameWriter } from '../../lease/codec.ts';
import type { KnownView } from '../../lease/group.ts';
import { LeaseHost } from '../../lease/host.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import type { LeaseAlgorithm, LeaseConfig, LeaseTiming } from '../../lease/parameters.ts';
import { MalformedError } from '../../wire/bytes.ts';
import type { Clock } from '../process/clock.ts';
import type { WakeQueue } from './wake-queue.ts';

/** How often the wall clock is compared with the lease clock, and all peers get a reading of ours. */
export const CLOCK_CHECK_MS = 1_000;
/** The part of ε by which the wall clock may move against the lease clock before the lease layer restarts. */
const WALL_DRIFT_SHARE = 0.25;
/** A larger difference means that the machine slept; a smaller one is the boot clock's resolution. */
const SLEPT_MS = 40;
/** Clocks that moved less than this against each other between two checks are stable. */
const STEADY_MS = 15;

/** Messages of a frame per step of the host: few enough that their garbage is collected young. */
const SLICE_MESSAGES = 128;
/** A frame of this size is sent before the end of the tick, so that its receiver can begin. */
const FRAME_BYTES_MAX = 64 * 1024;
/** Each keeps up to twice the memory of the largest frame. */
const IDLE_FRAMES_MAX = 4;

export type LeaseEventReport = Exclude<LeaseAction, { readonly kind: 'send' | 'trace' }>;

interface OutgoingFrame {
  readonly writer: LeaseFrameWriter;
  deferrable: boolean;
}

/** Leases of an earlier process of this server with other timing. */
export interface EarlierTiming {
  /** Recovery wait of that process, in milliseconds: its leases may be valid for so long after this start. */
  readonly recoveryMs: number;
  /** Called once the recovery wait of this process is over: none of those leases is valid any more. */
  ended(): void;
}

/** Records, durably, an upper bound of the lease clock readings at which this server has voted. */
export interface ClockMemory {
  /** The bound that earlier processes of this server recorded; −Infinity if there is none. */
  readonly earlierMs: number;
  /** Raises the bound to at least this reading. @returns the new bound @throws the disk's error */
  cover(leaseClockMs: number): number;
}

export interface LeaseLinkParts extends LeaseTiming {
  readonly self: ServerId;
  readonly peers: readonly ServerId[];
  readonly algorithm: LeaseAlgorithm;
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly log: Logger;
  /** For messages: the options that all servers must agree on. */
  readonly options: string;
  /** Absent if no earlier process of this server had other timing. */
  readonly earlier?: EarlierTiming;
  /** Absent if ballots need not increase when the clock is set back. */
  readonly clockMemory?: ClockMemory;
  /** Absent if members of cells never change. */
  readonly knownView?: (cell: CellId) => KnownView | null;
  /** The recorded number of the view of all cells. Absent if each cell has a view of its own. */
  readonly view?: () => number;
  readonly jitterMaxMs?: number;
  /** @see LeaseConfig.renewsTogether */
  readonly renewsTogether?: (cell: CellId) => boolean;
  /**
   * Whether this server votes for a peer that does not hold the cell. If not, it drops the peer's READ and WRITE, as a
   * network may do. A peer that holds the cell may renew in any case. Absent if every member may hold every cell.
   */
  readonly mayAcquire?: (cell: CellId, peer: ServerId) => boolean;
  drawIncarnation(): Incarnation;
  send(to: ServerId, frame: Uint8Array, deferrable: boolean): void;
  report(action: LeaseEventReport): void;
  faulted(): void;
  restarted(): void;
  fatal(error: unknown): void;
}

/**
 * Connects a lease host to the network and clocks: frames of many cells to one peer leave together at the end of a
 * tick, one timer serves all cells. It keeps the offset between the process clock, which never steps, and the lease
 * clock, which restarts from the wall clock after a clock fault.
 */
export class LeaseLink {
  readonly #parts: LeaseLinkParts;
  readonly #outgoing = new Map<ServerId, OutgoingFrame>();
  /** Empty frames whose memory the next ones use. */
  readonly #idleFrames: OutgoingFrame[] = [];
  readonly #marks = new Map<LeaseMark, number>();
  readonly #clockMovedMaxMs: number;
  #host: LeaseHost;
  /** Lease clock minus process clock. */
  #offsetMs = 0;
  #sleptMs = 0;
  #flushing = false;
  #closed = false;
  #wakeAtMs = Infinity;
  #lastMovedMs: number | null = null;
  /** The latest lease clock reading at which a host before the current one may have voted. */
  #earlierClockMs: number;
  /** The bound in `clockMemory`: the host may vote while the lease clock is not past it. */
  #coveredUntilMs = -Infinity;

  constructor(parts: LeaseLinkParts) {
    this.#parts = parts;
    const { algorithm, clockSkewMaxMs } = parts;
    this.#clockMovedMaxMs = algorithm === 'flease' ? clockSkewMaxMs * WALL_DRIFT_SHARE : SLEPT_MS;
    this.#earlierClockMs = parts.clockMemory?.earlierMs ?? -Infinity;
    this.#host = this.#newHost();
    this.#scheduleClockCheck(0);
    this.#scheduleWake();
  }

  get host(): LeaseHost {
    return this.#host;
  }

  nowMs(): number {
    return this.#parts.clock.nowMs() + this.#offsetMs;
  }

  /** Converts a time of the lease clock to the process clock. */
  processMs(leaseMs: number): number {
    return leaseMs - this.#offsetMs;
  }

  recoveringMs(): number {
    return this.#host.recoveringMs(this.nowMs());
  }

  /** How far the lease clock is behind a reading at which this server may have voted, before it was set back. */
  clockBehindMs(): number {
    return Math.max(0, this.#earlierClockMs - this.nowMs());
  }

  /**
   * Whether the clock that measures leases is valid now. In Flease the wall clock has to agree with the lease clock: it
   * does not after it was set, nor after the machine slept, when the monotonic clock stood still and a lease may be
   * over unnoticed. PaxosLease uses no wall clock, but needs to detect sleep.
   */
  isClockSound(): boolean {
    return !this.#host.clockFault && this.#clockMovedMs() <= this.#clockMovedMaxMs;
  }

  marks(): ReadonlyMap<LeaseMark, number> {
    return this.#marks;
  }

  receive(from: ServerId, payload: Uint8Array): void {
    try {
      const frame = new LeaseFrameReader(payload);
      const { envelope } = frame;
      let messages = frame.next(SLICE_MESSAGES);
      do {
        this.#act({ kind: 'frame', from, envelope, messages: this.#admitted(from, messages) });
        messages = frame.next(SLICE_MESSAGES);
      } while (messages.length > 0);
      this.#scheduleWake();
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      this.#parts.log.warn({ from, reason: error.message }, 'dropped a malformed lease frame');
    }
  }

  /** Drops those messages by which the peer would acquire cells that it may not acquire. @see LeaseLinkParts */
  #admitted(from: ServerId, messages: readonly LeaseMessage[]): readonly LeaseMessage[] {
    const { mayAcquire } = this.#parts;
    if (mayAcquire === undefined) return messages;
    const isRefused = ({ kind, cell }: LeaseMessage): boolean => {
      if ((kind !== 'read' && kind !== 'write') || mayAcquire(cell, from)) return false;
      const { holder, remainingMs } = this.#host.view(cell, this.nowMs());
      return holder !== from || remainingMs <= 0;
    };
    return messages.some(isRefused) ? messages.filter((message) => !isRefused(message)) : messages;
  }

  step(event: LeaseEvent): void {
    this.#act(event);
    this.#scheduleWake();
  }

  /**
   * This server replaces another one as a voter, whose lease clock showed `clockMs`. Within ε the clock here shows as
   * much, unless it was set back: then the lease layer restarts, and does not vote before the clock shows as much.
   */
  succeed(clockMs: number): void {
    if (clockMs <= this.nowMs() + this.#parts.clockSkewMaxMs) return;
    this.#earlierClockMs = Math.max(this.#earlierClockMs, clockMs);
    if (!this.#host.clockFault) this.step({ kind: 'clock-fault' });
  }

  close(): void {
    this.#closed = true;
    this.#flush();
  }

  /** How far the clocks that `isClockSound` compares have moved against each other since the host began. */
  #clockMovedMs(): number {
    const { algorithm, clock } = this.#parts;
    return algorithm === 'flease'
      ? Math.abs(clock.wallDriftMs() - this.#offsetMs)
      : Math.abs(clock.sleptMs() - this.#sleptMs);
  }

  /** Called at the start and after a clock fault: a host with a new incarnation, which begins with a recovery wait. */
  #newHost(): LeaseHost {
    const {
      self,
      leaseMs,
      clockSkewMaxMs,
      algorithm,
      earlier,
      knownView,
      view,
      jitterMaxMs,
      renewsTogether,
    } = this.#parts;
    this.#coveredUntilMs = -Infinity;
    this.#offsetMs = this.#parts.clock.wallDriftMs();
    this.#sleptMs = this.#parts.clock.sleptMs();
    const incarnation = this.#parts.drawIncarnation();
    const config: LeaseConfig = {
      self,
      leaseMs,
      clockSkewMaxMs,
      algorithm,
      earlierRecoveryMs: earlier?.recoveryMs ?? 0,
      earlierClockMs: this.#earlierClockMs,
      incarnation,
      ...(knownView === undefined ? {} : { knownView }),
      ...(view === undefined ? {} : { view: view() }),
      ...(jitterMaxMs === undefined ? {} : { jitterMaxMs }),
      ...(renewsTogether === undefined ? {} : { renewsTogether }),
    };
    return new LeaseHost(config, this.nowMs());
  }

  /** Steps the host, and performs its actions. If it may vote, has `clockMemory` cover the clock's reading first. */
  #act(event: LeaseEvent): void {
    let nowMs = this.nowMs();
    while (nowMs > this.#coveredUntilMs && this.#mayVote(event)) {
      if (!this.#cover(nowMs)) return;
      nowMs = this.nowMs();
    }
    try {
      for (const action of this.#host.step(event, nowMs)) this.#perform(action);
    } catch (error) {
      this.#parts.fatal(error);
      throw error;
    }
  }

  /** Whether the host may answer the event with a vote, which `clockMemory` has to cover before. */
  #mayVote(event: LeaseEvent): boolean {
    if (this.#parts.clockMemory === undefined || this.#host.clockFault || this.recoveringMs() > 0)
      return false;
    return (
      event.kind === 'ask' || event.kind === 'tick' || (event.kind === 'frame' && event.messages.length > 0)
    );
  }

  /** Records on disk, before a vote, that the clock reaches `nowMs`. @returns false if that failed: all leases end */
  #cover(nowMs: number): boolean {
    const { clockMemory, log } = this.#parts;
    try {
      this.#coveredUntilMs = clockMemory?.cover(nowMs) ?? Infinity;
      return true;
    } catch (error) {
      log.error(
        { err: error },
        'cannot store the clock reading that new fencing tokens have to ' +
          'exceed: this server takes part in no named lease',
      );
      this.step({ kind: 'clock-fault' });
      return false;
    }
  }

  #perform(action: LeaseAction): void {
    if (action.kind === 'send') this.#enqueue(action.to, action.message);
    else if (action.kind === 'trace') this.#mark(action);
    else this.#parts.report(action);
  }

  #mark({ mark, cell, detail }: Extract<LeaseAction, { kind: 'trace' }>): void {
    const { log, options } = this.#parts;
    this.#marks.set(mark, (this.#marks.get(mark) ?? 0) + 1);
    if (mark === 'clock-fault') {
      log.error(
        { detail },
        'clock fault: this server takes part in no lease until its clock is steady; check NTP',
      );
      this.#parts.faulted();
    } else if (mark === 'parameters-differ') {
      log.error(
        { peer: detail },
        `a peer has another ${options}: its lease messages are refused; use the same values on all servers`,
      );
    } else if (mark === 'recovered') {
      log.info('recovery wait is over: this server takes part in leases');
      this.#parts.earlier?.ended();
    } else {
      log.trace({ mark, cell }, detail);
    }
  }

  #enqueue(to: ServerId, message: LeaseMessage): void {
    let frame = this.#outgoing.get(to);
    if (frame === undefined) {
      frame = this.#idleFrames.pop() ?? { writer: new LeaseFrameWriter(), deferrable: true };
      this.#outgoing.set(to, frame);
    }
    frame.writer.add(message);
    // A LEARN is not urgent: its receivers do not hold the lease, and want it only when it ends.
    frame.deferrable &&= message.kind === 'learn';
    if (frame.writer.sizeBytes >= FRAME_BYTES_MAX) this.#sendFrame(to, frame);
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(() => this.#flush());
  }

  #flush(): void {
    this.#flushing = false;
    for (const [to, frame] of this.#outgoing) this.#sendFrame(to, frame);
  }

  #sendFrame(to: ServerId, frame: OutgoingFrame): void {
    this.#outgoing.delete(to);
    this.#send(to, frame.writer, frame.deferrable);
    if (this.#idleFrames.length >= IDLE_FRAMES_MAX) return;
    frame.deferrable = true;
    this.#idleFrames.push(frame);
  }

  #send(to: ServerId, writer: LeaseFrameWriter, deferrable: boolean): void {
    this.#parts.send(to, writer.finish(this.#host.envelope(to, this.nowMs())), deferrable);
  }

  #scheduleWake(): void {
    const leaseMs = this.#host.nextWakeMs();
    if (leaseMs === null) return;
    const atMs = leaseMs - this.#offsetMs;
    if (atMs >= this.#wakeAtMs) return;
    this.#wakeAtMs = atMs;
    this.#parts.wakes.at(atMs, () => {
      if (this.#wakeAtMs === atMs) this.#wakeAtMs = Infinity;
      this.step({ kind: 'tick' });
    });
  }

  /**
   * At full multiples of the period: so the readings of all hosts of this server share a frame, and those of other
   * servers, whose clocks show nearly the same, arrive together.
   * @param pauseMs the shortest time until then: after two checks in quick succession every clock would look steady
   */
  #scheduleClockCheck(pauseMs: number): void {
    const { clock, wakes } = this.#parts;
    const nextMs = (Math.floor((clock.nowMs() + pauseMs) / CLOCK_CHECK_MS) + 1) * CLOCK_CHECK_MS;
    wakes.at(nextMs, () => {
      if (this.#closed) return;
      this.#scheduleClockCheck(CLOCK_CHECK_MS / 2);
      this.#checkClock();
    });
  }

  /**
   * Runs every `CLOCK_CHECK_MS`. If the wall clock moved against the lease clock, it was set, or the machine slept:
   * either clock may be wrong, and all leases end here. Once the clocks no longer move between two checks, the lease
   * layer restarts with a recovery wait. Without a fault, an empty frame lets each peer compare clocks.
   */
  #checkClock(): void {
    const { log, peers } = this.#parts;
    const movedMs = this.#clockMovedMs();
    if (!this.#host.clockFault) {
      if (!this.isClockSound()) {
        log.error(
          { movedMs: Math.round(movedMs) },
          'clock fault: the wall clock was set, or the machine was suspended',
        );
        this.step({ kind: 'clock-fault' });
        return;
      }
      for (const peer of peers) this.#send(peer, new LeaseFrameWriter(), true);
      return;
    }
    const isSteady = this.#lastMovedMs !== null && Math.abs(movedMs - this.#lastMovedMs) <= STEADY_MS;
    this.#lastMovedMs = movedMs;
    if (!isSteady) return;
    this.#lastMovedMs = null;
    this.#outgoing.clear();
    if (this.#parts.clockMemory !== undefined)
      this.#earlierClockMs = Math.max(this.#earlierClockMs, this.nowMs());
    this.#host = this.#newHost();
    log.warn({ silentMs: Math.ceil(this.recoveringMs()) }, 'restarting the lease layer after a clock fault');
    this.#parts.restarted();
    this.#scheduleWake();
  }
}

import type { Incarnation, ServerId } from '../base/ids.ts';
import type { LeaseEnvelope } from './messages.ts';
import { CLOCK_DRIFT_MAX } from './parameters.ts';

/** How far a peer's lease clock is ahead of the local one: the true value is within offset ± error. */
export interface ClockOffset {
  readonly offsetMs: number;
  readonly errorMs: number;
  /** The peer's clock was certainly out of bounds at the last measurement. */
  readonly outOfBounds: boolean;
}

interface Peer {
  incarnation: Incarnation;
  startedMs: number;
  /** Latest reading of its clock received. */
  clockMs: number;
  receivedMs: number;
  lowMs: number;
  highMs: number;
  measuredMs: number;
  outOfBounds: boolean;
  violatedMs: number;
}

/** `aheadMs` is cached for this share of `#keepMs`. */
const AHEAD_CACHED_SHARE = 1 / 32;

export type FrameVerdict = 'accept' | 'older-life' | 'clock-out-of-bounds';

/**
 * Tracks each peer's incarnation and clock offset by the envelopes of its frames.
 *
 * A frame sent at peer clock c and received at local clock t2 shows that the peer was at most t2 − c behind. If the
 * peer had by then received a frame, so that the local clock certainly showed t1 when it sent its own, it was at most
 * c − t1 ahead. Both bounds hold however long the frames took, so a delay never makes a clock look wrong.
 */
export class ClockMonitor {
  readonly #clockSkewMaxMs: number;
  readonly #startedMs: number;
  /** A measurement counts this long, in milliseconds; until then only one that is at least as precise replaces it. */
  readonly #keepMs: number;
  readonly #peers = new Map<ServerId, Peer>();
  readonly #disconnected = new Set<ServerId>();
  /** Peers whose latest frame found them out of bounds. */
  #outOfBounds = 0;
  #aheadMs = 0;
  #aheadAtMs = -Infinity;

  constructor(startedMs: number, clockSkewMaxMs: number, keepMs: number) {
    this.#startedMs = startedMs;
    this.#clockSkewMaxMs = clockSkewMaxMs;
    this.#keepMs = keepMs;
  }

  /** Measures the peer's clock by a frame. @returns whether the messages of the frame count */
  observe(from: ServerId, envelope: LeaseEnvelope, nowMs: number): FrameVerdict {
    let peer = this.#peers.get(from);
    if (peer === undefined || peer.incarnation !== envelope.incarnation) {
      // Frames can overtake each other: those of an earlier incarnation are void once a later one sent a frame. But a
      // peer's clock may be set back while it restarts, so after `#keepMs` of silence any incarnation replaces it.
      if (
        peer !== undefined &&
        envelope.startedMs < peer.startedMs &&
        nowMs - peer.receivedMs < this.#keepMs
      ) {
        return 'older-life';
      }
      if (peer?.outOfBounds) this.#outOfBounds--;
      peer = {
        incarnation: envelope.incarnation,
        startedMs: envelope.startedMs,
        clockMs: envelope.clockMs,
        receivedMs: nowMs,
        lowMs: -Infinity,
        highMs: Infinity,
        measuredMs: -Infinity,
        outOfBounds: false,
        violatedMs: -Infinity,
      };
      this.#peers.set(from, peer);
    }
    peer.clockMs = Math.max(peer.clockMs, envelope.clockMs);
    peer.receivedMs = nowMs;
    this.#disconnected.delete(from);
    const { echoMs, clockMs } = envelope;
    const lowMs = clockMs - nowMs;
    // An echo of this server's earlier incarnation says nothing about this clock.
    const highMs = echoMs >= this.#startedMs && echoMs <= nowMs ? clockMs - echoMs : Infinity;
    return this.#measured(peer, lowMs, highMs, nowMs) ? 'accept' : 'clock-out-of-bounds';
  }

  /**
   * What the peer's clock certainly shows now: the latest reading received from it, and the time since, which two
   * clocks may measure differently by 2ρ. Once it is disconnected, the reading alone: another process of the peer may
   * have another clock. A frame to the peer carries it; 0 without a reading.
   */
  echoMs(peer: ServerId, nowMs: number): number {
    const known = this.#peers.get(peer);
    if (known === undefined) return 0;
    if (this.#disconnected.has(peer)) return known.clockMs;
    return known.clockMs + Math.max(0, nowMs - known.receivedMs) * (1 - 2 * CLOCK_DRIFT_MAX);
  }

  /** @returns the offset, or null until the peer sent a frame that echoes this server's clock */
  offset(peer: ServerId): ClockOffset | null {
    const known = this.#peers.get(peer);
    if (known === undefined || known.highMs === Infinity) return null;
    return {
      offsetMs: (known.lowMs + known.highMs) / 2,
      errorMs: (known.highMs - known.lowMs) / 2,
      outOfBounds: known.outOfBounds,
    };
  }

  /** The connection to the peer broke; cleared by its next frame. */
  disconnected(peer: ServerId): void {
    this.#disconnected.add(peer);
  }

  isDisconnected(peer: ServerId): boolean {
    return this.#disconnected.has(peer);
  }

  /** When the peer's last frame arrived; -Infinity if never, or if the connection broke since. */
  lastFrameMs(peer: ServerId): number {
    if (this.#disconnected.has(peer)) return -Infinity;
    return this.#peers.get(peer)?.receivedMs ?? -Infinity;
  }

  /** How far the local clock is ahead of the slowest one within bounds, in milliseconds. */
  aheadMs(nowMs: number): number {
    if (nowMs - this.#aheadAtMs < this.#keepMs * AHEAD_CACHED_SHARE) return this.#aheadMs;
    let aheadMs = 0;
    for (const { lowMs, highMs, receivedMs: heardMs, outOfBounds } of this.#peers.values()) {
      if (outOfBounds || highMs === Infinity || nowMs - heardMs > this.#keepMs) continue;
      aheadMs = Math.max(aheadMs, -(lowMs + highMs) / 2);
    }
    // A slow frame makes its sender's clock look behind.
    this.#aheadMs = Math.min(aheadMs, this.#clockSkewMaxMs);
    this.#aheadAtMs = nowMs;
    return this.#aheadMs;
  }

  /** Whether most of at least two live peers are out of bounds. With one peer it is unknown whose clock is wrong. */
  isOutlier(nowMs: number): boolean {
    if (this.#outOfBounds < 2) return false;
    // Only recent frames count, for and against.
    let recent = 0;
    let violating = 0;
    for (const { receivedMs: heardMs, violatedMs } of this.#peers.values()) {
      if (nowMs - heardMs <= this.#keepMs) recent++;
      if (nowMs - violatedMs <= this.#keepMs) violating++;
    }
    return violating >= 2 && 2 * violating > recent;
  }

  /** Takes a measurement: the peer is ahead by `lowMs` to `highMs`. @returns whether it may be within bounds */
  #measured(peer: Peer, lowMs: number, highMs: number, nowMs: number): boolean {
    const limitMs = this.#clockSkewMaxMs;
    if (lowMs > limitMs || highMs < -limitMs) peer.violatedMs = nowMs;
    else if (lowMs >= -limitMs && highMs <= limitMs) peer.violatedMs = -Infinity;
    // A slow frame after the violation shows neither, so the violation counts for `#keepMs`.
    const outOfBounds = nowMs - peer.violatedMs <= this.#keepMs;
    if (outOfBounds !== peer.outOfBounds) this.#outOfBounds += outOfBounds ? 1 : -1;
    peer.outOfBounds = outOfBounds;
    const stale = nowMs - peer.measuredMs > this.#keepMs;
    if (stale || highMs - lowMs <= peer.highMs - peer.lowMs) {
      peer.lowMs = lowMs;
      peer.highMs = highMs;
      peer.measuredMs = nowMs;
    }
    return !peer.outOfBounds;
  }
}

import type { Incarnation, ServerId } from '../base/ids.ts';
import type { LeaseEnvelope } from './messages.ts';

/** How far a peer's lease clock is ahead of ours: the truth lies within offset ± error. */
export interface ClockOffset {
  readonly offsetMs: number;
  readonly errorMs: number;
  /** The peer's clock was certainly out of bounds when last measured. */
  readonly outOfBounds: boolean;
}

interface Peer {
  incarnation: Incarnation;
  startedMs: number;
  /** Latest reading of its clock that we heard: sent back as an echo. */
  clockMs: number;
  heardMs: number;
  lowMs: number;
  highMs: number;
  measuredMs: number;
  outOfBounds: boolean;
  /** When its clock was last seen to be out of bounds. */
  violatedMs: number;
}

/** For so much of a measurement's life it is not looked for a newer one. */
const AHEAD_FRESH_SHARE = 1 / 32;

/** What to do with a frame. */
export type FrameVerdict = 'accept' | 'older-life' | 'clock-out-of-bounds';

/**
 * Knows the peers by what their frames say of them: which life they are in, and how their clocks
 * differ from ours.
 *
 * A frame sent at peer clock c and received at own clock t2 shows that the peer was at most t2 − c
 * behind. If the peer had by then heard our clock at t0, it was at most c − t0 ahead. Both are
 * certain, however long the frame took, so a delay never makes a clock look wrong.
 */
export class ClockMonitor {
  readonly #clockSkewMaxMs: number;
  readonly #startedMs: number;
  /** A measurement is replaced by a less precise one only when it is this old. */
  readonly #freshMs: number;
  readonly #peers = new Map<ServerId, Peer>();
  /** Peers to which there is no connection, as far as is known. */
  readonly #away = new Set<ServerId>();
  /** Peers that were out of bounds when they last spoke. */
  #violating = 0;
  #aheadMs = 0;
  #aheadAtMs = -Infinity;

  constructor(startedMs: number, clockSkewMaxMs: number, freshMs: number) {
    this.#startedMs = startedMs;
    this.#clockSkewMaxMs = clockSkewMaxMs;
    this.#freshMs = freshMs;
  }

  /** Takes notice of a frame's envelope. */
  observe(from: ServerId, envelope: LeaseEnvelope, nowMs: number): FrameVerdict {
    let peer = this.#peers.get(from);
    if (peer === undefined || peer.incarnation !== envelope.incarnation) {
      // Frames overtake each other; what an earlier life said counts no more once a later one spoke. But
      // a clock may have been set back between two lives, and a life that is silent for long is over.
      if (peer !== undefined && envelope.startedMs < peer.startedMs && nowMs - peer.heardMs < this.#freshMs) {
        return 'older-life';
      }
      if (peer?.outOfBounds) this.#violating--;
      peer = {
        incarnation: envelope.incarnation,
        startedMs: envelope.startedMs,
        clockMs: envelope.clockMs,
        heardMs: nowMs,
        lowMs: -Infinity,
        highMs: Infinity,
        measuredMs: -Infinity,
        outOfBounds: false,
        violatedMs: -Infinity,
      };
      this.#peers.set(from, peer);
    }
    peer.clockMs = Math.max(peer.clockMs, envelope.clockMs);
    peer.heardMs = nowMs;
    this.#away.delete(from);
    const { echoMs, clockMs } = envelope;
    const lowMs = clockMs - nowMs;
    // An echo of our earlier life says nothing about this clock.
    const highMs = echoMs >= this.#startedMs && echoMs <= nowMs ? clockMs - echoMs : Infinity;
    return this.#measured(peer, lowMs, highMs, nowMs) ? 'accept' : 'clock-out-of-bounds';
  }

  /** @returns the peer's clock as last heard, or 0 */
  echoMs(peer: ServerId): number {
    return this.#peers.get(peer)?.clockMs ?? 0;
  }

  /** @returns what is known of the peer's clock, or null if it has not both spoken and listened yet */
  offset(peer: ServerId): ClockOffset | null {
    const known = this.#peers.get(peer);
    if (known === undefined || known.highMs === Infinity) return null;
    return {
      offsetMs: (known.lowMs + known.highMs) / 2,
      errorMs: (known.highMs - known.lowMs) / 2,
      outOfBounds: known.outOfBounds,
    };
  }

  /** The connection to the peer is gone: it counts as never heard until it is heard again. */
  away(peer: ServerId): void {
    this.#away.add(peer);
  }

  /** Whether the connection to the peer is gone, and nothing was heard since. */
  isAway(peer: ServerId): boolean {
    return this.#away.has(peer);
  }

  /** When the peer was last heard from; -Infinity if never, or if it is away. */
  heardMs(peer: ServerId): number {
    if (this.#away.has(peer)) return -Infinity;
    return this.#peers.get(peer)?.heardMs ?? -Infinity;
  }

  /** How far our clock is ahead of the slowest of all that are within bounds, as far as we know, in milliseconds. */
  aheadMs(nowMs: number): number {
    if (nowMs - this.#aheadAtMs < this.#freshMs * AHEAD_FRESH_SHARE) return this.#aheadMs;
    let aheadMs = 0;
    for (const { lowMs, highMs, heardMs, outOfBounds } of this.#peers.values()) {
      if (outOfBounds || highMs === Infinity || nowMs - heardMs > this.#freshMs) continue;
      aheadMs = Math.max(aheadMs, -(lowMs + highMs) / 2);
    }
    // A frame that was slow makes its sender look behind.
    this.#aheadMs = Math.min(aheadMs, this.#clockSkewMaxMs);
    this.#aheadAtMs = nowMs;
    return this.#aheadMs;
  }

  /**
   * Most of at least two peers are out of bounds, so it is our clock that is. With a single peer
   * nobody can tell which of the two is wrong; ignoring each other is enough.
   */
  isOutlier(nowMs: number): boolean {
    if (this.#violating < 2) return false;
    // Only those count that have spoken of late: who is gone convicts nobody, and acquits nobody.
    let lively = 0;
    let violating = 0;
    for (const { heardMs, violatedMs } of this.#peers.values()) {
      if (nowMs - heardMs <= this.#freshMs) lively++;
      if (nowMs - violatedMs <= this.#freshMs) violating++;
    }
    return violating >= 2 && 2 * violating > lively;
  }

  /** @returns whether the peer may be listened to */
  #measured(peer: Peer, lowMs: number, highMs: number, nowMs: number): boolean {
    const limitMs = this.#clockSkewMaxMs;
    if (lowMs > limitMs || highMs < -limitMs) peer.violatedMs = nowMs;
    else if (lowMs >= -limitMs && highMs <= limitMs) peer.violatedMs = -Infinity;
    // A frame that was slow proves nothing, so the suspicion outlasts the frame that raised it.
    const outOfBounds = nowMs - peer.violatedMs <= this.#freshMs;
    if (outOfBounds !== peer.outOfBounds) this.#violating += outOfBounds ? 1 : -1;
    peer.outOfBounds = outOfBounds;
    const stale = nowMs - peer.measuredMs > this.#freshMs;
    if (stale || highMs - lowMs <= peer.highMs - peer.lowMs) {
      peer.lowMs = lowMs;
      peer.highMs = highMs;
      peer.measuredMs = nowMs;
    }
    return !peer.outOfBounds;
  }
}

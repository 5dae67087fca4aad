import type { ServerId } from '../base/ids.ts';
import { DRIFT_MAX } from './guard.ts';
import type { MemberChange } from './member-change.ts';
import type { OrderContext } from './order-context.ts';
import type { Progress } from './progress.ts';
import type { Trust } from './record.ts';
import { viewHasMajority, viewReached, viewVoters } from './view.ts';

/** Heartbeats whose answers still count. */
const BEATS_MAX = 64;

interface Beat {
  readonly sentMs: number;
  readonly guardMs: number;
}

/**
 * The heartbeats of one epoch, and what their answers prove: that a majority keeps the guard, so that there is no other
 * primary, and that no member has promised a larger epoch.
 */
export class Heartbeats {
  readonly #context: OrderContext;
  readonly #members: MemberChange;
  readonly #beats = new Map<number, Beat>();
  #number = 0;
  #sentMs = -Infinity;
  /**
   * All that was numbered before the newest of the members' guards began: a member that was not bound may have agreed
   * to a quorum read that showed it.
   */
  #shownSeq: number;
  /** The own disk lacked some of that when the guard began. */
  #isBehindShown = false;

  constructor(context: OrderContext, members: MemberChange) {
    this.#context = context;
    this.#members = members;
    this.#shownSeq = context.base.seq;
  }

  /** Of the last heartbeat; 0 before the first. */
  get number(): number {
    return this.#number;
  }

  /** How long ago replicas were last asked to keep the guard, in milliseconds. */
  sinceSentMs(nowMs: number): number {
    return nowMs - this.#sentMs;
  }

  /** Until when no other primary can be, by what a majority has answered; this replica binds itself, too. */
  guardEndMs(): number {
    const { config, peers } = this.#context;
    const guardUntilMs = (server: ServerId): number =>
      server === config.self ? Infinity : (peers.find(server)?.guardUntilMs ?? -Infinity);
    return viewReached(this.#members.countedView, guardUntilMs);
  }

  /** Whether the own disk has all that a quorum read without a primary can have shown (decision 0055). */
  get hasWhatWasShown(): boolean {
    return this.#context.standing.seq >= this.#shownSeq;
  }

  /** @returns for how long the next heartbeat asks for the guard, in milliseconds */
  next(nowMs: number): number {
    const { hasLease, lease, guard, epoch } = this.#context;
    // Without a lease this server answers no reads that a guard would be for.
    const guardMs = hasLease ? Math.max(0, Math.floor(lease.untilMs - nowMs)) : 0;
    this.#number++;
    this.#sentMs = nowMs;
    this.#beats.set(this.#number, { sentMs: nowMs, guardMs });
    this.#beats.delete(this.#number - BEATS_MAX);
    guard.hold(epoch, nowMs, guardMs);
    return guardMs;
  }

  /** A peer answered heartbeat `number`. */
  answered(peer: Progress, number: number, trust: Trust, committedSeq: number, nowMs: number): void {
    this.reported(peer, trust);
    // An answer to an earlier span of the same epoch proves nothing in this one.
    if (number <= this.#number) peer.answeredBeat = Math.max(peer.answeredBeat, number);
    // A promise to another that went with its disk does not bind it: its answer excludes no other primary.
    if (trust !== 'lost') this.#guarded(peer, number, committedSeq, nowMs);
  }

  /** A peer reported how far its store is to be trusted. */
  reported(peer: Progress, trust: Trust): void {
    peer.trust = trust;
    if (trust !== 'lost') peer.lostSinceBeat = null;
    else peer.lostSinceBeat ??= this.#number;
  }

  /** Counted from before the heartbeat left, so that it ends here before it ends there. */
  #guarded(peer: Progress, number: number, committedSeq: number, nowMs: number): void {
    const beat = this.#beats.get(number);
    if (beat === undefined) return;
    const wasKept = nowMs < this.guardEndMs();
    const wasBound = nowMs < peer.guardUntilMs;
    peer.guardUntilMs = Math.max(peer.guardUntilMs, beat.sentMs + beat.guardMs * (1 - DRIFT_MAX));
    // Each member by itself: the answers of a quorum read differ in time, and the guard may move between them.
    if (!wasBound && nowMs < peer.guardUntilMs) {
      this.#shownSeq = this.#context.log.lastSeq;
      this.#isBehindShown = !this.hasWhatWasShown;
    }
    if (!wasKept && nowMs < this.guardEndMs()) this.#context.out.push({ kind: 'advanced', committedSeq });
  }

  /** Reads that waited for the own disk to have what was shown are tried again. */
  applied(committedSeq: number): void {
    if (!this.#isBehindShown || !this.hasWhatWasShown) return;
    this.#isBehindShown = false;
    this.#context.out.push({ kind: 'advanced', committedSeq });
  }

  /**
   * Whether the replica may be given the state. One that has lost its promises with its disk may have promised a
   * larger epoch, and would follow this one all the same: so a majority of the others has to confirm first, after
   * the loss was known, that there is none. Or all others, where its set has no majority without it: a server that
   * began a larger epoch before the loss is one of them, or the process that went with the disk.
   */
  mayInstall(peer: Progress): boolean {
    const { lostSinceBeat } = peer;
    const { config, peers, hasLease } = this.#context;
    const { countedView } = this.#members;
    const voters = viewVoters(countedView);
    if (lostSinceBeat === null || !voters.includes(peer.server)) return true;
    // Nothing keeps another candidate from having its promise, and the others' only after they have confirmed.
    if (!hasLease) return false;
    const confirms = (server: ServerId): boolean =>
      server === config.self || (peers.find(server)?.answeredBeat ?? 0) > lostSinceBeat;
    if (voters.every((server) => server === peer.server || confirms(server))) return true;
    // What another member without its disk has promised to a candidate is forgotten, too.
    const isSure = (server: ServerId): boolean => peers.find(server)?.trust !== 'lost' && confirms(server);
    return viewHasMajority(countedView, isSure);
  }
}

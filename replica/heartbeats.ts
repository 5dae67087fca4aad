import type { ServerId } from '../base/ids.ts';
import { DRIFT_MAX } from './guard.ts';
import type { MemberChange } from './member-change.ts';
import type { OrderContext } from './order-context.ts';
import type { Progress } from './progress.ts';
import type { Trust } from './record.ts';
import { viewHasMajority, viewReachedByMajority, viewVoters } from './view.ts';

/** Heartbeats whose answers still count. */
const BEATS_MAX = 64;

interface Beat {
  readonly sentMs: number;
  readonly guardMs: number;
}

/** The heartbeats of one epoch. A majority's answers prove that it keeps the guard and promised no larger epoch. */
export class Heartbeats {
  readonly #context: OrderContext;
  readonly #members: MemberChange;
  readonly #beats = new Map<number, Beat>();
  #number = 0;
  #sentMs = -Infinity;
  /** The last operation before the newest guard of a member, which may have agreed to a quorum read until then. */
  #shownSeq: number;
  /** The local disk lacked operations up to `#shownSeq` when that guard began. */
  #isBehindShown = false;

  constructor(context: OrderContext, members: MemberChange) {
    this.#context = context;
    this.#members = members;
    this.#shownSeq = context.base.seq;
  }

  get number(): number {
    return this.#number;
  }

  sinceSentMs(nowMs: number): number {
    return nowMs - this.#sentMs;
  }

  /** Before this time no other primary is possible: a majority, with this replica, is bound by its guard until then. */
  guardEndMs(): number {
    const { config, peers } = this.#context;
    const guardUntilMs = (server: ServerId): number =>
      server === config.self ? Infinity : (peers.find(server)?.guardUntilMs ?? -Infinity);
    return viewReachedByMajority(this.#members.countedView, guardUntilMs);
  }

  /** Whether the local disk has all that a quorum read can have shown (decision 0055). */
  get hasQuorumReadOperations(): boolean {
    return this.#context.state.seq >= this.#shownSeq;
  }

  /** @returns the guard that the next heartbeat requests, in milliseconds */
  startNext(nowMs: number): number {
    const { hasLease, lease, guard, epoch } = this.#context;
    // Without a lease this server answers no reads, so it needs no guard.
    const guardMs = hasLease ? Math.max(0, Math.floor(lease.untilMs - nowMs)) : 0;
    this.#number++;
    this.#sentMs = nowMs;
    this.#beats.set(this.#number, { sentMs: nowMs, guardMs });
    this.#beats.delete(this.#number - BEATS_MAX);
    guard.bind(epoch, nowMs, guardMs);
    return guardMs;
  }

  /** A peer answered heartbeat `number`, which renews its guard. */
  answered(peer: Progress, number: number, trust: Trust, committedSeq: number, nowMs: number): void {
    this.reported(peer, trust);
    // An answer to an earlier span of the same epoch proves nothing in this one.
    if (number <= this.#number) peer.answeredBeat = Math.max(peer.answeredBeat, number);
    // A replica that lost its disk is not bound by a lost promise: its answer excludes no other primary.
    if (trust !== 'lost') this.#noteGuard(peer, number, committedSeq, nowMs);
  }

  reported(peer: Progress, trust: Trust): void {
    peer.trust = trust;
    if (trust !== 'lost') peer.lostSinceBeat = null;
    else peer.lostSinceBeat ??= this.#number;
  }

  /** Renews the peer's guard, counted from before heartbeat `number` left, so that it ends here first. */
  #noteGuard(peer: Progress, number: number, committedSeq: number, nowMs: number): void {
    const beat = this.#beats.get(number);
    if (beat === undefined) return;
    const wasKept = nowMs < this.guardEndMs();
    const wasBound = nowMs < peer.guardUntilMs;
    peer.guardUntilMs = Math.max(peer.guardUntilMs, beat.sentMs + beat.guardMs * (1 - DRIFT_MAX));
    // Per member: a quorum read's answers differ in time, and the guard may move between them.
    if (!wasBound && nowMs < peer.guardUntilMs) {
      this.#shownSeq = this.#context.log.lastSeq;
      this.#isBehindShown = !this.hasQuorumReadOperations;
    }
    if (!wasKept && nowMs < this.guardEndMs()) this.#context.out.push({ kind: 'advanced', committedSeq });
  }

  /** Retries reads that waited until the local disk had what a quorum read may have shown. */
  applied(committedSeq: number): void {
    if (!this.#isBehindShown || !this.hasQuorumReadOperations) return;
    this.#isBehindShown = false;
    this.#context.out.push({ kind: 'advanced', committedSeq });
  }

  /**
   * Whether a replica may be given the state. If it lost its promises with its disk, it may have promised a larger
   * epoch and would follow this one nevertheless. So, after the loss is known, a majority of the others must confirm
   * that there is no larger epoch; or all others, if there is no majority without it: a server that began a larger
   * epoch before the loss is among them, or was the process that went with the disk.
   */
  mayInstall(peer: Progress): boolean {
    const { lostSinceBeat } = peer;
    const { config, peers, hasLease } = this.#context;
    const { countedView } = this.#members;
    const voters = viewVoters(countedView);
    if (lostSinceBeat === null || !voters.includes(peer.server)) return true;
    // Without the lease, another candidate could get its promise, and the others' after they confirmed.
    if (!hasLease) return false;
    const confirms = (server: ServerId): boolean =>
      server === config.self || (peers.find(server)?.answeredBeat ?? 0) > lostSinceBeat;
    if (voters.every((server) => server === peer.server || confirms(server))) return true;
    // A promise of another member without its disk is lost, too.
    const isSure = (server: ServerId): boolean => peers.find(server)?.trust !== 'lost' && confirms(server);
    return viewHasMajority(countedView, isSure);
  }
}

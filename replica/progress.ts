import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import type { Trust } from './record.ts';

/**
 * How far the install of the epoch is at a peer.
 *
 * - `unasked`: only in an epoch that began without a reset (first or resumed): not requested yet.
 * - `asked`: requested; operations are sent before it answers. `askedBeat`: the last heartbeat before the request.
 * - `unknown`: none of its state counts.
 * - `installed`: it confirmed the epoch. Its acknowledgements count.
 */
type Stage =
  | { readonly kind: 'unasked' }
  | { readonly kind: 'asked'; readonly askedBeat: number }
  | { readonly kind: 'unknown' }
  | { readonly kind: 'installed' };

export type PeerStart = 'unasked' | 'asked' | 'unknown';

/** A peer as the primary sees it in one epoch; `Progress` of etcd's raft. */
export class Progress {
  readonly server: ServerId;
  flushedSeq = -1;
  receivedMs: number;
  /** Until then it promises nothing to another candidate, by the local clock. */
  guardUntilMs = -Infinity;
  answeredBeat = 0;
  trust: Trust = 'intact';
  /** The last heartbeat before it reported a lost disk; null without a loss. */
  lostSinceBeat: number | null = null;
  #stage: Stage;
  /** It fetches the state, because operations that it lacks were dropped. */
  #isFetching = false;
  /** The last operation applied there; 0 while it lacks the epoch. */
  #ackedSeq: number;
  #nextSeq: number;
  /** The position that it will at least report, while it is not installed or fetches. */
  #floorSeq: number;

  /** @param installedSeq its position if it has the epoch installed; else null */
  constructor(
    server: ServerId,
    installedSeq: number | null,
    floorSeq: number,
    nowMs: number,
    start: PeerStart,
  ) {
    this.server = server;
    this.receivedMs = nowMs;
    this.#stage = stageAtStart(start);
    this.#ackedSeq = 0;
    this.#floorSeq = floorSeq;
    this.#nextSeq = floorSeq + 1;
    if (installedSeq !== null) {
      this.#stage = { kind: 'installed' };
      this.#ackedSeq = installedSeq;
      this.#nextSeq = installedSeq + 1;
    }
  }

  get isInstalled(): boolean {
    return this.#stage.kind === 'installed';
  }

  get isNotRequested(): boolean {
    return this.#stage.kind === 'unasked';
  }

  get isFetching(): boolean {
    return this.#isFetching;
  }

  get ackedSeq(): number {
    return this.#ackedSeq;
  }

  get nextSeq(): number {
    return this.#nextSeq;
  }

  /** The log must keep operations after this one: the peer may lack them. */
  get neededAfterSeq(): number {
    return this.isInstalled && !this.#isFetching ? this.#ackedSeq : this.#floorSeq;
  }

  /** The last operation sent to it, which its heartbeat answer is compared with. */
  get sentSeq(): number {
    return this.isInstalled || this.#stage.kind === 'asked' ? this.#nextSeq - 1 : 0;
  }

  get takesOperations(): boolean {
    return (this.isInstalled || this.#stage.kind === 'asked') && !this.#isFetching;
  }

  /** Whether it has all up to `committedSeq`, or will unless its install fails: nothing was committed before. */
  keepsUp(committedSeq: number, baseSeq: number): boolean {
    if (!this.isInstalled) return this.#stage.kind !== 'unknown' && committedSeq === baseSeq;
    return !this.#isFetching && this.#ackedSeq >= committedSeq;
  }

  /** Whether it may have been storing the requested install when it answered heartbeat `beat`. */
  isInstalling(beat: number): boolean {
    return this.#stage.kind === 'asked' && beat <= this.#stage.askedBeat + 1;
  }

  installRequested(askedBeat: number): void {
    this.#stage = { kind: 'asked', askedBeat };
  }

  /** Messages to it may be lost, the install request too. */
  disconnected(): void {
    if (this.#stage.kind === 'asked') this.#stage = { kind: 'unknown' };
  }

  /** It reported that it lacks the epoch. */
  lacksEpoch(): void {
    assert(!this.isInstalled, 'An installed epoch is lost with its replica only');
    this.#stage = { kind: 'unknown' };
  }

  installed(seq: number): void {
    // Operations on their way need not be sent again.
    const sentSeq = this.#stage.kind === 'asked' ? this.#nextSeq : 0;
    this.#stage = { kind: 'installed' };
    this.#ackedSeq = seq;
    this.#nextSeq = Math.max(sentSeq, seq + 1);
  }

  /** The peer has all up to `seq`. @param firstSeq first kept operation: a fetch ends once the peer needs no earlier */
  acknowledged(seq: number, firstSeq: number): void {
    this.#ackedSeq = Math.max(this.#ackedSeq, seq);
    this.#nextSeq = Math.max(this.#nextSeq, this.#ackedSeq + 1);
    if (!this.#isFetching || this.#ackedSeq + 1 < firstSeq) return;
    this.#isFetching = false;
    this.resendFrom(this.#ackedSeq + 1);
  }

  noteSent(): void {
    this.#nextSeq++;
  }

  resendFrom(seq: number): void {
    this.#nextSeq = seq;
  }

  /** @param floorSeq the fetched state has at least this */
  startFetch(floorSeq: number): void {
    this.#isFetching = true;
    this.#floorSeq = floorSeq;
  }

  /** It restarted: its acks no longer count. @param beat last heartbeat: a disk loss counts from it, like a new one */
  restarted(floorSeq: number, beat: number): void {
    if (this.#stage.kind !== 'unasked') this.#stage = { kind: 'unknown' };
    this.#isFetching = false;
    this.#ackedSeq = 0;
    this.flushedSeq = -1;
    this.#floorSeq = floorSeq;
    if (this.lostSinceBeat !== null) this.lostSinceBeat = beat;
  }
}

function stageAtStart(start: PeerStart): Stage {
  return start === 'asked' ? { kind: 'asked', askedBeat: 0 } : { kind: start };
}

export class ProgressTracker {
  readonly #self: ServerId;
  readonly #silentMs: number;
  readonly #peers = new Map<ServerId, Progress>();

  /** @param silentMs a peer is unreachable after this long without a message */
  constructor(self: ServerId, silentMs: number) {
    this.#self = self;
    this.#silentMs = silentMs;
  }

  add(peer: Progress): Progress {
    assert(peer.server !== this.#self, 'A server is no peer of its own');
    this.#peers.set(peer.server, peer);
    return peer;
  }

  remove(server: ServerId): void {
    this.#peers.delete(server);
  }

  has(server: ServerId): boolean {
    return this.#peers.has(server);
  }

  find(server: ServerId): Progress | undefined {
    return this.#peers.get(server);
  }

  get(server: ServerId): Progress {
    const peer = this.#peers.get(server);
    assert(peer !== undefined, 'Messages of other servers than peers are refused before');
    return peer;
  }

  [Symbol.iterator](): IterableIterator<Progress> {
    return this.#peers.values();
  }

  /** @returns a copy of the servers, as some may be removed meanwhile */
  servers(): ServerId[] {
    return [...this.#peers.keys()];
  }

  /** By name, starting after the local server: the same order for every subject, so that messages share frames. */
  inNameOrder(): Progress[] {
    const round = ({ server }: Progress): number => (server < this.#self ? 1 : 0);
    return [...this.#peers.values()].sort((a, b) => round(a) - round(b) || (a.server < b.server ? -1 : 1));
  }

  received(server: ServerId, nowMs: number): Progress {
    const peer = this.get(server);
    peer.receivedMs = nowMs;
    return peer;
  }

  isSilent(peer: Progress, nowMs: number): boolean {
    return nowMs - peer.receivedMs > this.#silentMs;
  }

  /** @returns what the server acknowledged in this epoch; `ownSeq` for the local server */
  ackedSeq(server: ServerId, ownSeq: number): number {
    return server === this.#self ? ownSeq : (this.#peers.get(server)?.ackedSeq ?? 0);
  }

  /** @returns the last operation that no peer needs, at most `doneSeq`; silent peers need none if `nowMs` is given */
  doneSeq(doneSeq: number, nowMs: number | null): number {
    let seq = doneSeq;
    for (const peer of this.#peers.values()) {
      if (nowMs !== null && this.isSilent(peer, nowMs)) continue;
      seq = Math.min(seq, peer.neededAfterSeq);
    }
    return seq;
  }
}

import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import type { Trust } from './record.ts';

/**
 * How far the install of the epoch has come at a peer.
 *
 * - `unasked`: only in an epoch that began without a reset (first or resumed): the peer was not asked to install it.
 * - `asked`: it was, and is sent operations before it answers. `askedBeat`: the last heartbeat before the request.
 * - `unknown`: nothing that it holds counts.
 * - `installed`: it has reported that the epoch is installed. Its acknowledgements count.
 */
type Stage =
  | { readonly kind: 'unasked' }
  | { readonly kind: 'asked'; readonly askedBeat: number }
  | { readonly kind: 'unknown' }
  | { readonly kind: 'installed' };

/** What a primary knows of its peers when it begins to order. */
export type PeerStart = 'unasked' | 'asked' | 'unknown';

/** Another replica as its primary sees it in one epoch; `Progress` of etcd's raft. */
export class Progress {
  readonly server: ServerId;
  /** The last operation that survives loss of power there. */
  flushedSeq = -1;
  /** When its last message arrived. */
  receivedMs: number;
  /** Until then it promises nothing to another candidate, by this process's clock. */
  guardUntilMs = -Infinity;
  /** The last heartbeat that it answered. */
  answeredBeat = 0;
  /** As the peer itself reported it. */
  trust: Trust = 'intact';
  /** The heartbeat before which it was not known to have lost its disk; null where it has not. */
  lostSinceBeat: number | null = null;
  #stage: Stage;
  /** It fetches the state, because operations that it lacks were dropped. */
  #isFetching = false;
  /** The last operation it has applied; 0 while it has not installed the epoch. */
  #ackedSeq: number;
  /** The next operation to be sent to it. */
  #nextSeq: number;
  /** While it is not installed or fetches: it will report at least this position. */
  #floorSeq: number;

  /** @param installedSeq its position, if it has the epoch installed; null otherwise */
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

  get isUnasked(): boolean {
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

  /** Operations after this one may have to be sent to it. */
  get neededAfterSeq(): number {
    return this.isInstalled && !this.#isFetching ? this.#ackedSeq : this.#floorSeq;
  }

  /** The last operation that was sent to it, which its answer to a heartbeat is compared with. */
  get sentSeq(): number {
    return this.isInstalled || this.#stage.kind === 'asked' ? this.#nextSeq - 1 : 0;
  }

  /** Whether operations may be sent to it. */
  get takesOperations(): boolean {
    return (this.isInstalled || this.#stage.kind === 'asked') && !this.#isFetching;
  }

  /** Whether it has all up to `committedSeq`, or will unless its install fails: nothing was committed before. */
  keepsUp(committedSeq: number, baseSeq: number): boolean {
    if (!this.isInstalled) return this.#stage.kind !== 'unknown' && committedSeq === baseSeq;
    return !this.#isFetching && this.#ackedSeq >= committedSeq;
  }

  /** Whether it may be storing the install that it was asked for when it answered heartbeat `beat`. */
  isInstalling(beat: number): boolean {
    return this.#stage.kind === 'asked' && beat <= this.#stage.askedBeat + 1;
  }

  /** It is asked to install the epoch. */
  asked(askedBeat: number): void {
    this.#stage = { kind: 'asked', askedBeat };
  }

  /** What it was sent may be lost, the request to install the epoch with it. */
  disconnected(): void {
    if (this.#stage.kind === 'asked') this.#stage = { kind: 'unknown' };
  }

  /** It has reported that it does not have the epoch installed. */
  lacksEpoch(): void {
    assert(!this.isInstalled, 'An installed epoch is lost with its replica only');
    this.#stage = { kind: 'unknown' };
  }

  installed(seq: number): void {
    // Operations on their way to it need not be sent again.
    const sentSeq = this.#stage.kind === 'asked' ? this.#nextSeq : 0;
    this.#stage = { kind: 'installed' };
    this.#ackedSeq = seq;
    this.#nextSeq = Math.max(sentSeq, seq + 1);
  }

  /** @param firstSeq the first operation that is kept: a fetch is over once the peer needs none before it */
  acknowledged(seq: number, firstSeq: number): void {
    this.#ackedSeq = Math.max(this.#ackedSeq, seq);
    this.#nextSeq = Math.max(this.#nextSeq, this.#ackedSeq + 1);
    if (!this.#isFetching || this.#ackedSeq + 1 < firstSeq) return;
    this.#isFetching = false;
    this.resendFrom(this.#ackedSeq + 1);
  }

  sent(): void {
    this.#nextSeq++;
  }

  resendFrom(seq: number): void {
    this.#nextSeq = seq;
  }

  /** @param floorSeq the state that it will fetch has at least this */
  fetches(floorSeq: number): void {
    this.#isFetching = true;
    this.#floorSeq = floorSeq;
  }

  /**
   * The replica is another one, which reports anew what it has.
   *
   * @param beat the last heartbeat: if its disk was replaced before, it may have been once more
   */
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

/** The peers of one epoch, in the order in which they became members. */
export class ProgressTracker {
  readonly #self: ServerId;
  readonly #silentMs: number;
  readonly #peers = new Map<ServerId, Progress>();

  /** @param silentMs after so long without a message a peer is out of reach */
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

  /** @returns all servers, as they are now: some may be removed meanwhile */
  servers(): ServerId[] {
    return [...this.#peers.keys()];
  }

  /** By name, from the own one on: the same order for every subject, so that messages of many share frames. */
  inNameOrder(): Progress[] {
    const round = ({ server }: Progress): number => (server < this.#self ? 1 : 0);
    return [...this.#peers.values()].sort((a, b) => round(a) - round(b) || (a.server < b.server ? -1 : 1));
  }

  /** @returns the peer, whose message arrives now */
  received(server: ServerId, nowMs: number): Progress {
    const peer = this.get(server);
    peer.receivedMs = nowMs;
    return peer;
  }

  isSilent(peer: Progress, nowMs: number): boolean {
    return nowMs - peer.receivedMs > this.#silentMs;
  }

  /** @returns what the server has acknowledged in this epoch; `ownSeq` of this server */
  ackedSeq(server: ServerId, ownSeq: number): number {
    return server === this.#self ? ownSeq : (this.#peers.get(server)?.ackedSeq ?? 0);
  }

  /**
   * @param nowMs peers that are silent by then need nothing; null counts them, too
   * @returns the last operation that no peer needs any more, at most `doneSeq`
   */
  doneSeq(doneSeq: number, nowMs: number | null): number {
    let seq = doneSeq;
    for (const peer of this.#peers.values()) {
      if (nowMs !== null && this.isSilent(peer, nowMs)) continue;
      seq = Math.min(seq, peer.neededAfterSeq);
    }
    return seq;
  }
}

import type { Logger } from 'pino';
import { unreachable } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import type { ClaimedLease, LeaseMark, LeaseOrder, LeaseOutcome } from '../../lease/actions.ts';
import type { LeaseTiming } from '../../lease/parameters.ts';
import { type VotersView, votersAll, votersCount } from '../../lease/voters.ts';
import {
  CLOCK_CHECK_MS,
  type ClockMemory,
  type EarlierTiming,
  type LeaseEventReport,
  LeaseLink,
} from '../drivers/lease-link.ts';
import type { WakeQueue } from '../drivers/wake-queue.ts';
import type { Clock } from '../process/clock.ts';
import { CHANNEL_NAMED_LEASE, type Transport } from '../transport/transport.ts';
import { firstVoters, LATER_VIEWS_HASH, NameVotersByView } from './name-voters.ts';

/** View number of a server that does not know who votes: smaller than every other. */
const NO_VIEW = 0;
/** Pending requests of one server; one more fails with `busy`. */
const REQUESTS_MAX = 10_000;
/** Every frame begins with the sender's `NameVotersByView.serversHash`. */
const SERVERS_HASH_BYTES = 4;
const UNKNOWN: LeaseOutcome = { kind: 'unknown' };

export interface NamedLeaseDriverParts extends LeaseTiming {
  readonly self: ServerId;
  /** The servers with which the cluster began; they vote in the first view. */
  readonly founders: readonly ServerId[];
  /** All servers but this one; changes in place. Absent: the other founders. */
  readonly peers?: readonly ServerId[];
  /** Absent if the voters never change. */
  readonly voters?: VotersStore;
  readonly world: World;
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly log: Logger;
  readonly earlier?: EarlierTiming;
  /** Ensures that fencing tokens increase even if the wall clock is set back. */
  readonly clockMemory?: ClockMemory;
  drawIncarnation(): Incarnation;
  transport(): Transport;
  fatal(error: unknown): void;
}

/** Stores, durably, the view by which this server votes. */
export interface VotersStore {
  /** `first`: the view of the founders. Null: unknown, because the data folder is new; the catalog has to be asked. */
  readonly voters: VotersView | 'first' | null;
  /** Also stores the lease clock's current reading, as one at which this server has voted. @throws the disk's error */
  setVoters(voters: VotersView | 'first', leaseClockMs: number): void;
}

export interface ClaimListener {
  claimed(cell: CellId): void;
  /** Every claim reported so far is void. */
  claimsVoided(): void;
}

/**
 * Runs the lease host of names, separate from that of files: the lease of a name may be as long as its client requests,
 * and a host takes part in no lease after a start for as long as its longest lease.
 */
export class NamedLeaseDriver {
  readonly #parts: NamedLeaseDriverParts;
  /** As on disk. Null: this server does not know the voters, and does not vote. */
  #view: VotersView | null;
  #nameVoters: NameVotersByView;
  readonly #link: LeaseLink;
  readonly #requests = new Map<number, (outcome: LeaseOutcome) => void>();
  readonly #claimed = new Set<CellId>();
  readonly #listeners = new Set<ClaimListener>();
  #serversHash: number;
  /** Peers with another configuration, each logged once. */
  readonly #differing = new Set<ServerId>();
  readonly #sweepTimer: Timer;
  #lastRequest = 0;
  #closed = false;

  constructor(parts: NamedLeaseDriverParts) {
    this.#parts = parts;
    const first = firstVoters(parts.founders);
    const voters = parts.voters === undefined ? 'first' : parts.voters.voters;
    this.#view = voters === 'first' ? first : voters;
    this.#nameVoters = new NameVotersByView(this.#view ?? first);
    this.#serversHash = this.#nameVoters.serversHash;
    this.#link = new LeaseLink({
      ...parts,
      // Tokens must rise with time, which needs clocks that agree, whatever algorithm files use.
      algorithm: 'flease',
      log: parts.log.child({ leases: 'named' }),
      peers: parts.peers ?? parts.founders.filter((server) => server !== parts.self),
      view: () => this.#view?.number ?? NO_VIEW,
      options: '--named-lease-max or --clock-skew',
      send: (to, frame) => this.#send(to, frame),
      report: (action) => this.#report(action),
      faulted: () => this.#fault(),
      restarted: () => undefined,
    });
    const behindMs = Math.ceil(this.#link.clockBehindMs());
    if (behindMs > 0)
      parts.log.error(
        { behindMs },
        'the clock was set back: this server takes part in no named lease ' +
          'until it has caught up; set the clock and restart',
      );
    this.#sweepTimer = parts.world.every(parts.leaseMs, () => this.#sweep());
  }

  /** How many servers vote on one name; null if this server does not know. */
  get voterCount(): number | null {
    if (this.#view === null) return null;
    const { members, joint } = this.#view;
    return Math.min(votersCount(members), joint === undefined ? Infinity : votersCount(joint));
  }

  get voters(): VotersView | null {
    return this.#view;
  }

  get voterServers(): readonly ServerId[] {
    return votersAll(this.#view ?? firstVoters(this.#parts.founders));
  }

  /**
   * Votes by `view` from now on, unless it votes by a later one. Writes the view to disk first, so that this server
   * votes by no earlier view after a restart.
   * @throws the disk's error; then nothing has changed
   */
  adoptVoters(view: VotersView): void {
    const { voters, log } = this.#parts;
    if (this.#closed || view.number <= (this.#view?.number ?? NO_VIEW)) return;
    const isFirst = view.number === firstVoters([]).number;
    voters?.setVoters(isFirst ? 'first' : view, this.#link.nowMs());
    this.#view = view;
    this.#nameVoters = new NameVotersByView(view);
    this.#serversHash = this.#nameVoters.serversHash;
    this.#link.step({ kind: 'voters', view: view.number });
    this.#link.succeed(view.clockMs);
    log.info({ view: view.number, voters: votersAll(view) }, 'voters of named leases changed');
    for (const listener of [...this.#listeners]) listener.claimsVoided();
  }

  get isSilent(): boolean {
    return this.#link.host.clockFault || this.recoveringMs() > 0;
  }

  /** The lease clock, which each view of voters carries over to the next. */
  clockMs(): number {
    return this.#link.nowMs();
  }

  membersOf(name: string): readonly ServerId[] {
    return this.#nameVoters.of(name).voters;
  }

  cellOf(name: string): CellId {
    return this.#nameVoters.of(name).cell;
  }

  disconnected(peer: ServerId): void {
    this.#link.step({ kind: 'disconnected', peer });
  }

  isMember(name: string): boolean {
    return this.membersOf(name).includes(this.#parts.self);
  }

  /**
   * Executes `order` in the name's cell, in which this server need not vote; tries to get a majority for `timeoutMs`.
   * @throws ServiceError `recovering`, `clock-fault` or `busy`: certainly without effect
   */
  async execute(name: string, order: LeaseOrder, timeoutMs: number): Promise<LeaseOutcome> {
    this.assertUsable();
    if (this.#requests.size >= REQUESTS_MAX) {
      throw new ServiceError(
        'busy',
        `Cannot request lease "${name}": ${REQUESTS_MAX} requests are pending; retry later`,
      );
    }
    const deadlineMs = this.#link.nowMs() + timeoutMs;
    for (;;) {
      const view = this.#view;
      const outcome = await this.#attempt(name, order, deadlineMs);
      // A new view ended the attempt. The same session may repeat the order, whatever its outcome was.
      if (outcome.kind !== 'unknown' || this.#view === view || !this.#takesPart) return outcome;
      if (this.#link.nowMs() >= deadlineMs) return outcome;
    }
  }

  get #takesPart(): boolean {
    return !this.#closed && !this.isSilent;
  }

  #attempt(name: string, order: LeaseOrder, deadlineMs: number): Promise<LeaseOutcome> {
    const ask = ++this.#lastRequest;
    const { promise, resolve } = Promise.withResolvers<LeaseOutcome>();
    this.#requests.set(ask, resolve);
    const { cell, members, joint } = this.#nameVoters.of(name);
    const voters = {
      view: this.#view?.number ?? NO_VIEW,
      members,
      ...(joint === undefined ? {} : { joint }),
    };
    this.#link.step({ kind: 'ask', ask, cell, ...voters, order, deadlineMs });
    return promise;
  }

  /** The claim that this member knows in a cell, without a request; null if it knows no holder. */
  claim(cell: CellId): ClaimedLease | null {
    return this.#link.host.claim(cell, this.#link.nowMs());
  }

  claimOf(name: string): ClaimedLease | null {
    return this.claim(this.cellOf(name));
  }

  *claims(): Generator<ClaimedLease> {
    for (const cell of this.#claimed) {
      const claim = this.claim(cell);
      if (claim !== null && claim.remainingMs > 0) yield claim;
    }
  }

  listen(listener: ClaimListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** @throws ServiceError `recovering` or `clock-fault` while this server takes part in no named lease */
  assertUsable(): void {
    const { self } = this.#parts;
    if (this.#link.host.clockFault) {
      throw new ServiceError(
        'clock-fault',
        `Server ${self} takes part in no named lease: its clock jumped, differs from most others by more ` +
          'than --clock-skew, or cannot be recorded; see its log',
        {
          retryAfterMs: CLOCK_CHECK_MS,
        },
      );
    }
    if (this.#view === null) {
      throw new ServiceError(
        'recovering',
        `Server ${self} has a new data folder and waits for the catalog to report the voters of named leases`,
        { retryAfterMs: CLOCK_CHECK_MS },
      );
    }
    const leftMs = Math.ceil(this.recoveringMs());
    const behindMs = Math.ceil(this.#link.clockBehindMs());
    if (behindMs > 0) {
      throw new ServiceError(
        'recovering',
        `The clock of ${self} is ${behindMs} ms behind its earlier readings: until it catches up, the ` +
          'server takes part in no named lease, because fencing tokens would fall; set the clock and restart',
        { retryAfterMs: leftMs },
      );
    }
    if (leftMs > 0) {
      throw new ServiceError(
        'recovering',
        `Server ${self} takes part in named leases in ${leftMs} ms, ` +
          'after all leases from before its start have ended',
        { retryAfterMs: leftMs },
      );
    }
  }

  recoveringMs(): number {
    return this.#link.recoveringMs();
  }

  marks(): ReadonlyMap<LeaseMark, number> {
    return this.#link.marks();
  }

  /** The number of claims known here, some of which may have ended. */
  get claimCount(): number {
    return this.#claimed.size;
  }

  get cellCount(): number {
    return this.#link.host.cellCount;
  }

  /** Handles a frame of a peer. Malformed frames, and those of a peer with other servers, are logged and dropped. */
  receive(from: ServerId, payload: Uint8Array): void {
    const { log } = this.#parts;
    if (payload.length < SERVERS_HASH_BYTES) {
      log.warn({ from, reason: 'the frame is too short' }, 'dropped a malformed lease frame');
    } else if (hashIn(payload) === this.#serversHash) {
      this.#differing.delete(from);
      this.#link.receive(from, payload.subarray(SERVERS_HASH_BYTES));
    } else if (!this.#differing.has(from) && this.#isOfOtherServers(hashIn(payload))) {
      this.#differing.add(from);
      log.error(
        { peer: from },
        'a peer has another set of --peer servers: its messages about named ' +
          'leases are dropped; use the same set on all servers',
      );
    }
  }

  /** True if both use first views, of different configurations. Later views differ only until peers get the newest. */
  #isOfOtherServers(hash: number): boolean {
    return hash !== LATER_VIEWS_HASH && this.#serversHash !== LATER_VIEWS_HASH;
  }

  /** Pending requests end with an unknown outcome. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#sweepTimer.cancel();
    this.#link.close();
    this.#endRequests();
  }

  /** Sends a frame behind a hash of the servers that vote: a receiver with other servers drops the frame. */
  #send(to: ServerId, frame: Uint8Array): void {
    const payload = new Uint8Array(SERVERS_HASH_BYTES + frame.length);
    new DataView(payload.buffer).setUint32(0, this.#serversHash, true);
    payload.set(frame, SERVERS_HASH_BYTES);
    this.#parts.transport().send(to, CHANNEL_NAMED_LEASE, payload);
  }

  #report(action: LeaseEventReport): void {
    switch (action.kind) {
      case 'answered': {
        const answer = this.#requests.get(action.ask);
        this.#requests.delete(action.ask);
        answer?.(action.outcome);
        return;
      }
      case 'claimed':
        if (this.claim(action.cell) === null) this.#claimed.delete(action.cell);
        else this.#claimed.add(action.cell);
        for (const listener of [...this.#listeners]) listener.claimed(action.cell);
        return;
      case 'held':
      case 'lost':
      case 'learned':
        // About leases that servers hold; this host opens no cell.
        return;
      default:
        unreachable(action);
    }
  }

  #fault(): void {
    this.#claimed.clear();
    this.#endRequests();
    for (const listener of [...this.#listeners]) listener.claimsVoided();
  }

  #endRequests(): void {
    const waiting = [...this.#requests.values()];
    this.#requests.clear();
    for (const answer of waiting) answer(UNKNOWN);
  }

  #sweep(): void {
    for (const cell of this.#claimed) if (this.claim(cell) === null) this.#claimed.delete(cell);
  }
}

function hashIn(payload: Uint8Array): number {
  return new DataView(payload.buffer, payload.byteOffset, payload.length).getUint32(0, true);
}

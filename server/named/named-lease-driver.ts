import type { Logger } from 'pino';
import { unreachable } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import type { ClaimedLease, LeaseMark, LeaseOrder, LeaseOutcome } from '../../lease/actions.ts';
import type { LeaseTiming } from '../../lease/parameters.ts';
import { type VotersView, votersAll, votersCount } from '../../lease/voters.ts';
import type { Clock } from '../clock.ts';
import {
  CLOCK_CHECK_MS,
  type ClockMemory,
  type FormerTiming,
  LeaseLink,
  type LeaseNews,
} from '../lease-link.ts';
import { CHANNEL_NAMED_LEASE, type Transport } from '../transport/transport.ts';
import type { WakeQueue } from '../wake-queue.ts';
import { firstVoters, LATER_VIEWS_HASH, LeasePlaces } from './lease-place.ts';

/** The view of a server that does not know who votes: smaller than all there are. */
const NO_VIEW = 0;
/** Questions under way in one server; one more is answered `busy`. */
const ASKS_MAX = 10_000;
/** Each frame begins with a number that stands for the set of servers in the sender's configuration. */
const SERVERS_HASH_BYTES = 4;
const UNKNOWN: LeaseOutcome = { kind: 'unknown' };

export interface NamedLeaseDriverParts extends LeaseTiming {
  readonly self: ServerId;
  /** The servers with which the cluster began: they vote by the first view. */
  readonly founders: readonly ServerId[];
  /** All servers but this one; changes in place. Absent: the other founders. */
  readonly peers?: readonly ServerId[];
  /** Absent where the voters never change. */
  readonly voters?: VotersMemory;
  readonly world: World;
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly log: Logger;
  readonly former?: FormerTiming;
  /** By which tokens rise whatever becomes of wall clocks. */
  readonly clockMemory?: ClockMemory;
  drawIncarnation(): Incarnation;
  transport(): Transport;
  fatal(error: unknown): void;
}

/** Remembers durably by which view this server votes. */
export interface VotersMemory {
  /** `first`: by that of the founders. Null: not known, because the data folder is new; only the catalog can tell. */
  readonly voters: VotersView | 'first' | null;
  /**
   * @param leaseClockMs reading of the lease clock now, which is remembered like one at which this server voted
   * @throws what the disk refuses with
   */
  setVoters(voters: VotersView | 'first', leaseClockMs: number): void;
}

/** Whoever wants to hear of every claim that is decided or given back at this server, and of faults of its clock. */
export interface ClaimListener {
  claimed(cell: CellId): void;
  /** What was believed so far is void. */
  faulted(): void;
}

/**
 * Runs the lease host of names: a second one beside that of files, because a name's lease may be as long as its
 * holder asks, and every host is silent after a start for as long as its longest lease.
 */
export class NamedLeaseDriver {
  readonly #parts: NamedLeaseDriverParts;
  /** Null: this server does not know who votes, and so does not. It is on disk. */
  #view: VotersView | null;
  #places: LeasePlaces;
  readonly #link: LeaseLink;
  readonly #asked = new Map<number, (outcome: LeaseOutcome) => void>();
  readonly #claimed = new Set<CellId>();
  readonly #listeners = new Set<ClaimListener>();
  #serversHash: number;
  /** Peers whose servers are others; said once of each. */
  readonly #strangers = new Set<ServerId>();
  readonly #sweepTimer: Timer;
  #asks = 0;
  #closed = false;

  constructor(parts: NamedLeaseDriverParts) {
    this.#parts = parts;
    const first = firstVoters(parts.founders);
    const voters = parts.voters === undefined ? 'first' : parts.voters.voters;
    this.#view = voters === 'first' ? first : voters;
    this.#places = new LeasePlaces(this.#view ?? first);
    this.#serversHash = this.#places.serversHash;
    this.#link = new LeaseLink({
      ...parts,
      // Tokens have to rise in the order of time, so names need clocks that agree, whatever files use.
      algorithm: 'flease',
      log: parts.log.child({ leases: 'named' }),
      peers: parts.peers ?? parts.founders.filter((server) => server !== parts.self),
      view: () => this.#view?.number ?? NO_VIEW,
      options: '--named-lease-max or --clock-skew',
      send: (to, frame) => this.#send(to, frame),
      news: (action) => this.#hear(action),
      faulted: () => this.#fault(),
      begun: () => undefined,
    });
    const behindMs = Math.ceil(this.#link.clockBehindMs());
    if (behindMs > 0)
      parts.log.error({ behindMs }, 'the clock was set back: named leases wait until it has caught up');
    this.#sweepTimer = parts.world.every(parts.leaseMs, () => this.#sweep());
  }

  /** How many servers decide about one name: the same for all of them. Null where this server does not know. */
  get voterCount(): number | null {
    if (this.#view === null) return null;
    const { members, joint } = this.#view;
    return Math.min(votersCount(members), joint === undefined ? Infinity : votersCount(joint));
  }

  /** By which view this server votes; null while it does not know. */
  get voters(): VotersView | null {
    return this.#view;
  }

  /** The servers that vote on any name. */
  get voterServers(): readonly ServerId[] {
    return votersAll(this.#view ?? firstVoters(this.#parts.founders));
  }

  /**
   * Votes by the view from now on, unless by a later one already. It is on disk before: also after a restart, this
   * server votes by no earlier view.
   *
   * @throws what the disk refuses with; then nothing has changed
   */
  adopt(view: VotersView): void {
    const { voters, log } = this.#parts;
    if (this.#closed || view.number <= (this.#view?.number ?? NO_VIEW)) return;
    const isFirst = view.number === firstVoters([]).number;
    voters?.setVoters(isFirst ? 'first' : view, this.#link.nowMs());
    this.#view = view;
    this.#places = new LeasePlaces(view);
    this.#serversHash = this.#places.serversHash;
    this.#link.step({ kind: 'voters', view: view.number });
    this.#link.succeed(view.clockMs);
    log.info({ view: view.number, voters: votersAll(view) }, 'these servers vote on named leases');
    for (const listener of [...this.#listeners]) listener.faulted();
  }

  /** Whether this server takes part in no lease of a name, because of its start or of its clock. */
  get isSilent(): boolean {
    return this.#link.host.clockFault || this.recoveringMs() > 0;
  }

  /** The lease clock, which views of voters carry from one to the next. */
  clockMs(): number {
    return this.#link.nowMs();
  }

  /** The servers that vote on a name. */
  membersOf(name: string): readonly ServerId[] {
    return this.#places.of(name).voters;
  }

  /** The cell that a name is negotiated in. */
  cellOf(name: string): CellId {
    return this.#places.of(name).cell;
  }

  isMember(name: string): boolean {
    return this.membersOf(name).includes(this.#parts.self);
  }

  /**
   * Asks something of a name's cell; this server need not be a member.
   *
   * @param timeoutMs how long a majority is sought
   * @throws ServiceError `recovering`, `clock-fault` or `busy`: certainly without effect
   */
  async ask(name: string, order: LeaseOrder, timeoutMs: number): Promise<LeaseOutcome> {
    this.assertUsable();
    if (this.#asked.size >= ASKS_MAX) {
      throw new ServiceError('busy', `Cannot ask for lease "${name}": ${ASKS_MAX} questions are under way`);
    }
    const deadlineMs = this.#link.nowMs() + timeoutMs;
    for (;;) {
      const view = this.#view;
      const outcome = await this.#askOnce(name, order, deadlineMs);
      // An attempt ends with its view. The same session may ask again, whatever became of it.
      if (outcome.kind !== 'unknown' || this.#view === view || !this.#takesPart) return outcome;
      if (this.#link.nowMs() >= deadlineMs) return outcome;
    }
  }

  get #takesPart(): boolean {
    return !this.#closed && !this.isSilent;
  }

  #askOnce(name: string, order: LeaseOrder, deadlineMs: number): Promise<LeaseOutcome> {
    const ask = ++this.#asks;
    const { promise, resolve } = Promise.withResolvers<LeaseOutcome>();
    this.#asked.set(ask, resolve);
    const { cell, members, joint } = this.#places.of(name);
    const voters = {
      view: this.#view?.number ?? NO_VIEW,
      members,
      ...(joint === undefined ? {} : { joint }),
    };
    this.#link.step({ kind: 'ask', ask, cell, ...voters, order, deadlineMs });
    return promise;
  }

  /** What this member believes of a cell, without asking anybody. Null where it knows of no holder. */
  claim(cell: CellId): ClaimedLease | null {
    return this.#link.host.claim(cell, this.#link.nowMs());
  }

  claimOf(name: string): ClaimedLease | null {
    return this.claim(this.cellOf(name));
  }

  /** Claims that this member believes in, in no order. */
  *claims(): Generator<ClaimedLease> {
    for (const cell of this.#claimed) {
      const claim = this.claim(cell);
      if (claim !== null && claim.remainingMs > 0) yield claim;
    }
  }

  /** @returns ends the listening */
  listen(listener: ClaimListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** @throws ServiceError `recovering` or `clock-fault` while this server takes part in no lease of a name */
  assertUsable(): void {
    const { self } = this.#parts;
    if (this.#link.host.clockFault) {
      throw new ServiceError('clock-fault', `The clock of server ${self} is out of bounds`, {
        retryAfterMs: CLOCK_CHECK_MS,
      });
    }
    if (this.#view === null) {
      throw new ServiceError(
        'recovering',
        `Server ${self} has a new data folder, and waits for the catalog to tell which servers vote on named leases`,
        { retryAfterMs: CLOCK_CHECK_MS },
      );
    }
    const leftMs = Math.ceil(this.recoveringMs());
    const behindMs = Math.ceil(this.#link.clockBehindMs());
    if (behindMs > 0) {
      throw new ServiceError(
        'recovering',
        `The clock of server ${self} is ${behindMs} ms behind what it has shown before: it takes part in no lease of a ` +
          'name before its clock has caught up, because fencing tokens would fall. Set the clock, and start it again',
        { retryAfterMs: leftMs },
      );
    }
    if (leftMs > 0) {
      throw new ServiceError(
        'recovering',
        `Server ${self} waits ${leftMs} ms more for named leases from before its start to end`,
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

  /** Claims that were heard of and not found to be over yet. */
  get claimCount(): number {
    return this.#claimed.size;
  }

  get cellCount(): number {
    return this.#link.host.cellCount;
  }

  /** A frame of a peer. Malformed ones are logged and dropped, as are those of a peer with other servers. */
  receive(from: ServerId, payload: Uint8Array): void {
    const { log } = this.#parts;
    if (payload.length < SERVERS_HASH_BYTES) {
      log.warn({ from, reason: 'it is too short' }, 'a malformed lease frame was dropped');
    } else if (hashIn(payload) === this.#serversHash) {
      this.#strangers.delete(from);
      this.#link.receive(from, payload.subarray(SERVERS_HASH_BYTES));
    } else if (!this.#strangers.has(from) && this.#isOfOtherServers(hashIn(payload))) {
      this.#strangers.add(from);
      log.error(
        { peer: from },
        'a peer has other --peer servers: its messages about named leases are dropped',
      );
    }
  }

  /**
   * Both go by first views, of different configurations. A peer with a later view, or an earlier one, learns that
   * elsewhere.
   */
  #isOfOtherServers(hash: number): boolean {
    return hash !== LATER_VIEWS_HASH && this.#serversHash !== LATER_VIEWS_HASH;
  }

  /** Whoever waits is told that the outcome is unknown. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#sweepTimer.cancel();
    this.#link.close();
    this.#forsake();
  }

  #send(to: ServerId, frame: Uint8Array): void {
    const payload = new Uint8Array(SERVERS_HASH_BYTES + frame.length);
    new DataView(payload.buffer).setUint32(0, this.#serversHash, true);
    payload.set(frame, SERVERS_HASH_BYTES);
    this.#parts.transport().send(to, CHANNEL_NAMED_LEASE, payload);
  }

  #hear(action: LeaseNews): void {
    switch (action.kind) {
      case 'answered': {
        const answer = this.#asked.get(action.ask);
        this.#asked.delete(action.ask);
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
        // Of leases that servers hold themselves; no cell of this host is ever opened.
        return;
      default:
        unreachable(action);
    }
  }

  #fault(): void {
    this.#claimed.clear();
    this.#forsake();
    for (const listener of [...this.#listeners]) listener.faulted();
  }

  #forsake(): void {
    const waiting = [...this.#asked.values()];
    this.#asked.clear();
    for (const answer of waiting) answer(UNKNOWN);
  }

  #sweep(): void {
    for (const cell of this.#claimed) if (this.claim(cell) === null) this.#claimed.delete(cell);
  }
}

function hashIn(payload: Uint8Array): number {
  return new DataView(payload.buffer, payload.byteOffset, payload.length).getUint32(0, true);
}

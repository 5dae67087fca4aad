import { assert, unreachable } from '../base/assert.ts';
import type { FileId, Incarnation, ServerId } from '../base/ids.ts';
import { Prng } from '../base/prng.ts';
import type { PeerStatus, ReplicaAction, ReplicaConfig, ReplicaEvent, Role } from './actions.ts';
import { Backup } from './backup.ts';
import { firstEpoch } from './birth.ts';
import type { Epoch, Position } from './epoch.ts';
import { epochCompare, epochEqual, epochFormat, POSITION_ZERO } from './epoch.ts';
import { Guard } from './guard.ts';
import { LocalFlush } from './local-flush.ts';
import {
  type Answer,
  LIFE_UNKNOWN,
  type PrimaryMessage,
  type ReplicaMessage,
  statedView,
} from './messages.ts';
import type { Operation } from './operation.ts';
import type { LeaseReading } from './order-context.ts';
import { Outbox } from './outbox.ts';
import { ReadGrants, ReadLease } from './read-lease.ts';
import type { ReplicaRecord, Trust } from './record.ts';
import { Reset } from './reset.ts';
import { mayBeResumed } from './resumption.ts';
import { Standing } from './standing.ts';
import type { View } from './view.ts';
import { viewMembersFormat, viewsConflict, viewVoters } from './view.ts';
import { WriteOrder } from './write-order.ts';

/** A refused candidate waits up to half a heartbeat at first, doubled up to this many times. */
const BACKOFF_DOUBLINGS_MAX = 4;

/** A candidate that could not fetch the base so often in one lease leaves the lease to others. */
const FAILED_FETCHES_MAX = 4;

/** Questions for read leases are numbered from a place of their own in each life, and in each replica of one life. */
const NONCE_LIVES = 2 ** 32;
const NONCE_TIMES = 2 ** 20;

/** Promises of replicas that lost power are enough only after this many heartbeats in which no better one came. */
const PATIENT_HEARTBEATS = 2;

/** Reads that wait for the guard have it asked for again after this long, in milliseconds. */
const GUARD_ASK_MS = 20;

/** What is ordered without a lease is given up at this heartbeat in a row before which nothing was committed. */
const STALLED_HEARTBEATS = 2;

/** A candidate that waits for the guard. */
interface Held {
  readonly from: ServerId;
  readonly message: Extract<ReplicaMessage, { readonly kind: 'prepare' }>;
}

/** The role, with what is true only in it. */
type State =
  | { readonly kind: 'backup' }
  | { readonly kind: 'failed' }
  | { readonly kind: 'preparing'; readonly reset: Reset }
  | { readonly kind: 'installing'; readonly reset: Reset }
  /** `order`: null until the own replica has begun. */
  | { readonly kind: 'beginning'; readonly epoch: Epoch; readonly order: WriteOrder | null }
  /** Without a lease. `committedSeq`: as of the last heartbeat; `stalled`: how many have passed since that has moved. */
  | { readonly kind: 'resumed'; readonly order: WriteOrder; committedSeq: number; stalled: number }
  | { readonly kind: 'active'; readonly order: WriteOrder }
  | { readonly kind: 'stopping'; readonly order: WriteOrder };

/** What a replica says about itself. */
export interface ReplicaStatus {
  readonly role: Role;
  /** The epoch whose base is installed here; of an active primary its own. */
  readonly epoch: Epoch;
  /** The last operation applied here; perhaps not committed yet. */
  readonly seq: number;
  /** The last operation known here to be committed: the one that sessions begin from. */
  readonly committedSeq: number;
  /** End of the own lease, or 0. */
  readonly leaseUntilMs: number;
  /** At an active primary all members, itself included; elsewhere none. */
  readonly peers: readonly PeerStatus[];
  readonly view: View;
  /** The view of the others, if this replica is none of its members and has found out by asking them; else null. */
  readonly outside: View | null;
  readonly trust: Trust;
  /** When the primary was last heard to have nothing committed that is not here; −Infinity: never. */
  readonly currentAtMs: number;
}

/** Everything an observer may compare before and after a step; see `invariants.ts`. */
export interface ReplicaInspection {
  readonly role: Role;
  readonly promised: Epoch;
  readonly stored: Epoch;
  readonly installed: Epoch;
  readonly seq: number;
  readonly issuedSeq: number;
  readonly committedSeq: number;
  readonly leaseUntilMs: number;
  /** The epoch of which this replica is candidate or primary. */
  readonly ownEpoch: Epoch | null;
  readonly view: View;
}

/**
 * One subject (a file, or the catalog) on one server. The server's lease says *whether* it may be
 * primary and until when; who orders operations is decided by epochs alone, which a majority has
 * promised and stored. So writes are safe however wrong a clock or a lease is; reads at the primary
 * (`readGate`) rely on the lease.
 *
 * Replica reset after [Flease] §4.2, with one base instead of a merge per object; see README.md for
 * where each part of the papers is.
 */
export class Replica {
  readonly #config: ReplicaConfig;
  readonly #prng: Prng;
  readonly #out: Outbox;
  readonly #standing: Standing;
  readonly #localFlush: LocalFlush;
  readonly #backup: Backup;
  readonly #guard: Guard;
  readonly #readLease: ReadLease;
  readonly #grants = new ReadGrants();
  /** The own lease; 0 without one. Compared at every step and every read, never by a timer. */
  readonly #lease: { -readonly [Key in keyof LeaseReading]: LeaseReading[Key] } = {
    untilMs: 0,
    view: 0,
    decisions: 0,
  };
  /** The largest epoch that asked for a promise while the guard barred it. */
  #held: Held | null = null;
  /** Somebody read here last. */
  #readMs = -Infinity;
  readonly #incarnations = new Map<ServerId, Incarnation>();
  /** Lives of peers that are over. */
  readonly #over = new Map<ServerId, Set<Incarnation>>();
  #state: State = { kind: 'backup' };
  /** By this view, which others have and this replica has not, it is no member; null where none is known of. */
  #outside: View | null = null;
  /** Of which epoch read leases were asked back for. */
  #readsAsked: Epoch | null = null;
  /** An orderly end was asked for: no new reset with this lease. */
  #stopAsked = false;
  /** By which this process, that has made the subject, will lead it; null where it has not, or has led it. */
  #firstEpoch: Epoch | null = null;
  #isFirstLed = false;
  /** Where an epoch of this process has ended, with nothing under way; it may have moved on since. */
  #ended: Position | null = null;
  /** All replicas had all of it then. */
  #endedEverywhere = false;
  #inheritedFrom: Epoch | null = null;
  /** The largest counter heard in a refusal: the next epoch is larger. */
  #refusedCounter = 0;
  #refusals = 0;
  /** How often the base could not be fetched since this server came to hold the lease, or led. */
  #failedFetches = 0;
  #retryAtMs = 0;
  #heartbeatAtMs = 0;
  #nowMs: number;

  /**
   * @param record as it was found on disk, or an empty one of the view that a message named
   * @param trust what is to be thought of the store it was found in
   */
  constructor(config: ReplicaConfig, file: FileId, record: ReplicaRecord, trust: Trust, nowMs: number) {
    const { members } = record.view;
    assert(new Set(members).size === members.length, 'Every member has one vote');
    this.#config = config;
    this.#prng = new Prng(config.incarnation + file);
    this.#out = new Outbox(config.incarnation);
    this.#standing = new Standing(this.#out, record, trust);
    this.#localFlush = new LocalFlush(this.#out, this.#standing);
    this.#guard = new Guard(config.startGuardUntilMs);
    // Never one that was used before: an answer to it may still be under way.
    const firstNonce = (config.incarnation % NONCE_LIVES) * NONCE_TIMES + (Math.floor(nowMs) % NONCE_TIMES);
    this.#readLease = new ReadLease(config.readLeaseMs, firstNonce);
    this.#backup = new Backup(
      config,
      this.#out,
      this.#standing,
      this.#localFlush,
      this.#guard,
      this.#readLease,
    );
    this.#nowMs = nowMs;
  }

  step(event: ReplicaEvent, nowMs: number): ReplicaAction[] {
    assert(nowMs >= this.#nowMs, 'The lease clock never goes back');
    this.#nowMs = nowMs;
    if (this.#state.kind === 'failed') {
      this.#stepFailed(event);
      return this.#out.take();
    }
    // Before the event: a lease that ended while the process slept is over for what woke it, too.
    this.#endLapsedLease(nowMs);
    this.#handle(event, nowMs);
    this.#advance(nowMs);
    this.#keepTime(nowMs);
    return this.#out.take();
  }

  /**
   * Whether a read may be served here and now, the contents being pinned in the same turn. The only place that
   * decides it.
   *
   * At the primary: its lease runs, and a majority keeps its guard, so that there is no other. At a backup: it
   * holds a read lease.
   *
   * @param dependsOnSeq the newest operation of the installed epoch that the answer shows; 0 if none
   * @param nowMs read from the clock for this very read, because the process may have slept
   */
  readGate(dependsOnSeq: number, nowMs: number): 'serve' | 'wait' | 'not-primary' {
    const state = this.#state;
    if (state.kind === 'backup') return this.#backup.readGate(dependsOnSeq, nowMs);
    if (!this.leads(nowMs) || state.kind !== 'active') return 'not-primary';
    // A guard that lapsed for want of heartbeats is asked for anew; see `read-wanted`.
    if (nowMs >= state.order.heartbeats.guardEndMs()) return 'wait';
    // While nobody kept it, a majority may have answered without this server, by what it has ordered.
    if (!state.order.heartbeats.hasWhatWasShown) return 'wait';
    // Never what is not committed: it may vanish. And never the version before: it may be outdated.
    return dependsOnSeq <= state.order.committedSeq ? 'serve' : 'wait';
  }

  /**
   * Whether this server orders operations now: it is the primary, or will be once a majority has begun with it, or goes on by an epoch of its own
   * that nobody leads by (`resumable`). What it orders so is committed by a majority as ever. Nothing else may be done then.
   */
  orders(nowMs: number): boolean {
    const isBeginning = this.#state.kind === 'beginning' && this.#state.order !== null;
    if (this.leads(nowMs) || (isBeginning && nowMs < this.#lease.untilMs)) return true;
    return this.#goesOn || this.resumable !== null;
  }

  /** Without a lease: who has one begins as everybody does, once nothing is under way. */
  get #goesOn(): boolean {
    return this.#state.kind === 'resumed' && this.#lease.untilMs === 0;
  }

  /**
   * Where this process may go on ordering without a lease, by an epoch that it has ended in good order, or borne the subject by; null where it may
   * not. It answers no reads by that, and nobody waits for it (docs/replication.md).
   */
  get resumable(): Position | null {
    if (this.#ended === null || this.#state.kind !== 'backup' || this.#lease.untilMs !== 0) return null;
    // Who applies last keeps a transaction open for what he orders, and leads for that.
    if (this.#config.appliesAtPrimary === 'last') return null;
    return this.#votes && mayBeResumed(this.#ended, this.#standing) ? this.#ended : null;
  }

  /** Whether, as far as the epoch that is led from here was told, no primary led the subject before. */
  get isFirstLed(): boolean {
    return this.#isFirstLed;
  }

  /**
   * The epoch after whose last acknowledged operation the one that is led from here began; null where a loss of power may have taken some of
   * them, or there was none.
   */
  get inheritedFrom(): Epoch | null {
    return this.#inheritedFrom;
  }

  /** Whether this server is the primary now: it orders operations. */
  leads(nowMs: number): boolean {
    // Strictly before the end: at the end itself another server may begin.
    return this.#state.kind === 'active' && nowMs < this.#lease.untilMs;
  }

  /**
   * For how long, at least, no other server can be the primary and answer otherwise: while the lease runs and a
   * majority keeps its guard. What the primary lets others believe, it lets them believe no longer, and notes it.
   */
  servesForMs(nowMs: number): number {
    const state = this.#state;
    if (state.kind !== 'active') return 0;
    return Math.max(0, Math.min(this.#lease.untilMs, state.order.heartbeats.guardEndMs()) - nowMs);
  }

  /**
   * Somebody outside may believe until then what this primary told: it does not lift the guard before, and another
   * replica in its place is bound, too.
   *
   * @param untilMs −Infinity where all of them have said that they believe nothing any more
   */
  noteBelief(untilMs: number): void {
    if (untilMs === -Infinity) this.#grants.believedNoMore();
    else this.#grants.believed(untilMs);
  }

  /** Somebody reads here: what reads need is kept ready for a while. */
  noteRead(nowMs: number): void {
    this.#readMs = nowMs;
    if (this.#state.kind === 'backup') this.#readLease.noteRead(nowMs);
  }

  get role(): Role {
    return this.#state.kind;
  }

  /** By which this replica goes. */
  get view(): View {
    return this.#standing.view;
  }

  /** The epoch whose base is installed here; of an active primary its own. */
  get epoch(): Epoch {
    return this.#standing.installed;
  }

  /**
   * Until when a replica that takes this one's place in the same process must promise nothing to anybody: for
   * so long this one is bound, by what it answered and by what it allowed. −Infinity where it is not.
   */
  get boundUntilMs(): number {
    return Math.max(this.#guard.heldUntilMs, this.#grants.lastEndMs());
  }

  /**
   * Whether this replica would promise anything to anybody: it leads nothing, and neither has it answered a heartbeat, nor allowed a read, that
   * still counts. As long as a majority would, nobody answers reads by an epoch that has passed.
   */
  isFree(nowMs: number): boolean {
    if (this.#state.kind !== 'backup' && this.#state.kind !== 'resumed') return false;
    return nowMs >= Math.max(this.boundUntilMs, this.#config.startGuardUntilMs);
  }

  /** The last operation that was given to the storage here. */
  get issuedSeq(): number {
    return this.#standing.issuedSeq;
  }

  /** The last operation that was numbered; a primary that applies last numbers before it applies. */
  get orderedSeq(): number {
    return this.#order?.lastSeq ?? this.#standing.issuedSeq;
  }

  status(nowMs: number): ReplicaStatus {
    const state = this.#state;
    return {
      role: state.kind,
      epoch: this.#standing.installed,
      seq: this.#standing.seq,
      committedSeq: this.#committedSeq(),
      leaseUntilMs: this.#lease.untilMs,
      peers: this.#order?.peers(nowMs) ?? [],
      view: this.#standing.view,
      outside: this.#outside,
      trust: this.#standing.trust,
      currentAtMs: state.kind === 'active' ? nowMs : this.#backup.currentAtMs,
    };
  }

  /** @returns when the next `tick` is due, on the lease clock */
  nextWakeMs(): number | null {
    const state = this.#state;
    if (state.kind === 'failed') return null;
    let wakeMs = this.#lease.untilMs === 0 ? Infinity : this.#lease.untilMs;
    if (this.#held !== null) wakeMs = Math.min(wakeMs, this.#guard.barsUntilMs(this.#held.message.epoch));
    if (state.kind === 'backup') {
      const askMs = this.#readLease.nextAskMs();
      // While it may not ask, it is not woken for it.
      if (askMs > this.#nowMs) wakeMs = Math.min(wakeMs, askMs);
      if (this.#lease.untilMs !== 0 && this.#isWilling()) wakeMs = Math.min(wakeMs, this.#beginAtMs());
    } else {
      wakeMs = Math.min(wakeMs, this.#heartbeatAtMs);
      if (this.#order !== null) wakeMs = Math.min(wakeMs, this.#order.nextCommitMs(this.#nowMs));
      if (state.kind === 'stopping' || state.kind === 'installing')
        wakeMs = Math.min(wakeMs, this.#grants.nextEndMs(this.#nowMs));
    }
    return wakeMs === Infinity ? null : wakeMs;
  }

  inspect(): ReplicaInspection {
    const { promised, stored, installed, seq, issuedSeq } = this.#standing;
    return {
      role: this.#state.kind,
      promised,
      stored,
      installed,
      seq,
      issuedSeq,
      committedSeq: this.#committedSeq(),
      leaseUntilMs: this.#lease.untilMs,
      ownEpoch: this.#ownEpoch(),
      view: this.#standing.view,
    };
  }

  // Events -----------------------------------------------------------------------------------------

  #handle(event: ReplicaEvent, nowMs: number): void {
    switch (event.kind) {
      case 'lease':
        this.#onLease(event.untilMs, event.view, nowMs);
        return;
      case 'message':
        this.#onMessage(event.from, event.message, nowMs);
        return;
      case 'made':
        this.#onMade();
        return;
      case 'ended':
        this.#onEnded(event.place);
        return;
      case 'connected':
        this.#onConnected(event.peer, nowMs);
        return;
      case 'submit':
        this.#onSubmit(event.ticket, event.operation, nowMs);
        return;
      case 'flush':
        this.#onFlush(event.ticket, nowMs);
        return;
      case 'change-members':
        this.#onChangeMembers(event.ticket, event.members, nowMs);
        return;
      case 'read-wanted':
        this.#onReadWanted(nowMs);
        return;
      case 'stop':
        this.#onStop();
        return;
      case 'promised':
        this.#standing.promiseStored(event.epoch);
        return;
      case 'applied':
        this.#standing.applied(event.epoch, event.seq);
        this.#backup.applied();
        return;
      case 'state-fetched':
        if (!this.#backup.stateFetched(event.epoch, event.position, event.view, event.sessions)) {
          this.#onFetchFailed(event.epoch, nowMs);
        }
        return;
      case 'state-failed':
        if (!this.#backup.stateFailed(event.epoch, event.reason)) this.#onFetchFailed(event.epoch, nowMs);
        return;
      case 'installed':
        this.#onInstalledHere(event.epoch, event.seq);
        return;
      case 'begun':
        this.#onBegun(event.epoch, nowMs);
        return;
      case 'flush-done':
        if (this.#localFlush.done(event.seq)) this.#backup.flushed();
        return;
      case 'storage-failed':
        this.#onStorageFailed(event.reason);
        return;
      case 'tick':
        return;
      default:
        unreachable(event);
    }
  }

  /** A failed replica acknowledges nothing, ever: what its disk holds is not known any more. */
  #stepFailed(event: ReplicaEvent): void {
    if (event.kind === 'submit' || event.kind === 'flush' || event.kind === 'change-members') {
      this.#out.push({ kind: 'refused', ticket: event.ticket, reason: 'not-primary' });
    }
    if (event.kind === 'stop') this.#out.push({ kind: 'stopped' });
  }

  #onLease(untilMs: number, view: number, nowMs: number): void {
    if (untilMs > nowMs) {
      this.#lease.untilMs = untilMs;
      this.#lease.view = Math.max(this.#lease.view, view);
      if (view > 0) this.#lease.decisions++;
      // The guard reaches to the end of the lease that was known when it was asked for.
      if (this.#state.kind === 'active' && this.#isRead(nowMs)) this.#heartbeatAtMs = nowMs;
      // By a view that may have come to nobody else it is out: others have to lead, and have the lease.
      if (this.#state.kind === 'backup' && !this.#stopAsked && !this.#votes) this.#onStop();
    } else {
      this.#endLease();
    }
  }

  #endLapsedLease(nowMs: number): void {
    if (this.#lease.untilMs !== 0 && nowMs >= this.#lease.untilMs) this.#endLease();
  }

  /**
   * From here on another server may be primary, so this one is not, and takes a new epoch when it
   * gets the lease again, even if nobody had it in between: nobody can know.
   */
  #endLease(): void {
    this.#lease.untilMs = 0;
    this.#lease.view = 0;
    this.#retryAtMs = 0;
    this.#refusals = 0;
    this.#failedFetches = 0;
    if (this.#ownEpoch() !== null && this.#state.kind !== 'resumed') {
      this.#out.trace('lease-over', `role ${this.#state.kind}`);
      this.#stepDown();
    }
    this.#stopAsked = false;
  }

  #onConnected(peer: ServerId, nowMs: number): void {
    const state = this.#state;
    if (state.kind === 'preparing' || state.kind === 'installing') {
      if (state.reset.voters.has(peer) && peer !== this.#config.self) this.#ask(state.reset, peer);
    }
    if (this.#order === null) return;
    this.#order.reconnected(peer);
    // What asked for the guard may be lost with what else was.
    if (this.#isRead(nowMs)) this.#heartbeatAtMs = nowMs;
  }

  #onSubmit(ticket: number, operation: Operation, nowMs: number): void {
    this.#resumeIfPossible(nowMs);
    const { kind } = this.#state;
    const order = this.#order;
    if (order !== null && (kind === 'active' || kind === 'beginning' || this.#goesOn)) {
      order.submit(ticket, operation, nowMs);
    } else {
      this.#out.push({ kind: 'refused', ticket, reason: 'not-primary' });
    }
  }

  #onFlush(ticket: number, nowMs: number): void {
    if (this.#state.kind === 'active') {
      this.#state.order.flush(ticket, nowMs);
    } else {
      this.#out.push({ kind: 'refused', ticket, reason: 'not-primary' });
    }
  }

  #onChangeMembers(ticket: number, members: readonly ServerId[], nowMs: number): void {
    assert(members.length > 0 && new Set(members).size === members.length, 'A view has distinct members');
    if (this.#state.kind === 'active') {
      this.#state.order.changeMembers(ticket, members, nowMs);
    } else {
      this.#out.push({ kind: 'refused', ticket, reason: 'not-primary' });
    }
  }

  /** A backup asks for a read lease; a primary whose guard lapsed has it confirmed by the others. */
  #onReadWanted(nowMs: number): void {
    this.noteRead(nowMs);
    const state = this.#state;
    if (state.kind === 'beginning') state.order?.establish();
    if (state.kind !== 'active' || nowMs < state.order.heartbeats.guardEndMs()) return;
    if (state.order.heartbeats.sinceSentMs(nowMs) < GUARD_ASK_MS) return;
    this.#out.trace('guard-lapsed', epochFormat(state.order.epoch));
    this.#beat(state.order, nowMs);
  }

  #isRead(nowMs: number): boolean {
    return nowMs - this.#readMs < this.#config.quietHeartbeatMs;
  }

  #onStop(): void {
    // Without a lease there is nothing to end; the next lease is a new beginning.
    this.#stopAsked = this.#lease.untilMs !== 0;
    const state = this.#state;
    if (state.kind === 'active') {
      this.#become({ kind: 'stopping', order: state.order });
    } else if (state.kind !== 'stopping') {
      if (state.kind === 'resumed') this.#endInOrder(state.order);
      else this.#stepDown();
      this.#stopped();
    }
  }

  #stopped(): void {
    this.#out.trace('stopped', `at ${this.#standing.seq}`);
    this.#out.push({ kind: 'stopped' });
  }

  #onStorageFailed(reason: string): void {
    this.#stepDown();
    this.#out.trace('storage-failed', reason);
    this.#become({ kind: 'failed' });
  }

  /** The first epoch is stored here. At a backup what came behind it is applied; the primary orders from now on. */
  #onBegun(epoch: Epoch, nowMs: number): void {
    this.#standing.begun(epoch);
    this.#backup.installed(epoch);
    this.#orderFirst(nowMs);
  }

  #onInstalledHere(epoch: Epoch, seq: number): void {
    this.#standing.installStored(epoch, seq);
    this.#outside = null;
    this.#backup.installed(epoch);
    const state = this.#state;
    if (state.kind !== 'installing' || !epochEqual(state.reset.epoch, epoch)) return;
    const { reset } = state;
    reset.install(this.#config.self, seq);
    // Who needs only the stamp was asked when the base was chosen.
    for (const member of this.#others(reset)) if (!reset.needsOnlyStamp(member)) this.#ask(reset, member);
  }

  // Messages ---------------------------------------------------------------------------------------

  #onMessage(from: ServerId, message: ReplicaMessage, nowMs: number): void {
    if (this.#over.get(from)?.has(message.incarnation) === true) {
      this.#out.trace('late-answer', `${message.kind} of a former life of ${from}`);
      return;
    }
    if (this.#isOfOtherMembers(from, message)) return;
    this.#noteIncarnation(from, message.incarnation);
    switch (message.kind) {
      case 'prepare':
      case 'install':
      case 'begin':
      case 'write':
      case 'heartbeat':
      case 'flush':
      case 'commit':
      case 'read-grant':
        this.#onPrimaryMessage(from, message, nowMs);
        return;
      case 'read-revoke':
        this.#readLease.drop();
        this.#out.send(from, { kind: 'read-returned', epoch: message.epoch });
        return;
      case 'yield':
        if (message.epoch.server === from) this.#guard.lift(message.epoch);
        return;
      case 'refuse':
        this.#onRefuse(from, message.epoch, message.promised, nowMs);
        return;
      default:
        this.#onAnswer(from, message, nowMs);
    }
  }

  /**
   * Two majorities share a replica only where both are of one member set. A server that knows other members for the number of its
   * view gets no promise, no acknowledgement and no guard from here, and its own do not count.
   */
  #isOfOtherMembers(from: ServerId, message: ReplicaMessage): boolean {
    const stated = statedView(message);
    const { view } = this.#standing;
    if (stated === null || !viewsConflict(stated, view)) return false;
    const [here, there] = [viewMembersFormat(view), viewMembersFormat(stated)];
    this.#out.trace('view-conflict', `view ${view.number} has ${here} here and ${there} at ${from}`);
    return true;
  }

  /** A peer's new life has not acknowledged anything to this epoch, as far as is known. */
  #noteIncarnation(from: ServerId, incarnation: Incarnation): void {
    const before = this.#incarnations.get(from);
    this.#incarnations.set(from, incarnation);
    if (before === undefined || before === incarnation) return;
    this.#over.set(from, (this.#over.get(from) ?? new Set()).add(before));
    this.#out.trace('peer-restarted', from);
    // The process that might have read by them is gone.
    this.#grants.returned(from);
    const state = this.#state;
    if (state.kind === 'preparing' || state.kind === 'installing') state.reset.forget(from);
    this.#order?.answers.restarted(from);
  }

  #onPrimaryMessage(from: ServerId, message: PrimaryMessage, nowMs: number): void {
    const { epoch } = message;
    if (epoch.server !== from || epoch.incarnation !== message.incarnation) {
      this.#out.trace('stranger', `${from} speaks for ${epoch.server}`);
      return;
    }
    const order = epochCompare(epoch, this.#standing.promised);
    if (order < 0) {
      this.#out.trace('refused-old-epoch', `${message.kind} of ${epochFormat(epoch)}`);
      this.#out.send(from, { kind: 'refuse', epoch, promised: this.#standing.promised });
      return;
    }
    if (message.kind === 'prepare' && nowMs < this.#guard.barsUntilMs(epoch)) {
      this.#hold(from, message);
      return;
    }
    if (message.kind === 'begin' && this.#standing.isNew && this.#votes) {
      // No guard bars it: there is no smaller epoch that it could outdate, and a larger one refuses it.
      this.#out.trace('begun', epochFormat(epoch));
      this.#standing.begin(epoch);
      this.#backup.promisedAnew();
      return;
    }
    if (order > 0) this.#followEpoch(epoch, nowMs);
    this.#backup.message(message, nowMs);
  }

  /** The candidate has to wait: a primary that this replica has answered may still show reads that it must not outdate. */
  #hold(from: ServerId, message: Held['message']): void {
    this.#out.trace('guarded', `${epochFormat(message.epoch)} waits`);
    if (this.#held !== null && epochCompare(this.#held.message.epoch, message.epoch) > 0) return;
    this.#held = { from, message };
  }

  #answerHeld(nowMs: number): void {
    const held = this.#held;
    if (held === null || nowMs < this.#guard.barsUntilMs(held.message.epoch)) return;
    this.#held = null;
    this.#onPrimaryMessage(held.from, held.message, nowMs);
  }

  /**
   * A larger epoch exists: nothing smaller is accepted from this moment, and a primary steps down
   * even if its lease is valid. Two leases at once mean broken clocks; epochs decide then.
   */
  #followEpoch(epoch: Epoch, nowMs: number): void {
    if (this.#ownEpoch() !== null) this.#depose(`by ${epochFormat(epoch)}`, nowMs);
    this.#standing.promise(epoch);
    this.#backup.promisedAnew();
  }

  #onRefuse(from: ServerId, epoch: Epoch, promised: Epoch, nowMs: number): void {
    this.#refusedCounter = Math.max(this.#refusedCounter, promised.counter);
    const own = this.#ownEpoch();
    if (own === null || !epochEqual(own, epoch) || epochCompare(promised, own) <= 0) {
      this.#out.trace('late-answer', `refuse of ${epochFormat(epoch)} from ${from}`);
      return;
    }
    this.#depose(`${from} has promised ${epochFormat(promised)}`, nowMs);
  }

  /** Steps down for a larger epoch; while the lease lasts, tries again after a pause. */
  #depose(detail: string, nowMs: number): void {
    this.#out.trace('deposed', detail);
    this.#stepDown();
    if (this.#lease.untilMs !== 0) this.#backOff(nowMs);
  }

  #abandonReset(epoch: Epoch, nowMs: number): void {
    const own = this.#ownEpoch();
    if (own === null || !epochEqual(own, epoch)) return;
    this.#out.trace('reset-abandoned', epochFormat(epoch));
    this.#stepDown();
    this.#backOff(nowMs);
  }

  /**
   * The base cannot be brought here: its holder is out of reach, or a part of it is whole nowhere. Whoever stands at the
   * base already needs nothing fetched, so the lease is not kept from the others for ever.
   */
  #onFetchFailed(epoch: Epoch, nowMs: number): void {
    const own = this.#ownEpoch();
    if (own === null || !epochEqual(own, epoch)) return;
    this.#abandonReset(epoch, nowMs);
    this.#failedFetches++;
    if (this.#failedFetches < FAILED_FETCHES_MAX) return;
    this.#failedFetches = 0;
    this.#onStop();
  }

  #backOff(nowMs: number): void {
    const longestMs = (this.#config.heartbeatMs / 2) * 2 ** Math.min(this.#refusals, BACKOFF_DOUBLINGS_MAX);
    this.#refusals++;
    this.#retryAtMs = nowMs + longestMs * (0.5 + 0.5 * this.#prng.next());
  }

  /** Answers count in the epoch they were asked in, and in no other. */
  #onAnswer(from: ServerId, message: Answer, nowMs: number): void {
    const own = this.#ownEpoch();
    if (own === null || !epochEqual(own, message.epoch)) {
      this.#out.trace('late-answer', `${message.kind} of ${epochFormat(message.epoch)} from ${from}`);
      return;
    }
    const state = this.#state;
    if (state.kind === 'preparing' || state.kind === 'installing') {
      this.#onAnswerToCandidate(state.reset, from, message);
    } else if (this.#order !== null) {
      this.#onAnswerToPrimary(this.#order, from, message, nowMs);
    }
  }

  #onAnswerToCandidate(reset: Reset, from: ServerId, message: Answer): void {
    if (!reset.voters.has(from)) {
      this.#out.trace('stranger', `${from} is no member`);
      return;
    }
    if (message.kind === 'promise') {
      const { position, view, trust } = message;
      const before = reset.voters.size;
      reset.promise(from, { position, view, trust });
      // It may know of members that this server has not heard of.
      if (reset.voters.size > before) for (const member of this.#others(reset)) this.#ask(reset, member);
      // Too late to be asked for the base: it is given the base.
      if (reset.base !== null) this.#ask(reset, from);
    }
    if (message.kind === 'installed' && reset.base !== null) reset.install(from, message.seq);
  }

  #onAnswerToPrimary(order: WriteOrder, from: ServerId, message: Answer, nowMs: number): void {
    if (message.kind === 'read-returned') {
      this.#grants.returned(from);
      return;
    }
    if (!order.hasPeer(from)) {
      this.#out.trace('stranger', `${from} is no member`);
      return;
    }
    if (this.#state.kind === 'beginning') {
      // Before anything is committed in a first epoch: a majority has it, so that no later one can miss it.
      order.answers.receiveFirst(from, message);
      this.#advanceBeginning();
    }
    if (message.kind !== 'read-request') order.answers.receive(from, message, nowMs);
    else if (this.#state.kind === 'active') order.readRequested(from, message.nonce, nowMs);
  }

  // Progress ---------------------------------------------------------------------------------------

  /** Does what has become possible through the event: promises, installations, commits. */
  #advance(nowMs: number): void {
    this.#answerHeld(nowMs);
    const state = this.#state;
    if (state.kind === 'backup' && this.#mayBegin(nowMs)) this.#beginReset(nowMs);
    if (this.#state.kind === 'preparing') this.#advancePreparing(this.#state.reset, nowMs);
    this.#backup.advance();
    this.#advanceInstalling(nowMs);
    this.#advanceBeginning();
    this.#advanceOrder(nowMs);
    this.#advanceResumed(nowMs);
    if (this.#state.kind === 'backup') this.#backup.askToRead(nowMs);
  }

  #advanceOrder(nowMs: number): void {
    const order = this.#order;
    if (order === null) return;
    order.advance(nowMs);
    if (this.#state.kind === 'active' && order.isOut) {
      this.#out.trace('members-changed', 'without this server');
      this.#onStop();
    }
    if (this.#state.kind !== 'stopping' || !order.isIdle) return;
    // Reads elsewhere end before the lease is given back: a new primary need not wait for them.
    const asks = this.#readsAsked !== order.epoch;
    this.#readsAsked = order.epoch;
    if (!order.takeReadsBack(nowMs, asks)) return;
    order.yield();
    this.#endInOrder(order);
  }

  /** Nobody leads by the epoch, or orders in it, any more; where nothing is under way, this process may again. */
  #endInOrder(order: WriteOrder): void {
    const place = order.isIdle ? { epoch: order.epoch, seq: order.lastSeq } : null;
    const everywhere = order.isQuiet;
    this.#stepDown();
    this.#ended = place;
    this.#endedEverywhere = everywhere;
  }

  #mayBegin(nowMs: number): boolean {
    return this.#isWilling() && this.#lease.untilMs > nowMs && nowMs >= this.#beginAtMs();
  }

  #isWilling(): boolean {
    return !this.#stopAsked && this.#outside === null && this.#votes;
  }

  get #votes(): boolean {
    return viewVoters(this.#standing.view).includes(this.#config.self);
  }

  /** Whoever asks others to keep the guard keeps it too. What was made a moment ago nobody has led, or read. */
  #beginAtMs(): number {
    if (this.#begins) return -Infinity;
    const { self, incarnation } = this.#config;
    return Math.max(this.#retryAtMs, this.#guard.barsUntilMs({ counter: 0, server: self, incarnation }));
  }

  /** The subject's maker leads it for the first time: it has promised nothing else since. */
  get #begins(): boolean {
    return this.#firstEpoch !== null && epochEqual(this.#standing.promised, this.#firstEpoch);
  }

  /** The first epoch is stored here while the lease is asked for: it binds nobody, this server included. */
  #onMade(): void {
    if (!this.#standing.isNew) return;
    const { self, incarnation } = this.#config;
    this.#firstEpoch = firstEpoch(self, incarnation);
    this.#standing.begin(this.#firstEpoch);
    this.#backup.promisedAnew();
  }

  /** All up to there is committed: who has ended an epoch in good order, or got its name for what he has borne, knows that. */
  #onEnded(place: Position): void {
    if (this.#state.kind !== 'backup' || !mayBeResumed(place, this.#standing)) return;
    this.#ended = place;
    this.#endedEverywhere = false;
    this.#backup.ledUntil(place.seq);
  }

  /**
   * Orders by an epoch that this process has ended in good order, or borne the subject by, and for which it has no lease now. The epoch is its own:
   * nobody else orders in it, and all that was ordered in it is here, and committed. If a larger one is led by meanwhile, a majority has promised
   * it, and refuses what is ordered here.
   */
  #resumeIfPossible(nowMs: number): void {
    const place = this.resumable;
    if (place === null) return;
    this.#ended = null;
    this.#out.trace('resumed', epochFormat(place.epoch));
    // Who may not have the base is told of it with the first operation; who has it says so, and applies.
    const order = this.#newOrder(place, new Map(), nowMs, this.#endedEverywhere ? 'asked' : 'unasked', false);
    this.#heartbeatAtMs = nowMs + this.#config.heartbeatMs;
    this.#become({ kind: 'resumed', order, committedSeq: order.committedSeq, stalled: 0 });
  }

  /**
   * The beginning of a subject that this process has made. Its epoch is smaller than all that candidates choose, and
   * nobody else, nor a later life of this process, can choose it. So what steps 1 and 2 of a reset ask for is known
   * beforehand: nobody has anything of a smaller epoch, or ever will, and the base is empty. Step 4 goes
   * along with the first operation, and step 5, a majority that has the epoch, is what commits that.
   */
  #begin(nowMs: number): void {
    const epoch = this.#firstEpoch;
    assert(epoch !== null, 'Who begins has made the subject');
    this.#firstEpoch = null;
    this.#isFirstLed = true;
    this.#inheritedFrom = null;
    const { heartbeatMs } = this.#config;
    // At the same moments as those of other files that are made now, so that they share frames.
    this.#heartbeatAtMs = (1 + Math.ceil(nowMs / heartbeatMs)) * heartbeatMs;
    this.#out.trace('made', epochFormat(epoch));
    this.#become({ kind: 'beginning', epoch, order: null });
    this.#orderFirst(nowMs);
  }

  /** From when the lease is held and the own replica has begun. */
  #orderFirst(nowMs: number): void {
    const state = this.#state;
    if (state.kind !== 'beginning' || !epochEqual(state.epoch, this.#standing.installed)) return;
    this.#become({ ...state, order: this.#newOrder(POSITION_ZERO, new Map(), nowMs, 'unasked') });
  }

  /** Files are made by the thousand, and most are not read soon: the guard is asked for with the usual heartbeat. */
  #advanceBeginning(): void {
    const state = this.#state;
    if (state.kind === 'beginning' && state.order?.isEstablished === true) this.#lead(state.order);
  }

  /**
   * Replica reset, step 1: an epoch larger than all that were promised or heard of. The questions
   * may leave before the own promise is stored: the own vote counts only once it is, and no other
   * process, nor a later life of this one, can choose the same epoch.
   */
  #beginReset(nowMs: number): void {
    if (this.#begins) {
      this.#begin(nowMs);
      return;
    }
    const { self, incarnation, candidatesFrom } = this.#config;
    const heard = Math.max(this.#standing.promised.counter, this.#refusedCounter);
    const counter = Math.max(candidatesFrom, 1 + heard);
    assert(Number.isSafeInteger(counter), 'Epochs do not run out');
    const epoch: Epoch = { counter, server: self, incarnation };
    this.#standing.promise(epoch);
    this.#backup.promisedAnew();
    const patientUntilMs = nowMs + PATIENT_HEARTBEATS * this.#config.heartbeatMs;
    const reset = new Reset(epoch, this.#standing.view, self, this.#config.mayBeginLost, patientUntilMs);
    this.#out.trace('reset-started', epochFormat(epoch));
    this.#become({ kind: 'preparing', reset });
    this.#heartbeatAtMs = nowMs + this.#config.heartbeatMs;
    for (const member of this.#others(reset)) this.#ask(reset, member);
  }

  #life(server: ServerId): Incarnation {
    return this.#incarnations.get(server) ?? LIFE_UNKNOWN;
  }

  #others(reset: Reset): ServerId[] {
    return [...reset.voters].filter((member) => member !== this.#config.self);
  }

  /** Steps 2 and 3: a majority has promised; the replica that stands furthest has the base. */
  #advancePreparing(reset: Reset, nowMs: number): void {
    const { self } = this.#config;
    const { position, view, trust } = this.#standing;
    if (this.#standing.settled) reset.promise(self, { position, view, trust });
    const base = reset.choose(nowMs);
    if (base === null) {
      if (reset.noticeDistrust()) this.#out.trace('distrusted', epochFormat(reset.epoch));
      return;
    }
    const { counter } = base.position.epoch;
    if (counter >= reset.epoch.counter) {
      // A server that was cut off counts from what it knew. Its epoch is larger by the server's name
      // alone, and versions of contents, which tell the counter only, would name two different ones.
      this.#refusedCounter = Math.max(this.#refusedCounter, counter);
      this.#abandonReset(reset.epoch, nowMs);
      return;
    }
    this.#out.trace(
      base.holder === self ? 'base-own' : 'base-fetched',
      `${base.holder}/${base.position.seq}`,
    );
    if (!viewVoters(reset.view).includes(self)) {
      // The members changed without this server's knowledge: another has to lead, and have the lease.
      this.#outside = reset.view;
      this.#out.trace('outside', `${reset.view.number}: ${reset.view.members.join()}`);
      this.#onStop();
      return;
    }
    this.#become({ kind: 'installing', reset });
    this.#backup.take(reset.epoch, base.position, base.holder, true);
    for (const member of this.#others(reset)) this.#ask(reset, member);
  }

  /** Step 5: a majority has the base, so from now on no later epoch can miss it. */
  #advanceInstalling(nowMs: number): void {
    if (this.#state.kind !== 'installing') return;
    const { reset } = this.#state;
    const { base } = reset;
    if (base === null || !reset.isComplete() || this.#mayBeReadByGrant(reset, nowMs)) return;
    const { counter } = reset.epoch;
    // A candidate before this one may have led, if only for those whose promise it had.
    this.#isFirstLed = base.position.epoch.counter === 0 && counter === this.#config.candidatesFrom;
    this.#inheritedFrom = reset.inheritedFrom;
    const order = this.#newOrder(base.position, reset.installed, nowMs, 'unknown');
    this.#lead(order);
    this.#beat(order, nowMs);
  }

  #newOrder(
    base: Position,
    installed: ReadonlyMap<ServerId, number>,
    nowMs: number,
    start: 'unasked' | 'asked' | 'unknown',
    isLed = true,
  ): WriteOrder {
    const parts = {
      config: this.#config,
      out: this.#out,
      standing: this.#standing,
      localFlush: this.#localFlush,
      guard: this.#guard,
      grants: this.#grants,
      lease: this.#lease,
      lifeOf: (server: ServerId) => this.#life(server),
    };
    return new WriteOrder(parts, { base, installed, start, hasLease: isLed }, nowMs);
  }

  /** A majority has the epoch installed: this server is the primary. */
  #lead(order: WriteOrder): void {
    this.#refusals = 0;
    this.#failedFetches = 0;
    this.#out.trace('active', epochFormat(order.epoch));
    this.#become({ kind: 'active', order });
    this.#out.push({ kind: 'advanced', committedSeq: order.committedSeq });
  }

  /**
   * Whether a backup may still answer reads by a lease that this process gave it in an earlier epoch: what the new
   * epoch begins with may be more than it has. Who promised the new epoch gave its lease up.
   */
  #mayBeReadByGrant(reset: Reset, nowMs: number): boolean {
    const holders = this.#grants.holders(nowMs);
    return holders.some((server) => !reset.hasPromised(server) && !reset.hasInstalled(server));
  }

  #beat(order: WriteOrder, nowMs: number): void {
    order.heartbeat(nowMs);
    this.#heartbeatAtMs = nowMs + (order.isQuiet ? this.#config.quietHeartbeatMs : this.#config.heartbeatMs);
  }

  /** Repeats what may have been lost; also tells others that there is a primary, and hears if not. */
  #keepTime(nowMs: number): void {
    const state = this.#state;
    if (state.kind === 'backup' || state.kind === 'failed') return;
    const order = this.#order;
    const periodMs = order?.isQuiet ? this.#config.quietHeartbeatMs : this.#config.heartbeatMs;
    if (nowMs < this.#heartbeatAtMs) {
      // What ends the quiet brings the next heartbeat near again.
      this.#heartbeatAtMs = Math.min(this.#heartbeatAtMs, nowMs + periodMs);
      return;
    }
    this.#heartbeatAtMs = nowMs + periodMs;
    if (state.kind === 'resumed' && !this.#mayGoOn(state)) return;
    if (order !== null) {
      order.heartbeat(nowMs);
      if (state.kind === 'stopping') order.takeReadsBack(nowMs, true);
    } else if (state.kind === 'preparing' || state.kind === 'installing') {
      for (const member of this.#others(state.reset)) this.#ask(state.reset, member);
    }
  }

  /** Nothing is under way any more, at anybody's or, where this server has the lease by now, at a majority's: it begins. */
  #advanceResumed(nowMs: number): void {
    if (this.#state.kind !== 'resumed') return;
    const { order } = this.#state;
    if (!(this.#goesOn ? order.isQuiet : order.isIdle)) return;
    this.#endInOrder(order);
    if (this.#mayBegin(nowMs)) this.#beginReset(nowMs);
  }

  /** Whether what is ordered without a lease gets on. Replicas that lag behind what is committed are left to whoever comes next. */
  #mayGoOn(state: Extract<State, { readonly kind: 'resumed' }>): boolean {
    const { order, committedSeq } = state;
    state.stalled = order.committedSeq > committedSeq ? 0 : state.stalled + 1;
    state.committedSeq = order.committedSeq;
    if (!order.isIdle && state.stalled < STALLED_HEARTBEATS) return true;
    if (!order.isIdle) this.#out.trace('given-up', epochFormat(order.epoch));
    this.#endInOrder(order);
    return false;
  }

  /** Asks a member for what the reset still lacks of it. */
  #ask(reset: Reset, member: ServerId): void {
    const { epoch, base, view } = reset;
    if (base === null) {
      if (!reset.hasPromised(member)) this.#out.send(member, { kind: 'prepare', epoch, view });
    } else if (
      (reset.hasInstalled(this.#config.self) || reset.needsOnlyStamp(member)) &&
      !reset.hasInstalled(member)
    ) {
      // Whoever needs more than the stamp fetches it from here, once it is installed here.
      const to = this.#life(member);
      this.#out.send(member, { kind: 'install', epoch, view, base: base.position, to, urgent: true });
    }
  }

  /** No longer candidate or primary. Clients that wait are told that nothing is known. */
  #stepDown(): void {
    const state = this.#state;
    if (state.kind === 'backup' || state.kind === 'failed') return;
    this.#ended = null;
    const { install } = this.#standing;
    const order = this.#order;
    if (order !== null) {
      order.abandon();
      this.#backup.ledUntil(order.committedSeq);
    }
    if (install !== null && install.stage !== 'storing') this.#standing.install = null;
    this.#become({ kind: 'backup' });
    if (state.kind === 'stopping') this.#stopped();
  }

  #become(state: State): void {
    this.#state = state;
    const epoch = this.#ownEpoch() ?? this.#standing.installed;
    this.#out.push({ kind: 'role-changed', role: state.kind, epoch });
  }

  #ownEpoch(): Epoch | null {
    const state = this.#state;
    switch (state.kind) {
      case 'backup':
      case 'failed':
        return null;
      case 'preparing':
      case 'installing':
        return state.reset.epoch;
      case 'beginning':
        return state.epoch;
      case 'resumed':
      case 'active':
      case 'stopping':
        return state.order.epoch;
    }
  }

  /** Of an epoch that is led, or gone on with, from here. */
  get #order(): WriteOrder | null {
    return 'order' in this.#state ? this.#state.order : null;
  }

  #committedSeq(): number {
    return this.#order?.committedSeq ?? this.#backup.committedSeq;
  }
}

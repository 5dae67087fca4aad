import { assert, unreachable } from '../base/assert.ts';
import type { FileId, Incarnation, ServerId } from '../base/ids.ts';
import { Prng } from '../base/prng.ts';
import type {
  Epoch,
  Operation,
  PeerStatus,
  ReplicaAction,
  ReplicaConfig,
  ReplicaEvent,
  ReplicaRecord,
  Role,
  View,
} from './actions.ts';
import { Backup, type PrimaryMessage } from './backup.ts';
import { epochCompare, epochEqual, epochFormat } from './epoch.ts';
import { LocalFlush } from './local-flush.ts';
import type { ReplicaMessage } from './messages.ts';
import { Outbox } from './outbox.ts';
import { Reset } from './reset.ts';
import { Standing } from './standing.ts';
import { WriteOrder } from './write-order.ts';

/** A refused candidate waits up to half a heartbeat at first, doubled up to this many times. */
const BACKOFF_DOUBLINGS_MAX = 4;

/** The role, with what is true only in it. */
type State =
  | { readonly kind: 'backup' }
  | { readonly kind: 'failed' }
  | { readonly kind: 'preparing'; readonly reset: Reset }
  | { readonly kind: 'installing'; readonly reset: Reset }
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
  readonly #view: View;
  readonly #others: readonly ServerId[];
  readonly #prng: Prng;
  readonly #out: Outbox;
  readonly #standing: Standing;
  readonly #localFlush: LocalFlush;
  readonly #backup: Backup;
  readonly #incarnations = new Map<ServerId, Incarnation>();
  #state: State = { kind: 'backup' };
  /** The own lease ends here; 0 without one. Compared at every step and every read, never by a timer. */
  #leaseUntilMs = 0;
  /** An orderly end was asked for: no new reset with this lease. */
  #stopAsked = false;
  /** The largest counter heard in a refusal: the next epoch is larger. */
  #refusedCounter = 0;
  #refusals = 0;
  #retryAtMs = 0;
  #heartbeatAtMs = 0;
  #nowMs: number;

  /**
   * @param record as it was found on disk, or an empty one of the view that a message named
   */
  constructor(config: ReplicaConfig, file: FileId, record: ReplicaRecord, nowMs: number) {
    const { members } = record.view;
    assert(members.includes(config.self), 'A replica is a member of its view');
    assert(new Set(members).size === members.length, 'Every member has one vote');
    this.#config = config;
    this.#view = record.view;
    this.#others = members.filter((member) => member !== config.self);
    this.#prng = new Prng(config.incarnation + file);
    this.#out = new Outbox(record.view.number, config.incarnation);
    this.#standing = new Standing(this.#out, record);
    this.#localFlush = new LocalFlush(this.#out, this.#standing);
    this.#backup = new Backup(config.self, this.#out, this.#standing, this.#localFlush);
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
   * Whether a read may be served here and now, the contents being pinned in the same turn. The only
   * place that decides it: read leases at backups would be one more case here.
   *
   * @param dependsOnSeq the newest operation of the installed epoch that the answer shows; 0 if none
   * @param nowMs read from the clock for this very read, because the process may have slept
   */
  readGate(dependsOnSeq: number, nowMs: number): 'serve' | 'wait' | 'not-primary' {
    const state = this.#state;
    if (state.kind !== 'active') return 'not-primary';
    // Strictly before the end: at the end itself another server may begin.
    if (nowMs >= this.#leaseUntilMs) return 'not-primary';
    // Never what is not committed: it may vanish. And never the version before: it may be outdated.
    return dependsOnSeq <= state.order.committedSeq ? 'serve' : 'wait';
  }

  get role(): Role {
    return this.#state.kind;
  }

  /** The epoch whose base is installed here; of an active primary its own. */
  get epoch(): Epoch {
    return this.#standing.installed;
  }

  /** The last operation that was given to the storage here. */
  get issuedSeq(): number {
    return this.#standing.issuedSeq;
  }

  status(nowMs: number): ReplicaStatus {
    const state = this.#state;
    return {
      role: state.kind,
      epoch: this.#standing.installed,
      seq: this.#standing.seq,
      committedSeq: this.#committedSeq(),
      leaseUntilMs: this.#leaseUntilMs,
      peers: state.kind === 'active' || state.kind === 'stopping' ? state.order.peers(nowMs) : [],
    };
  }

  /** @returns when the next `tick` is due, on the lease clock */
  nextWakeMs(): number | null {
    if (this.#leaseUntilMs === 0 || this.#state.kind === 'failed') return null;
    if (this.#state.kind !== 'backup') return Math.min(this.#leaseUntilMs, this.#heartbeatAtMs);
    return this.#stopAsked ? this.#leaseUntilMs : Math.min(this.#leaseUntilMs, this.#retryAtMs);
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
      leaseUntilMs: this.#leaseUntilMs,
      ownEpoch: this.#ownEpoch(),
    };
  }

  // Events -----------------------------------------------------------------------------------------

  #handle(event: ReplicaEvent, nowMs: number): void {
    switch (event.kind) {
      case 'lease':
        this.#onLease(event.untilMs, nowMs);
        return;
      case 'message':
        this.#onMessage(event.from, event.message, nowMs);
        return;
      case 'connected':
        this.#onConnected(event.peer);
        return;
      case 'submit':
        this.#onSubmit(event.ticket, event.operation);
        return;
      case 'flush':
        this.#onFlush(event.ticket);
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
        if (!this.#backup.stateFetched(event.epoch, event.position, event.sessions)) {
          this.#abandonReset(event.epoch, nowMs);
        }
        return;
      case 'state-failed':
        if (!this.#backup.stateFailed(event.epoch, event.reason)) this.#abandonReset(event.epoch, nowMs);
        return;
      case 'installed':
        this.#onInstalledHere(event.epoch, event.seq);
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
    if (event.kind === 'submit' || event.kind === 'flush') {
      this.#out.push({ kind: 'refused', ticket: event.ticket, reason: 'not-primary' });
    }
    if (event.kind === 'stop') this.#out.push({ kind: 'stopped' });
  }

  #onLease(untilMs: number, nowMs: number): void {
    if (untilMs > nowMs) {
      this.#leaseUntilMs = untilMs;
    } else {
      this.#endLease();
    }
  }

  #endLapsedLease(nowMs: number): void {
    if (this.#leaseUntilMs !== 0 && nowMs >= this.#leaseUntilMs) this.#endLease();
  }

  /**
   * From here on another server may be primary, so this one is not, and takes a new epoch when it
   * gets the lease again, even if nobody had it in between: nobody can know.
   */
  #endLease(): void {
    this.#leaseUntilMs = 0;
    this.#retryAtMs = 0;
    this.#refusals = 0;
    if (this.#ownEpoch() !== null) {
      this.#out.trace('lease-over', `role ${this.#state.kind}`);
      this.#stepDown();
    }
    this.#stopAsked = false;
  }

  #onConnected(peer: ServerId): void {
    if (!this.#others.includes(peer)) return;
    const state = this.#state;
    if (state.kind === 'preparing' || state.kind === 'installing') this.#ask(state.reset, peer);
    if (state.kind === 'active' || state.kind === 'stopping') state.order.connected(peer);
  }

  #onSubmit(ticket: number, operation: Operation): void {
    if (this.#state.kind === 'active') {
      this.#state.order.submit(ticket, operation);
    } else {
      this.#out.push({ kind: 'refused', ticket, reason: 'not-primary' });
    }
  }

  #onFlush(ticket: number): void {
    if (this.#state.kind === 'active') {
      this.#state.order.flush(ticket);
    } else {
      this.#out.push({ kind: 'refused', ticket, reason: 'not-primary' });
    }
  }

  #onStop(): void {
    // Without a lease there is nothing to end; the next lease is a new beginning.
    this.#stopAsked = this.#leaseUntilMs !== 0;
    const state = this.#state;
    if (state.kind === 'active') {
      this.#become({ kind: 'stopping', order: state.order });
    } else if (state.kind !== 'stopping') {
      this.#stepDown();
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

  #onInstalledHere(epoch: Epoch, seq: number): void {
    this.#standing.installStored(epoch, seq);
    this.#backup.installed(epoch);
    const state = this.#state;
    if (state.kind !== 'installing' || !epochEqual(state.reset.epoch, epoch)) return;
    const { reset } = state;
    reset.install(this.#config.self, seq);
    // Who needs only the stamp was asked when the base was chosen.
    for (const member of this.#others) if (!reset.needsOnlyStamp(member)) this.#ask(reset, member);
  }

  // Messages ---------------------------------------------------------------------------------------

  #onMessage(from: ServerId, message: ReplicaMessage, nowMs: number): void {
    if (message.view !== this.#view.number) {
      this.#out.trace('view-mismatch', `${from} speaks of view ${message.view}`);
      return;
    }
    if (!this.#others.includes(from)) {
      this.#out.trace('stranger', `${from} is no member`);
      return;
    }
    this.#noteIncarnation(from, message.incarnation);
    switch (message.kind) {
      case 'prepare':
      case 'install':
      case 'write':
      case 'heartbeat':
      case 'flush':
        this.#onPrimaryMessage(from, message, nowMs);
        return;
      case 'refuse':
        this.#onRefuse(from, message.epoch, message.promised, nowMs);
        return;
      default:
        this.#onAnswer(from, message, nowMs);
    }
  }

  /** A peer's new life has not acknowledged anything to this epoch, as far as is known. */
  #noteIncarnation(from: ServerId, incarnation: Incarnation): void {
    const before = this.#incarnations.get(from);
    this.#incarnations.set(from, incarnation);
    if (before === undefined || before === incarnation) return;
    this.#out.trace('peer-restarted', from);
    const state = this.#state;
    if (state.kind === 'preparing' || state.kind === 'installing') state.reset.forget(from);
    if (state.kind === 'active' || state.kind === 'stopping') state.order.forget(from);
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
    if (order > 0) this.#followEpoch(epoch, nowMs);
    this.#backup.message(message);
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
    this.#backOff(nowMs);
  }

  #abandonReset(epoch: Epoch, nowMs: number): void {
    const own = this.#ownEpoch();
    if (own === null || !epochEqual(own, epoch)) return;
    this.#out.trace('reset-abandoned', epochFormat(epoch));
    this.#stepDown();
    this.#backOff(nowMs);
  }

  #backOff(nowMs: number): void {
    const longestMs = (this.#config.heartbeatMs / 2) * 2 ** Math.min(this.#refusals, BACKOFF_DOUBLINGS_MAX);
    this.#refusals++;
    this.#retryAtMs = nowMs + longestMs * (0.5 + 0.5 * this.#prng.next());
  }

  /** Answers count in the epoch they were asked in, and in no other. */
  #onAnswer(
    from: ServerId,
    message: Exclude<ReplicaMessage, PrimaryMessage | { readonly kind: 'refuse' }>,
    nowMs: number,
  ): void {
    const own = this.#ownEpoch();
    if (own === null || !epochEqual(own, message.epoch)) {
      this.#out.trace('late-answer', `${message.kind} of ${epochFormat(message.epoch)} from ${from}`);
      return;
    }
    const state = this.#state;
    if (state.kind === 'preparing' || state.kind === 'installing') {
      this.#onAnswerToCandidate(state.reset, from, message);
    } else if (state.kind === 'active' || state.kind === 'stopping') {
      this.#onAnswerToPrimary(state.order, from, message, nowMs);
    }
  }

  #onAnswerToCandidate(
    reset: Reset,
    from: ServerId,
    message: Exclude<ReplicaMessage, PrimaryMessage | { readonly kind: 'refuse' }>,
  ): void {
    if (message.kind === 'promise') {
      reset.promise(from, message.position);
      // Too late to be asked for the base: it is given the base.
      if (reset.base !== null) this.#ask(reset, from);
    }
    if (message.kind === 'installed' && reset.base !== null) reset.install(from, message.seq);
  }

  #onAnswerToPrimary(
    order: WriteOrder,
    from: ServerId,
    message: Exclude<ReplicaMessage, PrimaryMessage | { readonly kind: 'refuse' }>,
    nowMs: number,
  ): void {
    switch (message.kind) {
      case 'promise':
        // Too late even for the majority that has the base: it is given the base now.
        order.stateNeeded(from, nowMs);
        return;
      case 'installed':
      case 'ack':
        order.acknowledged(from, message.seq, nowMs);
        return;
      case 'resend':
        order.resend(from, message.fromSeq, nowMs);
        return;
      case 'need-state':
        order.stateNeeded(from, nowMs);
        return;
      case 'heartbeat-ack':
        order.heartbeatAnswered(from, message.position, nowMs);
        return;
      case 'flushed':
        order.flushedAt(from, message.seq, nowMs);
        return;
      default:
        unreachable(message);
    }
  }

  // Progress ---------------------------------------------------------------------------------------

  /** Does what has become possible through the event: promises, installations, commits. */
  #advance(nowMs: number): void {
    const state = this.#state;
    if (state.kind === 'backup' && this.#mayBegin(nowMs)) this.#beginReset(nowMs);
    if (this.#state.kind === 'preparing') this.#advancePreparing(this.#state.reset, nowMs);
    this.#backup.advance();
    this.#advanceInstalling(nowMs);
    this.#advanceOrder();
  }

  #advanceOrder(): void {
    const state = this.#state;
    if (state.kind !== 'active' && state.kind !== 'stopping') return;
    state.order.advance();
    if (state.kind === 'stopping' && state.order.isIdle) this.#stepDown();
  }

  #mayBegin(nowMs: number): boolean {
    return this.#leaseUntilMs > nowMs && !this.#stopAsked && nowMs >= this.#retryAtMs;
  }

  /**
   * Replica reset, step 1: an epoch larger than all that were promised or heard of. The questions
   * may leave before the own promise is stored: the own vote counts only once it is, and no other
   * process, nor a later life of this one, can choose the same epoch.
   */
  #beginReset(nowMs: number): void {
    const { self, incarnation } = this.#config;
    const counter = 1 + Math.max(this.#standing.promised.counter, this.#refusedCounter);
    assert(Number.isSafeInteger(counter), 'Epochs do not run out');
    const epoch: Epoch = { counter, server: self, incarnation };
    this.#standing.promise(epoch);
    this.#backup.promisedAnew();
    const reset = new Reset(epoch, this.#view, self);
    this.#out.trace('reset-started', epochFormat(epoch));
    this.#become({ kind: 'preparing', reset });
    this.#heartbeatAtMs = nowMs + this.#config.heartbeatMs;
    for (const member of this.#others) this.#ask(reset, member);
  }

  /** Steps 2 and 3: a majority has promised; the replica that stands furthest has the base. */
  #advancePreparing(reset: Reset, nowMs: number): void {
    const { self } = this.#config;
    if (this.#standing.settled) reset.promise(self, this.#standing.position);
    const base = reset.choose();
    if (base === null) return;
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
    this.#become({ kind: 'installing', reset });
    this.#backup.take(reset.epoch, base.position, base.holder);
    for (const member of this.#others) this.#ask(reset, member);
  }

  /** Step 5: a majority has the base, so from now on no later epoch can miss it. */
  #advanceInstalling(nowMs: number): void {
    if (this.#state.kind !== 'installing') return;
    const { reset } = this.#state;
    const { base } = reset;
    if (base === null || !reset.isComplete()) return;
    const order = new WriteOrder(
      this.#config,
      this.#view,
      this.#out,
      this.#standing,
      this.#localFlush,
      base.position,
      reset.installed,
      nowMs,
    );
    this.#refusals = 0;
    this.#out.trace('active', epochFormat(reset.epoch));
    this.#become({ kind: 'active', order });
    this.#out.push({ kind: 'advanced', committedSeq: order.committedSeq });
    order.heartbeat(nowMs);
    this.#heartbeatAtMs = nowMs + this.#config.heartbeatMs;
  }

  /** Repeats what may have been lost; also tells others that there is a primary, and hears if not. */
  #keepTime(nowMs: number): void {
    const state = this.#state;
    if (state.kind === 'backup' || state.kind === 'failed') return;
    const order = state.kind === 'active' || state.kind === 'stopping' ? state.order : null;
    const periodMs = order?.isQuiet ? this.#config.quietHeartbeatMs : this.#config.heartbeatMs;
    if (nowMs < this.#heartbeatAtMs) {
      // What ends the quiet brings the next heartbeat near again.
      this.#heartbeatAtMs = Math.min(this.#heartbeatAtMs, nowMs + periodMs);
      return;
    }
    this.#heartbeatAtMs = nowMs + periodMs;
    if (order !== null) order.heartbeat(nowMs);
    else if (state.kind === 'preparing' || state.kind === 'installing') {
      for (const member of this.#others) this.#ask(state.reset, member);
    }
  }

  /** Asks a member for what the reset still lacks of it. */
  #ask(reset: Reset, member: ServerId): void {
    const { epoch, base } = reset;
    const { members } = this.#view;
    if (base === null) {
      if (!reset.hasPromised(member)) this.#out.send(member, { kind: 'prepare', epoch, members });
    } else if (
      (reset.hasInstalled(this.#config.self) || reset.needsOnlyStamp(member)) &&
      !reset.hasInstalled(member)
    ) {
      // Whoever needs more than the stamp fetches it from here, once it is installed here.
      this.#out.send(member, { kind: 'install', epoch, members, base: base.position });
    }
  }

  /** No longer candidate or primary. Clients that wait are told that nothing is known. */
  #stepDown(): void {
    const state = this.#state;
    if (state.kind === 'backup' || state.kind === 'failed') return;
    const { install } = this.#standing;
    if (state.kind === 'active' || state.kind === 'stopping') {
      state.order.abandon();
      this.#backup.ledUntil(state.order.committedSeq);
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
      case 'active':
      case 'stopping':
        return state.order.epoch;
    }
  }

  #committedSeq(): number {
    const state = this.#state;
    const leads = state.kind === 'active' || state.kind === 'stopping';
    return leads ? state.order.committedSeq : this.#backup.committedSeq;
  }
}

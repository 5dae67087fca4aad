import type { ServerId } from '../base/ids.ts';
import type { Epoch } from './epoch.ts';
import { epochEqual, epochFormat, POSITION_ZERO } from './epoch.ts';
import type { Answer } from './messages.ts';
import { type ReplicaParts, ReplicaRole, type Transitions } from './role.ts';
import { WriteOrder } from './write-order.ts';

/** A resumed primary abandons its operations after this many heartbeats in a row without a commit. */
const STALLED_HEARTBEATS = 2;

/** A role in which this server orders operations. */
abstract class OrderingRole extends ReplicaRole {
  abstract override get order(): WriteOrder | null;

  override answered(from: ServerId, message: Answer, nowMs: number): void {
    const { order } = this;
    if (order === null) return;
    if (message.kind === 'read-returned') {
      this.parts.grants.ended(from);
    } else if (!order.hasPeer(from)) {
      this.parts.out.trace('stranger', `${from} is no member`);
    } else {
      this.peerAnswered(order, from, message, nowMs);
    }
  }

  protected peerAnswered(order: WriteOrder, from: ServerId, message: Answer, nowMs: number): void {
    order.answers.receive(from, message, nowMs);
  }

  override peerConnected(peer: ServerId, nowMs: number): void {
    if (this.order === null) return;
    this.order.reconnected(peer);
    // The heartbeat that requests the guard may be lost too.
    this.parts.schedule.hurryForReads(nowMs);
  }

  override peerRestarted(peer: ServerId): void {
    this.order?.answers.restarted(peer);
  }

  override heartbeatDue(nowMs: number): void {
    this.order?.heartbeat(nowMs);
  }

  override wakeAtMs(nowMs: number): number {
    return Math.min(this.parts.schedule.nextMs, this.order?.nextCommitMs(nowMs) ?? Infinity);
  }
}

/**
 * The first epoch of a subject that this process created. It is smaller than every candidate's, and no other process,
 * nor a later incarnation, can choose it. So steps 1 and 2 of a reset are known beforehand: no replica ever has
 * anything of a smaller epoch, and the base is empty. Step 4 is sent with the first operation, and step 5, a
 * majority with the epoch, commits it.
 */
export class Beginning extends OrderingRole {
  readonly kind = 'beginning';
  readonly #epoch: Epoch;
  #order: WriteOrder | null = null;

  constructor(parts: ReplicaParts, roles: Transitions, epoch: Epoch) {
    super(parts, roles);
    this.#epoch = epoch;
  }

  override get epoch(): Epoch {
    return this.#epoch;
  }

  get order(): WriteOrder | null {
    return this.#order;
  }

  override get acceptingOrder(): WriteOrder | null {
    return this.#order;
  }

  override begunHere(nowMs: number): void {
    if (!epochEqual(this.#epoch, this.parts.state.installed)) return;
    const start = { base: POSITION_ZERO, installed: new Map(), start: 'unasked', hasLease: true } as const;
    this.#order = new WriteOrder(this.parts, start, nowMs);
    this.roles.become(this);
  }

  /** Files are created by the thousand and most are not read soon: only a read requests the guard early. */
  override readWanted(): void {
    this.#order?.establish();
  }

  /** The first answers install the epoch. Once a majority has it, this server is primary; only then may acks commit. */
  protected override peerAnswered(order: WriteOrder, from: ServerId, message: Answer, nowMs: number): void {
    order.answers.receiveFirst(from, message);
    if (order.isEstablished) this.roles.serve(order);
    order.answers.receive(from, message, nowMs);
  }

  override advance(nowMs: number): void {
    const order = this.#order;
    if (order === null) return;
    if (order.isEstablished) this.roles.serve(order).advance(nowMs);
    else order.advance(nowMs);
  }
}

abstract class InstalledRole extends OrderingRole {
  readonly order: WriteOrder;

  constructor(parts: ReplicaParts, roles: Transitions, order: WriteOrder) {
    super(parts, roles);
    this.order = order;
  }

  override get epoch(): Epoch {
    return this.order.epoch;
  }
}

/** The primary: it holds the lease, and a majority has its epoch installed. */
export class Active extends InstalledRole {
  readonly kind = 'active';

  override get acceptingOrder(): WriteOrder {
    return this.order;
  }

  override leaseExtended(nowMs: number): void {
    this.parts.schedule.leaseExtended(this.order, nowMs);
  }

  /** Requests the guard again after it lapsed. */
  override readWanted(nowMs: number): void {
    const { order } = this;
    const { schedule, out } = this.parts;
    if (nowMs < order.heartbeats.guardEndMs()) return;
    if (!schedule.mayRequestGuard(order.heartbeats.sinceSentMs(nowMs))) return;
    out.trace('guard-lapsed', epochFormat(order.epoch));
    schedule.beat(order, nowMs);
  }

  protected override peerAnswered(order: WriteOrder, from: ServerId, message: Answer, nowMs: number): void {
    if (message.kind === 'read-request') order.grantReadLease(from, message.nonce, nowMs);
    else super.peerAnswered(order, from, message, nowMs);
  }

  override stop(): void {
    this.#becomeStopping();
  }

  override advance(nowMs: number): void {
    const { order } = this;
    order.advance(nowMs);
    if (!order.isRemoved) return;
    this.parts.out.trace('members-changed', 'without this server');
    this.parts.candidacy.stop();
    this.#becomeStopping().finish(nowMs);
  }

  #becomeStopping(): Stopping {
    const stopping = new Stopping(this.parts, this.roles, this.order);
    this.roles.become(stopping);
    return stopping;
  }
}

/** A primary that takes no more operations and waits for commits and for the end of read leases. */
class Stopping extends InstalledRole {
  readonly kind = 'stopping';
  #hasRevoked = false;

  override stop(): void {
    // Already stopping.
  }

  override advance(nowMs: number): void {
    this.order.advance(nowMs);
    this.finish(nowMs);
  }

  /** Revokes read leases once nothing is under way, then ends the epoch: a new primary need not wait for them. */
  finish(nowMs: number): void {
    const { order } = this;
    if (!order.isIdle) return;
    const revokes = !this.#hasRevoked;
    this.#hasRevoked = true;
    if (!order.revokeReads(nowMs, revokes)) return;
    order.yield();
    this.roles.endInOrder(order);
  }

  override heartbeatDue(nowMs: number): void {
    super.heartbeatDue(nowMs);
    this.order.revokeReads(nowMs, true);
  }

  override wakeAtMs(nowMs: number): number {
    return Math.min(super.wakeAtMs(nowMs), this.parts.grants.nextEndMs(nowMs));
  }
}

/**
 * A resumed primary: it orders without a lease in an epoch that it ended in good order, or in which it created the
 * subject with contents. No other server orders in this epoch, and all its operations are here and committed. If a
 * larger epoch has a primary, a majority promised it and refuses operations of this one.
 */
export class Resumed extends InstalledRole {
  readonly kind = 'resumed';
  #committedSeq: number;
  #stalled = 0;

  constructor(parts: ReplicaParts, roles: Transitions, order: WriteOrder) {
    super(parts, roles, order);
    this.#committedSeq = order.committedSeq;
  }

  /** Null once this server gets the lease: the epoch ends when nothing is under way, and a new one begins. */
  override get acceptingOrder(): WriteOrder | null {
    return this.parts.lease.isHeld ? null : this.order;
  }

  override stop(): void {
    this.roles.endInOrder(this.order);
    this.roles.stopped();
  }

  /** Ends once nothing is under way at any replica or, with the lease, at a majority. */
  override advance(nowMs: number): void {
    const { order } = this;
    order.advance(nowMs);
    if (!(this.parts.lease.isHeld ? order.isIdle : order.isQuiet)) return;
    this.roles.endInOrder(order);
    this.roles.tryBegin(nowMs);
  }

  /** Repeats messages, unless nothing is under way or operations are not committed in time: then ends the epoch. */
  override heartbeatDue(nowMs: number): void {
    const { order } = this;
    this.#stalled = order.committedSeq > this.#committedSeq ? 0 : this.#stalled + 1;
    this.#committedSeq = order.committedSeq;
    if (!order.isIdle && this.#stalled < STALLED_HEARTBEATS) {
      super.heartbeatDue(nowMs);
      return;
    }
    // The next primary updates lagging replicas.
    if (!order.isIdle) this.parts.out.trace('given-up', epochFormat(order.epoch));
    this.roles.endInOrder(order);
  }
}

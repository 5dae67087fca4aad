import type { ServerId } from '../base/ids.ts';
import type { Epoch } from './epoch.ts';
import { epochEqual, epochFormat, POSITION_ZERO } from './epoch.ts';
import type { Answer } from './messages.ts';
import { type ReplicaParts, ReplicaRole, type Transitions } from './role.ts';
import { WriteOrder } from './write-order.ts';

/** What is ordered without a lease is abandoned at this heartbeat in a row before which nothing was committed. */
const STALLED_HEARTBEATS = 2;

/** A role in which this server orders operations. */
abstract class OrderingRole extends ReplicaRole {
  abstract override get order(): WriteOrder | null;

  override answered(from: ServerId, message: Answer, nowMs: number): void {
    const { order } = this;
    if (order === null) return;
    if (message.kind === 'read-returned') {
      this.parts.grants.returned(from);
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
    // What asked for the guard may be lost with what else was.
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
 * The first epoch of a subject that this process has made. It is smaller than all that candidates choose, and
 * no other process, nor a later life of this one, can choose it. So what steps 1 and 2 of a reset ask for is known
 * beforehand: no replica has anything of a smaller epoch, or ever will, and the base is empty. Step 4 goes
 * along with the first operation, and step 5, a majority that has the epoch, is what commits that.
 */
export class Beginning extends OrderingRole {
  readonly kind = 'beginning';
  readonly #epoch: Epoch;
  /** Null until the own replica has begun. */
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

  /** Once the own replica has begun with the epoch, this server orders in it. */
  override begunHere(nowMs: number): void {
    if (!epochEqual(this.#epoch, this.parts.standing.installed)) return;
    const start = { base: POSITION_ZERO, installed: new Map(), start: 'unasked', hasLease: true } as const;
    this.#order = new WriteOrder(this.parts, start, nowMs);
    this.roles.become(this);
  }

  /** Files are made by the thousand, and most are not read soon: without a reader the guard waits for a heartbeat. */
  override readWanted(): void {
    this.#order?.establish();
  }

  /** Before anything is committed: a majority has the epoch, so that no later one can miss it. */
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

/** A role in an epoch that is installed here. */
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

  /** The guard reaches to the end of the lease that was known when it was asked for. */
  override leaseExtended(nowMs: number): void {
    this.parts.schedule.hurryForReads(nowMs);
  }

  /** A guard that lapsed is confirmed by the others. */
  override readWanted(nowMs: number): void {
    const { order } = this;
    const { schedule, out } = this.parts;
    if (nowMs < order.heartbeats.guardEndMs()) return;
    if (!schedule.mayAskForGuard(order.heartbeats.sinceSentMs(nowMs))) return;
    out.trace('guard-lapsed', epochFormat(order.epoch));
    schedule.beat(order, nowMs);
  }

  protected override peerAnswered(order: WriteOrder, from: ServerId, message: Answer, nowMs: number): void {
    if (message.kind === 'read-request') order.readRequested(from, message.nonce, nowMs);
    else super.peerAnswered(order, from, message, nowMs);
  }

  override stop(): void {
    this.#becomeStopping();
  }

  override advance(nowMs: number): void {
    const { order } = this;
    order.advance(nowMs);
    if (!order.isOut) return;
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

/** A primary that takes no operations any more, until those under way are committed and no backup answers reads. */
class Stopping extends InstalledRole {
  readonly kind = 'stopping';
  /** Read leases were asked back. */
  #hasAskedBack = false;

  override stop(): void {
    // It does already.
  }

  override advance(nowMs: number): void {
    this.order.advance(nowMs);
    this.finish(nowMs);
  }

  /** Reads elsewhere end before the lease is given back: a new primary need not wait for them. */
  finish(nowMs: number): void {
    const { order } = this;
    if (!order.isIdle) return;
    const asks = !this.#hasAskedBack;
    this.#hasAskedBack = true;
    if (!order.takeReadsBack(nowMs, asks)) return;
    order.yield();
    this.roles.endInOrder(order);
  }

  override heartbeatDue(nowMs: number): void {
    super.heartbeatDue(nowMs);
    this.order.takeReadsBack(nowMs, true);
  }

  override wakeAtMs(nowMs: number): number {
    return Math.min(super.wakeAtMs(nowMs), this.parts.grants.nextEndMs(nowMs));
  }
}

/**
 * A resumed primary: without a lease it orders in an epoch that it has ended in good order, or in which it created the
 * subject with its contents. The epoch is its own: no other server orders in it, and all that was ordered in it is here,
 * and committed. If a larger one has a primary meanwhile, a majority has promised it, and refuses what is ordered here.
 */
export class Resumed extends InstalledRole {
  readonly kind = 'resumed';
  /** As of the last heartbeat. */
  #committedSeq: number;
  /** How many heartbeats have passed since that has moved. */
  #stalled = 0;

  constructor(parts: ReplicaParts, roles: Transitions, order: WriteOrder) {
    super(parts, roles, order);
    this.#committedSeq = order.committedSeq;
  }

  /** With a lease it begins an epoch as any candidate does, once nothing is under way. */
  override get acceptingOrder(): WriteOrder | null {
    return this.parts.lease.isHeld ? null : this.order;
  }

  override stop(): void {
    this.roles.endInOrder(this.order);
    this.roles.stopped();
  }

  /** Ends once nothing is under way at any replica or, where this server has the lease by now, at a majority. */
  override advance(nowMs: number): void {
    const { order } = this;
    order.advance(nowMs);
    if (!(this.parts.lease.isHeld ? order.isIdle : order.isQuiet)) return;
    this.roles.endInOrder(order);
    this.roles.tryBegin(nowMs);
  }

  override heartbeatDue(nowMs: number): void {
    const { order } = this;
    this.#stalled = order.committedSeq > this.#committedSeq ? 0 : this.#stalled + 1;
    this.#committedSeq = order.committedSeq;
    if (!order.isIdle && this.#stalled < STALLED_HEARTBEATS) {
      super.heartbeatDue(nowMs);
      return;
    }
    // Replicas that lag behind what is committed are left to the next primary.
    if (!order.isIdle) this.parts.out.trace('given-up', epochFormat(order.epoch));
    this.roles.endInOrder(order);
  }
}

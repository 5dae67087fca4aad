import { BackupRole, type EndedEpoch } from './backup-role.ts';
import type { Epoch } from './epoch.ts';
import { epochEqual, epochFormat } from './epoch.ts';
import { Active } from './ordering-roles.ts';
import { type EpochOrigin, type ReplicaParts, ReplicaRole, type Transitions } from './role.ts';
import type { WriteOrder } from './write-order.ts';

/** The disk failed: this replica takes no other role. */
class Failed extends ReplicaRole {
  readonly kind = 'failed';
}

/** The role of one replica, and its transitions. */
export class Roles implements Transitions {
  readonly #parts: ReplicaParts;
  #current: ReplicaRole;
  #origin: EpochOrigin = { isFirst: false, inheritedFrom: null };

  constructor(parts: ReplicaParts) {
    this.#parts = parts;
    this.#current = new BackupRole(parts, this, null);
  }

  get current(): ReplicaRole {
    return this.#current;
  }

  /** The order of an active primary, whose lease may be over by now; else null. */
  get primaryOrder(): WriteOrder | null {
    return this.#current.kind === 'active' ? this.#current.order : null;
  }

  /** The origin of the last epoch in which this server ordered, or began to. */
  get origin(): EpochOrigin {
    return this.#origin;
  }

  become(role: ReplicaRole): void {
    this.#current = role;
    const epoch = role.epoch ?? this.#parts.state.installed;
    this.#parts.out.push({ kind: 'role-changed', role: role.kind, epoch });
  }

  noteOrigin(origin: EpochOrigin): void {
    this.#origin = origin;
  }

  serve(order: WriteOrder): ReplicaRole {
    const { candidacy, out } = this.#parts;
    candidacy.succeeded();
    out.trace('active', epochFormat(order.epoch));
    const active = new Active(this.#parts, this, order);
    this.become(active);
    out.push({ kind: 'advanced', committedSeq: order.committedSeq });
    return active;
  }

  tryBegin(nowMs: number): void {
    this.#current.prepare(nowMs);
  }

  /** Becomes backup, unless it is: clients that wait get an unknown outcome. */
  stepDown(): void {
    this.#stepDown(null);
  }

  #stepDown(ended: EndedEpoch | null): void {
    const role = this.#current;
    if (role.epoch === null) return;
    const { state, backup } = this.#parts;
    const { install } = state;
    if (role.order !== null) {
      role.order.abandon();
      backup.wasPrimaryUntil(role.order.committedSeq);
    }
    if (install !== null && install.stage !== 'storing') state.install = null;
    this.become(new BackupRole(this.#parts, this, ended));
    if (role.kind === 'stopping') this.stopped();
  }

  endInOrder(order: WriteOrder): void {
    const position = order.isIdle ? { epoch: order.epoch, seq: order.lastSeq } : null;
    this.#stepDown(position === null ? null : { position, isAtAllReplicas: order.isQuiet });
  }

  stop(): void {
    this.#parts.candidacy.stop();
    this.#current.stop();
  }

  stopped(): void {
    this.#parts.out.trace('stopped', `at ${this.#parts.state.seq}`);
    this.#parts.out.push({ kind: 'stopped' });
  }

  storageFailed(reason: string): void {
    this.stepDown();
    this.#parts.out.trace('storage-failed', reason);
    this.become(new Failed(this.#parts, this));
  }

  /** Steps down for a larger epoch; while the lease lasts, tries again after a pause. */
  depose(detail: string, nowMs: number): void {
    if (this.#current.epoch === null) return;
    this.#parts.out.trace('deposed', detail);
    this.stepDown();
    if (this.#parts.lease.isHeld) this.#parts.candidacy.backOff(nowMs);
  }

  abandonReset(epoch: Epoch, nowMs: number): void {
    if (!this.#isOf(epoch)) return;
    this.#parts.out.trace('reset-abandoned', epochFormat(epoch));
    this.stepDown();
    this.#parts.candidacy.backOff(nowMs);
  }

  /** The base cannot be fetched. A server at the base needs no fetch, so others get the lease after some failures. */
  fetchFailed(epoch: Epoch, nowMs: number): void {
    if (!this.#isOf(epoch)) return;
    this.abandonReset(epoch, nowMs);
    if (this.#parts.candidacy.fetchFailed()) this.stop();
  }

  #isOf(epoch: Epoch): boolean {
    const own = this.#current.epoch;
    return own !== null && epochEqual(own, epoch);
  }

  /** The lease layer reports this server's lease: extended, or lost if `untilMs` is not after `nowMs`. */
  leaseChanged(untilMs: number, view: number, nowMs: number): void {
    if (untilMs > nowMs) {
      this.#parts.lease.extend(untilMs, view);
      this.#current.leaseExtended(nowMs);
    } else {
      this.#endLease();
    }
  }

  endLapsedLease(nowMs: number): void {
    const { lease } = this.#parts;
    if (lease.isHeld && !lease.isValid(nowMs)) this.#endLease();
  }

  /** Steps down, as another server may be primary now. The next lease needs a new epoch in any case. */
  #endLease(): void {
    const { lease, candidacy, out } = this.#parts;
    lease.end();
    candidacy.leaseEnded();
    const { epoch, kind } = this.#current;
    if (epoch === null || kind === 'resumed') return;
    out.trace('lease-over', `role ${kind}`);
    this.stepDown();
  }
}

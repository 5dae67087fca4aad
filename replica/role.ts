import type { ServerId } from '../base/ids.ts';
import type { Role } from './actions.ts';
import type { Backup } from './backup.ts';
import type { Candidacy } from './candidacy.ts';
import type { Epoch, Position } from './epoch.ts';
import type { HeartbeatSchedule } from './heartbeat-schedule.ts';
import type { Answer } from './messages.ts';
import type { WriteOrderParts } from './order-context.ts';
import type { OwnLease } from './own-lease.ts';
import type { ReadLease } from './read-lease.ts';
import type { WriteOrder } from './write-order.ts';

export interface ReplicaParts extends WriteOrderParts {
  readonly lease: OwnLease;
  readonly backup: Backup;
  readonly readLease: ReadLease;
  readonly candidacy: Candidacy;
  readonly schedule: HeartbeatSchedule;
}

/** Where an epoch of this server came from. */
export interface EpochOrigin {
  /** By its promises' reports, the subject had no primary before. */
  readonly isFirst: boolean;
  readonly inheritedFrom: Epoch | null;
}

export interface Transitions {
  become(role: ReplicaRole): void;
  /** An epoch begins in which this server will order. */
  noteOrigin(origin: EpochOrigin): void;
  /** A majority installed the epoch: this server is primary. @returns its new role */
  serve(order: WriteOrder): ReplicaRole;
  stepDown(): void;
  /** Ends ordering in the epoch; it may be resumed if nothing is under way. */
  endInOrder(order: WriteOrder): void;
  /** Begins a reset if allowed. */
  tryBegin(nowMs: number): void;
  /** The reset cannot succeed: a new one follows after a pause, under the same lease. */
  abandonReset(epoch: Epoch, nowMs: number): void;
  stop(): void;
  stopped(): void;
}

/** How a replica in one role handles events, beside what all roles do (`Backup`). The defaults do nothing. */
export abstract class ReplicaRole {
  abstract readonly kind: Role;
  protected readonly parts: ReplicaParts;
  protected readonly roles: Transitions;

  constructor(parts: ReplicaParts, roles: Transitions) {
    this.parts = parts;
    this.roles = roles;
  }

  /** The epoch of which this replica is candidate or primary; else null. */
  get epoch(): Epoch | null {
    return null;
  }

  get order(): WriteOrder | null {
    return null;
  }

  get acceptingOrder(): WriteOrder | null {
    return null;
  }

  get resumable(): Position | null {
    return null;
  }

  leaseExtended(_nowMs: number): void {}

  ended(_position: Position): void {}

  resume(_nowMs: number): void {}

  readWanted(_nowMs: number): void {}

  stop(): void {
    this.roles.stepDown();
    this.roles.stopped();
  }

  installedHere(_epoch: Epoch, _seq: number): void {}

  begunHere(_nowMs: number): void {}

  /** @param message an answer in the epoch of this role */
  answered(_from: ServerId, _message: Answer, _nowMs: number): void {}

  peerConnected(_peer: ServerId, _nowMs: number): void {}

  peerRestarted(_peer: ServerId): void {}

  /** Called after each event, before `Backup.advance`: takes steps that became possible. */
  prepare(_nowMs: number): void {}

  /** The same, after `Backup.advance`. */
  advance(_nowMs: number): void {}

  heartbeatDue(_nowMs: number): void {}

  wakeAtMs(_nowMs: number): number {
    return Infinity;
  }
}

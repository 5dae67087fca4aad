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

/** What a replica consists of beside its role. */
export interface ReplicaParts extends WriteOrderParts {
  readonly lease: OwnLease;
  readonly backup: Backup;
  readonly readLease: ReadLease;
  readonly candidacy: Candidacy;
  readonly schedule: HeartbeatSchedule;
}

/** Where an epoch that this server orders in came from. */
export interface EpochOrigin {
  /** As far as its promises reported, the subject had no primary before. */
  readonly isFirst: boolean;
  /** @see Replica.inheritedFrom */
  readonly inheritedFrom: Epoch | null;
}

/** How roles end. */
export interface Transitions {
  become(role: ReplicaRole): void;
  /** An epoch begins in which this server will order. */
  begins(origin: EpochOrigin): void;
  /** A majority has the epoch installed: this server is the primary. @returns its new role */
  serve(order: WriteOrder): ReplicaRole;
  /** No longer candidate or primary. */
  stepDown(): void;
  /** This server stops to order in the epoch, and may resume it where nothing is under way. */
  endInOrder(order: WriteOrder): void;
  /** Begins a reset if this server may. */
  tryBegin(nowMs: number): void;
  /** The reset cannot succeed: a new one follows after a pause. */
  abandonReset(epoch: Epoch, nowMs: number): void;
  /** An orderly end. */
  stop(): void;
  stopped(): void;
}

/** What a replica does in one role, beside what every replica does (`Backup`). The defaults are those of no role at all. */
export abstract class ReplicaRole {
  abstract readonly kind: Role;
  protected readonly parts: ReplicaParts;
  protected readonly roles: Transitions;

  constructor(parts: ReplicaParts, roles: Transitions) {
    this.parts = parts;
    this.roles = roles;
  }

  /** The epoch of which this replica is candidate or primary; null where it is neither. */
  get epoch(): Epoch | null {
    return null;
  }

  /** The order of writes in that epoch; null where none has begun. */
  get order(): WriteOrder | null {
    return null;
  }

  /** The order that takes operations of clients now. */
  get acceptingOrder(): WriteOrder | null {
    return null;
  }

  /** @see Replica.resumable */
  get resumable(): Position | null {
    return null;
  }

  // Events -----------------------------------------------------------------------------------------

  leaseExtended(_nowMs: number): void {}

  /** This process has ended an epoch in good order at `place`. */
  ended(_place: Position): void {}

  /** A client's operation is about to be submitted. */
  resume(_nowMs: number): void {}

  readWanted(_nowMs: number): void {}

  stop(): void {
    this.roles.stepDown();
    this.roles.stopped();
  }

  /** The own replica has the epoch installed. */
  installedHere(_epoch: Epoch, _seq: number): void {}

  /** The own replica has begun with the first epoch. */
  begunHere(_nowMs: number): void {}

  /** @param message an answer in the epoch of this role */
  answered(_from: ServerId, _message: Answer, _nowMs: number): void {}

  peerConnected(_peer: ServerId, _nowMs: number): void {}

  peerRestarted(_peer: ServerId): void {}

  // Progress ---------------------------------------------------------------------------------------

  /** Does what has become possible before the own replica promises and installs. */
  prepare(_nowMs: number): void {}

  /** Does what has become possible after it. */
  advance(_nowMs: number): void {}

  heartbeatDue(_nowMs: number): void {}

  /** @returns when a `tick` is due for this role */
  wakeAtMs(_nowMs: number): number {
    return Infinity;
  }
}

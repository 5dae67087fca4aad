import type { ReplicaConfig } from './actions.ts';
import type { Epoch, Position } from './epoch.ts';
import type { Guard } from './guard.ts';
import type { LocalFlush } from './local-flush.ts';
import type { OperationLog } from './operation-log.ts';
import type { Outbox } from './outbox.ts';
import type { PeerIncarnations } from './peer-incarnations.ts';
import type { ProgressTracker } from './progress.ts';
import type { ReadGrants } from './read-lease.ts';
import type { ReplicaState } from './replica-state.ts';

/** The local lease at the moment of reading. */
export interface LeaseReading {
  readonly untilMs: number;
  readonly view: number;
  /** How often it was decided, renewals included. */
  readonly decisions: number;
}

/** What a write order uses and does not own: it outlives the epoch. */
export interface WriteOrderParts {
  readonly config: ReplicaConfig;
  readonly out: Outbox;
  readonly state: ReplicaState;
  readonly localFlush: LocalFlush;
  readonly guard: Guard;
  readonly grants: ReadGrants;
  readonly lease: LeaseReading;
  readonly peerIncarnations: PeerIncarnations;
}

export interface OrderContext extends WriteOrderParts {
  readonly epoch: Epoch;
  /** Installed by a majority: all of it is committed. */
  readonly base: Position;
  /** False if this server orders without a lease: others may begin another epoch at the same time. */
  readonly hasLease: boolean;
  readonly startedMs: number;
  readonly peers: ProgressTracker;
  readonly log: OperationLog;
}

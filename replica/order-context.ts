import type { ReplicaConfig } from './actions.ts';
import type { Epoch, Position } from './epoch.ts';
import type { Guard } from './guard.ts';
import type { LocalFlush } from './local-flush.ts';
import type { OperationLog } from './operation-log.ts';
import type { Outbox } from './outbox.ts';
import type { PeerLives } from './peer-lives.ts';
import type { ProgressTracker } from './progress.ts';
import type { ReadGrants } from './read-lease.ts';
import type { Standing } from './standing.ts';

/** The own lease, as it is when it is read. */
export interface LeaseReading {
  readonly untilMs: number;
  /** Number of the newest view in which it was decided. */
  readonly view: number;
  /** How often it was decided, renewals included. */
  readonly decisions: number;
}

/** What a write order works with and does not own: it outlives the epoch. */
export interface WriteOrderParts {
  readonly config: ReplicaConfig;
  readonly out: Outbox;
  readonly standing: Standing;
  readonly localFlush: LocalFlush;
  readonly guard: Guard;
  readonly grants: ReadGrants;
  readonly lease: LeaseReading;
  readonly lives: PeerLives;
}

/** One epoch at its primary: what the parts of its write order share. */
export interface OrderContext extends WriteOrderParts {
  readonly epoch: Epoch;
  /** What a majority has installed: all of it is committed. */
  readonly base: Position;
  /** False where this server orders without a lease: others may begin another epoch at the same time. */
  readonly hasLease: boolean;
  /** When this server began to order in the epoch. */
  readonly beganMs: number;
  readonly peers: ProgressTracker;
  readonly log: OperationLog;
}

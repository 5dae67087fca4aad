import type { Incarnation, ServerId } from '../base/ids.ts';
import type { ReplicaAction } from './actions.ts';
import type { ReplicaMessage, ReplicaMessageBody } from './messages.ts';

/** All marks of traces: drivers count them, and simulations require each. */
export const REPLICA_MARKS = [
  /** The lease was acquired (again): a new epoch is proposed. */
  'reset-started',
  /** The server that created the subject orders its first epoch, without asking the others. */
  'made',
  /** A server orders again, without a lease, in an epoch that it ended or created the subject in. */
  'resumed',
  /** Its operations were not committed in time. */
  'given-up',
  /** A replica began the creating server's epoch. */
  'begun',
  /** A majority promised, and the local contents are the base. */
  'base-own',
  /** A majority promised, and another replica's contents are the base. */
  'base-fetched',
  /** A majority has the base: the primary serves. */
  'active',
  'lease-over',
  'deposed',
  /** The base could not be fetched, or had moved: the reset starts again. */
  'reset-abandoned',
  'promised',
  'refused-old-epoch',
  /** A new epoch was installed over contents that already were the base. */
  'stamped',
  /** Fetched contents replaced the local ones, for a new epoch. */
  'replaced',
  /** Fetched contents replaced the local ones within the epoch: the missing operations are no longer kept. */
  'caught-up',
  'caught-up-in-part',
  /** A fetch for another primary failed; its next message restarts it. */
  'fetch-failed',
  'gap',
  'resent',
  /** Operations that a lagging replica lacks were dropped to free memory. */
  'retained-dropped',
  /** A retry of a committed request was answered from the session table. */
  'answered-again',
  'joined',
  'session-expired',
  'told-unknown',
  /** An answer to an ended epoch, or to a settled request. */
  'late-answer',
  /** A peer restarted: what it acknowledged is requested again. */
  'peer-restarted',
  /** A message of a server that is no member, or that speaks for another. */
  'stranger',
  /** A candidate must wait: a primary may still answer reads. */
  'guarded',
  /** A read waits for a majority to confirm that there is no other primary. */
  'guard-lapsed',
  'read-lease',
  /** An operation waits for a silent read lease holder. */
  'waited-for-reader',
  /** A replica whose store lost power has everything again. */
  'trusted-again',
  /** A majority promised, but too few of their stores are reliable. */
  'distrusted',
  /** This replica votes by another view. */
  'view-changed',
  /** Another server has other members for the same view number: the subject has, or will have, two histories. */
  'view-conflict',
  'outside',
  'members-changed',
  'stopped',
  'storage-failed',
] as const;

export type ReplicaMark = (typeof REPLICA_MARKS)[number];

/** Collects the actions of one step and adds the incarnation to messages. */
export class Outbox {
  readonly #incarnation: Incarnation;
  #actions: ReplicaAction[] = [];

  constructor(incarnation: Incarnation) {
    this.#incarnation = incarnation;
  }

  push(action: ReplicaAction): void {
    this.#actions.push(action);
  }

  /** One object for all receivers, so that it is encoded once. */
  message(body: ReplicaMessageBody): ReplicaMessage {
    return { incarnation: this.#incarnation, ...body };
  }

  send(to: ServerId, body: ReplicaMessageBody, deferrable: boolean = false): void {
    this.push({ kind: 'send', to, message: this.message(body), deferrable });
  }

  trace(mark: ReplicaMark, detail: string): void {
    this.push({ kind: 'trace', mark, detail });
  }

  unknown(ticket: number): void {
    this.trace('told-unknown', `ticket ${ticket}`);
    this.push({ kind: 'unknown', ticket });
  }

  take(): ReplicaAction[] {
    const actions = this.#actions;
    this.#actions = [];
    return actions;
  }
}

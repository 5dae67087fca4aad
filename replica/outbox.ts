import type { Incarnation, ServerId } from '../base/ids.ts';
import type { ReplicaAction } from './actions.ts';
import type { ReplicaMessage, ReplicaMessageBody } from './messages.ts';

/**
 * What may be worth counting, as a closed list: drivers make counters of it, and simulations demand
 * that they have seen each.
 */
export const REPLICA_MARKS = [
  /** A lease was gained (again): a new epoch is proposed. */
  'reset-started',
  /** Who has made the subject leads it, without asking whether others did before. */
  'made',
  /** Who has ended an epoch, or borne the subject by it, orders in it again, without a lease. */
  'resumed',
  /** What was ordered so was not committed in time. */
  'given-up',
  /** A replica begins with who has made the subject. */
  'begun',
  /** A majority has promised and the own contents are the base. */
  'base-own',
  /** A majority has promised and another replica's contents are the base. */
  'base-fetched',
  /** A majority has the base: the primary serves. */
  'active',
  /** The own lease ended while this replica was a candidate or primary. */
  'lease-over',
  /** A larger epoch made a candidate or primary step down. */
  'deposed',
  /** A base could not be fetched, or had moved: the reset begins anew. */
  'reset-abandoned',
  /** A promise went out. */
  'promised',
  /** A message of an epoch smaller than the promised one was refused. */
  'refused-old-epoch',
  /** A new epoch was installed over contents that were the base already. */
  'stamped',
  /** Contents were replaced by fetched ones, for a new epoch. */
  'replaced',
  /** Contents were replaced within the epoch, because the missing operations are kept no longer. */
  'caught-up',
  /** A fetch for another primary failed; its next message begins it again. */
  'fetch-failed',
  /** An operation arrived before its predecessor. */
  'gap',
  /** Operations were sent again because a replica asked for them. */
  'resent',
  /** Operations that a lagging replica lacks were dropped for want of room. */
  'retained-dropped',
  /** A retry of a committed request was answered from the session table. */
  'answered-again',
  /** A retry of a request under way joined it. */
  'joined',
  /** A request was too old to be told from a new one. */
  'session-expired',
  /** A client was told that the outcome is not known. */
  'told-unknown',
  /** An answer to an epoch that is over, or to a question already settled. */
  'late-answer',
  /** A peer came back as another process: what it acknowledged before is asked again. */
  'peer-restarted',
  /** A message of a server that is no member, or that speaks for another. */
  'stranger',
  /** A candidate was kept waiting: a primary may still answer reads. */
  'guarded',
  /** A read waited until a majority had confirmed that there is no other primary. */
  'guard-lapsed',
  /** A backup may answer reads. */
  'read-lease',
  /** An operation waited for a holder of a read lease that was silent. */
  'waited-for-reader',
  /** A replica whose store had lost power has all that counts again. */
  'trusted-again',
  /** Promises were there, and too few of them could be believed. */
  'distrusted',
  /** Other servers vote from now on. */
  'view-changed',
  /** Another server goes by other members for the same number of a view: the subject has two histories, or will have. */
  'view-conflict',
  /** A candidate found that it is no member any more. */
  'outside',
  /** A change of members is complete. */
  'members-changed',
  /** An orderly end of primaryship. */
  'stopped',
  /** The own disk refused. */
  'storage-failed',
] as const;

export type ReplicaMark = (typeof REPLICA_MARKS)[number];

/** Collects the actions of one step, and says in every message who speaks. */
export class Outbox {
  readonly #incarnation: Incarnation;
  #actions: ReplicaAction[] = [];

  constructor(incarnation: Incarnation) {
    this.#incarnation = incarnation;
  }

  push(action: ReplicaAction): void {
    this.#actions.push(action);
  }

  /** The message as it goes out. Sent to several replicas as one object, so that it is encoded once. */
  message(body: ReplicaMessageBody): ReplicaMessage {
    return { incarnation: this.#incarnation, ...body };
  }

  send(to: ServerId, body: ReplicaMessageBody, deferrable: boolean = false): void {
    this.push({ kind: 'send', to, message: this.message(body), deferrable });
  }

  trace(mark: ReplicaMark, detail: string): void {
    this.push({ kind: 'trace', mark, detail });
  }

  /** The client learns that its operation may or may not have happened. */
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

import type { ServerId } from '../base/ids.ts';
import type { Epoch } from './epoch.ts';
import { epochCompare, epochEqual, epochFormat } from './epoch.ts';
import { type Answer, type PrimaryMessage, type ReplicaMessage, statedView } from './messages.ts';
import type { ReplicaParts } from './role.ts';
import type { Roles } from './roles.ts';
import { viewMembersFormat, viewsConflict } from './view.ts';

interface DelayedPrepare {
  readonly from: ServerId;
  readonly message: Extract<ReplicaMessage, { readonly kind: 'prepare' }>;
}

/** Checks sender, members and epoch of each message, and passes it to the backup's part or to the present role. */
export class Inbox {
  readonly #parts: ReplicaParts;
  readonly #roles: Roles;
  /** The request for the largest epoch that the guard delays. */
  #delayed: DelayedPrepare | null = null;

  constructor(parts: ReplicaParts, roles: Roles) {
    this.#parts = parts;
    this.#roles = roles;
  }

  receive(from: ServerId, message: ReplicaMessage, nowMs: number): void {
    const { peerIncarnations, out, guard, readLease } = this.#parts;
    if (peerIncarnations.isEnded(from, message.incarnation)) {
      out.trace('late-answer', `${message.kind} of an earlier incarnation of ${from}`);
      return;
    }
    if (this.#isOfOtherMembers(from, message)) return;
    if (peerIncarnations.received(from, message.incarnation)) this.#onRestart(from);
    switch (message.kind) {
      case 'prepare':
      case 'install':
      case 'begin':
      case 'write':
      case 'heartbeat':
      case 'flush':
      case 'commit':
      case 'read-grant':
        this.#onPrimaryMessage(from, message, nowMs);
        return;
      case 'read-revoke':
        readLease.drop();
        out.send(from, { kind: 'read-returned', epoch: message.epoch });
        return;
      case 'yield':
        if (message.epoch.server === from) guard.lift(message.epoch);
        return;
      case 'refuse':
        this.#onRefuse(from, message.epoch, message.promised, nowMs);
        return;
      default:
        this.#onAnswer(from, message, nowMs);
    }
  }

  /** Whether the sender has other members for this view number: it is ignored, as majorities would not intersect. */
  #isOfOtherMembers(from: ServerId, message: ReplicaMessage): boolean {
    const { state, out } = this.#parts;
    const stated = statedView(message);
    const { view } = state;
    if (stated === null || !viewsConflict(stated, view)) return false;
    const [here, there] = [viewMembersFormat(view), viewMembersFormat(stated)];
    out.trace('view-conflict', `view ${view.number} has ${here} here and ${there} at ${from}`);
    return true;
  }

  /** A peer restarted: forgets its read lease, and what its earlier incarnation acknowledged in this epoch. */
  #onRestart(from: ServerId): void {
    this.#parts.out.trace('peer-restarted', from);
    // The process with the read lease has ended.
    this.#parts.grants.ended(from);
    this.#roles.current.peerRestarted(from);
  }

  #onPrimaryMessage(from: ServerId, message: PrimaryMessage, nowMs: number): void {
    const { state, out, guard, candidacy, backup } = this.#parts;
    const { epoch } = message;
    if (epoch.server !== from || epoch.incarnation !== message.incarnation) {
      out.trace('stranger', `${from} speaks for ${epoch.server}`);
      return;
    }
    const order = epochCompare(epoch, state.promised);
    if (order < 0) {
      out.trace('refused-old-epoch', `${message.kind} of ${epochFormat(epoch)}`);
      out.send(from, { kind: 'refuse', epoch, promised: state.promised });
      return;
    }
    if (message.kind === 'prepare' && nowMs < guard.barsUntilMs(epoch)) {
      this.#delay(from, message);
      return;
    }
    if (message.kind === 'begin' && state.isNew && candidacy.votes) {
      // No guard delays it: no epoch is smaller, and a larger one refuses it.
      out.trace('begun', epochFormat(epoch));
      state.begin(epoch);
      backup.onNewPromise();
      return;
    }
    if (order > 0) this.#followEpoch(epoch, nowMs);
    backup.message(message, nowMs);
  }

  /** Delays a candidate: a primary whose heartbeat was answered may still serve reads that it would outdate. */
  #delay(from: ServerId, message: DelayedPrepare['message']): void {
    this.#parts.out.trace('guarded', `${epochFormat(message.epoch)} waits`);
    if (this.#delayed !== null && epochCompare(this.#delayed.message.epoch, message.epoch) > 0) return;
    this.#delayed = { from, message };
  }

  /** Answers the delayed candidate after the guard. */
  advance(nowMs: number): void {
    const held = this.#delayed;
    if (held === null || nowMs < this.wakeAtMs()) return;
    this.#delayed = null;
    this.#onPrimaryMessage(held.from, held.message, nowMs);
  }

  wakeAtMs(): number {
    const held = this.#delayed;
    return held === null ? Infinity : this.#parts.guard.barsUntilMs(held.message.epoch);
  }

  /** Refuses smaller epochs from now on. A primary steps down even with a valid lease: two mean wrong clocks. */
  #followEpoch(epoch: Epoch, nowMs: number): void {
    this.#roles.depose(`by ${epochFormat(epoch)}`, nowMs);
    this.#parts.state.promise(epoch);
    this.#parts.backup.onNewPromise();
  }

  #onRefuse(from: ServerId, epoch: Epoch, promised: Epoch, nowMs: number): void {
    this.#parts.candidacy.refused(promised.counter);
    const own = this.#roles.current.epoch;
    if (own === null || !epochEqual(own, epoch) || epochCompare(promised, own) <= 0) {
      this.#parts.out.trace('late-answer', `refuse of ${epochFormat(epoch)} from ${from}`);
      return;
    }
    this.#roles.depose(`${from} has promised ${epochFormat(promised)}`, nowMs);
  }

  /** Passes an answer to the present role if it is of that role's epoch; others are too late. */
  #onAnswer(from: ServerId, message: Answer, nowMs: number): void {
    const own = this.#roles.current.epoch;
    if (own === null || !epochEqual(own, message.epoch)) {
      const detail = `${message.kind} of ${epochFormat(message.epoch)} from ${from}`;
      this.#parts.out.trace('late-answer', detail);
      return;
    }
    this.#roles.current.answered(from, message, nowMs);
  }
}

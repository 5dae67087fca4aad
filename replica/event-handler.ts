import { assert, unreachable } from '../base/assert.ts';
import type { ReplicaEvent } from './actions.ts';
import type { Epoch } from './epoch.ts';
import type { Inbox } from './inbox.ts';
import type { ReplicaParts } from './role.ts';
import type { Roles } from './roles.ts';
import type { WriteOrder } from './write-order.ts';

type ClientEvent = Extract<ReplicaEvent, { readonly kind: 'submit' | 'flush' | 'change-members' }>;

/** Dispatches an event to the replica's parts, then does what became possible. */
export class EventHandler {
  readonly #parts: ReplicaParts;
  readonly #roles: Roles;
  readonly #inbox: Inbox;

  constructor(parts: ReplicaParts, roles: Roles, inbox: Inbox) {
    this.#parts = parts;
    this.#roles = roles;
    this.#inbox = inbox;
  }

  step(event: ReplicaEvent, nowMs: number): void {
    if (this.#roles.current.kind === 'failed') {
      this.#stepFailed(event, nowMs);
      return;
    }
    // Before the event: a lease that ended while the process slept is also over for this event.
    this.#roles.endLapsedLease(nowMs);
    this.#handle(event, nowMs);
    this.#advance(nowMs);
  }

  /** A client reads here: keeps what reads need ready for a while. */
  noteRead(nowMs: number): void {
    this.#parts.schedule.noteRead(nowMs);
    if (this.#roles.current.kind === 'backup') this.#parts.readLease.noteRead(nowMs);
  }

  #handle(event: ReplicaEvent, nowMs: number): void {
    const { current } = this.#roles;
    const { state, backup, localFlush } = this.#parts;
    switch (event.kind) {
      case 'lease':
        this.#roles.leaseChanged(event.untilMs, event.view, nowMs);
        return;
      case 'message':
        this.#inbox.receive(event.from, event.message, nowMs);
        return;
      case 'created':
        this.#created();
        return;
      case 'ended':
        current.ended(event.position);
        return;
      case 'connected':
        current.peerConnected(event.peer, nowMs);
        return;
      case 'submit':
        current.resume(nowMs);
        this.#toPrimary(this.#roles.current.acceptingOrder, event, nowMs);
        return;
      case 'flush':
      case 'change-members':
        this.#toPrimary(this.#roles.primaryOrder, event, nowMs);
        return;
      case 'read-wanted':
        this.noteRead(nowMs);
        current.readWanted(nowMs);
        return;
      case 'stop':
        this.#roles.stop();
        return;
      case 'promised':
        state.promiseStored(event.epoch);
        return;
      case 'applied':
        state.applied(event.epoch, event.seq);
        backup.applied();
        return;
      case 'state-fetched':
        if (!backup.stateFetched(event)) this.#roles.fetchFailed(event.epoch, nowMs);
        return;
      case 'state-failed':
        if (!backup.stateFailed(event.epoch, event.reason)) this.#roles.fetchFailed(event.epoch, nowMs);
        return;
      case 'installed':
        this.#installed(event.epoch, event.seq);
        return;
      case 'part-installed':
        backup.partInstalled(event.position);
        return;
      case 'begun':
        // A backup applies what followed `begin`; the primary starts to order.
        state.begun(event.epoch);
        backup.installed(event.epoch);
        current.begunHere(nowMs);
        return;
      case 'flush-done':
        if (localFlush.done(event.seq)) backup.flushed();
        return;
      case 'storage-failed':
        this.#roles.storageFailed(event.reason);
        return;
      case 'tick':
        return;
      default:
        unreachable(event);
    }
  }

  /** Refuses clients' requests, stops at once, and ignores all else: the state of the failed disk is unknown. */
  #stepFailed(event: ReplicaEvent, nowMs: number): void {
    if (event.kind === 'submit' || event.kind === 'flush' || event.kind === 'change-members') {
      this.#toPrimary(null, event, nowMs);
    }
    if (event.kind === 'stop') this.#parts.out.push({ kind: 'stopped' });
  }

  #toPrimary(order: WriteOrder | null, event: ClientEvent, nowMs: number): void {
    const { ticket } = event;
    if (event.kind === 'change-members') {
      const { members } = event;
      assert(members.length > 0 && new Set(members).size === members.length, 'A view has distinct members');
    }
    if (order === null) this.#parts.out.push({ kind: 'refused', ticket, reason: 'not-primary' });
    else if (event.kind === 'submit') order.submit(ticket, event.operation, nowMs);
    else if (event.kind === 'flush') order.flush(ticket, nowMs);
    else order.changeMembers(ticket, event.members, nowMs);
  }

  /** Stores the first epoch while the lease is requested; it binds no server. */
  #created(): void {
    const { state, candidacy, backup } = this.#parts;
    if (!state.isNew) return;
    state.begin(candidacy.created());
    backup.onNewPromise();
  }

  /** The disk has the epoch's base, up to operation `seq`: the replica, and its role, continue from there. */
  #installed(epoch: Epoch, seq: number): void {
    const { state, candidacy, backup } = this.#parts;
    state.installStored(epoch, seq);
    candidacy.outside = null;
    backup.installed(epoch);
    this.#roles.current.installedHere(epoch, seq);
  }

  /** Promises, installs, commits what became possible; repeats messages that may be lost. */
  #advance(nowMs: number): void {
    const { backup, schedule } = this.#parts;
    this.#inbox.advance(nowMs);
    this.#roles.current.prepare(nowMs);
    backup.advance();
    this.#roles.current.advance(nowMs);
    if (this.#roles.current.kind === 'backup') backup.requestReadLease(nowMs);
    const { current } = this.#roles;
    if (current.epoch === null) return;
    if (schedule.isDue(current.order, nowMs)) current.heartbeatDue(nowMs);
  }
}

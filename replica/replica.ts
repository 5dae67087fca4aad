import { assert } from '../base/assert.ts';
import type { FileId, ServerId } from '../base/ids.ts';
import type { PeerStatus, ReplicaAction, ReplicaConfig, ReplicaEvent, Role } from './actions.ts';
import { Backup } from './backup.ts';
import { Candidacy } from './candidacy.ts';
import type { Epoch, Position } from './epoch.ts';
import { EventHandler } from './event-handler.ts';
import { Guard } from './guard.ts';
import { HeartbeatSchedule } from './heartbeat-schedule.ts';
import { Inbox } from './inbox.ts';
import { LocalFlush } from './local-flush.ts';
import { Outbox } from './outbox.ts';
import { OwnLease } from './own-lease.ts';
import { PeerIncarnations } from './peer-incarnations.ts';
import { ReadGrants, ReadLease } from './read-lease.ts';
import type { ReplicaRecord, Trust } from './record.ts';
import { ReplicaState } from './replica-state.ts';
import type { ReplicaParts } from './role.ts';
import { Roles } from './roles.ts';
import type { View } from './view.ts';

/** Ranges of read lease nonces, per incarnation and per replica within one. */
const NONCE_INCARNATIONS = 2 ** 32;
const NONCE_TIMES = 2 ** 20;

export interface ReplicaStatus {
  readonly role: Role;
  /** The epoch whose base is installed here; an active primary's own epoch. */
  readonly epoch: Epoch;
  readonly seq: number;
  /** The last operation known to be committed; sessions begin from it. */
  readonly committedSeq: number;
  /** End of the local lease, or 0. */
  readonly leaseUntilMs: number;
  readonly view: View;
  /** The others' view, if this replica learned that it is no member of it; else null. */
  readonly outside: View | null;
  readonly trust: Trust;
  /** When the primary last reported that nothing committed is missing here; −Infinity: never. */
  readonly currentAtMs: number;
}

/** For observers that compare steps; see `invariants.ts`. */
export interface ReplicaInspection {
  readonly role: Role;
  readonly promised: Epoch;
  readonly stored: Epoch;
  readonly installed: Epoch;
  readonly seq: number;
  readonly issuedSeq: number;
  readonly committedSeq: number;
  readonly leaseUntilMs: number;
  readonly ownEpoch: Epoch | null;
  readonly view: View;
}

/**
 * One subject (a file, or the catalog) on one server. The lease says *whether* and how long the server may be
 * primary. Only epochs, promised and stored by a majority, decide which server orders operations. So writes are safe
 * however wrong clocks or leases are; reads at the primary (`readGate`) rely on the lease.
 *
 * Replica reset after [Flease] §4.2, but with one base instead of a merge per object. README.md maps the papers.
 */
export class Replica {
  readonly #parts: ReplicaParts;
  readonly #roles: Roles;
  readonly #inbox: Inbox;
  readonly #events: EventHandler;
  #nowMs: number;

  /** @param record from the disk, or empty with a message's view. @param trust how far its store is reliable */
  constructor(config: ReplicaConfig, file: FileId, record: ReplicaRecord, trust: Trust, nowMs: number) {
    const { members } = record.view;
    assert(new Set(members).size === members.length, 'Every member has one vote');
    const out = new Outbox(config.incarnation);
    const state = new ReplicaState(out, record, trust);
    const localFlush = new LocalFlush(out, state);
    const guard = new Guard(config.startGuardUntilMs);
    // Never a used nonce: an answer to it may be under way.
    const firstNonce =
      (config.incarnation % NONCE_INCARNATIONS) * NONCE_TIMES + (Math.floor(nowMs) % NONCE_TIMES);
    const readLease = new ReadLease(config.readLeaseMs, firstNonce);
    const lease = new OwnLease();
    this.#parts = {
      config,
      out,
      state,
      localFlush,
      guard,
      readLease,
      lease,
      backup: new Backup(config, out, state, localFlush, guard, readLease),
      grants: new ReadGrants(),
      peerIncarnations: new PeerIncarnations(),
      candidacy: new Candidacy(config, file, state, guard, lease),
      schedule: new HeartbeatSchedule(config),
    };
    this.#roles = new Roles(this.#parts);
    this.#inbox = new Inbox(this.#parts, this.#roles);
    this.#events = new EventHandler(this.#parts, this.#roles, this.#inbox);
    this.#nowMs = nowMs;
  }

  step(event: ReplicaEvent, nowMs: number): ReplicaAction[] {
    assert(nowMs >= this.#nowMs, 'The lease clock never goes back');
    this.#nowMs = nowMs;
    this.#events.step(event, nowMs);
    return this.#parts.out.take();
  }

  /**
   * Whether a read may be served here and now; the caller pins the contents in the same tick of the event loop. The
   * only place that decides it. At the primary: its lease runs, and a majority keeps its guard, so there is no other
   * primary. At a backup: it holds a read lease.
   *
   * @param dependsOnSeq the newest operation of the installed epoch that the answer shows; 0 if none
   * @param nowMs read for this very use, because the process may have slept
   */
  readGate(dependsOnSeq: number, nowMs: number): 'serve' | 'wait' | 'not-primary' {
    const { current } = this.#roles;
    if (current.kind === 'backup') return this.#parts.backup.readGate(dependsOnSeq, nowMs);
    const order = this.#roles.primaryOrder;
    if (order === null || !this.isPrimary(nowMs)) return 'not-primary';
    // A guard that lapsed is requested again; see `read-wanted`.
    if (nowMs >= order.heartbeats.guardEndMs()) return 'wait';
    // While no member kept the guard, a majority may have answered quorum reads with what this server ordered.
    if (!order.heartbeats.hasQuorumReadOperations) return 'wait';
    // Never uncommitted data, which may vanish, nor the version before, which may be outdated.
    return dependsOnSeq <= order.committedSeq ? 'serve' : 'wait';
  }

  /** Whether this server may order operations: as primary, as creating server, or by a resumable epoch. */
  mayOrder(nowMs: number): boolean {
    const { current } = this.#roles;
    if (current.resumable !== null) return true;
    if (current.acceptingOrder === null) return false;
    return current.kind === 'resumed' || this.#parts.lease.isValid(nowMs);
  }

  /**
   * Where this process may order without a lease: the position in an epoch that it ended in good order, or in which it
   * created the subject with contents; else null. It answers no reads by it; no server waits for it (decision 0074).
   */
  get resumable(): Position | null {
    return this.#roles.current.resumable;
  }

  /** Whether, by its promises' reports, the subject had no primary before this server's last epoch. */
  get isFirstPrimary(): boolean {
    return this.#roles.origin.isFirst;
  }

  /** The epoch that this server's last epoch continued without loss; null if power loss may have taken operations. */
  get inheritedFrom(): Epoch | null {
    return this.#roles.origin.inheritedFrom;
  }

  isPrimary(nowMs: number): boolean {
    return this.role === 'active' && this.#parts.lease.isValid(nowMs);
  }

  /** The least time without another primary. The primary lets clients cache for no longer, and notes it. */
  servesForMs(nowMs: number): number {
    const order = this.#roles.primaryOrder;
    if (order === null) return 0;
    return Math.max(0, Math.min(this.#parts.lease.untilMs, order.heartbeats.guardEndMs()) - nowMs);
  }

  /**
   * Until `untilMs` clients may use cached answers of this primary: it does not lift the guard before, which also
   * binds a replica in its place. @param untilMs −Infinity once all of them reported that they cache nothing
   */
  noteCachedUntil(untilMs: number): void {
    if (untilMs === -Infinity) this.#parts.grants.cachesDropped();
    else this.#parts.grants.noteCachedUntil(untilMs);
  }

  noteRead(nowMs: number): void {
    this.#events.noteRead(nowMs);
  }

  get role(): Role {
    return this.#roles.current.kind;
  }

  get view(): View {
    return this.#parts.state.view;
  }

  get epoch(): Epoch {
    return this.#parts.state.installed;
  }

  /** Until when a replacement replica in this process must promise nothing to other servers; −Infinity: not bound. */
  get boundUntilMs(): number {
    return Math.max(this.#parts.guard.boundUntilMs, this.#parts.grants.lastEndMs());
  }

  /**
   * Whether this replica would promise an epoch to any server: it is no candidate or primary, and no answered
   * heartbeat or granted read lease binds it. If a majority would, no server answers reads by an earlier epoch.
   */
  isFree(nowMs: number): boolean {
    if (this.role !== 'backup' && this.role !== 'resumed') return false;
    return nowMs >= Math.max(this.boundUntilMs, this.#parts.config.startGuardUntilMs);
  }

  /** The last operation given to the storage here. */
  get issuedSeq(): number {
    return this.#parts.state.issuedSeq;
  }

  /** The last operation numbered; a primary that applies last numbers before it applies. */
  get orderedSeq(): number {
    return this.#roles.current.order?.lastSeq ?? this.#parts.state.issuedSeq;
  }

  /** If this is the primary, the members, and servers that a change under way may make members. */
  get futureMembers(): readonly ServerId[] {
    return this.#roles.current.order?.futureMembers ?? [];
  }

  get #committedSeq(): number {
    return this.#roles.current.order?.committedSeq ?? this.#parts.backup.committedSeq;
  }

  status(nowMs: number): ReplicaStatus {
    const { state, lease, candidacy, backup } = this.#parts;
    const { current } = this.#roles;
    return {
      role: current.kind,
      epoch: state.installed,
      seq: state.seq,
      committedSeq: this.#committedSeq,
      leaseUntilMs: lease.untilMs,
      view: state.view,
      outside: candidacy.outside,
      trust: state.trust,
      currentAtMs: current.kind === 'active' ? nowMs : backup.currentAtMs,
    };
  }

  /** All members at an active primary; else empty. */
  peers(nowMs: number): readonly PeerStatus[] {
    return this.#roles.current.order?.peers(nowMs) ?? [];
  }

  nextWakeMs(): number | null {
    if (this.role === 'failed') return null;
    const { lease } = this.#parts;
    const leaseEndMs = lease.isHeld ? lease.untilMs : Infinity;
    const roleMs = this.#roles.current.wakeAtMs(this.#nowMs);
    const wakeMs = Math.min(leaseEndMs, this.#inbox.wakeAtMs(), roleMs);
    return wakeMs === Infinity ? null : wakeMs;
  }

  inspect(): ReplicaInspection {
    const { promised, stored, installed, seq, issuedSeq, view } = this.#parts.state;
    return {
      role: this.role,
      promised,
      stored,
      installed,
      seq,
      issuedSeq,
      committedSeq: this.#committedSeq,
      leaseUntilMs: this.#parts.lease.untilMs,
      ownEpoch: this.#roles.current.epoch,
      view,
    };
  }
}

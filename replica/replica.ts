import { assert } from '../base/assert.ts';
import type { FileId } from '../base/ids.ts';
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
import { PeerLives } from './peer-lives.ts';
import { ReadGrants, ReadLease } from './read-lease.ts';
import type { ReplicaRecord, Trust } from './record.ts';
import type { ReplicaParts } from './role.ts';
import { Roles } from './roles.ts';
import { Standing } from './standing.ts';
import type { View } from './view.ts';

/** Questions for read leases are numbered from a place of their own in each life, and in each replica of one life. */
const NONCE_LIVES = 2 ** 32;
const NONCE_TIMES = 2 ** 20;

/** What a replica says about itself. */
export interface ReplicaStatus {
  readonly role: Role;
  /** The epoch whose base is installed here; of an active primary its own. */
  readonly epoch: Epoch;
  /** The last operation applied here; perhaps not committed yet. */
  readonly seq: number;
  /** The last operation known here to be committed: the one that sessions begin from. */
  readonly committedSeq: number;
  /** End of the own lease, or 0. */
  readonly leaseUntilMs: number;
  /** At an active primary all members, itself included; elsewhere none. */
  readonly peers: readonly PeerStatus[];
  readonly view: View;
  /** The view of the others, if this replica is none of its members and has found out by asking them; else null. */
  readonly outside: View | null;
  readonly trust: Trust;
  /** When the primary last reported that all it has committed is here; −Infinity: never. */
  readonly currentAtMs: number;
}

/** Everything an observer may compare before and after a step; see `invariants.ts`. */
export interface ReplicaInspection {
  readonly role: Role;
  readonly promised: Epoch;
  readonly stored: Epoch;
  readonly installed: Epoch;
  readonly seq: number;
  readonly issuedSeq: number;
  readonly committedSeq: number;
  readonly leaseUntilMs: number;
  /** The epoch of which this replica is candidate or primary. */
  readonly ownEpoch: Epoch | null;
  readonly view: View;
}

/**
 * One subject (a file, or the catalog) on one server. The server's lease says *whether* it may be
 * primary and until when; who orders operations is decided by epochs alone, which a majority has
 * promised and stored. So writes are safe however wrong a clock or a lease is; reads at the primary
 * (`readGate`) rely on the lease.
 *
 * Replica reset after [Flease] §4.2, with one base instead of a merge per object; see README.md for
 * where each part of the papers is.
 */
export class Replica {
  readonly #parts: ReplicaParts;
  readonly #roles: Roles;
  readonly #inbox: Inbox;
  readonly #events: EventHandler;
  #nowMs: number;

  /**
   * @param record as it was found on disk, or an empty one of the view that a message named
   * @param trust how far the store in which it was found is to be trusted
   */
  constructor(config: ReplicaConfig, file: FileId, record: ReplicaRecord, trust: Trust, nowMs: number) {
    const { members } = record.view;
    assert(new Set(members).size === members.length, 'Every member has one vote');
    const out = new Outbox(config.incarnation);
    const standing = new Standing(out, record, trust);
    const localFlush = new LocalFlush(out, standing);
    const guard = new Guard(config.startGuardUntilMs);
    // Never one that was used before: an answer to it may still be under way.
    const firstNonce = (config.incarnation % NONCE_LIVES) * NONCE_TIMES + (Math.floor(nowMs) % NONCE_TIMES);
    const readLease = new ReadLease(config.readLeaseMs, firstNonce);
    const lease = new OwnLease();
    this.#parts = {
      config,
      out,
      standing,
      localFlush,
      guard,
      readLease,
      lease,
      backup: new Backup(config, out, standing, localFlush, guard, readLease),
      grants: new ReadGrants(),
      lives: new PeerLives(),
      candidacy: new Candidacy(config, file, standing, guard, lease),
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
   * Whether a read may be served here and now, the contents being pinned in the same turn. The only place that
   * decides it.
   *
   * At the primary: its lease runs, and a majority keeps its guard, so that there is no other. At a backup: it
   * holds a read lease.
   *
   * @param dependsOnSeq the newest operation of the installed epoch that the answer shows; 0 if none
   * @param nowMs read from the clock for this very read, because the process may have slept
   */
  readGate(dependsOnSeq: number, nowMs: number): 'serve' | 'wait' | 'not-primary' {
    const { current } = this.#roles;
    if (current.kind === 'backup') return this.#parts.backup.readGate(dependsOnSeq, nowMs);
    const order = this.#roles.primaryOrder;
    if (order === null || !this.leads(nowMs)) return 'not-primary';
    // A guard that lapsed for want of heartbeats is asked for anew; see `read-wanted`.
    if (nowMs >= order.heartbeats.guardEndMs()) return 'wait';
    // While no member kept it, a majority may have answered without this server, by what it has ordered.
    if (!order.heartbeats.hasWhatWasShown) return 'wait';
    // Never what is not committed: it may vanish. And never the version before: it may be outdated.
    return dependsOnSeq <= order.committedSeq ? 'serve' : 'wait';
  }

  /**
   * Whether this server orders operations now: it is the primary, or will be once a majority has begun with it, or it may
   * resume an epoch of its own (`resumable`). What it orders so is committed by a majority as ever. Nothing else may be
   * done then.
   */
  orders(nowMs: number): boolean {
    const { current } = this.#roles;
    if (current.resumable !== null) return true;
    if (current.acceptingOrder === null) return false;
    return current.kind === 'resumed' || this.#parts.lease.isValid(nowMs);
  }

  /**
   * Where this process may order without a lease, in an epoch that it has ended in good order, or in which it created the
   * subject with its contents; null where it may not. It answers no reads by that, and no server waits for it. Decision 0074.
   */
  get resumable(): Position | null {
    return this.#roles.current.resumable;
  }

  /** Whether, as far as its promises reported, the subject had no primary before the last epoch of this server. */
  get isFirstLed(): boolean {
    return this.#roles.origin.isFirst;
  }

  /**
   * The epoch after whose last acknowledged operation the last epoch of this server began; null where a loss of power may
   * have taken some of them, or there was none.
   */
  get inheritedFrom(): Epoch | null {
    return this.#roles.origin.inheritedFrom;
  }

  /** Whether this server is the primary now: it orders operations. */
  leads(nowMs: number): boolean {
    return this.role === 'active' && this.#parts.lease.isValid(nowMs);
  }

  /**
   * For how long, at least, no other server can be the primary and answer otherwise: while the lease runs and a
   * majority keeps its guard. What the primary lets others cache, it lets them cache no longer, and notes it.
   */
  servesForMs(nowMs: number): number {
    const order = this.#roles.primaryOrder;
    if (order === null) return 0;
    return Math.max(0, Math.min(this.#parts.lease.untilMs, order.heartbeats.guardEndMs()) - nowMs);
  }

  /**
   * Clients may cache until then what this primary answered: it does not lift the guard before, and another
   * replica in its place is bound, too.
   *
   * @param untilMs −Infinity where all of them have reported that they cache nothing any more
   */
  noteBelief(untilMs: number): void {
    if (untilMs === -Infinity) this.#parts.grants.believedNoMore();
    else this.#parts.grants.believed(untilMs);
  }

  /** A client reads here: what reads need is kept ready for a while. */
  noteRead(nowMs: number): void {
    this.#events.noteRead(nowMs);
  }

  get role(): Role {
    return this.#roles.current.kind;
  }

  /** By which this replica votes. */
  get view(): View {
    return this.#parts.standing.view;
  }

  /** The epoch whose base is installed here; of an active primary its own. */
  get epoch(): Epoch {
    return this.#parts.standing.installed;
  }

  /**
   * Until when a replica that takes this one's place in the same process must promise nothing to another server: for
   * so long this one is bound, by what it answered and by what it allowed. −Infinity where it is not.
   */
  get boundUntilMs(): number {
    return Math.max(this.#parts.guard.heldUntilMs, this.#parts.grants.lastEndMs());
  }

  /**
   * Whether this replica would promise an epoch to any server: it is no candidate or primary, and neither has it answered
   * a heartbeat, nor allowed a read, that still counts. As long as a majority would, no server answers reads by an epoch
   * that has passed.
   */
  isFree(nowMs: number): boolean {
    if (this.role !== 'backup' && this.role !== 'resumed') return false;
    return nowMs >= Math.max(this.boundUntilMs, this.#parts.config.startGuardUntilMs);
  }

  /** The last operation that was given to the storage here. */
  get issuedSeq(): number {
    return this.#parts.standing.issuedSeq;
  }

  /** The last operation that was numbered; a primary that applies last numbers before it applies. */
  get orderedSeq(): number {
    return this.#roles.current.order?.lastSeq ?? this.#parts.standing.issuedSeq;
  }

  get #committedSeq(): number {
    return this.#roles.current.order?.committedSeq ?? this.#parts.backup.committedSeq;
  }

  status(nowMs: number): ReplicaStatus {
    const { standing, lease, candidacy, backup } = this.#parts;
    const { current } = this.#roles;
    return {
      role: current.kind,
      epoch: standing.installed,
      seq: standing.seq,
      committedSeq: this.#committedSeq,
      leaseUntilMs: lease.untilMs,
      peers: current.order?.peers(nowMs) ?? [],
      view: standing.view,
      outside: candidacy.outside,
      trust: standing.trust,
      currentAtMs: current.kind === 'active' ? nowMs : backup.currentAtMs,
    };
  }

  /** @returns when the next `tick` is due, on the lease clock */
  nextWakeMs(): number | null {
    if (this.role === 'failed') return null;
    const { lease } = this.#parts;
    const leaseEndMs = lease.isHeld ? lease.untilMs : Infinity;
    const roleMs = this.#roles.current.wakeAtMs(this.#nowMs);
    const wakeMs = Math.min(leaseEndMs, this.#inbox.wakeAtMs(), roleMs);
    return wakeMs === Infinity ? null : wakeMs;
  }

  inspect(): ReplicaInspection {
    const { promised, stored, installed, seq, issuedSeq, view } = this.#parts.standing;
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

import { assert } from '../../base/assert.ts';
import { RecentMap } from '../../base/recent-map.ts';
import { DRIFT_MAX } from '../../replica/guard.ts';
import type { CacheOwner, DelegationOfSession, NotedRead } from '../../wire/catalog-api.ts';

interface Recall {
  readonly inode: number;
  readonly sinceMs: number;
}

interface Session {
  readonly id: number;
  readonly client: number;
  untilMs: number;
  /** Cached inodes, the oldest grant first, with the number of the recall in progress, or 0. */
  readonly grants: RecentMap<number, number>;
  readonly recalls: Map<number, Recall>;
  /** Reads of granted inodes that the client has not acknowledged, by inode, in ascending order of their numbers. */
  readonly reads: Map<number, { readonly number: number; readonly read: NotedRead }>;
  lastNumber: number;
  /** Recalls and reads up to this number were sent at least once. */
  deliveredThrough: number;
}

interface Delegation {
  readonly session: Session;
  readonly generation: number;
}

export interface CachePoll {
  /** Drawn by the client, constant for its lifetime. */
  readonly client: number;
  readonly session: number | null;
  /** A session of this client whose cache it has dropped for good. */
  readonly left?: number;
  /** The client has dropped the inodes of all recalls up to this number. */
  readonly acked: number;
  /** False: the client does not put its session into its commands, so it gets no session. @see CacheOwner.under */
  readonly fenced?: boolean;
}

export interface CachePolled {
  /** Null if the client cannot have a session now. */
  readonly session: number | null;
  /** The cache is valid for this time from before the poll was sent; 0: no extension. */
  readonly validMs: number;
  /** Inodes to drop, reads to learn, and the number to acknowledge then. */
  readonly recalls: readonly number[];
  readonly reads?: readonly NotedRead[];
  readonly through: number;
}

/** A change that waits for recalls or is being replicated: its inodes are granted to no client. */
export interface BlockedChange {
  readonly inodes: readonly number[];
  /** The client that requested the change; null for one without a cache. */
  readonly owner: CacheOwner | null;
}

export interface ClientCachesOptions {
  /** Longest validity of a cache without a renewal; also the longest that a silent client delays a change. */
  readonly leaseMsMax: number;
  readonly sessionGrantsMax: number;
  readonly grantsMax: number;
  draw(): number;
}

const RECALLS_PER_ANSWER = 5_000;
/** Unacknowledged reads of one client; the inodes of further reads are recalled instead. */
const READS_MAX = 1_000;
/** Grants may exceed their bound by this factor while the surplus is being recalled. */
const SURPLUS_FACTOR = 1.25;

/**
 * The cache grants of clients: the catalog's primary grants inodes to clients and recalls them before it changes them
 * [Gray and Cheriton, leases for file caches]. A grant covers the inode's attributes, a directory's entries, and the
 * contents of a file that is not live.
 *
 * Grants are not replicated. They end with the session, whose duration never exceeds this primary's own right to answer
 * reads: a later primary need not know of them.
 *
 * A change is executed when no other client has a grant of what it touches: each has acknowledged a recall, or its
 * session is over. From the first check until the change is committed, or will certainly not be, its inodes are
 * granted to no client. A new access time needs no recall: clients learn it with their next poll.
 *
 * A directory may be *delegated*: granted to one session only [RFC 8881, 10.9, directory delegations]. Changes by other
 * clients wait for the recall, so its holder may assume entries to be free or taken without a request.
 *
 * All times are readings of one monotonic clock, given by the caller.
 */
export class ClientCaches {
  readonly #options: ClientCachesOptions;
  readonly #sessions = new Map<number, Session>();
  readonly #holders = new Map<number, Set<Session>>();
  readonly #delegated = new Map<number, Delegation>();
  #lastGeneration = 0;
  readonly #blocked = new Map<number, number>();
  #grants = 0;
  #expired = 0;
  #closed = false;

  constructor(options: ClientCachesOptions) {
    this.#options = options;
  }

  /** Sessions, granted inodes, and sessions that ended with unanswered recalls since the start. */
  counts(): { readonly sessions: number; readonly grants: number; readonly expired: number } {
    return { sessions: this.#sessions.size, grants: this.#grants, expired: this.#expired };
  }

  /**
   * Renews or begins a client's session, and records that it has acknowledged recalls up to `acked`.
   * @param rightMs for how long this primary may certainly answer reads
   */
  poll(
    { client, session, left, acked, fenced = true }: CachePoll,
    nowMs: number,
    rightMs: number,
  ): CachePolled {
    this.#expire(nowMs);
    const abandoned = this.#sessions.get(left ?? -1);
    if (abandoned?.client === client) this.#end(abandoned);
    const leaseMs = Math.min(this.#options.leaseMsMax, rightMs);
    let known = session === null ? undefined : this.#sessions.get(session);
    if (known !== undefined && known.client !== client) known = undefined;
    if (known === undefined) {
      // Another session of the client continues: this poll may be late, from a server that was paused.
      if (leaseMs <= 0 || this.#closed || !fenced)
        return { session: null, validMs: 0, recalls: [], through: 0 };
      known = this.#begin(client);
    }
    // Nor is a session renewed while a member that ignores fences may become the primary.
    if (this.#closed || !fenced) return { session: null, validMs: 0, recalls: [], through: 0 };
    this.#acknowledge(known, acked);
    let validMs = 0;
    // If an answer was lost, the client lacks its recalls: the session is not extended until it acknowledges them.
    if (acked >= known.deliveredThrough) {
      const [oldest] = known.recalls.values();
      // A client that never acknowledges all recalls delays a change no longer than a silent one.
      const boundMs = oldest === undefined ? leaseMs : oldest.sinceMs + this.#options.leaseMsMax - nowMs;
      validMs = Math.max(0, Math.min(leaseMs, boundMs));
      known.untilMs = Math.max(known.untilMs, nowMs + validMs * (1 + DRIFT_MAX));
    }
    return { ...this.takePending(known.id), session: known.id, validMs: validMs * (1 - DRIFT_MAX) };
  }

  /** @returns the inodes that the client must drop, the reads that it must learn, and the number to acknowledge */
  takePending(id: number): Pick<CachePolled, 'recalls' | 'reads' | 'through'> {
    const session = this.#sessions.get(id);
    if (session === undefined) return { recalls: [], through: 0 };
    const numbered = [...session.recalls].slice(0, RECALLS_PER_ANSWER);
    const isWhole = numbered.length === session.recalls.size;
    // An acknowledged number covers everything before it.
    const last = isWhole ? session.lastNumber : (numbered.at(-1)?.[0] ?? 0);
    const reads = [...session.reads.values()].filter(({ number }) => number <= last).map(({ read }) => read);
    session.deliveredThrough = Math.max(session.deliveredThrough, last);
    return {
      recalls: numbered.map(([, { inode }]) => inode),
      ...(reads.length === 0 ? {} : { reads }),
      through: session.deliveredThrough,
    };
  }

  mustAnswerPoll(id: number, nowMs: number): boolean {
    const session = this.#sessions.get(id);
    if (session === undefined || nowMs >= session.untilMs || this.#closed) return true;
    return session.recalls.size + session.reads.size > 0;
  }

  /** Inodes of which clients have grants. */
  granted(): number[] {
    return [...this.#holders.keys()];
  }

  isGranted(inode: number): boolean {
    return this.#holders.has(inode);
  }

  /** An inode's access time has increased. @returns the sessions whose polls are to be answered */
  noteAccess(read: NotedRead, nowMs: number): number[] {
    const notified: number[] = [];
    for (const session of this.#holders.get(read.inode) ?? []) {
      // The inode is being recalled: the client will query it again.
      if (session.grants.get(read.inode) !== 0) continue;
      session.reads.delete(read.inode);
      if (session.reads.size < READS_MAX)
        session.reads.set(read.inode, { number: ++session.lastNumber, read });
      else this.#recall(session, read.inode, nowMs);
      notified.push(session.id);
    }
    return notified;
  }

  /**
   * Grants inodes to a session. To be called in the tick in which the answer is read from committed state.
   * @returns those of `inodes` that the client must not cache; null if it has no session and must cache nothing
   */
  grant(id: number, inodes: Iterable<number>, nowMs: number): number[] | null {
    const session = this.#sessions.get(id);
    if (session === undefined || nowMs >= session.untilMs || this.#closed) return null;
    const refused: number[] = [];
    for (const inode of inodes) if (!this.#grantOne(session, inode)) refused.push(inode);
    this.#recallSurplus(session, nowMs);
    return refused;
  }

  /**
   * Delegates a directory to one session. To be called in the tick in which the answer is read.
   * @returns the generation of the delegation; null while another client has a grant of it, or it is being changed
   */
  delegate(id: number, inode: number, nowMs: number): number | null {
    const session = this.#sessions.get(id);
    if (session === undefined || nowMs >= session.untilMs || this.#closed) return null;
    const isAlone = this.#otherHolders(inode, ownerOf(session, inode)).length === 0;
    if (!isAlone || !this.#grantOne(session, inode)) return null;
    const generation = this.#delegated.get(inode)?.generation ?? ++this.#lastGeneration;
    this.#delegated.set(inode, { session, generation });
    this.#recallSurplus(session, nowMs);
    return generation;
  }

  /** Whether the session has the delegation, also during its recall. Called in the tick of a fenced command. */
  hasDelegation(id: number, { inode, generation }: DelegationOfSession, nowMs: number): boolean {
    return this.generationOf(id, inode, nowMs) === generation;
  }

  /** @returns the generation of the directory's delegation to this session, also during its recall; null if none */
  generationOf(id: number, inode: number, nowMs: number): number | null {
    const held = this.#delegated.get(inode);
    return held?.session.id === id && nowMs < held.session.untilMs ? held.generation : null;
  }

  /** Whether a directory is delegated to another session than `but`; null: to any. */
  isDelegated(inode: number, but: number | null): boolean {
    const held = this.#delegated.get(inode);
    return held !== undefined && held.session.id !== but;
  }

  /** The change of one inode by the session's client, which drops it by itself; null: by a client without a cache. */
  changeOfInode(id: number | null, inode: number): BlockedChange {
    const session = id === null ? undefined : this.#sessions.get(id);
    return { inodes: [inode], owner: session === undefined ? null : ownerOf(session, inode) };
  }

  /** Whether a client may cache what changes; the change's own client counts only for what it has not dropped. */
  isCached({ inodes, owner }: BlockedChange, nowMs: number): boolean {
    this.#expire(nowMs);
    return inodes.some((inode) => this.#otherHolders(inode, owner).length > 0);
  }

  block({ inodes }: BlockedChange): void {
    for (const inode of inodes) this.#blocked.set(inode, (this.#blocked.get(inode) ?? 0) + 1);
  }

  release({ inodes }: BlockedChange): void {
    for (const inode of inodes) {
      const count = this.#blocked.get(inode);
      assert(count !== undefined && count > 0, 'What is released was blocked');
      if (count === 1) this.#blocked.delete(inode);
      else this.#blocked.set(inode, count - 1);
    }
  }

  /** Recalls the inodes of a change, which is blocked already. @returns the sessions whose polls are to be answered */
  recall({ inodes, owner }: BlockedChange, nowMs: number): number[] {
    const notified = new Set<number>();
    for (const inode of inodes) {
      for (const session of this.#otherHolders(inode, owner)) {
        if (session.grants.get(inode) === 0) this.#recall(session, inode, nowMs);
        notified.add(session.id);
      }
    }
    return [...notified];
  }

  /** @returns the latest time at which another client may still use a cached inode of the change */
  cachedUntilMs({ inodes, owner }: BlockedChange): number {
    const holders = inodes.flatMap((inode) => this.#otherHolders(inode, owner));
    return Math.max(-Infinity, ...holders.map(({ untilMs }) => untilMs));
  }

  /** Nothing is granted, and no session renewed, until `reopen`. `counts` shows when all sessions have ended. */
  close(): void {
    this.#closed = true;
  }

  reopen(): void {
    this.#closed = false;
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  #begin(client: number): Session {
    const session: Session = {
      id: this.#options.draw(),
      client,
      untilMs: -Infinity,
      grants: new RecentMap(),
      recalls: new Map(),
      reads: new Map(),
      lastNumber: 0,
      deliveredThrough: 0,
    };
    this.#sessions.set(session.id, session);
    return session;
  }

  #acknowledge(session: Session, acked: number): void {
    for (const [number, { inode }] of session.recalls) {
      if (number > acked) break;
      session.recalls.delete(number);
      this.#removeGrant(session, inode);
    }
    for (const [inode, { number }] of session.reads) {
      if (number > acked) break;
      session.reads.delete(inode);
    }
  }

  #grantOne(session: Session, inode: number): boolean {
    if (this.#blocked.has(inode) || this.isDelegated(inode, session.id)) return false;
    const recall = session.grants.get(inode);
    // It is unknown whether the client sent this query before or after it dropped the recalled inode.
    if (recall !== undefined && recall !== 0) return false;
    if (recall === undefined) {
      const { sessionGrantsMax, grantsMax } = this.#options;
      if (
        session.grants.size >= SURPLUS_FACTOR * sessionGrantsMax ||
        this.#grants >= SURPLUS_FACTOR * grantsMax
      )
        return false;
      this.#grants++;
      let holders = this.#holders.get(inode);
      if (holders === undefined) {
        holders = new Set();
        this.#holders.set(inode, holders);
      }
      holders.add(session);
    }
    session.grants.set(inode, 0);
    return true;
  }

  /** Recalls the oldest grants of the session if it, or all sessions together, exceed the bounds. */
  #recallSurplus(session: Session, nowMs: number): void {
    const { sessionGrantsMax, grantsMax } = this.#options;
    const surplus = Math.max(session.grants.size - sessionGrantsMax, this.#grants - grantsMax);
    let left = surplus - session.recalls.size;
    if (left <= 0) return;
    for (const [inode, recall] of session.grants.entries()) {
      if (left <= 0) return;
      if (recall !== 0) continue;
      this.#recall(session, inode, nowMs);
      left--;
    }
  }

  #recall(session: Session, inode: number, nowMs: number): void {
    const number = ++session.lastNumber;
    session.recalls.set(number, { inode, sinceMs: nowMs });
    session.grants.set(inode, number);
  }

  #otherHolders(inode: number, owner: CacheOwner | null): Session[] {
    const holders = this.#holders.get(inode);
    if (holders === undefined) return [];
    // Another session of the same client may have newer grants: the client may have stopped waiting for this command.
    const own = owner?.forgets.includes(inode) ? owner.under : undefined;
    return [...holders].filter(({ id, client }) => id !== own || client !== owner?.client);
  }

  #removeGrant(session: Session, inode: number): void {
    if (!session.grants.delete(inode)) return;
    this.#grants--;
    if (this.#delegated.get(inode)?.session === session) this.#delegated.delete(inode);
    const holders = this.#holders.get(inode);
    holders?.delete(session);
    if (holders?.size === 0) this.#holders.delete(inode);
  }

  #expire(nowMs: number): void {
    for (const session of this.#sessions.values()) {
      if (nowMs < session.untilMs) continue;
      if (session.recalls.size > 0) this.#expired++;
      this.#end(session);
    }
  }

  #end(session: Session): void {
    for (const [inode] of session.grants.entries()) this.#removeGrant(session, inode);
    this.#sessions.delete(session.id);
  }
}

function ownerOf({ client, id }: Session, inode: number): CacheOwner {
  return { client, forgets: [inode], under: id };
}

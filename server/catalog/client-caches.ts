import { assert } from '../../base/assert.ts';
import { RecentMap } from '../../base/recent-map.ts';
import { DRIFT_MAX } from '../../replica/guard.ts';
import type { CacheOwner, HeldDelegation, NotedRead } from '../../wire/catalog-api.ts';

/** A recall that was sent and not acknowledged, and when it was decided. */
interface Recall {
  readonly inode: number;
  readonly sinceMs: number;
}

interface Session {
  readonly id: number;
  readonly client: number;
  untilMs: number;
  /** Inodes that the client may believe, the oldest grant first; with the number of the recall under way, or 0. */
  readonly grants: RecentMap<number, number>;
  /** Not acknowledged yet, by number, in ascending order. */
  readonly recalls: Map<number, Recall>;
  /** Reads of granted inodes that the client has not acknowledged, by inode, in ascending order of their numbers. */
  readonly reads: Map<number, { readonly number: number; readonly read: NotedRead }>;
  /** Of the last recall or read. */
  lastNumber: number;
  /** Recalls and reads up to here were given to the client at least once. */
  deliveredThrough: number;
}

/** A directory that is granted to one session alone. */
interface Delegation {
  readonly session: Session;
  /** Of all delegations of this primary, each has another number. */
  readonly generation: number;
}

/** What a client asks and says with each poll. */
export interface CachePoll {
  /** Drawn by the client, the same for its whole life. */
  readonly client: number;
  /** As the primary named it; null at first. */
  readonly session: number | null;
  /** A session of its own of which the client believes nothing any more, and never will. */
  readonly left?: number;
  /** The client believes nothing any more of what recalls up to this number took back. */
  readonly acked: number;
  /** False: the client does not name its session in its commands, and none begins. @see CacheOwner.under */
  readonly fenced?: boolean;
}

export interface CachePolled {
  /** Null where no session can be had at the moment. */
  readonly session: number | null;
  /** What is granted may be believed for so long, counted from before the poll was sent; 0: not any longer than before. */
  readonly validMs: number;
  /** Inodes to be forgotten, reads to be learned, and the number to acknowledge then. */
  readonly recalls: readonly number[];
  readonly reads?: readonly NotedRead[];
  readonly through: number;
}

/** A change that waits for clients to forget, or that is being replicated: its inodes are granted to nobody. */
export interface BlockedChange {
  readonly inodes: readonly number[];
  /** Who asked for the change; null for a client that remembers nothing. */
  readonly owner: CacheOwner | null;
}

export interface ClientCachesOptions {
  /** The longest that a client believes without a word from here; the longest that a silent one holds a change up. */
  readonly leaseMsMax: number;
  /** Inodes granted to one client. */
  readonly sessionGrantsMax: number;
  /** Inodes granted to all clients together. */
  readonly grantsMax: number;
  /** Draws a number for a session that no other primary has drawn. */
  draw(): number;
}

/** Recalls in one answer. */
const RECALLS_PER_ANSWER = 5_000;
/** Reads that wait for a client's acknowledgement. Inodes of further ones are recalled. */
const READS_MAX = 1_000;
/** Grants beyond the bound while recalls are under way; then nothing more is granted. */
const OVERHANG = 1.25;

/**
 * Who may believe what without asking: the catalog's primary grants inodes to clients and calls them back
 * before it changes them [Gray and Cheriton, leases for file caches]. A grant covers the attributes of the
 * inode, the names in it if it is a directory, and, as long as it is not live, the contents of a file.
 *
 * Nothing of this is replicated. What is granted ends with the session, and a session with a duration that is never
 * longer than what is left of this primary's own right to answer reads: a later primary need not know of it.
 *
 * A change is made when no other client is granted what it touches: each has acknowledged a recall or its session is over.
 * From the first look until the change is committed, or certainly not made here, nobody is granted its inodes anew.
 *
 * An access time is no such change: who is granted the inode learns the new one with its next poll, and nothing waits for that.
 *
 * A directory may be *delegated*: granted to one session and to no other [RFC 8881, 10.9, directory delegations]. Whoever else changes its
 * names, or itself, waits for the recall as ever, so that its holder may take names for free or given without asking.
 *
 * All times are readings of one monotonic clock, given by the caller.
 */
export class ClientCaches {
  readonly #options: ClientCachesOptions;
  readonly #sessions = new Map<number, Session>();
  readonly #holders = new Map<number, Set<Session>>();
  /** Directories that are granted to one session alone. */
  readonly #delegated = new Map<number, Delegation>();
  #lastGeneration = 0;
  /** How many changes keep an inode from being granted. */
  readonly #blocked = new Map<number, number>();
  #grants = 0;
  #expired = 0;
  #closed = false;

  constructor(options: ClientCachesOptions) {
    this.#options = options;
  }

  /** Sessions, inodes granted in all, and sessions that ended with recalls unanswered, since the start. */
  counts(): { readonly sessions: number; readonly grants: number; readonly expired: number } {
    return { sessions: this.#sessions.size, grants: this.#grants, expired: this.#expired };
  }

  /**
   * A client is there, and has forgotten what recalls up to `acked` took back. Its session goes on, or begins.
   *
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
      // Of another session that it has it says nothing by that: the poll may be late, by way of a server that was stopped.
      if (leaseMs <= 0 || this.#closed || !fenced)
        return { session: null, validMs: 0, recalls: [], through: 0 };
      known = this.#begin(client);
    }
    // Nor is a session renewed while a member that obeys no fence may become the primary.
    if (this.#closed || !fenced) return { session: null, validMs: 0, recalls: [], through: 0 };
    this.#acknowledge(known, acked);
    let validMs = 0;
    // An answer that was lost took its recalls with it: until they are acknowledged the session goes on no longer.
    if (acked >= known.deliveredThrough) {
      const [oldest] = known.recalls.values();
      // A client that acknowledges, but never all of it, holds no change up for longer than a silent one.
      const boundMs = oldest === undefined ? leaseMs : oldest.sinceMs + this.#options.leaseMsMax - nowMs;
      validMs = Math.max(0, Math.min(leaseMs, boundMs));
      known.untilMs = Math.max(known.untilMs, nowMs + validMs * (1 + DRIFT_MAX));
    }
    return { ...this.take(known.id), session: known.id, validMs: validMs * (1 - DRIFT_MAX) };
  }

  /** @returns what a session is to forget and to learn, and the number by which it acknowledges that */
  take(id: number): Pick<CachePolled, 'recalls' | 'reads' | 'through'> {
    const session = this.#sessions.get(id);
    if (session === undefined) return { recalls: [], through: 0 };
    const numbered = [...session.recalls].slice(0, RECALLS_PER_ANSWER);
    const isWhole = numbered.length === session.recalls.size;
    // What is acknowledged by its number leaves nothing before it.
    const last = isWhole ? session.lastNumber : (numbered.at(-1)?.[0] ?? 0);
    const reads = [...session.reads.values()].filter(({ number }) => number <= last).map(({ read }) => read);
    session.deliveredThrough = Math.max(session.deliveredThrough, last);
    return {
      recalls: numbered.map(([, { inode }]) => inode),
      ...(reads.length === 0 ? {} : { reads }),
      through: session.deliveredThrough,
    };
  }

  /** Whether there is something that a session has to forget or to learn, or it is over. */
  hasNews(id: number, nowMs: number): boolean {
    const session = this.#sessions.get(id);
    if (session === undefined || nowMs >= session.untilMs || this.#closed) return true;
    return session.recalls.size + session.reads.size > 0;
  }

  /** Whether the inode is granted to anybody. */
  isGranted(inode: number): boolean {
    return this.#holders.has(inode);
  }

  /**
   * A read has made the access time of an inode later.
   *
   * @returns sessions that have news
   */
  noted(read: NotedRead, nowMs: number): number[] {
    const told: number[] = [];
    for (const session of this.#holders.get(read.inode) ?? []) {
      // Who forgets it asks anew.
      if (session.grants.get(read.inode) !== 0) continue;
      session.reads.delete(read.inode);
      if (session.reads.size < READS_MAX)
        session.reads.set(read.inode, { number: ++session.lastNumber, read });
      else this.#recall(session, read.inode, nowMs);
      told.push(session.id);
    }
    return told;
  }

  /**
   * To be called in the same turn in which the answer to a client is read from committed state.
   *
   * @returns those of `inodes` that the client must not believe; null where nothing is granted to it
   */
  grant(id: number, inodes: Iterable<number>, nowMs: number): number[] | null {
    const session = this.#sessions.get(id);
    if (session === undefined || nowMs >= session.untilMs || this.#closed) return null;
    const refused: number[] = [];
    for (const inode of inodes) if (!this.#grantOne(session, inode)) refused.push(inode);
    this.#bound(session, nowMs);
    return refused;
  }

  /**
   * Grants a directory to one session alone. To be called in the same turn in which the answer that tells of it is read.
   *
   * @returns the generation of the delegation; null while another client is granted anything of it, or while it is being changed
   */
  delegate(id: number, inode: number, nowMs: number): number | null {
    const session = this.#sessions.get(id);
    if (session === undefined || nowMs >= session.untilMs || this.#closed) return null;
    const isAlone = this.#othersOf(inode, ownerOf(session, inode)).length === 0;
    if (!isAlone || !this.#grantOne(session, inode)) return null;
    const generation = this.#delegated.get(inode)?.generation ?? ++this.#lastGeneration;
    this.#delegated.set(inode, { session, generation });
    this.#bound(session, nowMs);
    return generation;
  }

  /**
   * Whether a session holds a delegation, also while it is being recalled. To be called in the tick in which a fenced command is executed.
   */
  holds(id: number, { inode, generation }: HeldDelegation, nowMs: number): boolean {
    const held = this.#delegated.get(inode);
    return held?.session.id === id && held.generation === generation && nowMs < held.session.untilMs;
  }

  /** @returns whether a directory is delegated to another session than this one; null: to any */
  isDelegated(inode: number, but: number | null): boolean {
    const held = this.#delegated.get(inode);
    return held !== undefined && held.session.id !== but;
  }

  /** As a change by the client of the session, which has forgotten the inode by itself; null: by one that remembers nothing. */
  changeBy(id: number | null, inode: number): BlockedChange {
    const session = id === null ? undefined : this.#sessions.get(id);
    return { inodes: [inode], owner: session === undefined ? null : ownerOf(session, inode) };
  }

  /** @returns whether some client, the change's own left out where it has forgotten by itself, may believe what changes */
  isHeld({ inodes, owner }: BlockedChange, nowMs: number): boolean {
    this.#expire(nowMs);
    return inodes.some((inode) => this.#othersOf(inode, owner).length > 0);
  }

  /** From here on nobody is granted what changes, until `release`. */
  block({ inodes }: BlockedChange): void {
    for (const inode of inodes) this.#blocked.set(inode, (this.#blocked.get(inode) ?? 0) + 1);
  }

  /** The change is committed, or does not happen here. */
  release({ inodes }: BlockedChange): void {
    for (const inode of inodes) {
      const count = this.#blocked.get(inode);
      assert(count !== undefined && count > 0, 'What is released was blocked');
      if (count === 1) this.#blocked.delete(inode);
      else this.#blocked.set(inode, count - 1);
    }
  }

  /**
   * Asks clients to forget what changes; to be blocked before.
   *
   * @returns sessions that have news
   */
  recall({ inodes, owner }: BlockedChange, nowMs: number): number[] {
    const told = new Set<number>();
    for (const inode of inodes) {
      for (const session of this.#othersOf(inode, owner)) {
        if (session.grants.get(inode) === 0) this.#recall(session, inode, nowMs);
        told.add(session.id);
      }
    }
    return [...told];
  }

  /** @returns when, at the latest, nobody may believe any more what changes */
  heldUntilMs({ inodes, owner }: BlockedChange): number {
    const holders = inodes.flatMap((inode) => this.#othersOf(inode, owner));
    return Math.max(-Infinity, ...holders.map(({ untilMs }) => untilMs));
  }

  /** Nothing is granted any more, and clients are told to forget all. Whether all have is seen in `counts`. */
  close(): void {
    this.#closed = true;
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
      this.#forget(session, inode);
    }
    for (const [inode, { number }] of session.reads) {
      if (number > acked) break;
      session.reads.delete(inode);
    }
  }

  #grantOne(session: Session, inode: number): boolean {
    if (this.#blocked.has(inode) || this.isDelegated(inode, session.id)) return false;
    const recall = session.grants.get(inode);
    // Whether the client asked before or after it forgot cannot be known here.
    if (recall !== undefined && recall !== 0) return false;
    if (recall === undefined) {
      const { sessionGrantsMax, grantsMax } = this.#options;
      if (session.grants.size >= OVERHANG * sessionGrantsMax || this.#grants >= OVERHANG * grantsMax)
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

  /** Takes the oldest grants back where there are too many. */
  #bound(session: Session, nowMs: number): void {
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

  #othersOf(inode: number, owner: CacheOwner | null): Session[] {
    const holders = this.#holders.get(inode);
    if (holders === undefined) return [];
    // Grants of another session of the same client may be of after it has stopped waiting for the command.
    const own = owner?.forgets.includes(inode) ? owner.under : undefined;
    return [...holders].filter(({ id, client }) => id !== own || client !== owner?.client);
  }

  #forget(session: Session, inode: number): void {
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
    for (const [inode] of session.grants.entries()) this.#forget(session, inode);
    this.#sessions.delete(session.id);
  }
}

function ownerOf({ client, id }: Session, inode: number): CacheOwner {
  return { client, forgets: [inode], under: id };
}

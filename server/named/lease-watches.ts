import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { CellId, ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import {
  leaseChanges,
  leaseEvent,
  leaseMerge,
  type TimedLeaseState,
  timedLeaseState,
} from '../../wire/lease-changes.ts';
import type { LeaseEvent, LeaseState } from '../../wire/named-lease-api.ts';
import type { NamedLeaseDriver } from './named-lease-driver.ts';

/** Watches of one server; one more fails with `busy`. */
export const WATCHERS_MAX = 1_000;
/** A watched lease is queried this often within the longest lease, in case the message of a change was lost. */
const QUERIES_PER_LEASE = 3;
/** Pause after a query that no majority answered. */
const QUERY_RETRY_MS = 500;
/** A lease's end is reported at least this much later, because timers are inexact. */
const END_SLACK_MS = 10;

/** Receives the states of a lease, each of which replaces the one before. */
export interface LeaseWatcher {
  changed(state: TimedLeaseState): void;
  /** This source reports nothing more. */
  ended(): void;
}

/** Source of a lease's states: this server's own cell, or another member. */
export interface LeaseSource {
  /** Starts to report; the returned function ends it. */
  open(name: string, watcher: LeaseWatcher): () => void;
}

export interface MemberSourceParts {
  readonly world: World;
  readonly driver: Pick<NamedLeaseDriver, 'cellOf' | 'listen'>;
  readonly leaseMaxMs: number;
  readonly clockSkewMaxMs: number;
  readonly log: Logger;
  nowMs(): number;
  query(name: string): Promise<LeaseState>;
  /** Null if nothing is known of this name. Must not throw: it runs within a callback of the lease host. */
  memberState(name: string): LeaseState | null;
}

/** Reports a name's states as one of its members, confirmed by a majority at the start, at an end, and periodically. */
export class MemberSource implements LeaseSource {
  readonly #parts: MemberSourceParts;
  readonly #watched = new Map<string, MemberWatch>();

  constructor(parts: MemberSourceParts) {
    this.#parts = parts;
    parts.driver.listen({
      claimed: (cell) => {
        for (const watch of this.#watched.values()) if (watch.cell === cell) watch.claimed();
      },
      claimsVoided: () => {
        for (const watch of [...this.#watched.values()]) watch.end();
      },
    });
  }

  open(name: string, watcher: LeaseWatcher): () => void {
    let watch = this.#watched.get(name);
    if (watch === undefined) {
      const created = new MemberWatch(name, this.#parts, () => {
        if (this.#watched.get(name) === created) this.#watched.delete(name);
      });
      watch = created;
      this.#watched.set(name, watch);
    }
    return watch.join(watcher);
  }

  close(): void {
    for (const watch of [...this.#watched.values()]) watch.end();
  }
}

class MemberWatch {
  readonly cell: CellId;
  readonly #name: string;
  readonly #parts: MemberSourceParts;
  readonly #onStop: () => void;
  readonly #watchers = new Set<LeaseWatcher>();
  #state: TimedLeaseState | null = null;
  #timer: Timer | null = null;
  #querying = false;
  #ended = false;

  constructor(name: string, parts: MemberSourceParts, over: () => void) {
    this.cell = parts.driver.cellOf(name);
    this.#name = name;
    this.#parts = parts;
    this.#onStop = over;
    void this.#query();
  }

  join(watcher: LeaseWatcher): () => void {
    this.#watchers.add(watcher);
    if (this.#state !== null) watcher.changed(this.#state);
    return () => {
      this.#watchers.delete(watcher);
      if (this.#watchers.size === 0) this.#stop();
    };
  }

  /** A claim was stored or released here: reports it, or queries a majority, which alone knows the end of a lease. */
  claimed(): void {
    const state = this.#parts.memberState(this.#name);
    if (state?.held && this.#state !== null) this.#update(timedLeaseState(state, this.#parts.nowMs()));
    else void this.#query();
  }

  end(): void {
    const watchers = [...this.#watchers];
    this.#watchers.clear();
    this.#stop();
    for (const watcher of watchers) watcher.ended();
  }

  async #query(): Promise<void> {
    if (this.#querying || this.#ended) return;
    this.#querying = true;
    try {
      const state = await this.#parts.query(this.#name);
      if (!this.#ended) this.#update(timedLeaseState(state, this.#parts.nowMs()));
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      this.#parts.log.debug(
        { name: this.#name, reason: error.message },
        'cannot query a watched lease; trying again',
      );
      this.#arm(QUERY_RETRY_MS);
    } finally {
      this.#querying = false;
    }
  }

  /** Reports a state unless it is older than the known one; queries again after its end, or periodically. */
  #update(state: TimedLeaseState): void {
    const { leaseMaxMs, clockSkewMaxMs, nowMs } = this.#parts;
    const before = this.#state;
    const isOld = before !== null && state.held && state.token < before.token;
    if (!isOld) {
      this.#state = leaseMerge(before, state);
      for (const watcher of [...this.#watchers]) watcher.changed(this.#state);
    }
    const untilEndMs = state.held ? state.untilMs + clockSkewMaxMs + END_SLACK_MS - nowMs() : Infinity;
    this.#arm(Math.max(END_SLACK_MS, Math.min(untilEndMs, leaseMaxMs / QUERIES_PER_LEASE)));
  }

  #arm(afterMs: number): void {
    this.#timer?.cancel();
    this.#timer = this.#ended ? null : this.#parts.world.after(afterMs, () => void this.#query());
  }

  #stop(): void {
    this.#ended = true;
    this.#timer?.cancel();
    this.#timer = null;
    this.#onStop();
  }
}

export interface LeaseWatchesParts {
  readonly driver: NamedLeaseDriver;
  readonly member: LeaseSource & { close(): void };
  readonly relay: LeaseSource & { close(): void };
  nowMs(): number;
}

export interface LeaseEventSink {
  /** Returns whether the sink takes more; if not, the caller calls `LeaseWatch.resume` once it does. */
  write(event: LeaseEvent): boolean;
  end(): void;
}

/** One client's watch. It stores two states only: the last one sent, and the latest. */
export class LeaseWatch implements LeaseWatcher {
  readonly #name: string;
  readonly #sink: LeaseEventSink;
  readonly #nowMs: () => number;
  #reported: TimedLeaseState | null = null;
  #latest: TimedLeaseState | null = null;
  #isBlocked = false;

  constructor(name: string, sink: LeaseEventSink, nowMs: () => number) {
    this.#name = name;
    this.#sink = sink;
    this.#nowMs = nowMs;
  }

  changed(state: TimedLeaseState): void {
    this.#latest = state;
    this.#report();
  }

  ended(): void {
    this.#sink.end();
  }

  resume(): void {
    this.#isBlocked = false;
    this.#report();
  }

  #report(): void {
    const [reported, latest] = [this.#reported, this.#latest];
    if (this.#isBlocked || latest === null) return;
    const nowMs = this.#nowMs();
    const events =
      reported === null
        ? [leaseEvent('state', this.#name, latest, nowMs)]
        : leaseChanges(this.#name, reported, latest, nowMs);
    if (events.length === 0) return;
    // Set only with an event: many small changes of the end add up to one event.
    this.#reported = leaseMerge(reported, latest);
    for (const event of events) this.#isBlocked = !this.#sink.write(event);
  }
}

export class LeaseWatches {
  readonly #parts: LeaseWatchesParts;
  #count = 0;

  constructor(parts: LeaseWatchesParts) {
    this.#parts = parts;
  }

  get count(): number {
    return this.#count;
  }

  /**
   * Starts a watch. `forwarded`: a server that is no member sent the request, so it is not forwarded again.
   * @throws ServiceError `busy`, `recovering`, `clock-fault`; `not-primary` if `forwarded` to one that is no member
   */
  watch(name: string, sink: LeaseEventSink, forwarded: boolean): { resume(): void; close(): void } {
    if (this.#count >= WATCHERS_MAX) {
      throw new ServiceError(
        'busy',
        `Cannot watch lease "${name}": this server has ${WATCHERS_MAX} watches, the maximum; use another server`,
      );
    }
    this.#parts.driver.assertUsable();
    const source = this.#sourceOf(name, forwarded);
    const watch = new LeaseWatch(name, sink, this.#parts.nowMs);
    const end = source.open(name, watch);
    this.#count++;
    let open = true;
    return {
      resume: () => watch.resume(),
      close: () => {
        if (!open) return;
        open = false;
        this.#count--;
        end();
      },
    };
  }

  close(): void {
    this.#parts.member.close();
    this.#parts.relay.close();
  }

  #sourceOf(name: string, forwarded: boolean): LeaseSource {
    const { driver, member, relay } = this.#parts;
    if (driver.isMember(name)) return member;
    if (!forwarded) return relay;
    throw new ServiceError('not-primary', `This server does not vote on lease "${name}"; ask a member`);
  }
}

/** Returns the other members, connected ones first. */
export function membersToAsk(
  members: readonly ServerId[],
  self: ServerId,
  isConnected: (server: ServerId) => boolean,
): ServerId[] {
  const others = members.filter((server) => server !== self);
  return [...others.filter(isConnected), ...others.filter((server) => !isConnected(server))];
}

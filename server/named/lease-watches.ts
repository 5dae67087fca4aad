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

/** Watchers of one server; one more is answered `busy`. */
export const WATCHERS_MAX = 1_000;
/** A watched lease is looked at so often in the time of the longest lease, should word of a change have been lost. */
const LOOKS_PER_LEASE = 3;
/** Where no majority answers, it is asked again after this. */
const LOOK_AGAIN_MS = 500;
/** The end is told this much after it at the least, since timers are not exact. */
const END_SLACK_MS = 10;

/** Somebody who is told the state of a lease again and again. Whoever is slow hears the newest only. */
export interface LeaseWatcher {
  /** The state has changed, or is known for the first time. */
  changed(state: TimedLeaseState): void;
  /** Nothing more comes from here. */
  ended(): void;
}

/** Where the states of a lease come from: this server's own cell, or another server that is a member. */
export interface LeaseSource {
  /** Begins to tell; ended by the function returned. */
  open(name: string, watcher: LeaseWatcher): () => void;
}

export interface MemberSourceParts {
  readonly world: World;
  readonly driver: Pick<NamedLeaseDriver, 'cellOf' | 'listen'>;
  readonly leaseMaxMs: number;
  readonly clockSkewMaxMs: number;
  readonly log: Logger;
  nowMs(): number;
  look(name: string): Promise<LeaseState>;
  /** Null where nothing is known of this name. Must not throw: it is asked in the midst of what the host does. */
  believed(name: string): LeaseState | null;
}

/**
 * Tells of a name as one of its members: from what is decided there, confirmed by a majority at the beginning, at the
 * end of a lease, and now and then.
 */
export class MemberSource implements LeaseSource {
  readonly #parts: MemberSourceParts;
  readonly #watched = new Map<string, MemberWatch>();

  constructor(parts: MemberSourceParts) {
    this.#parts = parts;
    parts.driver.listen({
      claimed: (cell) => {
        for (const watch of this.#watched.values()) if (watch.cell === cell) watch.claimed();
      },
      faulted: () => {
        for (const watch of [...this.#watched.values()]) watch.end();
      },
    });
  }

  open(name: string, watcher: LeaseWatcher): () => void {
    let watch = this.#watched.get(name);
    if (watch === undefined) {
      const made = new MemberWatch(name, this.#parts, () => {
        if (this.#watched.get(name) === made) this.#watched.delete(name);
      });
      watch = made;
      this.#watched.set(name, watch);
    }
    return watch.join(watcher);
  }

  close(): void {
    for (const watch of [...this.#watched.values()]) watch.end();
  }
}

/** One name that somebody watches at this member. */
class MemberWatch {
  readonly cell: CellId;
  readonly #name: string;
  readonly #parts: MemberSourceParts;
  readonly #over: () => void;
  readonly #watchers = new Set<LeaseWatcher>();
  #state: TimedLeaseState | null = null;
  #timer: Timer | null = null;
  #looking = false;
  #ended = false;

  constructor(name: string, parts: MemberSourceParts, over: () => void) {
    this.cell = parts.driver.cellOf(name);
    this.#name = name;
    this.#parts = parts;
    this.#over = over;
    void this.#look();
  }

  join(watcher: LeaseWatcher): () => void {
    this.#watchers.add(watcher);
    if (this.#state !== null) watcher.changed(this.#state);
    return () => {
      this.#watchers.delete(watcher);
      if (this.#watchers.size === 0) this.#stop();
    };
  }

  /** Something was decided or given back here. That a lease is gone, a majority has to say. */
  claimed(): void {
    const state = this.#parts.believed(this.#name);
    if (state?.held && this.#state !== null) this.#take(timedLeaseState(state, this.#parts.nowMs()));
    else void this.#look();
  }

  end(): void {
    const watchers = [...this.#watchers];
    this.#watchers.clear();
    this.#stop();
    for (const watcher of watchers) watcher.ended();
  }

  async #look(): Promise<void> {
    if (this.#looking || this.#ended) return;
    this.#looking = true;
    try {
      const state = await this.#parts.look(this.#name);
      if (!this.#ended) this.#take(timedLeaseState(state, this.#parts.nowMs()));
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      this.#parts.log.debug({ name: this.#name, reason: error.message }, 'a watched lease is not known now');
      this.#arm(LOOK_AGAIN_MS);
    } finally {
      this.#looking = false;
    }
  }

  #take(state: TimedLeaseState): void {
    const { leaseMaxMs, clockSkewMaxMs, nowMs } = this.#parts;
    const before = this.#state;
    const isOld = before !== null && state.held && state.token < before.token;
    if (!isOld) {
      this.#state = leaseMerge(before, state);
      for (const watcher of [...this.#watchers]) watcher.changed(this.#state);
    }
    const untilEndMs = state.held ? state.untilMs + clockSkewMaxMs + END_SLACK_MS - nowMs() : Infinity;
    this.#arm(Math.max(END_SLACK_MS, Math.min(untilEndMs, leaseMaxMs / LOOKS_PER_LEASE)));
  }

  #arm(afterMs: number): void {
    this.#timer?.cancel();
    this.#timer = this.#ended ? null : this.#parts.world.after(afterMs, () => void this.#look());
  }

  #stop(): void {
    this.#ended = true;
    this.#timer?.cancel();
    this.#timer = null;
    this.#over();
  }
}

export interface LeaseWatchesParts {
  readonly driver: NamedLeaseDriver;
  readonly member: LeaseSource & { close(): void };
  readonly relay: LeaseSource & { close(): void };
  nowMs(): number;
}

/** What a watch writes to. */
export interface LeaseEventSink {
  /** @returns whether there is room for more; if not, `LeaseWatch.resume` is called when there is again */
  write(event: LeaseEvent): boolean;
  end(): void;
}

/** One client that watches: what it was told last, and what there is to tell. Two states are all that it keeps. */
export class LeaseWatch implements LeaseWatcher {
  readonly #name: string;
  readonly #sink: LeaseEventSink;
  readonly #nowMs: () => number;
  #told: TimedLeaseState | null = null;
  #latest: TimedLeaseState | null = null;
  #full = false;

  constructor(name: string, sink: LeaseEventSink, nowMs: () => number) {
    this.#name = name;
    this.#sink = sink;
    this.#nowMs = nowMs;
  }

  changed(state: TimedLeaseState): void {
    this.#latest = state;
    this.#tell();
  }

  ended(): void {
    this.#sink.end();
  }

  resume(): void {
    this.#full = false;
    this.#tell();
  }

  #tell(): void {
    const [told, latest] = [this.#told, this.#latest];
    if (this.#full || latest === null) return;
    const nowMs = this.#nowMs();
    const events =
      told === null
        ? [leaseEvent('state', this.#name, latest, nowMs)]
        : leaseChanges(this.#name, told, latest, nowMs);
    if (events.length === 0) return;
    // What was told stays, so that many small steps of the end become one event in the end.
    this.#told = leaseMerge(told, latest);
    for (const event of events) this.#full = !this.#sink.write(event);
  }
}

/** All watches of this server's clients. */
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
   * Begins a watch. A server that takes part in no lease now has nothing to tell: others have, and are asked instead.
   *
   * @param forwarded another server asks, because it is no member: it is told from here or not at all
   * @throws ServiceError `busy`, `recovering`, `clock-fault`; where `forwarded`: `not-primary`
   */
  open(name: string, sink: LeaseEventSink, forwarded: boolean): { resume(): void; close(): void } {
    if (this.#count >= WATCHERS_MAX) {
      throw new ServiceError('busy', `Cannot watch lease "${name}": ${WATCHERS_MAX} watches are under way`);
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
    throw new ServiceError('not-primary', `This server is no member of lease "${name}"`);
  }
}

/** Names of the members of a lease, those in reach first. */
export function membersToAsk(
  members: readonly ServerId[],
  self: ServerId,
  isConnected: (server: ServerId) => boolean,
): ServerId[] {
  const others = members.filter((server) => server !== self);
  return [...others.filter(isConnected), ...others.filter((server) => !isConnected(server))];
}

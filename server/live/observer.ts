import { LruMap } from '../../base/bounded-map.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { Timer, World } from '../../base/world.ts';
import type { ServerState } from '../../wire/catalog-api.ts';
import { type EarlierLease, EVENT_TEXTS } from './event-texts.ts';
import type { ServerEvents } from './server-events.ts';

/** Files for which the last lease of another server is remembered. */
const LEARNED_MAX = 4_096;
/** Interval of the check for pauses of the process, and the shortest pause reported. */
const PAUSE_CHECK_MS = 250;
const PAUSE_MS_MIN = 1_000;

export interface ObserverParts {
  readonly self: ServerId;
  readonly leaseMs: number;
  readonly clockSkewMaxMs: number;
  readonly world: World;
  readonly events: ServerEvents;
  /** Monotonic, in milliseconds: the clock of leases. */
  nowMs(): number;
  /** All servers that take part, with this one. */
  servers(): readonly ServerId[];
  isConnected(server: ServerId): boolean;
}

interface LearnedLease {
  readonly holder: ServerId;
  readonly untilMs: number;
}

export interface ObservedReplica {
  readonly file: FileId;
  readonly epoch: { readonly counter: number };
  readonly isFirstPrimary: boolean;
}

/** Turns what the drivers do into events for people. Nothing in the server waits for it or depends on it. */
export class Observer {
  readonly #parts: ObserverParts;
  readonly #learnedLeases = new LruMap<FileId, LearnedLease>(LEARNED_MAX);
  /** Leases that this server holds, and how the one before each ended. */
  readonly #ownLeases = new Map<FileId, EarlierLease>();
  readonly #resetsSinceMs = new Map<FileId, number>();
  readonly #primaryEpochs = new Map<FileId, number>();
  readonly #disconnected = new Set<ServerId>();
  readonly #timer: Timer;
  #checkedMs: number;
  #hadMajority = false;
  #membership: ServerState = 'in';

  constructor(parts: ObserverParts) {
    this.#parts = parts;
    this.#checkedMs = parts.nowMs();
    this.#timer = parts.world.every(PAUSE_CHECK_MS, () => this.#checkForPause()).unref();
  }

  close(): void {
    this.#timer.cancel();
  }

  /** Called when another server is known to hold the lease of `file` until `untilMs`. */
  leaseLearned(file: FileId, holder: ServerId, untilMs: number): void {
    this.#learnedLeases.set(file, { holder, untilMs });
  }

  /** @param untilMs end of this server's lease, at each renewal; 0 once it holds it no longer */
  leaseChanged(file: FileId, untilMs: number): void {
    if (untilMs === 0) {
      if (this.#ownLeases.delete(file))
        this.#learnedLeases.set(file, { holder: this.#parts.self, untilMs: this.#parts.nowMs() });
    } else if (!this.#ownLeases.has(file)) {
      this.#ownLeases.set(file, this.#earlierLeaseOf(file));
    }
  }

  /** Called with each mark that a replica's core reports. */
  marked(replica: ObservedReplica, mark: string, detail: string): void {
    const { self, events } = this.#parts;
    const { file } = replica;
    switch (mark) {
      case 'reset-started':
        this.#resetsSinceMs.set(file, this.#parts.nowMs());
        return;
      case 'active':
        this.#becamePrimary(replica);
        return;
      case 'lease-over': {
        const epoch = this.#primaryEnded(file);
        if (epoch !== null) events.add(EVENT_TEXTS.ended(self, file, epoch));
        return;
      }
      case 'deposed': {
        const epoch = this.#primaryEnded(file);
        if (epoch !== null) events.add(EVENT_TEXTS.deposed(self, file, epoch, detail));
        return;
      }
      case 'stopped':
      case 'reset-abandoned':
      case 'storage-failed':
        this.#primaryEnded(file);
        return;
      case 'refused-old-epoch':
        events.add(EVENT_TEXTS.refusedOld(self, file, detail));
        return;
      case 'gap':
        events.add(EVENT_TEXTS.behind(self, file, detail));
        return;
      case 'caught-up':
      case 'replaced':
        events.add(EVENT_TEXTS.caughtUp(self, file, detail));
        return;
    }
  }

  connected(peer: ServerId): void {
    const { self, events } = this.#parts;
    if (this.#disconnected.delete(peer)) events.add(EVENT_TEXTS.reconnected(self, peer));
    this.#checkMajority();
  }

  disconnected(peer: ServerId): void {
    const { self, leaseMs, clockSkewMaxMs, events } = this.#parts;
    if (!this.#disconnected.has(peer))
      events.add(EVENT_TEXTS.disconnected(self, peer, leaseMs + clockSkewMaxMs));
    this.#disconnected.add(peer);
    this.#checkMajority();
  }

  membershipChanged(state: ServerState): void {
    if (state === this.#membership) return;
    this.#membership = state;
    const { self, events } = this.#parts;
    if (state === 'draining') events.add(EVENT_TEXTS.draining(self));
    if (state === 'out') events.add(EVENT_TEXTS.drained(self));
  }

  #becamePrimary({ file, epoch, isFirstPrimary }: ObservedReplica): void {
    const { self, events, nowMs } = this.#parts;
    const sinceMs = this.#resetsSinceMs.get(file) ?? nowMs();
    this.#resetsSinceMs.delete(file);
    this.#primaryEpochs.set(file, epoch.counter);
    // Every new file gets a first primary: no event.
    if (isFirstPrimary) return;
    const earlier = this.#ownLeases.get(file) ?? { kind: 'none' };
    events.add(EVENT_TEXTS.elected(self, file, epoch.counter, earlier, nowMs() - sinceMs));
  }

  /** Returns the epoch in which this server was the file's primary; null if it was not. */
  #primaryEnded(file: FileId): number | null {
    const epoch = this.#primaryEpochs.get(file) ?? null;
    this.#primaryEpochs.delete(file);
    this.#resetsSinceMs.delete(file);
    return epoch;
  }

  #earlierLeaseOf(file: FileId): EarlierLease {
    const learned = this.#learnedLeases.get(file);
    if (learned === undefined) return { kind: 'none' };
    const { holder, untilMs } = learned;
    if (holder === this.#parts.self) return { kind: 'own' };
    const agoMs = this.#parts.nowMs() - untilMs;
    return agoMs < 0 ? { kind: 'released', holder } : { kind: 'ended', holder, agoMs };
  }

  #checkMajority(): void {
    const { self, events, servers, isConnected } = this.#parts;
    const all = servers();
    const reached = all.filter((server) => server === self || isConnected(server)).length;
    const hasMajority = reached >= majority(all.length);
    if (this.#hadMajority && !hasMajority) events.add(EVENT_TEXTS.noMajority(self, reached, all.length));
    if (!this.#hadMajority && hasMajority && this.#disconnected.size > 0) {
      events.add(EVENT_TEXTS.majority(self, reached, all.length));
    }
    this.#hadMajority = hasMajority;
  }

  #checkForPause(): void {
    const nowMs = this.#parts.nowMs();
    const pausedMs = nowMs - this.#checkedMs - PAUSE_CHECK_MS;
    this.#checkedMs = nowMs;
    if (pausedMs >= PAUSE_MS_MIN) {
      this.#parts.events.add(EVENT_TEXTS.paused(this.#parts.self, pausedMs));
    }
  }
}

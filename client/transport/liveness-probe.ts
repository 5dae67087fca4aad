import type { Timer, World } from '../../base/world.ts';
import type { ServerChannel } from './server-channel.ts';

/**
 * Everything is counted in intervals, not in time: after a pause of this process, or a stall of its event loop, many
 * seconds are one interval, and what arrived meanwhile is read before the next one ends.
 */
const INTERVAL_MS = 125;
/** A server is probed if an answer is awaited and nothing arrived for this long. */
const QUIET_INTERVALS = 3;
/** The interval grows up to this while the server answers probes. */
const QUIET_INTERVALS_MAX = 8;
/** A server without an answer to a probe for this long is silent. */
const SILENT_INTERVALS = 4;
/** The limits above are at least this multiple of the server's connect time, up to `DISTANT_INTERVALS_MAX`. */
const CONNECTS = 4;
const DISTANT_INTERVALS_MAX = 40;
/** A request that moved from a silent server stays at the next one for at least this long, then twice that. */
export const PATIENCE_INTERVALS = 8;
const AWAY_PROBE_PERIOD_MS = 1_000;

interface Watch {
  readonly since: number;
  readonly patienceIntervals: number;
  readonly onSilent: () => void;
}

export interface LivenessEvents {
  /** The server shows no sign of life, although its answers are awaited. */
  silent(): void;
  alive(): void;
  /** @returns whether a request could be sent to another server instead; if not, it stays at this one */
  hasAlternative(): boolean;
}

/**
 * Detects whether a server is alive while its answers are awaited: a stopped or disconnected one keeps connections open
 * and sends nothing. It is asked for `/livez`, once for all waiting requests, on a connection of its own, since all
 * others may be taken. A server that answers keeps its requests, however long they take: it may be waiting for an
 * election.
 */
export class LivenessProbe {
  readonly #world: World;
  readonly #channel: Pick<ServerChannel, 'probe' | 'hasReceived' | 'connectMs'>;
  readonly #events: LivenessEvents;
  readonly #watches = new Set<Watch>();
  #timer: Timer | null = null;
  #interval = 0;
  #lastSignAt = 0;
  #quietIntervals = QUIET_INTERVALS;
  #probedAt: number | null = null;
  #probe: { readonly controller: AbortController; readonly since: number } | null = null;
  #nextProbeMs = 0;
  #silent = false;
  #closed = false;

  constructor(
    world: World,
    channel: Pick<ServerChannel, 'probe' | 'hasReceived' | 'connectMs'>,
    events: LivenessEvents,
  ) {
    this.#world = world;
    this.#channel = channel;
    this.#events = events;
  }

  get isSilent(): boolean {
    return this.#silent;
  }

  /** Calls `onSilent` once if the server is silent after `patienceIntervals`, and another usable. @returns ends this */
  watch(patienceIntervals: number, onSilent: () => void): () => void {
    const watch = { since: this.#interval, patienceIntervals, onSilent };
    this.#watches.add(watch);
    this.#start();
    return () => this.#watches.delete(watch);
  }

  signOfLife(): void {
    this.#quietIntervals = QUIET_INTERVALS;
    this.#markAlive();
  }

  /** Called when an unreachable server would be chosen: whether it is alive again is known at a later choice. */
  probeIfDue(nowMs: number): void {
    if (this.#probe !== null || nowMs < this.#nextProbeMs || this.#closed) return;
    this.#sendProbe();
  }

  /** Delays the next probe of an unreachable server. */
  delayProbe(nowMs: number): void {
    this.#nextProbeMs = nowMs + AWAY_PROBE_PERIOD_MS;
  }

  close(): void {
    this.#closed = true;
    this.#watches.clear();
    this.#abortProbe();
    this.#stop();
  }

  #start(): void {
    if (this.#timer !== null || this.#closed) return;
    // Only waiting requests, and the connection of a probe, keep the process alive.
    this.#timer = this.#world.every(INTERVAL_MS, () => this.#tick()).unref();
    this.#channel.hasReceived();
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }

  /** Once per interval: notes what arrived, marks the server silent, probes it, or ends watches. */
  #tick(): void {
    this.#interval++;
    // Bytes and not answers: a large answer on a slow line is a sign of life long before its end.
    if (this.#channel.hasReceived()) this.signOfLife();
    const [oldest] = this.#watches;
    const limit = this.#forDistance(SILENT_INTERVALS);
    if (this.#probe !== null && this.#interval - this.#probe.since >= limit) this.#abortProbe();
    if (oldest === undefined) {
      this.#probedAt = null;
      // The next wait starts the timer again; an open probe still needs its end.
      if (this.#probe === null) this.#stop();
      return;
    }
    const quietFor = this.#interval - Math.max(this.#lastSignAt, oldest.since);
    if (this.#probedAt !== null && this.#interval - this.#probedAt >= limit) this.#markSilent();
    if (this.#probe === null && (this.#silent || quietFor >= this.#forDistance(this.#quietIntervals)))
      this.#sendProbe();
    if (this.#silent) this.#endWatches();
  }

  #markSilent(): void {
    if (this.#silent) return;
    this.#silent = true;
    this.delayProbe(this.#world.nowMs());
    this.#events.silent();
  }

  /** Ends the watches whose patience is over, so that their requests are sent to other servers. */
  #endWatches(): void {
    for (const watch of [...this.#watches]) {
      if (this.#interval - watch.since < watch.patienceIntervals) continue;
      if (!this.#events.hasAlternative()) return;
      this.#watches.delete(watch);
      watch.onSilent();
    }
  }

  #sendProbe(): void {
    const probe = { controller: new AbortController(), since: this.#interval };
    this.#probe = probe;
    if (this.#watches.size > 0) this.#probedAt ??= this.#interval;
    this.#start();
    this.#channel.probe(probe.controller.signal).then(
      () => {
        if (this.#probe !== probe) return;
        this.#quietIntervals = Math.min(2 * this.#quietIntervals, QUIET_INTERVALS_MAX);
        this.#markAlive();
      },
      () => {
        // No error to report. The probe is repeated for as long as an answer is awaited.
        if (this.#probe !== probe) return;
        this.#probe = null;
        this.delayProbe(this.#world.nowMs());
      },
    );
  }

  #markAlive(): void {
    this.#abortProbe();
    this.#lastSignAt = this.#interval;
    this.#probedAt = null;
    this.#silent = false;
    this.#events.alive();
  }

  #abortProbe(): void {
    const probe = this.#probe;
    if (probe === null) return;
    this.#probe = null;
    this.delayProbe(this.#world.nowMs());
    probe.controller.abort();
  }

  #forDistance(intervals: number): number {
    const distant = Math.ceil((CONNECTS * this.#channel.connectMs) / INTERVAL_MS);
    return Math.max(intervals, Math.min(distant, DISTANT_INTERVALS_MAX));
  }
}

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
/** A distant server gets this multiple of its connect time, up to `DISTANT_INTERVALS_MAX`. */
const CONNECTS = 4;
const DISTANT_INTERVALS_MAX = 40;
/** A request that left a silent server stays at the next one for at least this long, then twice that, and so on. */
export const PATIENCE_INTERVALS = 8;
/** How often a server is probed that is away and has no request in flight. */
const RETURN_PERIOD_MS = 1_000;

interface Watch {
  readonly since: number;
  readonly patienceIntervals: number;
  readonly onSilent: () => void;
}

export interface LivenessEvents {
  /** The server shows no sign of life, although its answers are awaited. */
  silent(): void;
  alive(): void;
  /** @returns whether a request could go to another server instead; if not, it stays where it is */
  elsewhere(): boolean;
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
  #heardAt = 0;
  #quietIntervals = QUIET_INTERVALS;
  /** When the first probe since the last sign of life was sent. */
  #askedAt: number | null = null;
  #question: { readonly controller: AbortController; readonly since: number } | null = null;
  #returnAtMs = 0;
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

  /** @param onSilent called at most once: the server is silent, and there is another one @returns ends the wait */
  watch(patienceIntervals: number, onSilent: () => void): () => void {
    const watch = { since: this.#interval, patienceIntervals, onSilent };
    this.#watches.add(watch);
    this.#start();
    return () => this.#watches.delete(watch);
  }

  signOfLife(): void {
    this.#quietIntervals = QUIET_INTERVALS;
    this.#live();
  }

  probeIfAway(nowMs: number): void {
    if (this.#question !== null || nowMs < this.#returnAtMs || this.#closed) return;
    this.#ask();
  }

  away(nowMs: number): void {
    this.#returnAtMs = nowMs + RETURN_PERIOD_MS;
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

  #tick(): void {
    this.#interval++;
    // Bytes and not answers: a large answer on a slow line is a sign of life long before its end.
    if (this.#channel.hasReceived()) this.signOfLife();
    const [oldest] = this.#watches;
    const limit = this.#reach(SILENT_INTERVALS);
    if (this.#question !== null && this.#interval - this.#question.since >= limit) this.#abortProbe();
    if (oldest === undefined) {
      this.#askedAt = null;
      // The next wait starts the timer again; an open probe still needs its end.
      if (this.#question === null) this.#stop();
      return;
    }
    const quietFor = this.#interval - Math.max(this.#heardAt, oldest.since);
    if (this.#askedAt !== null && this.#interval - this.#askedAt >= limit) this.#fallSilent();
    if (this.#question === null && (this.#silent || quietFor >= this.#reach(this.#quietIntervals)))
      this.#ask();
    if (this.#silent) this.#sendAway();
  }

  #fallSilent(): void {
    if (this.#silent) return;
    this.#silent = true;
    this.away(this.#world.nowMs());
    this.#events.silent();
  }

  #sendAway(): void {
    for (const watch of [...this.#watches]) {
      if (this.#interval - watch.since < watch.patienceIntervals) continue;
      if (!this.#events.elsewhere()) return;
      this.#watches.delete(watch);
      watch.onSilent();
    }
  }

  #ask(): void {
    const question = { controller: new AbortController(), since: this.#interval };
    this.#question = question;
    if (this.#watches.size > 0) this.#askedAt ??= this.#interval;
    this.#start();
    this.#channel.probe(question.controller.signal).then(
      () => {
        if (this.#question !== question) return;
        this.#quietIntervals = Math.min(2 * this.#quietIntervals, QUIET_INTERVALS_MAX);
        this.#live();
      },
      () => {
        // No error to report. The probe is repeated for as long as an answer is awaited.
        if (this.#question !== question) return;
        this.#question = null;
        this.away(this.#world.nowMs());
      },
    );
  }

  #live(): void {
    this.#abortProbe();
    this.#heardAt = this.#interval;
    this.#askedAt = null;
    this.#silent = false;
    this.#events.alive();
  }

  #abortProbe(): void {
    const question = this.#question;
    if (question === null) return;
    this.#question = null;
    this.away(this.#world.nowMs());
    question.controller.abort();
  }

  #reach(intervals: number): number {
    const distant = Math.ceil((CONNECTS * this.#channel.connectMs) / INTERVAL_MS);
    return Math.max(intervals, Math.min(distant, DISTANT_INTERVALS_MAX));
  }
}

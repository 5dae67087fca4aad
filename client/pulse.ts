import type { Timer, World } from '../base/world.ts';
import type { ServerChannel } from './server-channel.ts';

/**
 * All is counted in intervals, not in time: after a pause of this process, or a stall of its event loop, many seconds
 * are one interval, and what arrived meanwhile is read before the next one ends.
 */
const INTERVAL_MS = 125;
/** A server from which somebody waits for an answer and nothing came in for so long is asked whether it is alive. */
const QUIET_INTERVALS = 3;
/** One that keeps saying that it is alive is asked less and less often, down to this. */
const QUIET_INTERVALS_MAX = 8;
/** A server that has not said so for this long is silent. */
const SILENT_INTERVALS = 4;
/** A distant server gets so many times what a connection to it takes. */
const CONNECTS = 4;
/** However distant. */
const DISTANT_INTERVALS_MAX = 40;
/** A request that had to leave one silent server stays at the next for at least this long, then twice that, and so on. */
export const PATIENCE_INTERVALS = 8;
/** A server that is known to be away, and of which nobody awaits anything, is asked this often if somebody would use it. */
const RETURN_PERIOD_MS = 1_000;

/** Somebody waits for an answer. */
interface Watch {
  readonly since: number;
  readonly patienceIntervals: number;
  readonly onSilent: () => void;
}

export interface PulseEvents {
  /** The server does not say that it is alive, although its answers are awaited. */
  silent(): void;
  /** It has said so. */
  alive(): void;
  /** @returns whether a request could be sent to another server instead; while not, it stays where it is */
  elsewhere(): boolean;
}

/**
 * Whether a server lives, found out while answers of it are awaited: one whose process is stopped, or which was cut
 * off, keeps connections open and says nothing. It is asked for `/livez`, once for all who wait, on a connection that
 * is made for it, since all others may be taken. A server that answers keeps its requests, for however long they
 * take: it may be waiting for an election.
 */
export class Pulse {
  readonly #world: World;
  readonly #channel: Pick<ServerChannel, 'probe' | 'hasMoved' | 'connectMs'>;
  readonly #events: PulseEvents;
  /** In the order in which they began. */
  readonly #watches = new Set<Watch>();
  #timer: Timer | null = null;
  #interval = 0;
  #heardAt = 0;
  #quietIntervals = QUIET_INTERVALS;
  /** When it was first asked since it was last heard of. */
  #askedAt: number | null = null;
  #question: { readonly controller: AbortController; readonly since: number } | null = null;
  #returnAtMs = 0;
  #silent = false;
  #closed = false;

  constructor(
    world: World,
    channel: Pick<ServerChannel, 'probe' | 'hasMoved' | 'connectMs'>,
    events: PulseEvents,
  ) {
    this.#world = world;
    this.#channel = channel;
    this.#events = events;
  }

  /** Whether it was asked in vain, and nothing was heard of it since. */
  get isSilent(): boolean {
    return this.#silent;
  }

  /**
   * To be called when an answer begins to be awaited.
   *
   * @param patienceIntervals shortest time to wait at this server, whatever is known of it
   * @param onSilent called once at the most: the server is silent, and there is another one
   * @returns to be called when the answer is there, or no longer awaited
   */
  watch(patienceIntervals: number, onSilent: () => void): () => void {
    const watch = { since: this.#interval, patienceIntervals, onSilent };
    this.#watches.add(watch);
    this.#start();
    return () => this.#watches.delete(watch);
  }

  /** The server gave a sign of life. */
  heard(): void {
    this.#quietIntervals = QUIET_INTERVALS;
    this.#live();
  }

  /** Asks a server that is away whether it is back, in the background, unless that was done just now. */
  askWhetherBack(nowMs: number): void {
    if (this.#question !== null || nowMs < this.#returnAtMs || this.#closed) return;
    this.#ask();
  }

  /** It is away as of now: it is asked no sooner than in a while. */
  away(nowMs: number): void {
    this.#returnAtMs = nowMs + RETURN_PERIOD_MS;
  }

  close(): void {
    this.#closed = true;
    this.#watches.clear();
    this.#withdraw();
    this.#stop();
  }

  #start(): void {
    if (this.#timer !== null || this.#closed) return;
    // What keeps the process running is whoever waits, and the connection on which the server is asked.
    this.#timer = this.#world.every(INTERVAL_MS, () => this.#tick()).unref();
    this.#channel.hasMoved();
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }

  #tick(): void {
    this.#interval++;
    // Bytes and not answers: a large one on a slow line is a sign of life long before its end.
    if (this.#channel.hasMoved()) this.heard();
    const [oldest] = this.#watches;
    const limit = this.#reach(SILENT_INTERVALS);
    if (this.#question !== null && this.#interval - this.#question.since >= limit) this.#withdraw();
    if (oldest === undefined) {
      this.#askedAt = null;
      // Begun anew with the next one who waits; a question that is open still needs its end.
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
        // Not an error to report: this is what the question was for. It is repeated for as long as somebody waits.
        if (this.#question !== question) return;
        this.#question = null;
        this.away(this.#world.nowMs());
      },
    );
  }

  #live(): void {
    this.#withdraw();
    this.#heardAt = this.#interval;
    this.#askedAt = null;
    this.#silent = false;
    this.#events.alive();
  }

  #withdraw(): void {
    const question = this.#question;
    if (question === null) return;
    this.#question = null;
    this.away(this.#world.nowMs());
    question.controller.abort();
  }

  /** @returns so many intervals, or more where the server is far away */
  #reach(intervals: number): number {
    const distant = Math.ceil((CONNECTS * this.#channel.connectMs) / INTERVAL_MS);
    return Math.max(intervals, Math.min(distant, DISTANT_INTERVALS_MAX));
  }
}

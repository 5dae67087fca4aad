/**
 * Goal: run the real cores through more faults in a second than production has in a year, and replay any of them.
 * Method: one thread, virtual time, one seed. Servers are callbacks; the world has their clocks, network and crashes.
 * Nothing here knows a protocol.
 *
 * Two kinds of run use it. A random run draws losses, delays, pauses, crashes and partitions from the seed
 * (`unleash`). A directed run is a script: `calm` faults, and `intercept` to hold, drop and deliver single messages.
 */
import { assert } from '../../base/assert.ts';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { ClockCourse, microsecond } from './clock-course.ts';
import { EventHeap } from './event-heap.ts';

/** One life of a server. Called only while the server is up and not paused. */
export interface Process<Message> {
  message(from: ServerId, message: Message): void;
  /** Called when the lease clock has reached `nextWakeMs()`. */
  tick(): void;
  /** The time of the next `tick` on the lease clock, or null. Queried after each callback. */
  nextWakeMs(): number | null;
}

/** Starts a life. The callback itself keeps durable state from one life to the next. */
export type Boot<Message> = (server: ServerId, incarnation: Incarnation) => Process<Message>;

/** The faults of a world. Rates are probabilities per message or mean gaps in virtual time. */
export interface Faults {
  /** Probability that a message is lost. */
  readonly loss: number;
  /** Probability that a message arrives twice. */
  readonly duplication: number;
  /** The usual one-way delay is uniform between these, so that messages may overtake each other. */
  readonly delayMinMs: number;
  readonly delayMaxMs: number;
  /** Probability that a message is delayed by up to `delayRareMaxMs` instead. */
  readonly delayRare: number;
  readonly delayRareMaxMs: number;
  /** Timers fire up to this late. */
  readonly timerLateMaxMs: number;
  /** Mean gaps between faults of a kind, anywhere in the cluster; Infinity for never. */
  readonly pauseEveryMs: number;
  readonly pauseMaxMs: number;
  readonly crashEveryMs: number;
  readonly downMaxMs: number;
  readonly cutEveryMs: number;
  readonly cutMaxMs: number;
  /**
   * The most a lease clock differs from true time: half of the skew between two of them. Infinity if the clocks are
   * not synchronized, and only their rates are bounded.
   */
  readonly offsetMaxMs: number;
  /** The fastest slew of a clock, as a fraction of elapsed time. */
  readonly slewMax: number;
  /** Whether clocks sometimes jump forwards within their limits. True if absent. */
  readonly clocksJump?: boolean;
}

/** A quiet LAN with exact clocks, for scripts. */
export const CALM: Faults = {
  loss: 0,
  duplication: 0,
  delayMinMs: 1,
  delayMaxMs: 1,
  delayRare: 0,
  delayRareMaxMs: 0,
  timerLateMaxMs: 0.1,
  pauseEveryMs: Infinity,
  pauseMaxMs: 0,
  crashEveryMs: Infinity,
  downMaxMs: 0,
  cutEveryMs: Infinity,
  cutMaxMs: 0,
  offsetMaxMs: 0,
  slewMax: 0,
};

export interface WorldOptions<Message> {
  readonly seed: number;
  /** 1 to 26 servers, named a, b, c … */
  readonly servers: number;
  readonly boot: Boot<Message>;
  readonly faults?: Faults;
  /** Called after every callback into a server, and after it crashed: observers check there. */
  readonly observe?: (server: ServerId) => void;
  /** The server that a fault should hit, for example the primary; null or absent: a random one. */
  readonly aim?: () => ServerId | null;
  /** Keep a line per event, for the report of a failing seed. */
  readonly verbose?: boolean;
  /** The text of a message in such a line. Absent: as JSON. */
  readonly describe?: (message: Message) => string;
}

/** A message between two servers, for `intercept`. */
export interface Envelope<Message> {
  readonly from: ServerId;
  readonly to: ServerId;
  readonly message: Message;
}

interface Server<Message> {
  readonly id: ServerId;
  readonly index: number;
  process: Process<Message> | null;
  incarnation: Incarnation;
  life: number;
  pausedUntilMs: number;
  /** Events that arrived during a pause, in order. */
  waiting: (() => void)[];
  /** Only the latest scheduled tick counts. */
  tickToken: number;
  tickAtClockMs: number;
  readonly clock: ClockCourse;
}

/** Of two events at one time, the one that was scheduled first comes first. */
interface Scheduled {
  readonly atMs: number;
  readonly order: number;
  readonly run: () => void;
}

const EVENTS_MAX = 2_000_000_000;

/** True time at the begin of each run; exact lease clocks show the same. */
export const START_MS = 1_000_000;

const FIRST_LETTER = 97;
/** How late a timer is without faults. */
const USUAL_LATE_MS = 0.05;

export class World<Message> {
  readonly prng: Prng;
  readonly ids: readonly ServerId[];
  /** True virtual time; no server can read it. */
  nowMs: number;
  faults: Faults;
  /** Directed runs: decides about each message. `hold` keeps it in `held`. */
  intercept: ((envelope: Envelope<Message>) => 'pass' | 'hold' | 'drop') | null = null;
  readonly held: Envelope<Message>[] = [];
  /** What happened, when `verbose`. */
  readonly lines: string[] = [];
  /** Counts: a run in which nothing happens proves nothing. */
  readonly counts = { messages: 0, lost: 0, duplicated: 0, ticks: 0, crashes: 0, pauses: 0, cuts: 0 };

  readonly #servers: Server<Message>[];
  readonly #options: WorldOptions<Message>;
  readonly #verbose: boolean;
  readonly #queue = new EventHeap<Scheduled>();
  /** The number of cuts of each link, as cuts overlap; index from · n + to. */
  readonly #cuts: Uint16Array;
  /** Faults scheduled before a `heal` have no effect after it. */
  #storm = 0;
  /** Counts of scheduled and executed events. */
  #scheduled = 0;
  #events = 0;

  constructor(options: WorldOptions<Message>) {
    assert(options.servers >= 1 && options.servers <= 26, 'One letter names a server');
    this.prng = new Prng(options.seed);
    this.faults = options.faults ?? CALM;
    this.nowMs = START_MS;
    this.#options = options;
    this.#verbose = options.verbose ?? false;
    this.ids = Array.from(
      { length: options.servers },
      (_, i) => String.fromCharCode(FIRST_LETTER + i) as ServerId,
    );
    this.#cuts = new Uint16Array(options.servers * options.servers);
    this.#servers = this.ids.map((id, index) => ({
      id,
      index,
      process: null,
      incarnation: 0 as Incarnation,
      life: 0,
      pausedUntilMs: 0,
      waiting: [],
      tickToken: 0,
      tickAtClockMs: Infinity,
      clock: new ClockCourse(options.seed * 31 + index, this.faults, START_MS),
    }));
  }

  /** Boots every server that is down. */
  start(): void {
    for (const server of this.#servers) this.restart(server.id);
  }

  /** True time since the begin. */
  get elapsedMs(): number {
    return this.nowMs - START_MS;
  }

  // Clocks ---------------------------------------------------------------------------------------

  /** The server's lease clock, now. Each reading advances with true time. */
  clockMs(id: ServerId): number {
    return this.#server(id).clock.readMs(this.nowMs);
  }

  /** Directed runs: sets the clock to true time + `offsetMs`, at once and for good. */
  setClock(id: ServerId, offsetMs: number): void {
    const server = this.#server(id);
    server.clock.set(this.nowMs, offsetMs);
    if (this.#verbose) this.#note(id, `has a clock that is ${offsetMs} ms off`);
    this.#settle(server);
  }

  /** Directed runs: the clock runs fast or slow until it is true time + `offsetMs`, after `overMs`. */
  slewClock(id: ServerId, offsetMs: number, overMs: number): void {
    const server = this.#server(id);
    server.clock.moveTo(this.nowMs, offsetMs, overMs);
    if (this.#verbose) this.#note(id, `has a clock that will be ${offsetMs} ms off in ${overMs} ms`);
    this.#settle(server);
  }

  // Servers --------------------------------------------------------------------------------------

  isUp(id: ServerId): boolean {
    return this.#server(id).process !== null;
  }

  isPaused(id: ServerId): boolean {
    return this.#server(id).pausedUntilMs > this.nowMs;
  }

  /** Kills the process: its memory, timers and waiting events are gone. */
  crash(id: ServerId): void {
    const server = this.#server(id);
    if (server.process === null) return;
    if (this.#verbose) this.#note(id, 'crashes');
    this.counts.crashes++;
    server.process = null;
    server.life++;
    server.waiting = [];
    server.pausedUntilMs = 0;
    server.tickToken++;
    server.tickAtClockMs = Infinity;
    this.#options.observe?.(id);
  }

  /** Starts a new life with a new incarnation, unless the server is up. */
  restart(id: ServerId): void {
    const server = this.#server(id);
    if (server.process !== null) return;
    // Not from the world's generator: the same life is the same in a run from which something was removed.
    const { seed, boot } = this.#options;
    const dice = new Prng((seed * 32 + server.index) * 4096 + server.life);
    server.incarnation = (dice.nextUint32() * 2 ** 21 + (dice.nextUint32() >>> 11)) as Incarnation;
    if (this.#verbose) this.#note(id, 'starts');
    server.process = boot(id, server.incarnation);
    this.#after(server);
  }

  /**
   * Stops the event loop. What arrives waits; after the pause messages come first, in order, and then the timers that
   * are overdue.
   */
  pause(id: ServerId, durationMs: number): void {
    const server = this.#server(id);
    if (server.process === null) return;
    const untilMs = this.nowMs + durationMs;
    if (untilMs <= server.pausedUntilMs) return;
    if (this.#verbose) this.#note(id, `pauses for ${durationMs.toFixed(1)} ms`);
    this.counts.pauses++;
    server.pausedUntilMs = untilMs;
    const { life } = server;
    this.at(untilMs, () => {
      if (server.life === life && server.pausedUntilMs === untilMs) this.#resume(server);
    });
  }

  /** Ends a pause early. */
  resume(id: ServerId): void {
    const server = this.#server(id);
    if (server.pausedUntilMs > this.nowMs) this.#resume(server);
  }

  #resume(server: Server<Message>): void {
    if (this.#verbose) this.#note(server.id, 'resumes');
    server.pausedUntilMs = 0;
    const waiting = server.waiting;
    server.waiting = [];
    const { life } = server;
    for (const run of waiting) if (server.life === life) run();
    if (server.life === life) this.#tickIfDue(server);
  }

  /** Calls into the server, as a client or its disk does, now or at the end of its pause. */
  call(id: ServerId, run: () => void): void {
    const server = this.#server(id);
    if (server.process === null) return;
    if (server.pausedUntilMs > this.nowMs) {
      server.waiting.push(() => this.call(id, run));
      return;
    }
    run();
    this.#after(server);
  }

  /** `call` after a delay; has no effect if the server crashes meanwhile. For disks. */
  later(id: ServerId, delayMs: number, run: () => void): void {
    const server = this.#server(id);
    const { life } = server;
    this.at(this.nowMs + delayMs, () => {
      if (server.life === life) this.call(id, run);
    });
  }

  // Network --------------------------------------------------------------------------------------

  /** Sends a message, which the network may delay, lose or duplicate. */
  send(from: ServerId, to: ServerId, message: Message): void {
    this.counts.messages++;
    const receiver = this.#server(to);
    if (this.intercept !== null) {
      const envelope = { from, to, message };
      const verdict = this.intercept(envelope);
      if (verdict === 'hold') this.held.push(envelope);
      if (verdict !== 'pass') {
        if (this.#verbose) this.#noteMessage(from, from, to, message, `, ${PAST[verdict]}`);
        return;
      }
    }
    const { loss, duplication } = this.faults;
    const isCut = (this.#cuts[this.#link(from, to)] as number) > 0;
    if (isCut || (loss > 0 && this.prng.chance(loss))) {
      this.counts.lost++;
      if (this.#verbose) this.#noteMessage(from, from, to, message, ', lost');
      return;
    }
    const deliver = () => this.#deliver(from, receiver, message);
    this.at(this.nowMs + this.#delayMs(), deliver);
    if (duplication > 0 && this.prng.chance(duplication)) {
      this.counts.duplicated++;
      this.at(this.nowMs + this.#delayMs(), deliver);
    }
  }

  /** Directed runs: delivers held messages that match, in order, at once. @returns their number */
  deliver(matches: (envelope: Envelope<Message>) => boolean = () => true): number {
    const due = this.held.filter(matches);
    for (const envelope of due) {
      this.held.splice(this.held.indexOf(envelope), 1);
      this.inject(envelope);
    }
    return due.length;
  }

  /** Directed runs: delivers a message now, a held one or a new one. */
  inject(envelope: Envelope<Message>): void {
    this.#deliver(envelope.from, this.#server(envelope.to), envelope.message);
  }

  /** Cuts one direction of one link. Messages on their way arrive. */
  cut(from: ServerId, to: ServerId): void {
    const link = this.#link(from, to);
    this.#cuts[link] = (this.#cuts[link] ?? 0) + 1;
  }

  uncut(from: ServerId, to: ServerId): void {
    const link = this.#link(from, to);
    this.#cuts[link] = Math.max(0, (this.#cuts[link] ?? 0) - 1);
  }

  /** Disconnects a server in both directions. */
  isolate(id: ServerId): void {
    this.partition([id]);
  }

  /** Separates a group from all others, in both directions. */
  partition(group: readonly ServerId[]): void {
    for (const [from, to] of this.#across(group)) this.cut(from, to);
  }

  /**
   * Ends all faults: links work, no server is paused or down, and no fault drawn so far has an effect. Clocks stay.
   */
  heal(): void {
    this.#note(null, 'everything works again');
    this.#storm++;
    this.#cuts.fill(0);
    this.faults = { ...CALM, offsetMaxMs: this.faults.offsetMaxMs, slewMax: this.faults.slewMax };
    this.intercept = null;
    for (const server of this.#servers) {
      this.resume(server.id);
      this.restart(server.id);
    }
  }

  #delayMs(): number {
    const { delayMinMs, delayMaxMs, delayRare, delayRareMaxMs } = this.faults;
    if (delayRare > 0 && this.prng.chance(delayRare)) return microsecond(this.prng.next() * delayRareMaxMs);
    if (delayMaxMs === delayMinMs) return delayMinMs;
    return microsecond(delayMinMs + this.prng.next() * (delayMaxMs - delayMinMs));
  }

  #deliver(from: ServerId, server: Server<Message>, message: Message): void {
    if (server.process === null) return;
    if (server.pausedUntilMs > this.nowMs) {
      server.waiting.push(() => this.#deliver(from, server, message));
      return;
    }
    if (this.#verbose) this.#noteMessage(server.id, from, server.id, message, '');
    server.process.message(from, message);
    this.#after(server);
  }

  #link(from: ServerId, to: ServerId): number {
    return this.#index(from) * this.#servers.length + this.#index(to);
  }

  #across(group: readonly ServerId[]): [ServerId, ServerId][] {
    const links: [ServerId, ServerId][] = [];
    for (const inside of group) {
      for (const outside of this.ids) {
        if (!group.includes(outside)) links.push([inside, outside], [outside, inside]);
      }
    }
    return links;
  }

  // Faults from the seed -------------------------------------------------------------------------

  /** Injects the configured faults from now on, until `heal`. */
  unleash(): void {
    const { pauseEveryMs, crashEveryMs, cutEveryMs } = this.faults;
    this.#strike(pauseEveryMs, (server) => this.pause(server, this.#shortOrLong(this.faults.pauseMaxMs)));
    this.#strike(crashEveryMs, (server) => this.crashFor(server, this.#shortOrLong(this.faults.downMaxMs)));
    this.#strike(cutEveryMs, (server) =>
      this.cutFor(this.#drawLinks(server), this.#shortOrLong(this.faults.cutMaxMs)),
    );
  }

  /** Kills the process and starts a new one after a while, or at `heal`. */
  crashFor(id: ServerId, forMs: number): void {
    this.crash(id);
    const storm = this.#storm;
    this.at(this.nowMs + forMs, () => {
      if (storm === this.#storm) this.restart(id);
    });
  }

  /** Cuts links for a while. */
  cutFor(links: readonly (readonly [ServerId, ServerId])[], forMs: number): void {
    if (this.#verbose) this.#note(null, `cut ${links.map(([from, to]) => `${from}->${to}`).join(' ')}`);
    this.counts.cuts++;
    for (const [from, to] of links) this.cut(from, to);
    const storm = this.#storm;
    this.at(this.nowMs + forMs, () => {
      if (storm !== this.#storm) return;
      for (const [from, to] of links) this.uncut(from, to);
    });
  }

  #strike(everyMs: number, fault: (target: ServerId) => void): void {
    if (everyMs === Infinity) return;
    const storm = this.#storm;
    const next = () => {
      const gapMs = microsecond(-Math.log(1 - this.prng.next()) * everyMs);
      this.at(this.nowMs + gapMs, () => {
        if (storm !== this.#storm) return;
        const aimed = this.prng.chance(0.4) ? this.#options.aim?.() : null;
        fault(aimed ?? this.prng.pick(this.ids));
        next();
      });
    };
    next();
  }

  /** Half of the faults are short, half may last as long as allowed. */
  #shortOrLong(maxMs: number): number {
    return microsecond(this.prng.next() * (this.prng.chance(0.5) ? maxMs / 20 : maxMs));
  }

  #drawLinks(id: ServerId): readonly (readonly [ServerId, ServerId])[] {
    const form = this.prng.next();
    const others = this.ids.filter((other) => other !== id && this.prng.chance(0.5));
    const links = this.#across(form > 0.4 ? [id, ...others] : [id]);
    return form > 0.6 ? links.filter(() => this.prng.chance(0.5)) : links;
  }

  // Time -----------------------------------------------------------------------------------------

  /** Runs something at a moment of true time. */
  at(atMs: number, run: () => void): void {
    this.#queue.push({ atMs: Math.max(atMs, this.nowMs), order: this.#scheduled++, run });
  }

  /** Lets time pass. @returns whether `stop` became true before `untilMs` */
  runUntil(untilMs: number, stop: () => boolean = NEVER): boolean {
    if (stop()) return true;
    const queue = this.#queue;
    while ((queue.first?.atMs ?? Infinity) <= untilMs) {
      const { atMs, run } = queue.pop();
      assert(atMs >= this.nowMs, 'Time does not go back');
      assert(++this.#events < EVENTS_MAX, 'A run ends');
      this.nowMs = atMs;
      run();
      if (stop()) return true;
    }
    this.nowMs = untilMs;
    return false;
  }

  runFor(durationMs: number, stop?: () => boolean): boolean {
    return this.runUntil(this.nowMs + durationMs, stop);
  }

  /** Adds a line to the trace of this run. `server` is the one that it is about, or null. */
  note(server: ServerId | null, what: string): void {
    if (this.#verbose) this.#note(server, what);
  }

  #note(server: ServerId | null, what: string): void {
    this.#line(server, server === null ? what : `${server} ${what}`);
  }

  #noteMessage(at: ServerId, from: ServerId, to: ServerId, message: Message, fate: string): void {
    this.#line(at, `${from} -> ${to} ${(this.#options.describe ?? JSON.stringify)(message)}${fate}`);
  }

  /** True time; the server and its clock; the event. */
  #line(server: ServerId | null, what: string): void {
    if (!this.#verbose) return;
    const time = this.elapsedMs.toFixed(2).padStart(10);
    const clock = server === null ? '' : `${server} ${(this.clockMs(server) - START_MS).toFixed(2)}`;
    this.lines.push(`${time}  ${clock.padEnd(12)}  ${what}`);
  }

  #after(server: Server<Message>): void {
    this.#settle(server);
    this.#options.observe?.(server.id);
  }

  /** Schedules the next tick, if it is earlier than the scheduled one. */
  #settle(server: Server<Message>): void {
    if (server.process === null) return;
    const wakeMs = server.process.nextWakeMs();
    if (wakeMs === null || wakeMs >= server.tickAtClockMs) return;
    server.tickAtClockMs = wakeMs;
    const token = ++server.tickToken;
    const clockMs = server.clock.readMs(this.nowMs);
    const waitMs = Math.max(0, (wakeMs - clockMs) / (1 + server.clock.slew));
    this.at(this.nowMs + waitMs + this.#lateMs(), () => this.#tick(server, token));
  }

  #lateMs(): number {
    const maxMs = this.faults.timerLateMaxMs;
    if (maxMs <= 2 * USUAL_LATE_MS) return USUAL_LATE_MS;
    return microsecond(maxMs * (0.1 + 0.9 * this.prng.next()));
  }

  #tick(server: Server<Message>, token: number): void {
    if (server.tickToken !== token) return;
    server.tickAtClockMs = Infinity;
    this.#tickIfDue(server);
  }

  #tickIfDue(server: Server<Message>): void {
    // A paused server checks its timers when the pause ends.
    if (server.process === null || server.pausedUntilMs > this.nowMs) return;
    const wakeMs = server.process.nextWakeMs();
    if (wakeMs !== null && wakeMs <= server.clock.readMs(this.nowMs)) {
      this.counts.ticks++;
      server.process.tick();
      this.#after(server);
    } else {
      this.#settle(server);
    }
  }

  #index(id: ServerId): number {
    return id.charCodeAt(0) - FIRST_LETTER;
  }

  #server(id: ServerId): Server<Message> {
    const server = this.#servers[this.#index(id)];
    assert(server !== undefined && server.id === id, 'The server exists');
    return server;
  }
}

const NEVER = () => false;

const PAST = { hold: 'held back', drop: 'dropped' } as const;

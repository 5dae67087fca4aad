/**
 * Goal: run the real cores through more misfortune in a second than production sees in a year, and
 * be able to replay any of it.
 * Method: one thread, virtual time, one seed. Servers are callbacks; the world owns their clocks,
 * their network and their deaths. Nothing here knows a protocol.
 *
 * Two kinds of run share it. A random run draws losses, delays, pauses, crashes and partitions from
 * the seed (`unleash`). A directed run is a script: `calm` faults, and `intercept` to hold, drop and
 * deliver single messages.
 */
import { assert } from '../../base/assert.ts';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';

/** One life of a server. Called only while the server is up and not paused. */
export interface Process<Message> {
  message(from: ServerId, message: Message): void;
  /** The lease clock has reached `nextWakeMs()`. */
  tick(): void;
  /** Lease clock at which `tick` is due, or null. Asked again after every callback. */
  nextWakeMs(): number | null;
}

/** Starts a life. Durable state is whatever the callback itself keeps from one life to the next. */
export type Boot<Message> = (server: ServerId, incarnation: Incarnation) => Process<Message>;

/** How hostile the world is. Rates are probabilities per message or mean gaps in virtual time. */
export interface Faults {
  /** Probability that a message is lost. */
  readonly loss: number;
  /** Probability that a message arrives twice. */
  readonly duplication: number;
  /** Usual one-way delay: uniform between these, so that messages overtake each other. */
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
  /** How far any lease clock strays from true time: ±half of the skew between two of them. */
  readonly offsetMaxMs: number;
  /** Fastest slew of a clock, as a fraction of elapsed time. */
  readonly slewMax: number;
}

/** A quiet LAN with exact clocks: the ground on which scripts are written. */
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
  /** Called after every callback into a server, and after it crashed: where observers look. */
  readonly observe?: (server: ServerId) => void;
  /** Whom a fault should hit, for example the primary; null or absent means anyone. */
  readonly aim?: () => ServerId | null;
  /** Keep a line per event, to be printed with a failing seed. */
  readonly verbose?: boolean;
  /** Lease clock at the beginning. */
  readonly startMs?: number;
}

/** A message between two servers, seen by `intercept`. */
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
  /** What arrived during a pause, in order. */
  waiting: (() => void)[];
  /** Only the latest scheduled tick counts. */
  tickToken: number;
  tickAtClockMs: number;
  /** The lease clock is true time + offset + slew · (true time − since), until the segment ends. */
  sinceMs: number;
  offsetMs: number;
  slew: number;
  segmentEndMs: number;
  readonly clockPrng: Prng;
}

interface Scheduled {
  readonly atMs: number;
  readonly order: number;
  readonly run: () => void;
}

const EVENTS_MAX = 20_000_000;

export class World<Message> {
  readonly prng: Prng;
  readonly ids: readonly ServerId[];
  /** True virtual time; no server can read it. */
  nowMs: number;
  faults: Faults;
  /** Directed runs: what happens to a message. `hold` keeps it in `held`. */
  intercept: ((envelope: Envelope<Message>) => 'pass' | 'hold' | 'drop') | null = null;
  readonly held: Envelope<Message>[] = [];
  /** What happened, when `verbose`. */
  readonly lines: string[] = [];
  /** How much happened: a run in which nothing happens proves nothing. */
  readonly counts = { messages: 0, lost: 0, duplicated: 0, ticks: 0, crashes: 0, pauses: 0, cuts: 0 };

  readonly #servers: Server<Message>[];
  readonly #byId = new Map<ServerId, Server<Message>>();
  readonly #boot: Boot<Message>;
  readonly #observe: (server: ServerId) => void;
  readonly #aim: () => ServerId | null;
  readonly #verbose: boolean;
  readonly #heap: Scheduled[] = [];
  /** Cut links, counted because cuts overlap; index from · n + to. */
  readonly #cuts: Uint16Array;
  /** Faults scheduled before a `heal` do not strike after it. */
  #storm = 0;
  #order = 0;
  #events = 0;

  constructor(options: WorldOptions<Message>) {
    assert(options.servers >= 1 && options.servers <= 26, 'Servers are named by one letter');
    this.prng = new Prng(options.seed);
    this.faults = options.faults ?? CALM;
    this.nowMs = options.startMs ?? 1_000_000;
    this.#boot = options.boot;
    this.#observe = options.observe ?? (() => {});
    this.#aim = options.aim ?? (() => null);
    this.#verbose = options.verbose ?? false;
    this.ids = Array.from({ length: options.servers }, (_, i) => String.fromCharCode(97 + i) as ServerId);
    this.#cuts = new Uint16Array(options.servers * options.servers);
    this.#servers = this.ids.map((id, index) => {
      const clockPrng = new Prng(options.seed * 31 + index);
      const limit = this.faults.offsetMaxMs;
      const server: Server<Message> = {
        id,
        index,
        process: null,
        incarnation: 0 as Incarnation,
        life: 0,
        pausedUntilMs: 0,
        waiting: [],
        tickToken: 0,
        tickAtClockMs: Infinity,
        sinceMs: this.nowMs,
        offsetMs: (clockPrng.next() * 2 - 1) * limit,
        slew: 0,
        segmentEndMs: limit === 0 || this.faults.slewMax === 0 ? Infinity : this.nowMs,
        clockPrng,
      };
      this.#byId.set(id, server);
      return server;
    });
  }

  /** Boots every server that is down. */
  start(): void {
    for (const server of this.#servers) this.restart(server.id);
  }

  // Clocks ---------------------------------------------------------------------------------------

  /** The server's lease clock, as it would read it now. Every reading advances with true time. */
  clockMs(id: ServerId): number {
    const server = this.#server(id);
    while (this.nowMs >= server.segmentEndMs) this.#nextSegment(server);
    return this.nowMs + server.offsetMs + server.slew * (this.nowMs - server.sinceMs);
  }

  /** Directed runs: sets the clock to true time + `offsetMs`, at once and for good. */
  setClock(id: ServerId, offsetMs: number): void {
    const server = this.#server(id);
    server.sinceMs = this.nowMs;
    server.offsetMs = offsetMs;
    server.slew = 0;
    server.segmentEndMs = Infinity;
    this.#note(`${id}: clock is ${offsetMs} ms off`);
    this.#settle(server);
  }

  /** Slews towards a new offset inside the bound, preferring its ends, where the protocols are tight. */
  #nextSegment(server: Server<Message>): void {
    const { offsetMaxMs, slewMax } = this.faults;
    const startMs = server.segmentEndMs;
    const here = server.offsetMs + server.slew * (startMs - server.sinceMs);
    const draw = server.clockPrng.next();
    const goal = draw < 0.3 ? -offsetMaxMs : draw > 0.7 ? offsetMaxMs : (draw * 5 - 2.5) * offsetMaxMs;
    const rest = server.clockPrng.chance(0.3);
    const lengthMs = rest
      ? (0.2 + server.clockPrng.next()) * 20_000
      : Math.max(1, Math.abs(goal - here) / (slewMax * (0.2 + 0.8 * server.clockPrng.next())));
    server.slew = rest ? 0 : (goal - here) / lengthMs;
    server.offsetMs = here;
    server.sinceMs = startMs;
    server.segmentEndMs = startMs + lengthMs;
  }

  // Servers --------------------------------------------------------------------------------------

  isUp(id: ServerId): boolean {
    return this.#server(id).process !== null;
  }

  isPaused(id: ServerId): boolean {
    return this.#server(id).pausedUntilMs > this.nowMs;
  }

  incarnation(id: ServerId): Incarnation {
    return this.#server(id).incarnation;
  }

  /** Kills the process: its memory, its timers and what waited for it are gone. */
  crash(id: ServerId): void {
    const server = this.#server(id);
    if (server.process === null) return;
    this.#note(`${id}: crashes`);
    this.counts.crashes++;
    server.process = null;
    server.life++;
    server.waiting = [];
    server.pausedUntilMs = 0;
    server.tickToken++;
    server.tickAtClockMs = Infinity;
    this.#observe(id);
  }

  /** Starts a new life with a new incarnation, unless the server is up. */
  restart(id: ServerId): void {
    const server = this.#server(id);
    if (server.process !== null) return;
    server.incarnation = (this.prng.nextUint32() * 2 ** 21 + (this.prng.nextUint32() >>> 11)) as Incarnation;
    this.#note(`${id}: starts`);
    server.process = this.#boot(id, server.incarnation);
    this.#after(server);
  }

  /**
   * The event loop stands still. What arrives waits; at the end messages come first, in order,
   * and then the timers that are overdue.
   */
  pause(id: ServerId, durationMs: number): void {
    const server = this.#server(id);
    if (server.process === null) return;
    const untilMs = this.nowMs + durationMs;
    if (untilMs <= server.pausedUntilMs) return;
    this.#note(`${id}: pauses for ${durationMs.toFixed(1)} ms`);
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
    this.#note(`${server.id}: resumes`);
    server.pausedUntilMs = 0;
    const waiting = server.waiting;
    server.waiting = [];
    const { life } = server;
    for (const run of waiting) if (server.life === life) run();
    if (server.life === life) this.#tickIfDue(server);
  }

  /** A call into the server from its own surroundings (client, disk), now or at the end of its pause. */
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

  /** `call` after a delay; forgotten if the server crashes in between. For disks. */
  later(id: ServerId, delayMs: number, run: () => void): void {
    const server = this.#server(id);
    const { life } = server;
    this.at(this.nowMs + delayMs, () => {
      if (server.life === life) this.call(id, run);
    });
  }

  // Network --------------------------------------------------------------------------------------

  /** Sends a message; the network does with it what it likes. */
  send(from: ServerId, to: ServerId, message: Message): void {
    this.counts.messages++;
    if (this.intercept !== null) {
      const envelope = { from, to, message };
      const verdict = this.intercept(envelope);
      if (verdict === 'hold') this.held.push(envelope);
      if (verdict !== 'pass') return;
    }
    if (this.isCut(from, to) || this.prng.chance(this.faults.loss)) {
      this.counts.lost++;
      return;
    }
    this.#schedule(this.nowMs + this.#delayMs(), () => this.#deliver(from, to, message));
    if (this.faults.duplication > 0 && this.prng.chance(this.faults.duplication)) {
      this.counts.duplicated++;
      this.#schedule(this.nowMs + this.#delayMs(), () => this.#deliver(from, to, message));
    }
  }

  /** Directed runs: delivers held messages that match, in order, at once. @returns how many */
  deliver(matches: (envelope: Envelope<Message>) => boolean = () => true): number {
    const due = this.held.filter(matches);
    for (const envelope of due) {
      this.held.splice(this.held.indexOf(envelope), 1);
      this.#deliver(envelope.from, envelope.to, envelope.message);
    }
    return due.length;
  }

  /** Directed runs: delivers a message now, held or made up. */
  inject(envelope: Envelope<Message>): void {
    this.#deliver(envelope.from, envelope.to, envelope.message);
  }

  isCut(from: ServerId, to: ServerId): boolean {
    return (this.#cuts[this.#link(from, to)] ?? 0) > 0;
  }

  /** Cuts one direction of one link. What is already under way arrives. */
  cut(from: ServerId, to: ServerId): void {
    const link = this.#link(from, to);
    this.#cuts[link] = (this.#cuts[link] ?? 0) + 1;
  }

  uncut(from: ServerId, to: ServerId): void {
    const link = this.#link(from, to);
    this.#cuts[link] = Math.max(0, (this.#cuts[link] ?? 0) - 1);
  }

  /** Cuts a server off in both directions. */
  isolate(id: ServerId): void {
    this.partition([id]);
  }

  /** Separates a group from all others, in both directions. */
  partition(group: readonly ServerId[]): void {
    for (const [from, to] of this.#across(group)) this.cut(from, to);
  }

  /** All links work, nobody is paused or down, no fault drawn so far strikes any more. Clocks stay. */
  heal(): void {
    this.#note('healed');
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
    if (delayRare > 0 && this.prng.chance(delayRare)) return this.prng.next() * delayRareMaxMs;
    return delayMinMs + this.prng.next() * (delayMaxMs - delayMinMs);
  }

  #deliver(from: ServerId, to: ServerId, message: Message): void {
    const server = this.#server(to);
    if (server.process === null) return;
    if (server.pausedUntilMs > this.nowMs) {
      server.waiting.push(() => this.#deliver(from, to, message));
      return;
    }
    if (this.#verbose) this.#note(`${to}: from ${from} ${JSON.stringify(message)}`);
    server.process.message(from, message);
    this.#after(server);
  }

  #link(from: ServerId, to: ServerId): number {
    return this.#server(from).index * this.ids.length + this.#server(to).index;
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

  /** Lets the faults of `faults` strike from now on, until `heal`. */
  unleash(): void {
    const { pauseEveryMs, crashEveryMs, cutEveryMs } = this.faults;
    this.#strike(pauseEveryMs, (id) => this.pause(id, this.#shortOrLong(this.faults.pauseMaxMs)));
    this.#strike(crashEveryMs, (id) => {
      this.crash(id);
      const storm = this.#storm;
      this.at(this.nowMs + this.#shortOrLong(this.faults.downMaxMs), () => {
        if (storm === this.#storm) this.restart(id);
      });
    });
    this.#strike(cutEveryMs, (id) => this.#cutForAWhile(id));
  }

  #strike(everyMs: number, fault: (target: ServerId) => void): void {
    if (everyMs === Infinity) return;
    const storm = this.#storm;
    const next = () => {
      const gapMs = -Math.log(1 - this.prng.next()) * everyMs;
      this.at(this.nowMs + gapMs, () => {
        if (storm !== this.#storm) return;
        const aimed = this.prng.chance(0.4) ? this.#aim() : null;
        fault(aimed ?? this.prng.pick(this.ids));
        next();
      });
    };
    next();
  }

  /** Half of the faults are over soon, half may last as long as they are allowed to. */
  #shortOrLong(maxMs: number): number {
    return this.prng.next() * (this.prng.chance(0.5) ? maxMs / 20 : maxMs);
  }

  #cutForAWhile(id: ServerId): void {
    const form = this.prng.next();
    const others = this.ids.filter((other) => other !== id && this.prng.chance(0.5));
    let links = this.#across([id]);
    if (form > 0.4) links = this.#across([id, ...others]);
    if (form > 0.6) links = links.filter(() => this.prng.chance(0.5));
    this.#note(`cut ${links.map(([from, to]) => from + to).join(' ')}`);
    this.counts.cuts++;
    for (const [from, to] of links) this.cut(from, to);
    const storm = this.#storm;
    this.at(this.nowMs + this.#shortOrLong(this.faults.cutMaxMs), () => {
      if (storm !== this.#storm) return;
      for (const [from, to] of links) this.uncut(from, to);
    });
  }

  // Time -----------------------------------------------------------------------------------------

  /** Runs something at a moment of true time. */
  at(atMs: number, run: () => void): void {
    this.#schedule(Math.max(atMs, this.nowMs), run);
  }

  /** Lets time pass. @returns whether `stop` became true before `untilMs` */
  runUntil(untilMs: number, stop: () => boolean = () => false): boolean {
    if (stop()) return true;
    for (;;) {
      const next = this.#heap[0];
      if (next === undefined || next.atMs > untilMs) break;
      this.#pop();
      assert(next.atMs >= this.nowMs, 'Time does not go back');
      assert(++this.#events < EVENTS_MAX, 'A run ends');
      this.nowMs = next.atMs;
      next.run();
      if (stop()) return true;
    }
    this.nowMs = untilMs;
    return false;
  }

  runFor(durationMs: number, stop?: () => boolean): boolean {
    return this.runUntil(this.nowMs + durationMs, stop);
  }

  /** Adds a line to the record of this run. */
  note(line: string): void {
    this.#note(line);
  }

  #note(line: string): void {
    if (this.#verbose) this.lines.push(`${this.nowMs.toFixed(2)} ${line}`);
  }

  #after(server: Server<Message>): void {
    this.#settle(server);
    this.#observe(server.id);
  }

  /** Schedules the next tick, if it is earlier than the one that is scheduled. */
  #settle(server: Server<Message>): void {
    if (server.process === null) return;
    const wakeMs = server.process.nextWakeMs();
    if (wakeMs === null || wakeMs >= server.tickAtClockMs) return;
    server.tickAtClockMs = wakeMs;
    const token = ++server.tickToken;
    const clockMs = this.clockMs(server.id);
    const waitMs = Math.max(0, (wakeMs - clockMs) / (1 + server.slew));
    const lateMs = this.faults.timerLateMaxMs * (0.1 + 0.9 * this.prng.next());
    this.#schedule(this.nowMs + waitMs + lateMs, () => {
      if (server.tickToken !== token) return;
      server.tickAtClockMs = Infinity;
      this.#tickIfDue(server);
    });
  }

  #tickIfDue(server: Server<Message>): void {
    // A paused server looks at its timers when the pause ends.
    if (server.process === null || server.pausedUntilMs > this.nowMs) return;
    const wakeMs = server.process.nextWakeMs();
    if (wakeMs !== null && wakeMs <= this.clockMs(server.id)) {
      this.counts.ticks++;
      server.process.tick();
      this.#after(server);
    } else {
      this.#settle(server);
    }
  }

  #server(id: ServerId): Server<Message> {
    const server = this.#byId.get(id);
    assert(server !== undefined, `Server ${id} exists`);
    return server;
  }

  // Binary heap by (time, order of scheduling).

  #schedule(atMs: number, run: () => void): void {
    const heap = this.#heap;
    const added: Scheduled = { atMs, order: this.#order++, run };
    let at = heap.length;
    heap.push(added);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as Scheduled;
      if (!before(added, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = added;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop() as Scheduled;
    const { length } = heap;
    if (length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= length) break;
      let below = heap[child] as Scheduled;
      const right = heap[child + 1];
      if (right !== undefined && before(right, below)) {
        below = right;
        child++;
      }
      if (!before(below, last)) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
  }
}

function before(a: Scheduled, b: Scheduled): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}

/**
 * Real lease hosts in a simulated world, watched by observers that know more than any server can:
 * true time, all clocks, all registers.
 *
 * L1 exclusion: at no moment do two lives satisfy `owns` for one cell.
 * L2 agreement: once a lease is decided, nobody decides one of another holder while it is valid on
 *    any clock; the decided ends of one holder never decrease.
 * L3 ballots: those of one life strictly increase, and name that life.
 * L4 amnesia: when the silence after a start is over, everything forgotten is over on every clock.
 * L5 silence: nothing leaves a server during that silence.
 * And liveness: a healed cluster elects a holder of every cell within a bound, which then keeps it.
 */
import { AssertionFailure } from '../../base/assert.ts';
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import type { LeaseAction, LeaseEvent, LeaseMark } from '../../lease/actions.ts';
import type { Ballot } from '../../lease/ballot.ts';
import { decodeLeaseFrame, encodeLeaseFrame, type LeaseFrame } from '../../lease/codec.ts';
import { LeaseHost } from '../../lease/host.ts';
import { assertCellStep } from '../../lease/invariants.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import { type LeaseParameters, leaseParameters } from '../../lease/parameters.ts';
import { CALM, type Envelope, type Faults, type Process, World } from './world.ts';

/** A rule of the protocol is broken. */
export class Violation extends Error {
  override readonly name = 'Violation';
}

/** Short leases with a skew as large as is allowed: boundaries are hit often. */
export const LEASE_MS = 1000;
export const CLOCK_SKEW_MAX_MS = 100;
export const TIMING = { leaseMs: LEASE_MS, clockSkewMaxMs: CLOCK_SKEW_MAX_MS };
export const RECOVERY_MS = LEASE_MS + 2 * CLOCK_SKEW_MAX_MS;

export interface LeaseWorldOptions {
  readonly seed: number;
  readonly servers: number;
  readonly cells?: number;
  readonly faults?: Faults;
  readonly verbose?: boolean;
  /** Every frame goes through the codec. */
  readonly encoded?: boolean;
  /** As long as `news` is false every LEARN is lost: servers know what they ask for, no more. */
  readonly news?: boolean;
  /** Clocks are out of bounds, so exclusion is not owed; everything else is. */
  readonly clocksBroken?: boolean;
}

/** What the observers know of one server, over all its lives. */
interface Watched {
  host: LeaseHost | null;
  parameters: LeaseParameters;
  silent: boolean;
  /** Largest ballot of this life seen in a READ, by cell. */
  readonly ballots: Map<CellId, Ballot>;
  /** What this life accepted or promised: when the leases of each holder end at the latest, by cell and life. */
  accepted: Map<string, Ending>;
  /** The same, of earlier lives: forgotten. */
  forgotten: Map<string, Ending>;
}

interface Ending {
  readonly cell: CellId;
  readonly life: string;
  untilMs: number;
}

/** What was decided in favour of one life of a server, by cell and life. */
interface Decided {
  readonly cell: CellId;
  readonly life: string;
  untilMs: number;
  /** Leases up to here were given back: nobody acts on them. */
  releasedMs: number;
}

function lifeKey(server: ServerId, incarnation: Incarnation): string {
  return `${server}/${incarnation}`;
}

export class LeaseWorld {
  readonly world: World<LeaseFrame>;
  readonly cells: readonly CellId[];
  readonly marks = new Set<LeaseMark>();
  readonly counts = { held: 0, reads: 0, takeovers: 0 };

  readonly #watched = new Map<ServerId, Watched>();
  readonly #decided = new Map<string, Decided>();
  /** When the lease of an attempt would end, by its ballot. */
  readonly #attemptEnds = new Map<string, number>();
  readonly #wanted = new Set<string>();
  readonly #lastHolder = new Map<CellId, string>();
  readonly #encoded: boolean;
  #news: boolean;
  readonly #clocksBroken: boolean;

  constructor(options: LeaseWorldOptions) {
    this.cells = Array.from({ length: options.cells ?? 1 }, (_, i) => (i + 1) as CellId);
    this.#encoded = options.encoded ?? false;
    this.#news = options.news ?? true;
    this.#clocksBroken = options.clocksBroken ?? false;
    this.world = new World<LeaseFrame>({
      seed: options.seed,
      servers: options.servers,
      faults: options.faults ?? CALM,
      verbose: options.verbose ?? false,
      boot: (server, incarnation) => this.#boot(server, incarnation),
      observe: (server) => this.#observe(server),
      aim: () => this.holders(this.cells[0] as CellId)[0] ?? null,
    });
  }

  // What scripts do ------------------------------------------------------------------------------

  /** The server wants the cell, in this life and the next ones. */
  open(server: ServerId, cell: CellId, handicapMs = 0): void {
    this.#wanted.add(`${server} ${cell}`);
    const members = this.world.ids;
    this.#call(server, { kind: 'open', cell, view: 1, members, handicapMs });
  }

  close(server: ServerId, cell: CellId): void {
    this.#wanted.delete(`${server} ${cell}`);
    this.#call(server, { kind: 'close', cell });
  }

  release(server: ServerId, cell: CellId): void {
    this.#call(server, { kind: 'release', cell });
  }

  /** Servers that may act as holder at this moment, also those that are paused. */
  holders(cell: CellId): ServerId[] {
    return this.world.ids.filter((id) => this.owns(id, cell));
  }

  owns(server: ServerId, cell: CellId): boolean {
    const host = this.#of(server).host;
    return host?.owns(cell, this.world.clockMs(server)) ?? false;
  }

  host(server: ServerId): LeaseHost | null {
    return this.#of(server).host;
  }

  /** From now on LEARNs arrive like other messages. */
  startNews(): void {
    this.#news = true;
  }

  // Hosts ----------------------------------------------------------------------------------------

  #of(server: ServerId): Watched {
    const watched = this.#watched.get(server);
    if (watched === undefined) throw new Error(`Server ${server} has not been started`);
    return watched;
  }

  #boot(server: ServerId, incarnation: Incarnation): Process<LeaseFrame> {
    const clockMs = this.world.clockMs(server);
    const config = { self: server, incarnation, ...TIMING };
    const host = new LeaseHost(config, clockMs);
    const before = this.#watched.get(server);
    const forgotten = new Map([...(before?.forgotten ?? []), ...(before?.accepted ?? [])]);
    for (const [key, ending] of before?.forgotten ?? []) {
      const later = forgotten.get(key);
      if (later !== undefined) later.untilMs = Math.max(later.untilMs, ending.untilMs);
    }
    const watched: Watched = {
      host,
      parameters: leaseParameters(config),
      silent: true,
      ballots: new Map(),
      accepted: new Map(),
      forgotten,
    };
    this.#watched.set(server, watched);
    for (const cell of this.cells) {
      if (!this.#wanted.has(`${server} ${cell}`)) continue;
      const members = this.world.ids;
      this.#step(server, { kind: 'open', cell, view: 1, members, handicapMs: 0 });
    }
    return {
      message: (from, frame) => this.#step(server, { kind: 'frame', from, ...frame }),
      tick: () => this.#step(server, { kind: 'tick' }),
      nextWakeMs: () => host.nextWakeMs(),
    };
  }

  #call(server: ServerId, event: LeaseEvent): void {
    this.world.call(server, () => this.#step(server, event));
  }

  #step(server: ServerId, event: LeaseEvent): void {
    const watched = this.#of(server);
    const { host, parameters } = watched;
    if (host === null) throw new Error(`Server ${server} is down`);
    const nowMs = this.world.clockMs(server);
    const before = this.cells.map((cell) => host.inspect(cell));
    this.#endOfSilence(server, watched, nowMs);
    const actions = host.step(event, nowMs);
    this.cells.forEach((cell, i) => {
      assertCellStep(before[i] ?? null, host.inspect(cell), nowMs, parameters);
    });
    this.#recordAttempts(watched);
    this.#perform(server, watched, event, actions, nowMs);
    this.#recordRegisters(watched);
  }

  #perform(
    server: ServerId,
    watched: Watched,
    event: LeaseEvent,
    actions: readonly LeaseAction[],
    nowMs: number,
  ): void {
    const outgoing = new Map<ServerId, LeaseMessage[]>();
    for (const action of actions) {
      switch (action.kind) {
        case 'send':
          this.#watchSend(server, watched, action.message, nowMs);
          if (!this.#news && action.message.kind === 'learn') break;
          if (outgoing.has(action.to)) outgoing.get(action.to)?.push(action.message);
          else outgoing.set(action.to, [action.message]);
          break;
        case 'held':
          this.world.note(`${server}: holds ${action.cell} until ${action.untilMs}`);
          this.#watchDecided(action.cell, server, watched.parameters.incarnation, action.untilMs);
          this.#watchHolder(action.cell, server, watched.parameters.incarnation);
          break;
        case 'learned':
          this.#watchDecided(action.cell, action.holder, action.incarnation, action.untilMs);
          break;
        case 'lost':
          this.world.note(`${server}: lost ${action.cell}`);
          if (event.kind === 'release') this.#watchReleased(action.cell, server, watched, nowMs);
          break;
        case 'trace':
          this.marks.add(action.mark);
          break;
      }
    }
    for (const [to, messages] of outgoing) this.#send(server, to, messages, nowMs);
  }

  #send(from: ServerId, to: ServerId, messages: readonly LeaseMessage[], nowMs: number): void {
    const envelope = this.#of(from).host?.envelope(to, nowMs);
    if (envelope === undefined) throw new Error(`Server ${from} is down`);
    if (this.#encoded) {
      this.world.send(from, to, decodeLeaseFrame(encodeLeaseFrame(envelope, messages)));
    } else if (this.world.intercept === null) {
      this.world.send(from, to, { envelope, messages });
    } else {
      // Scripts hold and deliver single messages.
      for (const message of messages) this.world.send(from, to, { envelope, messages: [message] });
    }
  }

  // Observers ------------------------------------------------------------------------------------

  #observe(server: ServerId): void {
    const watched = this.#watched.get(server);
    if (watched === undefined) return;
    if (!this.world.isUp(server)) {
      watched.host = null;
      return;
    }
    if (this.#clocksBroken) return;
    for (const cell of this.cells) {
      if (!this.owns(server, cell)) continue;
      const holders = this.holders(cell);
      if (holders.length > 1) throw new Violation(`L1: cell ${cell} is held by ${holders.join(' and ')}`);
    }
  }

  #watchDecided(cell: CellId, holder: ServerId, incarnation: Incarnation, untilMs: number): void {
    if (this.#clocksBroken) return;
    const life = lifeKey(holder, incarnation);
    const key = `${cell} ${life}`;
    const mine = this.#decided.get(key);
    if (mine === undefined) {
      this.#decided.set(key, { cell, life, untilMs, releasedMs: -Infinity });
    } else {
      mine.untilMs = Math.max(mine.untilMs, untilMs);
      if (untilMs <= mine.releasedMs) return;
    }
    // News of a lease that is over contradicts nothing.
    const lowestMs = Math.min(...this.world.ids.map((id) => this.world.clockMs(id)));
    if (untilMs < lowestMs) return;
    for (const other of this.#decided.values()) {
      if (other.cell !== cell || other.life === life || other.untilMs <= other.releasedMs) continue;
      if (other.untilMs < lowestMs) continue;
      throw new Violation(`L2: cell ${cell} is decided for ${life}, though ${other.life} has it`);
    }
  }

  #watchHolder(cell: CellId, server: ServerId, incarnation: Incarnation): void {
    this.counts.held++;
    const life = lifeKey(server, incarnation);
    const last = this.#lastHolder.get(cell);
    if (last !== undefined && last !== life) this.counts.takeovers++;
    this.#lastHolder.set(cell, life);
  }

  /** After a RELEASE nothing that this life began before counts any more. */
  #watchReleased(cell: CellId, server: ServerId, watched: Watched, nowMs: number): void {
    const decided = this.#decided.get(`${cell} ${lifeKey(server, watched.parameters.incarnation)}`);
    if (decided !== undefined) decided.releasedMs = nowMs + LEASE_MS;
  }

  #watchSend(server: ServerId, watched: Watched, message: LeaseMessage, nowMs: number): void {
    if ((watched.host?.recoveringMs(nowMs) ?? 0) > 0 || watched.silent) {
      throw new Violation(`L5: ${server} says ${message.kind} during its silence`);
    }
    if (message.kind !== 'read') return;
    this.counts.reads++;
    const { ballot, cell } = message;
    if (ballot.server !== server || ballot.incarnation !== watched.parameters.incarnation) {
      throw new Violation(`L3: ${server} uses a ballot of ${ballot.server}`);
    }
    const last = watched.ballots.get(cell);
    watched.ballots.set(cell, ballot);
    if (last === undefined) return;
    // Compared here and not by the code under test.
    const order = ballot.interval - last.interval || ballot.round - last.round;
    if (order < 0) throw new Violation(`L3: a ballot of ${server} goes back`);
  }

  /** t0 of every attempt, so that L4 knows what a promise may still lead to. */
  #recordAttempts(watched: Watched): void {
    for (const cell of this.cells) {
      const attempt = watched.host?.inspect(cell)?.attempt;
      if (attempt) this.#attemptEnds.set(ballotKey(cell, attempt.ballot), attempt.startedMs + LEASE_MS);
    }
  }

  #recordRegisters(watched: Watched): void {
    for (const cell of this.cells) {
      const register = watched.host?.inspect(cell)?.register;
      if (register === undefined) continue;
      const { readBallot, lease } = register;
      if (lease !== null)
        this.#record(watched, cell, lifeKey(lease.holder, lease.incarnation), lease.untilMs);
      const endMs = this.#attemptEnds.get(ballotKey(cell, readBallot));
      if (endMs === undefined) continue;
      this.#record(watched, cell, lifeKey(readBallot.server, readBallot.incarnation), endMs);
    }
  }

  #record(watched: Watched, cell: CellId, life: string, untilMs: number): void {
    const key = `${cell} ${life}`;
    const ending = watched.accepted.get(key);
    if (ending === undefined) watched.accepted.set(key, { cell, life, untilMs });
    else ending.untilMs = Math.max(ending.untilMs, untilMs);
  }

  #endOfSilence(server: ServerId, watched: Watched, nowMs: number): void {
    if (!watched.silent || (watched.host?.recoveringMs(nowMs) ?? 0) > 0) return;
    watched.silent = false;
    if (this.#clocksBroken) return;
    for (const id of this.world.ids) {
      const clockMs = this.world.clockMs(id);
      for (const { cell, life, untilMs } of watched.forgotten.values()) {
        const releasedMs = this.#decided.get(`${cell} ${life}`)?.releasedMs ?? -Infinity;
        if (untilMs <= clockMs || untilMs <= releasedMs) continue;
        throw new Violation(`L4: ${server} has forgotten that ${life} may hold ${cell} until ${untilMs}`);
      }
    }
    watched.forgotten.clear();
  }
}

function ballotKey(cell: CellId, k: Ballot): string {
  return `${cell} ${k.interval}/${k.round}@${k.server}/${k.incarnation}`;
}

/** The message of a frame in a script, where every frame has one. */
export function messageOf(envelope: Envelope<LeaseFrame>): LeaseMessage {
  const message = envelope.message.messages[0];
  if (message === undefined) throw new Error('A frame in a script has one message');
  return message;
}

/** @returns the violation that `run` meets, or null. Other failures are mistakes of the test. */
export function violationOf(run: () => void): string | null {
  try {
    run();
    return null;
  } catch (error) {
    if (error instanceof Violation || error instanceof AssertionFailure) {
      return `${error.name}: ${error.message}`;
    }
    throw error;
  }
}

// Random runs ------------------------------------------------------------------------------------

/** Length of the storm. */
const STORM_MS = 16 * LEASE_MS;

function faultsDraw(world: { pick<T>(values: readonly T[]): T }, broken: boolean): Faults {
  const { pick } = { pick: world.pick.bind(world) };
  return {
    loss: pick([0, 0.02, 0.1, 0.3]),
    duplication: pick([0, 0.05, 0.3]),
    delayMinMs: 0.1,
    delayMaxMs: pick([2, 20, 60]),
    delayRare: pick([0, 0.01, 0.05]),
    delayRareMaxMs: 3 * LEASE_MS,
    timerLateMaxMs: pick([1, 20]),
    pauseEveryMs: pick([Infinity, 2000, 700]),
    pauseMaxMs: 3 * LEASE_MS,
    crashEveryMs: pick([Infinity, 4000, 1500]),
    downMaxMs: 2 * RECOVERY_MS,
    cutEveryMs: pick([Infinity, 2000, 700]),
    cutMaxMs: 3 * LEASE_MS,
    offsetMaxMs: (CLOCK_SKEW_MAX_MS / 2) * (broken ? pick([2, 6]) : pick([0.2, 1, 1])),
    slewMax: pick([0.005, 0.05, 0.3]),
  };
}

export interface LeaseRun {
  readonly violation: string | null;
  readonly world: LeaseWorld;
}

/** One random run: a storm, then peace, in which progress is owed. */
export function leaseRun(seed: number, verbose = false): LeaseRun {
  const world = leaseWorldDraw(seed, verbose);
  return { violation: violationOf(() => leaseStorm(world)), world };
}

function leaseWorldDraw(seed: number, verbose: boolean): LeaseWorld {
  // A draw of its own, so that the shape of the cluster says nothing about its fate.
  const shape = new World<null>({ seed: seed * 2 + 1, servers: 1, boot: silentProcess }).prng;
  const clocksBroken = seed % 16 === 0;
  return new LeaseWorld({
    seed,
    servers: shape.pick([1, 2, 3, 3, 3, 3, 4, 5]),
    cells: shape.pick([1, 1, 2]),
    faults: faultsDraw(shape, clocksBroken),
    encoded: seed % 8 === 1,
    news: seed % 3 !== 0,
    clocksBroken,
    verbose,
  });
}

const silentProcess = () => ({ message: () => {}, tick: () => {}, nextWakeMs: () => null });

function leaseStorm(lease: LeaseWorld): void {
  const { world } = lease;
  world.start();
  if (world.prng.chance(0.8)) {
    for (const id of world.ids) for (const cell of lease.cells) lease.open(id, cell);
  }
  // The first silence is the same in every run; the storm begins when it is nearly over.
  world.runFor(RECOVERY_MS - 100);
  world.unleash();
  const stopMs = world.nowMs + STORM_MS;
  const clients = () => {
    if (world.nowMs >= stopMs) return;
    world.at(world.nowMs + world.prng.next() * LEASE_MS, clients);
    const id = world.prng.pick(world.ids);
    const cell = world.prng.pick(lease.cells);
    const draw = world.prng.next();
    if (draw < 0.6) lease.open(id, cell, world.prng.pick([0, 0, 50]));
    else if (draw < 0.7) lease.close(id, cell);
    else if (lease.owns(id, cell)) {
      if (draw < 0.95) lease.close(id, cell);
      lease.release(id, cell);
      if (draw > 0.8) lease.open(id, cell);
    }
  };
  clients();
  world.runUntil(stopMs);
  leasePeace(lease);
}

/** Everything works again: every cell gets a holder in time, keeps it, and costs little. */
function leasePeace(lease: LeaseWorld): void {
  const { world } = lease;
  world.heal();
  lease.startNews();
  if (lease.host(world.ids[0] as ServerId) === null) throw new Error('All servers are up');
  for (const id of world.ids) for (const cell of lease.cells) lease.open(id, cell);
  const clocksBroken = world.faults.offsetMaxMs > CLOCK_SKEW_MAX_MS / 2;
  if (clocksBroken) {
    // Clocks out of bounds owe nothing but restraint; once repaired, everything. What was said by the
    // old clocks must have arrived first: it would convict the new ones.
    for (const id of world.ids) {
      world.crash(id);
      world.setClock(id, 0);
    }
    world.runFor(3 * LEASE_MS);
    world.start();
  }
  const boundMs = RECOVERY_MS + 2 * (LEASE_MS + CLOCK_SKEW_MAX_MS) + LEASE_MS;
  const allHeld = () => lease.cells.every((cell) => lease.holders(cell).length === 1);
  if (!world.runFor(boundMs, allHeld)) throw new Violation('A healthy cluster elects no holder in time');
  // Holders elected before the last server came out of its silence may be disturbed once more.
  world.runFor(boundMs);
  const { reads } = lease.counts;
  const holders = lease.cells.map((cell) => lease.holders(cell).join());
  const periods = 4;
  for (let i = 0; i < periods; i++) {
    world.runFor(LEASE_MS);
    lease.cells.forEach((cell, at) => {
      if (lease.holders(cell).join() === holders[at] && holders[at] !== '') return;
      throw new Violation(`In peace cell ${cell} goes from ${holders[at]} to ${lease.holders(cell)}`);
    });
  }
  // A holder renews three times per lease and asks every other server once each time.
  const readsMax = (periods + 1) * 4 * lease.cells.length * (world.ids.length - 1);
  if (lease.counts.reads - reads > readsMax) throw new Violation('In peace too many READs are sent');
}

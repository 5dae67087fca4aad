/**
 * Random runs of leases that clients hold: a client asks any server, gets no answer when the server crashes, and
 * continues with another.
 *
 * Rules, in true time: no two sessions hold one cell; a session's token stays the same; a granted lease is still valid
 * when the answer arrives; a released cell is free. In Flease, where ballots follow clocks that agree, tokens rise
 * with every holder; in PaxosLease they do while a majority remembers, so that is not demanded.
 * Liveness: without faults each order is answered, and a free cell is granted.
 */
import type { CellId, ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import type { LeaseOrder, LeaseOutcome } from '../../lease/actions.ts';
import { decodeLeaseFrame, encodeLeaseFrame, type LeaseFrame } from '../../lease/codec.ts';
import type { LeaseHost } from '../../lease/host.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import type { LeaseAlgorithm } from '../../lease/parameters.ts';
import { CLOCK_DRIFT_MAX } from '../../lease/parameters.ts';
import { ClaimServers } from './claim-servers.ts';
import { leaseMessageText } from './lease-text.ts';
import { CLOCK_SKEW_MAX_MS, LEASE_MS, RECOVERY_MS } from './lease-world.ts';
import { Violation, violationOf } from './violation.ts';
import type { Faults, World } from './world.ts';

const STORM_MS = 16 * LEASE_MS;
const VOTERS = 3;
/** How long a client waits for one server. */
const PATIENCE_MS = 500;
const CLIENTS = 4;
const DELAY_MAX_MS = 3 * LEASE_MS;

/** What the observers know of a granted session. */
interface Session {
  readonly client: number;
  readonly cell: CellId;
  /** Until then, in true time, its client may act on it. */
  untilMs: number;
  token: number;
}

/** An order that a client waits for. */
interface Order {
  readonly server: ServerId;
  /** When the server received it, on the server's clock. */
  receivedMs: number;
  readonly answered: (outcome: LeaseOutcome) => void;
}

/** One client: acquires a cell for a while, and refreshes and releases it or not. */
interface Client {
  readonly index: number;
  /** The rate of its clock, relative to true time. */
  readonly rate: number;
  cell: CellId;
  session: number;
  /** True time until which it acts as holder, by its own clock. */
  heldUntilMs: number;
  /** The number of the order that it waits for. */
  waitsFor: number;
}

export interface ClaimCounts {
  granted: number;
  refreshed: number;
  taken: number;
  lapsed: number;
  released: number;
  unknown: number;
  seen: number;
  /** Counts of changes of voters. */
  begun: number;
  ended: number;
}

export interface ClaimRun {
  readonly violation: string | null;
  readonly world: World<LeaseFrame>;
  readonly counts: ClaimCounts;
}

/** One random run: a time with faults, then one without. Equal seeds give equal runs. */
export function claimRun(seed: number, verbose = false): ClaimRun {
  const run = new ClaimWorld(seed, verbose);
  return { violation: violationOf(() => run.play()), world: run.world, counts: run.counts };
}

function faultsDraw(prng: Prng, algorithm: LeaseAlgorithm): Faults {
  const pick = prng.pick.bind(prng);
  return {
    loss: pick([0, 0.02, 0.1]),
    duplication: pick([0, 0.05, 0.3]),
    delayMinMs: 0.1,
    delayMaxMs: pick([2, 20]),
    delayRare: pick([0, 0.01, 0.05]),
    delayRareMaxMs: DELAY_MAX_MS,
    timerLateMaxMs: pick([1, 20]),
    pauseEveryMs: pick([Infinity, 2000, 700]),
    pauseMaxMs: 2 * LEASE_MS,
    crashEveryMs: pick([Infinity, 4000, 2000]),
    downMaxMs: RECOVERY_MS,
    cutEveryMs: pick([Infinity, 2000, 700]),
    cutMaxMs: 2 * LEASE_MS,
    offsetMaxMs: algorithm === 'flease' ? (CLOCK_SKEW_MAX_MS / 2) * pick([0.2, 1]) : Infinity,
    // The rest of a lease is sent as a span, so the rates of clocks matter in both algorithms.
    slewMax: CLOCK_DRIFT_MAX,
  };
}

class ClaimWorld extends ClaimServers {
  readonly counts: ClaimCounts = {
    granted: 0,
    refreshed: 0,
    taken: 0,
    lapsed: 0,
    released: 0,
    unknown: 0,
    seen: 0,
    begun: 0,
    ended: 0,
  };

  readonly #algorithm: LeaseAlgorithm;
  readonly #encoded: boolean;
  readonly #dice: Prng;
  readonly #cells: readonly CellId[];
  readonly #seed: number;
  readonly #clients: Client[] = [];
  readonly #sessions = new Map<number, Session>();
  /** The largest token in an answer, by cell. */
  readonly #tokens = new Map<CellId, number>();
  /** Orders without an answer. */
  readonly #orders = new Map<number, Order>();
  #asked = 0;

  constructor(seed: number, verbose: boolean) {
    const dice = new Prng(seed * 2 + 1);
    const algorithm = seed % 2 === 0 ? 'flease' : 'paxoslease';
    const cells = dice.pick([[1], [1, 2]]).map((cell) => cell as CellId);
    super(
      { algorithm, thrifty: seed % 6 > 1 },
      {
        seed,
        servers: dice.pick([3, 3, 4, 5]),
        faults: faultsDraw(dice, algorithm),
        verbose,
        describe: ({ messages }) => messages.map(leaseMessageText).join(', '),
      },
    );
    this.#dice = dice;
    this.#algorithm = algorithm;
    this.#cells = cells;
    this.#encoded = seed % 8 < 2;
    this.#seed = seed;
    // The run begins with few voters.
    const few = new Prng(seed).pick([1, 2, 3]);
    if (seed % 4 === 0) this.changeVoters({ servers: this.world.ids.slice(0, few), perCell: 3 });
    for (let index = 0; index < CLIENTS; index++) {
      const rate = 1 + (this.#dice.next() * 2 - 1) * CLOCK_DRIFT_MAX;
      const cell = this.#dice.pick(this.#cells);
      this.#clients.push({ index, rate, cell, session: 0, heldUntilMs: -Infinity, waitsFor: 0 });
    }
  }

  play(): void {
    const { world } = this;
    world.start();
    world.runFor(RECOVERY_MS + LEASE_MS / 2);
    world.unleash();
    const stopMs = world.nowMs + STORM_MS;
    for (const client of this.#clients) this.#live(client, () => world.nowMs < stopMs);
    this.voters?.live(this.#seed, stopMs);
    world.runUntil(stopMs);
    this.#peace();
    Object.assign(this.counts, this.voters?.counts);
  }

  /** All servers run and no client asks; then each cell is acquired, shown and released. */
  #peace(): void {
    const { world } = this;
    world.heal();
    this.voters?.settle();
    // In PaxosLease the oldest message may still begin a span at its receiver.
    world.runFor(RECOVERY_MS + DELAY_MAX_MS + 2 * (LEASE_MS + CLOCK_SKEW_MAX_MS));
    for (const cell of this.#cells) {
      for (const server of world.ids) {
        const session = this.#drawSession();
        this.#expect(server, cell, { kind: 'acquire', session, spanMs: LEASE_MS, note: 'peace' }, 'granted');
        this.#expect(server, cell, { kind: 'query' }, 'seen');
        this.#expect(server, cell, { kind: 'refresh', session, spanMs: LEASE_MS, note: null }, 'granted');
        this.#expect(server, cell, { kind: 'release', session }, 'free');
        this.#expect(server, cell, { kind: 'query' }, 'free');
      }
    }
  }

  #expect(server: ServerId, cell: CellId, order: LeaseOrder, kind: LeaseOutcome['kind']): void {
    let outcome: LeaseOutcome | null = null;
    const sentMs = this.world.nowMs;
    this.#ask(server, cell, order, (answer) => {
      outcome = answer;
      if (order.kind === 'acquire' && answer.kind === 'granted') this.#tokenRises(cell, sentMs, answer.lease);
    });
    this.world.runFor(PATIENCE_MS, () => outcome !== null);
    const got = (outcome as LeaseOutcome | null)?.kind ?? 'nothing';
    if (got !== kind) throw new Violation(`In peace ${server} answers ${got} to ${order.kind}, not ${kind}`);
  }

  // Clients --------------------------------------------------------------------------------------

  /** Makes a client's next step after a random time, while `goesOn` returns true. */
  #live(client: Client, goesOn: () => boolean): void {
    const { world } = this;
    const holds = world.nowMs < client.heldUntilMs;
    const waitMs = holds ? (client.heldUntilMs - world.nowMs) * this.#dice.next() : this.#dice.next() * 200;
    world.at(world.nowMs + waitMs, () => {
      if (!goesOn()) return;
      this.#act(client);
      this.#live(client, goesOn);
    });
  }

  #act(client: Client): void {
    const { world } = this;
    const draw = this.#dice.next();
    const server = this.#dice.pick(world.ids);
    const spanMs = LEASE_MS * (0.3 + 0.7 * this.#dice.next());
    if (draw < 0.1) {
      this.#ask(server, client.cell, { kind: 'query' }, (outcome) => {
        if (outcome.kind === 'seen') this.counts.seen++;
      });
    } else if (world.nowMs < client.heldUntilMs) {
      if (draw < 0.7) this.#order(client, server, 'refresh', spanMs);
      else if (draw < 0.9) this.#release(client, server);
    } else if (client.waitsFor === 0 || draw < 0.5) {
      // A session is for one acquisition. A client without an answer asks again with the same session, or abandons it.
      const spent = client.session === 0 || this.#sessions.has(client.session);
      if (spent || draw < 0.3) this.#begin(client);
      this.#order(client, server, 'acquire', spanMs);
    }
  }

  #begin(client: Client): void {
    client.session = this.#drawSession();
    client.cell = this.#dice.pick(this.#cells);
    client.heldUntilMs = -Infinity;
  }

  #order(client: Client, server: ServerId, kind: 'acquire' | 'refresh', spanMs: number): void {
    const { session, cell } = client;
    const sentMs = this.world.nowMs;
    const note = `of ${session}`;
    const order: LeaseOrder =
      kind === 'acquire'
        ? { kind, session, spanMs, note }
        : { kind, session, spanMs, note: { text: note, before: note } };
    const ask = this.#ask(server, cell, order, (outcome) => {
      if (client.session !== session) return;
      if (client.waitsFor === ask) client.waitsFor = 0;
      if (outcome.kind === 'granted') this.#granted(client, kind, sentMs, outcome.lease);
      else if (outcome.kind === 'taken') this.counts.taken++;
      else if (outcome.kind === 'free') {
        this.counts.lapsed++;
        client.session = 0;
      } else this.counts.unknown++;
    });
    client.waitsFor = ask;
  }

  #granted(
    client: Client,
    kind: 'acquire' | 'refresh',
    sentMs: number,
    lease: { readonly session: number; readonly token: number; readonly remainingMs: number },
  ): void {
    const { session, cell } = client;
    if (lease.session !== session) throw new Violation('A client is granted the lease of another');
    const known = this.#sessions.get(session);
    if (known !== undefined && known.token !== lease.token) {
      // A late order has acquired the lease again after its end. The client's hold has ended, and it knows that.
      if (this.world.nowMs < known.untilMs) {
        throw new Violation(`Session ${session} has token ${known.token} and then ${lease.token}`);
      }
      client.session = 0;
      return;
    }
    // Counted from before the order was sent, on the client's own clock.
    const untilMs = sentMs + lease.remainingMs / client.rate;
    this.counts[kind === 'acquire' ? 'granted' : 'refreshed']++;
    if (known === undefined) {
      this.#tokenRises(cell, sentMs, lease);
      this.#sessions.set(session, { client: client.index, cell, untilMs, token: lease.token });
    } else known.untilMs = Math.max(known.untilMs, untilMs);
    client.heldUntilMs = Math.max(client.heldUntilMs, untilMs);
    this.#exclusive(session, cell);
  }

  /** Asserts that no other session acts on the cell at this moment of true time. */
  #exclusive(session: number, cell: CellId): void {
    const { nowMs } = this.world;
    if (nowMs >= (this.#sessions.get(session)?.untilMs ?? 0)) return;
    for (const [other, { cell: theirs, untilMs }] of this.#sessions) {
      if (other === session || theirs !== cell || nowMs >= untilMs) continue;
      throw new Violation(`Cell ${cell} is held by sessions ${session} and ${other}`);
    }
  }

  /** Answers take less time than any lease lasts, so grants arrive in order. */
  #tokenRises(cell: CellId, sentMs: number, lease: { readonly token: number }): void {
    if (this.#algorithm === 'paxoslease') return;
    const before = this.#tokens.get(cell) ?? 0;
    const { token } = lease;
    if (token <= before) {
      throw new Violation(`Token ${token} of cell ${cell}, asked for at ${sentMs}, follows ${before}`);
    }
    this.#tokens.set(cell, token);
  }

  #release(client: Client, server: ServerId): void {
    const { session, cell } = client;
    // The client stops acting before it releases.
    client.heldUntilMs = -Infinity;
    client.session = 0;
    const known = this.#sessions.get(session);
    if (known !== undefined) known.untilMs = this.world.nowMs;
    this.#ask(server, cell, { kind: 'release', session }, (outcome) => {
      if (outcome.kind === 'free' && outcome.lease === null) this.counts.released++;
    });
  }

  #drawSession(): number {
    return this.#dice.nextUint32() + 1;
  }

  // Servers --------------------------------------------------------------------------------------

  /** Orders and answers take a random time, and may be lost with the server. @returns the order's number */
  #ask(server: ServerId, cell: CellId, order: LeaseOrder, answered: (outcome: LeaseOutcome) => void): number {
    const { world } = this;
    const ask = ++this.#asked;
    const asked: Order = { server, receivedMs: Infinity, answered };
    this.#orders.set(ask, asked);
    world.at(world.nowMs + this.#dice.next() * 5, () => {
      world.call(server, () => {
        asked.receivedMs = world.clockMs(server);
        const deadlineMs = asked.receivedMs + PATIENCE_MS;
        world.note(server, `is asked to ${order.kind} cell ${cell}, order ${ask}`);
        this.order(server, { ask, cell, order, deadlineMs });
      });
    });
    return ask;
  }

  protected members(cell: CellId): ServerId[] {
    const { ids } = this.world;
    const length = Math.min(VOTERS, ids.length);
    return Array.from({ length }, (_, at) => ids[(cell + at) % ids.length] as ServerId);
  }

  protected send(host: LeaseHost, from: ServerId, to: ServerId, messages: LeaseMessage[]): void {
    const envelope = host.envelope(to, this.world.clockMs(from));
    const frame = { envelope, messages };
    this.world.send(from, to, this.#encoded ? decodeLeaseFrame(encodeLeaseFrame(envelope, messages)) : frame);
  }

  protected answered(ask: number, outcome: LeaseOutcome): void {
    const order = this.#orders.get(ask);
    if (order === undefined) throw new Violation(`Order ${ask} is answered twice`);
    this.#orders.delete(ask);
    this.world.note(order.server, `answers ${outcome.kind} to order ${ask}`);
    if (outcome.kind === 'granted') {
      // The rest is reported too short to be safe, so the elapsed time is shortened likewise.
      const passedMs = (this.world.clockMs(order.server) - order.receivedMs) * (1 - CLOCK_DRIFT_MAX);
      if (outcome.lease.remainingMs <= passedMs) {
        throw new Violation(`Order ${ask} is granted a lease that is over`);
      }
    }
    this.world.at(this.world.nowMs + this.#dice.next() * 5, () => order.answered(outcome));
  }
}

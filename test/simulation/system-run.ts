/**
 * One random run of the system: servers and faults drawn from the seed, clients that retry, then
 * healing, then judgement.
 */
import type { ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { REGISTERS } from './system-subject.ts';
import {
  type Answer,
  requestKey,
  type SystemOptions,
  SystemWorld,
  Violation,
  type Wish,
} from './system-world.ts';
import type { Faults } from './world.ts';

const RUN_MS = 9_000;
const CLIENTS = 4;
/** A client gives up a request after so long; then it stays open in the history. */
const PATIENCE_MS = 4_000;

/** What a run was good for. */
export interface RunReport {
  readonly violation: string | null;
  readonly marks: ReadonlyMap<string, number>;
  readonly counts: Readonly<Record<string, number>>;
  readonly lines: readonly string[];
  readonly simulatedMs: number;
}

function drawFaults(prng: Prng, leaseMs: number, clockSkewMaxMs: number): Faults {
  const rough = prng.chance(0.5);
  return {
    loss: prng.chance(0.3) ? 0 : prng.next() * (rough ? 0.2 : 0.05),
    duplication: prng.next() * 0.1,
    delayMinMs: 0.5,
    delayMaxMs: 1 + prng.next() * 9,
    delayRare: prng.chance(0.5) ? 0.01 : 0,
    delayRareMaxMs: 2 * leaseMs,
    timerLateMaxMs: 5,
    pauseEveryMs: prng.chance(0.3) ? Infinity : 2_000 + prng.next() * 4_000,
    pauseMaxMs: 3 * leaseMs,
    crashEveryMs: prng.chance(0.2) ? Infinity : 1_500 + prng.next() * 4_000,
    downMaxMs: 2 * leaseMs,
    cutEveryMs: prng.chance(0.2) ? Infinity : 1_000 + prng.next() * 3_000,
    cutMaxMs: 2 * leaseMs,
    offsetMaxMs: clockSkewMaxMs / 2,
    slewMax: 0.005,
  };
}

/** Clocks are out of bounds in every eighth run: leases may then overlap, and no write may suffer. */
function isClocksBroken(seed: number): boolean {
  return seed % 8 === 0;
}

function drawOptions(seed: number, prng: Prng, verbose: boolean): SystemOptions {
  const leaseMs = 1_000;
  const clockSkewMaxMs = 50;
  return {
    seed,
    servers: prng.chance(0.75) ? 3 : prng.pick([1, 2, 4, 5]),
    faults: drawFaults(prng, leaseMs, clockSkewMaxMs),
    leases: 'real',
    leaseMs,
    clockSkewMaxMs,
    appliesAtPrimary: prng.chance(0.7) ? 'first' : 'last',
    retainedBytesMax: prng.chance(0.4) ? 1_000 : 1_000_000,
    diskMinMs: 0.2,
    diskMaxMs: prng.chance(0.3) ? 30 : 3,
    diskFailure: prng.chance(0.2) ? 0.001 : 0,
    aimAtPrimary: true,
    verbose,
  };
}

/** @param verbose keep a line per event */
export function runSystem(seed: number, verbose = false): RunReport {
  const prng = new Prng(seed);
  const system = new SystemWorld(drawOptions(seed, prng, verbose));
  const clocksBroken = isClocksBroken(seed);
  system.leasesExclude = !clocksBroken;
  system.readsAreFresh = !clocksBroken;
  let violation: string | null = null;
  try {
    runAll(system, clocksBroken);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    violation = error instanceof Violation ? error.message : (error.stack ?? error.message);
  }
  const { world, marks, counts } = system;
  return {
    violation,
    marks,
    counts: { ...counts, ...world.counts },
    lines: world.lines,
    simulatedMs: world.elapsedMs,
  };
}

function runAll(system: SystemWorld, clocksBroken: boolean): void {
  const { world } = system;
  const clients = Array.from({ length: CLIENTS }, (_, index) => new Client(system, index + 1));
  for (const client of clients) client.begin();
  world.unleash();
  scheduleStops(system);
  if (clocksBroken) scheduleJumps(system);
  world.runFor(RUN_MS);

  for (const client of clients) client.end();
  world.heal();
  if (clocksBroken) repairClocks(system);
  mustProgress(system);
  for (const client of clients) client.close();
  system.judge();
}

/**
 * Clocks go wrong where nobody can measure it: the primary is cut off, and all other clocks jump over the
 * end of its lease. A clock that is wrong while its server can be heard is found out before it does harm.
 */
function scheduleJumps(system: SystemWorld): void {
  const { world, prng } = system;
  const { leaseMs } = system.options;
  let aheadMs = 0;
  const next = (atMs: number) => {
    world.at(atMs, () => {
      const [holder] = system.holders();
      if (holder !== undefined) {
        const others = world.ids.filter((id) => id !== holder);
        const links = others.flatMap((id): [ServerId, ServerId][] => [
          [id, holder],
          [holder, id],
        ]);
        world.cutFor(links, (0.5 + prng.next()) * leaseMs);
        aheadMs += (0.5 + prng.next()) * leaseMs;
        for (const id of others) world.slewClock(id, aheadMs, 1);
      }
      next(world.nowMs + 1_500 + prng.next() * 3_000);
    });
  };
  next(world.nowMs + 2_000);
}

/** All servers start anew with right clocks, after what the wrong ones said has arrived. */
function repairClocks(system: SystemWorld): void {
  const { world } = system;
  for (const id of world.ids) {
    world.crash(id);
    world.setClock(id, 0);
  }
  world.runFor(3 * system.options.leaseMs);
  world.start();
}

/** Now and then the primary stops in good order and gives its lease back. */
function scheduleStops(system: SystemWorld): void {
  const { world, prng } = system;
  const next = (atMs: number) => {
    world.at(atMs, () => {
      const primary = system.primary();
      if (primary !== null && prng.chance(0.5)) world.call(primary, () => system.process(primary).stop());
      next(world.nowMs + 1_000 + prng.next() * 5_000);
    });
  };
  next(world.nowMs + 2_000);
}

/** Liveness: after healing, a write and a read succeed and all replicas become equal, in bounded time. */
function mustProgress(system: SystemWorld): void {
  const { world } = system;
  const { leaseMs, clockSkewMaxMs } = system.options;
  const graceMs = leaseMs + 2 * clockSkewMaxMs + 2 * (leaseMs + clockSkewMaxMs) + 5_000;
  const last = new Client(system, 90);
  let wrote = false;
  let read = false;
  last.wish({ kind: 'append', value: 'the last' }, () => {
    wrote = true;
    world.at(world.nowMs, () => {
      last.look(null, () => {
        read = true;
      });
    });
  });
  if (!world.runFor(graceMs, () => read)) {
    throw new Violation(`No progress after healing: ${wrote ? 'no read' : 'no write'}`);
  }
  if (!world.runFor(graceMs, () => system.hasConverged())) throw new Violation('The replicas stay different');
}

/** One operation at a time, again and again; retries under the same name wherever there is a server. */
class Client {
  readonly #system: SystemWorld;
  readonly #prng: Prng;
  #session: number;
  #number = 0;
  /** The latest operation; answers to older ones are too late. */
  #current = 0;
  #knownPrimary: ServerId | null = null;
  #ended = false;
  /** Changes whose outcome was never learned, with the time of their call. */
  readonly #open = new Map<string, number>();

  constructor(system: SystemWorld, index: number) {
    this.#system = system;
    this.#prng = new Prng(system.options.seed * 101 + index);
    this.#session = index * 1000;
  }

  begin(): void {
    this.#later(this.#prng.next() * 200, () => this.#next());
  }

  /** No new operations; the one under way may still finish. */
  end(): void {
    this.#ended = true;
  }

  /** The run is over: what is open stays open. */
  close(): void {
    for (const [request, callMs] of this.#open) this.#system.recordChange(request, callMs, Infinity, null);
    this.#open.clear();
  }

  #next(): void {
    if (this.#ended) return;
    const again = () => this.#later(this.#prng.next() * 60, () => this.#next());
    const draw = this.#prng.next();
    if (draw < 0.4) this.look(this.#prng.integer(0, REGISTERS - 1), again);
    else if (draw < 0.5) this.look(null, again);
    else if (draw < 0.52) this.#flush(again);
    else this.wish(this.#draw(), again);
  }

  #draw(): Wish {
    const draw = this.#prng.next();
    // The name makes it unique: client, then a count.
    const value = `${String(this.#session % 100_000).padStart(5, '0')}${String((this.#number + 1) % 1000).padStart(3, '0')}`;
    if (draw < 0.6) return { kind: 'write', object: this.#prng.integer(0, REGISTERS - 1), value };
    if (draw < 0.9) return { kind: 'append', value };
    return { kind: 'truncate', recordsBytes: this.#prng.integer(0, 20) * 4 };
  }

  wish(wish: Wish, done: () => void): void {
    const request = { session: this.#session, number: ++this.#number, since: 0 };
    const key = requestKey(request, wish);
    const callMs = this.#system.world.nowMs;
    this.#open.set(key, callMs);
    let unknown = false;
    this.#attempt(
      (server, reply) => this.#system.process(server).change(request, wish, reply),
      (answer, attempts) => {
        if (answer.kind === 'done') {
          if (unknown) this.#system.counts.unknownRetried++;
          this.#open.delete(key);
          this.#system.recordChange(key, callMs, this.#system.world.nowMs, answer.seq);
          done();
          return true;
        }
        if (answer.kind === 'unknown') unknown = true;
        // Some clients take a definite no for an answer. Then it must stay a no.
        if (answer.kind === 'refused' && attempts === 1 && this.#prng.chance(0.3)) {
          this.#open.delete(key);
          this.#system.recordFailed(key);
          done();
          return true;
        }
        return false;
      },
      () => {
        // Out of patience: a new session, as after a restart of the client.
        this.#session++;
        this.#number = 0;
        done();
      },
    );
  }

  look(object: number | null, done: () => void): void {
    const callMs = this.#system.world.nowMs;
    this.#attempt(
      (server, reply) => this.#system.process(server).read(object, reply),
      (answer) => {
        if (answer.kind !== 'value') return false;
        this.#system.recordRead(object, answer.value, callMs, this.#system.world.nowMs);
        done();
        return true;
      },
      done,
    );
  }

  #flush(done: () => void): void {
    this.#attempt(
      (server, reply) => this.#system.process(server).flush(reply),
      (answer) => {
        if (answer.kind !== 'flushed') return false;
        done();
        return true;
      },
      done,
    );
  }

  /**
   * Asks one server after the other until `accept` takes an answer or patience is over. Requests and
   * answers take time and get lost; nothing that comes later than the decision counts.
   */
  #attempt(
    ask: (server: ServerId, reply: (answer: Answer) => void) => void,
    accept: (answer: Answer, attempts: number) => boolean,
    giveUp: () => void,
  ): void {
    const { world } = this.#system;
    const { loss } = world.faults;
    const operation = ++this.#current;
    const untilMs = world.nowMs + PATIENCE_MS;
    let attempts = 0;
    const attempt = () => {
      if (operation !== this.#current) return;
      if (world.nowMs > untilMs && !this.#ended) {
        this.#current++;
        giveUp();
        return;
      }
      const number = ++attempts;
      const server = this.#knownPrimary ?? this.#prng.pick(world.ids);
      this.#knownPrimary = null;
      const again = (delayMs: number) =>
        this.#later(delayMs, () => {
          if (attempts === number) attempt();
        });
      // The answer may never come.
      again(150 + this.#prng.next() * 150);
      if (this.#prng.chance(loss)) return;
      this.#later(this.#delayMs(), () => {
        world.call(server, () => {
          ask(server, (answer) => {
            if (this.#prng.chance(loss)) return;
            this.#later(this.#delayMs(), () => {
              if (operation !== this.#current) return;
              if (accept(answer, attempts)) {
                this.#current++;
                if (answer.kind !== 'refused') this.#knownPrimary = server;
                return;
              }
              if (answer.kind === 'refused') this.#knownPrimary = answer.hint;
              again(this.#prng.next() * 40);
            });
          });
        });
      });
    };
    attempt();
  }

  #delayMs(): number {
    return 0.5 + this.#prng.next() * 3;
  }

  #later(delayMs: number, run: () => void): void {
    this.#system.world.at(this.#system.world.nowMs + delayMs, run);
  }
}

/**
 * One random run of a replica group: servers and faults drawn from the seed, clients that retry, then a time without
 * faults.
 */
import type { ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { viewVoters } from '../../replica/view.ts';
import type { LayerRun } from './layer-runs.ts';
import { ReplicaClient } from './replica-client.ts';
import { type Beginning, type GroupOptions, ReplicaGroup } from './replica-group.ts';
import { Violation } from './violation.ts';
import type { Faults } from './world.ts';

const STORM_MS = 9_000;
const CLIENTS = 5;
const SOON_MS = 100;

/** Faults of a run besides crashes, pauses and those of the network. */
interface Shape {
  /** Lease clocks jump where no server can measure it, so that leases may overlap. */
  readonly clocksBroken: boolean;
  /** Replicas move between servers. */
  readonly moves: boolean;
  /** Machines lose power. `all`: once more than a minority at once. */
  readonly power: 'never' | 'some' | 'all';
  /** Disks are replaced by empty ones. */
  readonly wipes: boolean;
  /** Disks are full or slow for a time. */
  readonly badDisks: boolean;
  /** Contents become unreadable. */
  readonly damages: boolean;
  readonly begins: Beginning;
}

function drawShape(seed: number, prng: Prng): Shape {
  const clocksBroken = seed % 8 === 0;
  const power = prng.chance(0.4) ? 'never' : prng.chance(0.8) ? 'some' : 'all';
  return {
    clocksBroken,
    moves: prng.chance(0.4),
    power,
    wipes: prng.chance(0.2) && power !== 'all' && !clocksBroken,
    badDisks: prng.chance(0.2),
    damages: prng.chance(0.2) && power !== 'all',
    begins: prng.chance(0.5) ? 'empty' : prng.chance(0.5) ? 'made' : 'created',
  };
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
    clocksJump: false,
  };
}

function drawOptions(seed: number, shape: Shape, prng: Prng, verbose: boolean): GroupOptions {
  const leaseMs = 1_000;
  const clockSkewMaxMs = 50;
  const agrees = seed % 4 === 3;
  const drawn = prng.chance(0.75) ? 3 : prng.pick([1, 2, 4, 5]);
  // With five replicas, guards can change during a quorum read.
  const replicas = agrees && seed % 16 === 15 ? 5 : drawn;
  return {
    seed,
    servers: shape.moves ? Math.max(replicas, 4) + prng.integer(0, 2) : replicas,
    replicas,
    faults: drawFaults(prng, leaseMs, clockSkewMaxMs),
    leases: 'real',
    begins: shape.begins,
    agrees,
    resumes: agrees,
    appliesAtPrimary: prng.chance(0.8) ? 'first' : 'last',
    clocksBroken: shape.clocksBroken,
    leaseMs,
    clockSkewMaxMs,
    retainedBytesMax: prng.chance(0.4) ? 1_000 : 1_000_000,
    diskMinMs: 0.2,
    diskMaxMs: prng.chance(0.3) ? 30 : 3,
    diskFailure: prng.chance(0.2) ? 0.001 : 0,
    aimAtPrimary: true,
    verbose,
  };
}

/** @param verbose keep a line per event */
export function replicaRun(seed: number, verbose = false): LayerRun {
  const prng = new Prng(seed);
  const shape = drawShape(seed, prng);
  const group = new ReplicaGroup(drawOptions(seed, shape, prng, verbose));
  group.leasesExclude = !shape.clocksBroken;
  let violation: string | null = null;
  try {
    new ReplicaRun(group, shape).run();
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    violation = error instanceof Violation ? error.message : (error.stack ?? error.message);
  }
  const { world, marks, counts, observer, faults } = group;
  return {
    violation,
    lines: world.lines,
    counts: {
      ...{ ...counts, ...observer.counts, ...faults.counts, ...world.counts, ...Object.fromEntries(marks) },
      clocksBroken: shape.clocksBroken ? 1 : 0,
      twoHeldRuns: counts.twoHeld > 0 ? 1 : 0,
      takeovers: observer.counts.epochs,
      simulatedMs: world.elapsedMs,
    },
  };
}

class ReplicaRun {
  readonly #group: ReplicaGroup;
  readonly #shape: Shape;
  readonly #mover: ReplicaClient;
  #isCalm = false;

  constructor(group: ReplicaGroup, shape: Shape) {
    this.#group = group;
    this.#shape = shape;
    this.#mover = new ReplicaClient(group, 70);
  }

  /** @throws Violation */
  run(): void {
    const { world, faults } = this.#group;
    const clients = Array.from({ length: CLIENTS }, (_, index) => new ReplicaClient(this.#group, index + 1));
    for (const client of clients) client.begin();
    world.unleash();
    this.#scheduleStops();
    this.#scheduleDiskFaults();
    if (this.#shape.begins === 'created') this.#scheduleCreation();
    if (this.#shape.clocksBroken) this.#scheduleClockJumps();
    if (this.#shape.moves) this.#scheduleMoves();
    world.runFor(STORM_MS);

    this.#isCalm = true;
    for (const client of [...clients, this.#mover]) client.end();
    faults.end();
    world.heal();
    if (this.#shape.clocksBroken) this.#repairClocks();
    this.#demandProgress();
  }

  /** Injects a fault repeatedly while faults happen. */
  #repeat(minMs: number, maxMs: number, strike: () => void): void {
    const { world, prng } = this.#group;
    world.at(world.nowMs + minMs + prng.next() * (maxMs - minMs), () => {
      if (this.#isCalm) return;
      strike();
      this.#repeat(minMs, maxMs, strike);
    });
  }

  /** Primaries stop in good order; and no client uses the file for a time, so that servers release their leases. */
  #scheduleStops(): void {
    const { world, prng, options } = this.#group;
    this.#repeat(1_000, 6_000, () => {
      const primary = this.#group.primary();
      if (primary !== null && prng.chance(0.5)) world.call(primary, () => this.#group.server(primary).stop());
    });
    if (!options.resumes) return;
    this.#repeat(300, 3_000, () => {
      for (const id of world.ids) if (world.isUp(id)) world.call(id, () => this.#group.server(id).rest());
    });
  }

  #scheduleDiskFaults(): void {
    const { world, prng, faults, options } = this.#group;
    const { power, wipes, badDisks, damages } = this.#shape;
    // A machine that restarts soon lacks nothing if no client has written since.
    const downMs = () => prng.next() * (prng.chance(0.5) ? SOON_MS : 1.5 * options.leaseMs);
    const target = (): ServerId => {
      const primary = prng.chance(0.4) ? this.#group.primary() : null;
      return primary ?? prng.pick(viewVoters(this.#group.observer.view));
    };
    const repeatAt = (minMs: number, maxMs: number, fault: (server: ServerId) => void) =>
      this.#repeat(minMs, maxMs, () => {
        const server = target();
        if (faults.mayDoubt([server])) fault(server);
      });
    if (power !== 'never') repeatAt(500, 2_500, (server) => faults.losePower([server], downMs));
    if (power === 'all') {
      world.at(world.nowMs + 2_000 + prng.next() * 5_000, () => {
        const some = world.ids.filter(() => prng.chance(0.7));
        faults.losePower(prng.chance(0.6) ? world.ids : some, downMs);
      });
    }
    if (wipes) repeatAt(1_500, 5_000, (server) => faults.wipe(server, downMs()));
    if (damages) repeatAt(500, 3_000, (server) => faults.damage(server));
    if (!badDisks) return;
    this.#repeat(1_000, 4_000, () => {
      const forMs = prng.next() * 2 * options.leaseMs;
      if (prng.chance(0.5)) faults.fill(target(), forMs);
      else faults.slow(target(), forMs);
    });
  }

  /**
   * Creates the file at a random time, also long after others were primaries; and again with other contents. Then one
   * replica loses power.
   */
  #scheduleCreation(): void {
    const { world, prng, options, creator, faults, firstView } = this.#group;
    const firstMs = prng.next() * (prng.chance(0.5) ? 50 : 2 * options.leaseMs);
    for (const time of [1, 2]) {
      world.at(world.nowMs + time * firstMs, () => {
        const request = `${60 + time}.1`;
        const create = () =>
          this.#group.server(creator).creations.create(request, { key: '0', value: request });
        if (world.isUp(creator)) world.call(creator, create);
      });
    }
    if (this.#shape.power === 'never') return;
    world.at(world.nowMs + firstMs + prng.next() * 2 * SOON_MS, () => {
      const server = prng.pick(firstView.members);
      if (faults.mayDoubt([server])) faults.losePower([server], () => prng.next() * SOON_MS);
    });
  }

  /**
   * Clocks go wrong where no server can measure it: the holder of the lease is disconnected, and all other clocks jump
   * over the end of its lease. Otherwise servers would notice a wrong clock before it does harm.
   */
  #scheduleClockJumps(): void {
    const { world, prng, options } = this.#group;
    let aheadMs = 0;
    this.#repeat(1_500, 4_500, () => {
      const [holder] = this.#group.holders();
      if (holder === undefined) return;
      const others = world.ids.filter((id) => id !== holder);
      // Some of its backups may stay connected to it.
      const far = others.filter(() => prng.chance(0.8));
      const links = far.flatMap((id): [ServerId, ServerId][] => [
        [id, holder],
        [holder, id],
      ]);
      world.cutFor(links, (0.5 + prng.next()) * options.leaseMs);
      aheadMs += (0.9 + 0.6 * prng.next()) * options.leaseMs;
      for (const id of others) world.slewClock(id, aheadMs, 1);
    });
  }

  #scheduleMoves(): void {
    const { world, prng, faults } = this.#group;
    this.#repeat(200, 2_000, () => faults.remove(prng.pick(world.ids)));
    world.at(world.nowMs + 500 + prng.next() * 1_000, () => this.#move());
  }

  #move(): void {
    if (this.#isCalm) return;
    const { world, prng, counts, observer } = this.#group;
    const members = this.#drawMembers();
    this.#mover.move(members, (moved) => {
      const { view } = observer;
      if (moved) counts.moves++;
      // The catalog learns the members, unless they have changed since.
      if (moved && view.joint === undefined && members.every((server) => view.members.includes(server)))
        this.#group.catalogView = view;
      world.at(world.nowMs + prng.next() * 1_000, () => this.#move());
    });
  }

  #drawMembers(): ServerId[] {
    const { world, prng, observer } = this.#group;
    const { members } = observer.view;
    const others = world.ids.filter((id) => !members.includes(id));
    const draw = prng.next();
    if (draw < 0.3 && others.length > 0) return [...members, prng.pick(others)];
    if (draw < 0.5 && members.length > 2) {
      const leaving = prng.pick(members);
      return members.filter((id) => id !== leaving);
    }
    if (draw < 0.8 && others.length > 0) {
      const leaving = members.find((id) => !world.isUp(id)) ?? prng.pick(members);
      return [...members.filter((id) => id !== leaving), prng.pick(others)];
    }
    const some = world.ids.filter(() => prng.chance(0.5));
    return some.length > 0 ? some : [...members];
  }

  /** All servers restart with right clocks, after all messages of the wrong ones have arrived. */
  #repairClocks(): void {
    const { world, options } = this.#group;
    for (const id of world.ids) {
      world.crash(id);
      world.setClock(id, 0);
    }
    world.runFor(3 * options.leaseMs);
    world.start();
  }

  /** Liveness: without faults a write and a read succeed and all replicas become equal, in bounded time. */
  #demandProgress(): void {
    const { world, prng, observer } = this.#group;
    const { leaseMs, clockSkewMaxMs } = this.#group.options;
    const graceMs = leaseMs + 2 * clockSkewMaxMs + 2 * (leaseMs + clockSkewMaxMs) + 5_000;
    const last = new ReplicaClient(this.#group, 90);
    let progress = 'no write';
    last.write(() => {
      progress = 'no read';
      world.at(world.nowMs, () =>
        last.read(() => {
          progress = 'both';
        }),
      );
    });
    if (!world.runFor(graceMs, () => progress === 'both'))
      throw new Violation(`No progress after healing: ${progress}`);
    // A primary that has left, and no request: then no server would inform the others of what is committed.
    const ask = () => {
      const server = prng.pick(viewVoters(observer.view));
      if (this.#group.primary() === null) world.call(server, () => this.#group.server(server).open());
      world.at(world.nowMs + leaseMs, ask);
    };
    ask();
    if (!world.runFor(graceMs, () => this.#group.hasConverged()))
      throw new Violation('The replicas stay different');
  }
}

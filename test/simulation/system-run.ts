/**
 * One random run of the system: servers and faults drawn from the seed, clients that retry, then
 * healing, then judgement.
 */
import type { ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { viewVoters } from '../../replica/view.ts';
import { CATALOG_HABITS, CATALOG_SUBJECT } from './catalog-subject.ts';
import { Client, type Habits } from './system-client.ts';
import type { Subject } from './system-contents.ts';
import { WHOLE_FILE } from './system-file.ts';
import {
  MemberMoves,
  scheduleBirth,
  scheduleClockJumps,
  scheduleDiskTroubles,
  scheduleRests,
  scheduleRot,
  scheduleSeal,
  scheduleSnapshots,
  scheduleStops,
} from './system-storm.ts';
import { type FileWish, fileSubject, REGISTERS } from './system-subject.ts';
import { type SystemOptions, SystemWorld } from './system-world.ts';
import { Violation } from './violation.ts';
import type { Faults } from './world.ts';

const STORM_MS = 9_000;

/** Half an object. */
const PUNCH_STEP_BYTES = 4;

const CLIENTS = 5;

/** What a run was good for. */
export interface RunReport {
  readonly violation: string | null;
  readonly marks: ReadonlyMap<string, number>;
  readonly counts: Readonly<Record<string, number>>;
  readonly lines: readonly string[];
  readonly simulatedMs: number;
}

/** What befalls the servers of a run beside crashes, pauses and the network. */
export interface Shape {
  /** Lease clocks jump where nobody can measure it, so that leases may overlap. */
  readonly clocksBroken: boolean;
  /** Servers join and leave. */
  readonly moves: boolean;
  /** Machines lose power. `all`: once more than a minority at once. */
  readonly power: 'never' | 'some' | 'all';
  /** Disks are replaced by empty ones. */
  readonly wipes: boolean;
  /** Disks are full or slow for a while. */
  readonly badDisks: boolean;
  /** The subject is the catalog instead of a file. */
  readonly catalog: boolean;
  /** Bits of objects flip. `everywhere`: those of registers also on all disks at once, or all but one. */
  readonly rot: 'never' | 'minority' | 'everywhere';
  /** The file is sealed at some time. */
  readonly seals: boolean;
  /** A server has made the file, and would lead it by the first epoch. */
  readonly made: boolean;
  /** A server bears the file as a whole, while others may lead it. */
  readonly borne: boolean;
  /** Clients make holes in the file. */
  readonly punches: boolean;
  /** The catalog makes snapshots of the file. */
  readonly snapshots: boolean;
}

function drawShape(seed: number, prng: Prng): Shape {
  const clocksBroken = seed % 8 === 0;
  const power = prng.chance(0.4) ? 'never' : prng.chance(0.8) ? 'some' : 'all';
  const drawn = {
    clocksBroken,
    moves: prng.chance(0.4),
    power,
    wipes: prng.chance(0.2) && power !== 'all' && !clocksBroken,
    badDisks: prng.chance(0.2),
    catalog: prng.chance(0.2),
  } as const;
  // Of their own, so that all else in a run is as it would be without them.
  const dice = new Prng(seed * 131 + 3);
  const mayRot = !drawn.catalog && power !== 'all';
  const rot = mayRot && dice.chance(0.25) ? (dice.chance(0.3) ? 'everywhere' : 'minority') : 'never';
  const seals = !drawn.catalog && dice.chance(0.25);
  const hasMaker = !drawn.catalog && dice.chance(0.5);
  const punches = !drawn.catalog && dice.chance(0.4);
  const borne = hasMaker && dice.chance(0.5);
  const maySnap = !drawn.catalog && !drawn.wipes && rot !== 'everywhere' && !seals;
  const snapshots = maySnap && dice.chance(0.27);
  return { ...drawn, rot, seals, made: hasMaker && !borne, borne, punches, snapshots };
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

function subjectOf({ catalog, snapshots }: Shape, prng: Prng): Subject {
  if (catalog) return CATALOG_SUBJECT;
  // Files are applied first wherever the catalog marks them.
  const applied = prng.chance(0.85) || snapshots ? 'first' : 'last';
  return fileSubject(applied);
}

function drawOptions(seed: number, shape: Shape, prng: Prng, verbose: boolean): SystemOptions {
  const leaseMs = 1_000;
  const clockSkewMaxMs = 50;
  // By the seed alone: other runs stay as they were. Of five replicas, guards can move while a quorum is asked.
  const agrees = !shape.catalog && seed % 4 === 3;
  const drawn = prng.chance(0.75) ? 3 : prng.pick([1, 2, 4, 5]);
  const replicas = agrees && seed % 16 === 15 ? 5 : drawn;
  return {
    seed,
    servers: shape.moves ? Math.max(replicas, 4) + prng.integer(0, 2) : replicas,
    replicas,
    faults: drawFaults(prng, leaseMs, clockSkewMaxMs),
    leases: 'real',
    isMade: shape.made,
    isBorne: shape.borne,
    agrees,
    // Files that can be sealed are led (`mayBeResumed`).
    resumes: !shape.catalog && !shape.seals && seed % 4 === 3,
    subject: subjectOf(shape, prng),
    hasSnapshots: shape.snapshots,
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

const FILE_HABITS: Habits = {
  what: (dice) => (dice.chance(0.8) ? String(dice.integer(0, REGISTERS - 1)) : WHOLE_FILE),
  wish: (dice, session, number) => {
    const draw = dice.next();
    // The name makes it unique: client, then a count.
    const value = `${String(session % 100_000).padStart(5, '0')}${String(number % 1000).padStart(3, '0')}`;
    if (draw < 0.6) return { kind: 'write', object: dice.integer(0, REGISTERS - 1), value };
    if (draw < 0.9) return { kind: 'append', value };
    return { kind: 'truncate', recordsBytes: dice.integer(0, 20) * 4 };
  },
};

/** Changes parts of objects, which the bytes around them are needed for. */
const PATCH_HABITS: Habits = {
  what: FILE_HABITS.what,
  wish: (dice, session, number) => {
    const wish = FILE_HABITS.wish(dice, session, number);
    if (!dice.chance(0.3)) return wish;
    const value = `${String(session % 100_000).padStart(5, '0')}${String(number % 10)}`;
    return { kind: 'patch', at: dice.integer(0, 40), value } satisfies FileWish;
  },
};

/** The same, and holes: of whole objects, of parts of them, behind the end, and such that make the file longer. */
function withPunches(habits: Habits): Habits {
  return {
    what: habits.what,
    wish: (dice, session, number) => {
      if (!dice.chance(0.15)) return habits.wish(dice, session, number);
      const from = dice.integer(0, 20) * PUNCH_STEP_BYTES;
      const to = from + dice.integer(0, 6) * PUNCH_STEP_BYTES;
      return { kind: 'punch', from, to, grows: dice.chance(0.4) } satisfies FileWish;
    },
  };
}

function habitsOf({ catalog, rot, punches }: Shape): Habits {
  if (catalog) return CATALOG_HABITS;
  const habits = rot === 'never' ? FILE_HABITS : PATCH_HABITS;
  return punches ? withPunches(habits) : habits;
}

/** @param verbose keep a line per event */
export function runSystem(seed: number, verbose = false): RunReport {
  const prng = new Prng(seed);
  const shape = drawShape(seed, prng);
  const system = new SystemWorld(drawOptions(seed, shape, prng, verbose));
  system.leasesExclude = !shape.clocksBroken;
  let violation: string | null = null;
  try {
    runAll(system, shape, habitsOf(shape));
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    violation = error instanceof Violation ? error.message : (error.stack ?? error.message);
  }
  const { world, marks, counts, observers, troubles } = system;
  return {
    violation,
    marks,
    counts: {
      ...counts,
      ...observers.counts,
      ...troubles.counts,
      ...troubles.rot,
      ...troubles.seal,
      ...troubles.births,
      ...system.snapshots?.counts,
      ...system.snapshots?.siblings.counts,
      ...world.counts,
      clocksBroken: shape.clocksBroken ? 1 : 0,
      twoHeldRuns: counts.twoHeld > 0 ? 1 : 0,
    },
    lines: world.lines,
    simulatedMs: world.elapsedMs,
  };
}

function runAll(system: SystemWorld, shape: Shape, habits: Habits): void {
  const { world, troubles } = system;
  const clients = Array.from({ length: CLIENTS }, (_, index) => new Client(system, habits, index + 1));
  for (const client of clients) client.begin();
  world.unleash();
  scheduleStops(system);
  scheduleRests(system);
  scheduleDiskTroubles(system, shape);
  scheduleRot(system, shape);
  scheduleSeal(system, shape, habits);
  scheduleSnapshots(system);
  if (shape.borne) scheduleBirth(system);
  if (shape.clocksBroken) scheduleClockJumps(system);
  const moves = new MemberMoves(system, habits);
  if (shape.moves) moves.begin();
  world.runFor(STORM_MS);

  moves.end();
  for (const client of clients) client.end();
  system.calm = true;
  troubles.end();
  troubles.restoreLost();
  world.heal();
  if (shape.clocksBroken) repairClocks(system);
  mustProgress(system, habits);
  system.observers.judge();
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

/** Liveness: after healing, a write and a read succeed and all replicas become equal, in bounded time. */
function mustProgress(system: SystemWorld, habits: Habits): void {
  const { world, prng } = system;
  const { leaseMs, clockSkewMaxMs } = system.options;
  const graceMs = leaseMs + 2 * clockSkewMaxMs + 2 * (leaseMs + clockSkewMaxMs) + 5_000;
  const last = new Client(system, habits, 90);
  let wrote = false;
  let read = false;
  last.wish(habits.wish(prng, 90_000, 1), () => {
    wrote = true;
    world.at(world.nowMs, () => {
      last.look(habits.what(prng), () => {
        read = true;
      });
    });
  });
  if (!world.runFor(graceMs, () => read)) {
    throw new Violation(`No progress after healing: ${wrote ? 'no read' : 'no write'}`);
  }
  // Where the primary has left, and nobody asks, nobody leads: then nobody tells the others what is committed.
  const ask = () => {
    const server = prng.pick(viewVoters(system.observers.view));
    if (system.primary() === null) world.call(server, () => system.process(server).open());
    world.at(world.nowMs + leaseMs, ask);
  };
  ask();
  if (!world.runFor(graceMs, () => system.hasConverged())) throw new Violation('The replicas stay different');
  const { observers } = system;
  if (!world.runFor(graceMs, () => observers.seal !== 'sealed'))
    throw new Violation('The seal is never final');
  mustShowSnapshots(system);
}

/** Every snapshot that is left is read at every server, to its end: what it shows, or that it is lost where that may be. */
function mustShowSnapshots(system: SystemWorld): void {
  const { world, snapshots } = system;
  if (snapshots === null) return;
  const left = [...snapshots.shown.keys()].flatMap((name) => world.ids.map((server) => ({ name, server })));
  const read = ({ name, server }: { readonly name: string; readonly server: ServerId }) => {
    snapshots.read(name, server, new Map(), (answered) => {
      if (!answered) read({ name, server });
      else open--;
    });
  };
  let open = left.length;
  for (const one of left) read(one);
  if (!world.runFor(20_000, () => open === 0)) throw new Violation('A snapshot cannot be read');
  snapshots.siblings.assertShown();
}

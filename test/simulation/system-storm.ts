/** What befalls servers in a random run of the system, beside what `World` does to anybody's. */

import type { ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { viewVoters } from '../../replica/view.ts';
import { Client, type Habits } from './system-client.ts';
import { FileContents } from './system-file.ts';
import type { Shape } from './system-run.ts';
import { REGISTERS } from './system-subject.ts';
import type { SystemWorld } from './system-world.ts';

/** Draws something again and again until the storm is over. */
function repeat(
  system: SystemWorld,
  minMs: number,
  maxMs: number,
  strike: () => void,
  dice: Prng = system.prng,
): void {
  const { world } = system;
  const next = () => {
    world.at(world.nowMs + minMs + dice.next() * (maxMs - minMs), () => {
      if (system.calm) return;
      strike();
      next();
    });
  };
  next();
}

/** Now and then the primary stops in good order and gives its lease back. */
export function scheduleStops(system: SystemWorld): void {
  const { world, prng } = system;
  repeat(system, 1_000, 6_000, () => {
    const primary = system.primary();
    if (primary !== null && prng.chance(0.5)) world.call(primary, () => system.process(primary).stop());
  });
}

/** Now and then nobody uses the file for a while: its primary gives it back, and the others want no lease either. */
export function scheduleRests(system: SystemWorld): void {
  const { world, options } = system;
  if (!options.resumes) return;
  const dice = new Prng(options.seed * 191 + 17);
  const rest = (): void => {
    for (const id of world.ids) if (world.isUp(id)) world.call(id, () => system.process(id).rest());
  };
  repeat(system, 300, 3_000, rest, dice);
}

/**
 * Clocks go wrong where nobody can measure it: the primary is cut off, and all other clocks jump over the
 * end of its lease. A clock that is wrong while its server can be heard is found out before it does harm.
 */
export function scheduleClockJumps(system: SystemWorld): void {
  const { world, prng } = system;
  const { leaseMs } = system.options;
  let aheadMs = 0;
  repeat(system, 1_500, 4_500, () => {
    const [holder] = system.holders();
    if (holder === undefined) return;
    const others = world.ids.filter((id) => id !== holder);
    // Some of its backups may stay with it.
    const far = others.filter(() => prng.chance(0.8));
    const links = far.flatMap((id): [ServerId, ServerId][] => [
      [id, holder],
      [holder, id],
    ]);
    world.cutFor(links, (0.5 + prng.next()) * leaseMs);
    aheadMs += (0.9 + 0.6 * prng.next()) * leaseMs;
    for (const id of others) world.slewClock(id, aheadMs, 1);
  });
}

/** At some time, also when others have led the file for long; and again, with other contents, of which nothing may come. */
export function scheduleBirth(system: SystemWorld): void {
  const { world, options } = system;
  const dice = new Prng(options.seed * 151 + 7);
  const firstMs = dice.next() * (dice.chance(0.5) ? 50 : 2 * options.leaseMs);
  for (const [time, value] of ['borne1st', 'borne2nd'].entries()) {
    const atMs = world.nowMs + firstMs + time * dice.next() * 20;
    world.at(atMs, () => system.bear({ kind: 'write', object: 0, value }, 70_000 + time));
  }
  // Whoever hears nothing of a birth makes the file after all, also where its name is gone with the power.
  const make = (afterMs: number): void =>
    world.at(world.nowMs + afterMs, () => {
      system.snapshots?.make();
      make(200 + dice.next() * 800);
    });
  if (system.snapshots !== null) make(firstMs + dice.next() * 1_500);
  // Whoever has made a file goes on with it where it was borne.
  const openMs = firstMs + dice.next() * 20;
  if (dice.chance(0.5))
    world.at(world.nowMs + openMs, () => {
      const { bearer } = system;
      if (world.isUp(bearer)) world.call(bearer, () => system.process(bearer).open());
    });
}

export function scheduleDiskTroubles(system: SystemWorld, shape: Shape): void {
  const { world, prng, troubles } = system;
  const { leaseMs } = system.options;
  const downMs = () => prng.next() * (prng.chance(0.5) ? 100 : 1.5 * leaseMs);
  const target = () => {
    const primary = prng.chance(0.4) ? system.primary() : null;
    return primary ?? prng.pick(viewVoters(system.observers.view));
  };
  if (shape.power !== 'never') {
    repeat(system, 500, 2_500, () => {
      const server = target();
      if (troubles.mayDoubt([server])) troubles.losePower([server], downMs);
    });
  }
  if (shape.power === 'all') {
    world.at(world.nowMs + 2_000 + prng.next() * 5_000, () => {
      const some = world.ids.filter(() => prng.chance(0.7));
      troubles.losePower(prng.chance(0.6) ? world.ids : some, downMs);
    });
  }
  if (shape.wipes) {
    repeat(system, 1_500, 5_000, () => {
      const server = target();
      if (troubles.mayDoubt([server])) troubles.wipe(server, downMs());
    });
  }
  if (shape.badDisks) {
    repeat(system, 1_000, 4_000, () => {
      const forMs = prng.next() * 2 * leaseMs;
      if (prng.chance(0.5)) troubles.fill(target(), forMs);
      else troubles.slow(target(), forMs);
    });
  }
}

/** Snapshots come, are read anywhere at any time, and go. */
export function scheduleSnapshots(system: SystemWorld): void {
  const { snapshots, world, options } = system;
  if (snapshots === null) return;
  const dice = new Prng(options.seed * 157 + 9);
  const known = new Map<ServerId, Parameters<typeof snapshots.read>[2]>();
  repeat(system, 200, 1_500, () => snapshots.create(() => undefined));
  for (let reader = 0; reader < 3; reader++) {
    repeat(system, 10, 100, () => {
      if (snapshots.shown.size === 0) return;
      const server = dice.pick(world.ids);
      const places = known.get(server) ?? new Map();
      known.set(server, places);
      snapshots.read(dice.pick([...snapshots.shown.keys()]), server, places, () => undefined);
    });
  }
  repeat(system, 400, 2_500, () => {
    if (snapshots.shown.size > 3) snapshots.remove(dice.pick([...snapshots.shown.keys()]));
  });
  repeat(system, 100, 800, () => {
    snapshots.sweep();
    const server = dice.pick(world.ids);
    if (world.isUp(server)) snapshots.collectAt(server);
  });
  const { siblings } = snapshots;
  const others = new Prng(options.seed * 181 + 15);
  const read = (): void => {
    const { shown } = snapshots;
    if (shown.size > 0) siblings.read(others.pick([...shown.keys()]), others.pick(world.ids));
  };
  repeat(system, 100, 900, () => siblings.bear(), others);
  repeat(system, 200, 1_400, () => siblings.moveOrRemove(), others);
  repeat(system, 100, 900, read, others);
  repeat(system, 200, 1_200, () => siblings.collectAt(others.pick(world.ids)), others);
  if (dice.chance(0.5)) repeat(system, 1_000, 4_000, () => snapshots.failOver());
  if (dice.chance(0.2)) world.at(world.nowMs + dice.next() * 8_000, () => snapshots.unlink());
}

/** Bits flip on disks; now and then somebody reads all that is on one, and puts right what can be. */
export function scheduleRot(system: SystemWorld, shape: Shape): void {
  const { world, prng, troubles, disks } = system;
  if (shape.rot === 'never') return;
  repeat(system, 200, 1_500, () => {
    const primary = prng.chance(0.4) ? system.primary() : null;
    const server = primary ?? prng.pick(viewVoters(system.observers.view));
    const contents = disks.get(server)?.contents;
    if (!(contents instanceof FileContents) || contents.indices.length === 0) return;
    const index = prng.chance(0.5) ? Math.max(...contents.indices) : prng.pick(contents.indices);
    if (troubles.mayDoubt([server])) troubles.flip(server, index);
  });
  if (system.snapshots !== null) {
    const dice = new Prng(system.options.seed * 163 + 13);
    repeat(system, 100, 1_000, () => {
      const server = dice.pick(world.ids);
      const preserved = [...system.preservedAt(server).values()];
      if (preserved.length === 0 || !troubles.mayDoubt([server])) return;
      const one = dice.pick(preserved);
      if (one.contents.indices.length > 0)
        troubles.flipPreserved(server, one, dice.pick(one.contents.indices));
    });
  }
  repeat(system, 500, 4_000, () => {
    const server = prng.pick(world.ids);
    if (world.isUp(server)) world.call(server, () => system.process(server).care.scrub());
  });
  if (shape.rot === 'everywhere') {
    repeat(system, 1_500, 5_000, () => {
      const spared = prng.chance(0.5) ? prng.pick(viewVoters(system.observers.view)) : null;
      troubles.flipAll(prng.integer(0, REGISTERS - 1), spared);
    });
  }
}

/** Somebody seals the file; and between the two seals, what can go wrong does. */
export function scheduleSeal(system: SystemWorld, shape: Shape, habits: Habits): void {
  const { world, prng, troubles, observers } = system;
  if (!shape.seals) return;
  const client = new Client(system, habits, 80);
  const seal = () => client.seal((sealed) => (sealed ? undefined : seal()));
  world.at(world.nowMs + 2_000 + prng.next() * 5_000, seal);
  let strikes = prng.integer(0, 3);
  const look = () => {
    if (system.calm) return;
    if (strikes > 0 && observers.seal === 'sealed' && prng.chance(0.3)) {
      strikes--;
      strike();
    }
    world.at(world.nowMs + 1 + prng.next() * 4, look);
  };
  const strike = () => {
    const primary = system.primary();
    const downMs = () => prng.next() * system.options.leaseMs;
    if (shape.power === 'all' && prng.chance(0.6)) {
      troubles.losePower(world.ids, downMs);
    } else if (primary !== null && shape.power !== 'never' && prng.chance(0.5)) {
      if (troubles.mayDoubt([primary])) troubles.losePower([primary], downMs);
    } else if (primary !== null) {
      troubles.seal.sealCrashes++;
      world.crashFor(primary, downMs());
    }
  };
  world.at(world.nowMs + 2_000, look);
}

/** Somebody who moves the replicas about: adds, removes, replaces servers. */
export class MemberMoves {
  readonly #system: SystemWorld;
  readonly #client: Client;
  #ended = false;

  constructor(system: SystemWorld, habits: Habits) {
    this.#system = system;
    this.#client = new Client(system, habits, 70);
  }

  begin(): void {
    const { world, prng, troubles } = this.#system;
    repeat(this.#system, 200, 2_000, () => troubles.remove(prng.pick(world.ids)));
    world.at(world.nowMs + 500 + prng.next() * 1_000, () => this.#next());
  }

  end(): void {
    this.#ended = true;
    this.#client.end();
  }

  #next(): void {
    if (this.#ended) return;
    const { world, prng, counts } = this.#system;
    const members = this.#draw();
    this.#client.move(members, (moved) => {
      if (moved) {
        counts.moves++;
        this.#tell(members);
      }
      world.at(world.nowMs + prng.next() * 1_000, () => this.#next());
    });
  }

  /** The catalog is told where the replicas are now, unless they have moved on. */
  #tell(members: readonly ServerId[]): void {
    const { observers } = this.#system;
    const { view } = observers;
    if (view.joint === undefined && members.every((server) => view.members.includes(server))) {
      this.#system.catalogView = view;
    }
  }

  #draw(): ServerId[] {
    const { world, prng, observers } = this.#system;
    const { members } = observers.view;
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
}

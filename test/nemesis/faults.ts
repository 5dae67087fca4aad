/** The faults of servers. Each begins, lasts for a while, and is repaired. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Prng } from '../../base/prng.ts';
import type { FaultName } from './arguments.ts';
import type { NemesisCluster } from './cluster.ts';
import type { Recovery } from './recovery.ts';

export interface FaultWorld {
  readonly cluster: NemesisCluster;
  readonly prng: Prng;
  readonly leaseMs: number;
  readonly clockSkewMs: number;
  readonly recovery: Recovery;
  /** Picks a server, often one that matters at the moment. */
  victim(): Promise<string>;
  /** Prints one line about the run. */
  say(text: string): void;
  count(fault: string): void;
}

/** Injects the fault, waits, and repairs it. */
type Fault = (world: FaultWorld, server: string) => Promise<void>;

/** Longer than any lease that may be valid. */
function longMs({ prng, leaseMs, clockSkewMs }: FaultWorld): number {
  return leaseMs + 3 * clockSkewMs + prng.integer(0, leaseMs);
}

async function kill(world: FaultWorld, server: string): Promise<void> {
  const isShort = world.prng.chance(0.4);
  world.count(isShort ? 'kill, restarted at once' : 'kill');
  world.say(`kill -9 ${server}`);
  await world.cluster.kill(server);
  if (!isShort) await delay(longMs(world));
  world.cluster.spawn(server);
}

async function stop(world: FaultWorld, server: string): Promise<void> {
  world.count('stop');
  world.say(`SIGSTOP ${server}`);
  world.cluster.signal(server, 'SIGSTOP');
  await delay(longMs(world));
  world.cluster.signal(server, 'SIGCONT');
}

async function partition(world: FaultWorld, server: string): Promise<void> {
  const { cluster, prng } = world;
  const others = shuffled(
    cluster.ids.filter((id) => id !== server),
    prng,
  );
  const cuts = (from: readonly string[], to: readonly string[]): void => {
    for (const a of from) for (const b of to) cluster.network.cut(cluster.place(a), cluster.place(b));
  };
  const half = Math.floor(others.length / 2);
  const left = [server, ...others.slice(0, half - 1)];
  const right = others.slice(half - 1);
  switch (prng.integer(0, 3)) {
    case 0:
      world.count('partition, one server');
      world.say(`${server} is cut off`);
      cuts([server], others);
      cuts(others, [server]);
      break;
    case 1:
      world.count('partition, halves');
      world.say(`${left.join()} | ${right.join()}`);
      cuts(left, right);
      cuts(right, left);
      break;
    case 2: {
      world.count('partition, one-way');
      const isDeaf = prng.chance(0.5);
      world.say(isDeaf ? `${server} hears nobody` : `nobody hears ${server}`);
      if (isDeaf) cuts(others, [server]);
      else cuts([server], others);
      break;
    }
    default: {
      // The server itself stays connected to both halves.
      const one = others.slice(0, half);
      const other = others.slice(half);
      world.count('partition, bridge');
      world.say(`${one.join()} | ${other.join()}, and ${server} hears both`);
      cuts(one, other);
      cuts(other, one);
    }
  }
  await delay(longMs(world));
  cluster.network.heal();
}

async function skew(world: FaultWorld, server: string): Promise<void> {
  const { cluster, prng, clockSkewMs, leaseMs } = world;
  const sign = prng.chance(0.5) ? 1 : -1;
  const within = (sign * clockSkewMs * prng.integer(1, 9)) / 20;
  const beyond = sign * prng.pick([2 * clockSkewMs, leaseMs, 10 * leaseMs, 86_400_000]);
  switch (prng.integer(0, 4)) {
    case 0:
      world.count('skew within the bound');
      world.say(`${server} restarts with its clock ${within} ms off`);
      await restarted(world, server, within);
      break;
    case 1:
      world.count('skew beyond the bound');
      world.say(`${server} restarts with its clock ${beyond} ms off`);
      await restarted(world, server, beyond);
      break;
    case 2:
      world.count('clock jumps within the bound');
      world.say(`the clock of ${server} jumps by ${within} ms`);
      cluster.setClock(server, within);
      break;
    case 3:
      world.count('clock jumps beyond the bound');
      world.say(`the clock of ${server} jumps by ${beyond} ms`);
      cluster.setClock(server, beyond);
      break;
    default: {
      const rate = 1 + sign * 0.03;
      world.count('clock at another rate');
      world.say(`the clock of ${server} goes ${rate} times as fast`);
      cluster.setClock(server, 0, rate);
    }
  }
  await delay(longMs(world));
  world.say(`the clock of ${server} is right again`);
  await restarted(world, server, 0);
}

/** A lease clock is set when its process starts. */
async function restarted({ cluster }: FaultWorld, server: string, offsetMs: number): Promise<void> {
  cluster.setClock(server, offsetMs);
  await cluster.kill(server);
  cluster.spawn(server);
}

async function diskFull(world: FaultWorld, server: string): Promise<void> {
  const { cluster, prng } = world;
  const leftBytes = prng.chance(0.5) ? 0 : 4 * 1024 * 1024;
  world.count('disk-full');
  world.say(`the disk of ${server} is full but for ${leftBytes} bytes`);
  cluster.disk(server).fill(leftBytes);
  await delay(longMs(world));
  cluster.disk(server).relieve();
}

/**
 * One server loses its power, and the others run until it has all data again: so much is promised for what was not
 * flushed. Each file is on at least three servers, so that one server is a minority.
 */
async function power(world: FaultWorld, server: string): Promise<void> {
  const { cluster, recovery } = world;
  await recovery.allCurrent();
  world.count('power');
  world.say(`${server} loses its power`);
  await cluster.kill(server);
  cluster.disk(server).losePower();
  if (world.prng.chance(0.5)) await delay(longMs(world));
  cluster.spawn(server);
  await recovery.allCurrent();
}

/** All servers lose their power at once, after everything was flushed and while no client writes. */
export async function powerOfAll(world: FaultWorld): Promise<void> {
  const { cluster, recovery } = world;
  await recovery.quiet(async () => {
    await recovery.flushAll();
    world.count('power of all');
    world.say('all lose their power');
    for (const server of cluster.ids) await cluster.kill(server);
    for (const server of cluster.ids) cluster.disk(server).losePower();
    for (const server of cluster.ids) cluster.spawn(server);
    await cluster.ready();
  });
}

export const FAULT_RUNS: Readonly<Record<FaultName, Fault>> = {
  kill,
  stop,
  partition,
  skew,
  'disk-full': diskFull,
  power,
};

/** Faults that are never combined with others. */
export const ALONE: ReadonlySet<FaultName> = new Set(['power']);

function shuffled<Value>(values: readonly Value[], prng: Prng): Value[] {
  return values
    .map((value) => ({ value, place: prng.next() }))
    .sort((a, b) => a.place - b.place)
    .map(({ value }) => value);
}

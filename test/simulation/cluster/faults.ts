import type { Prng } from '../../../base/prng.ts';
import { DISK_FAULTS } from './disk/disk-faults.ts';
import { ANYWHERE, type Fault, fault } from './fault.ts';
import { FAIR, FOUL, STORM, type Weather } from './network.ts';
import type { ClusterShape, SimulatedCluster } from './simulated-cluster.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import type { SimulatedServer } from './simulated-server.ts';

const OF_CLIENTS = { fits: ({ clients }: ClusterShape) => clients > 0 };
const OF_MOUNTS = { fits: ({ mounts }: ClusterShape) => mounts > 0 };
/** The conditions of faults that happen only with workloads of mounts. */
const OF_MOUNT_WORK = {
  isOfMountWork: true,
  fits: ({ mounts, hasMountWork: works }: ClusterShape) => mounts > 0 && works === true,
} as const;
/** Three leases, for which a mount keeps its locks, and some more time. */
const AWAY_MS_MIN = 6_500;

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;

/** Cuts the links between one machine and others: in both directions, or only to it, or only from it. */
function cutBetween(cluster: SimulatedCluster, one: string, others: readonly string[], oneWay: number): void {
  for (const other of others) {
    if (other === one) continue;
    if (oneWay !== 1) cluster.network.cut(one, other);
    if (oneWay !== 2) cluster.network.cut(other, one);
  }
}

const WAYS = ['does not reach, and is not reached by,', 'is not reached by', 'does not reach'] as const;

/** Pauses a process for a while. */
function paused(cluster: SimulatedCluster, process: SimulatedProcess, durationMs: number): true {
  process.pause(durationMs);
  cluster.tell(`${process.name} is paused for ${seconds(durationMs)}`);
  return true;
}

/** @param change changes links, and returns a sentence, or null if it did nothing; the network heals after a while */
const ofLinks =
  (change: (cluster: SimulatedCluster, draw: Prng) => string | null, times = 1): Fault['inject'] =>
  (cluster, draw, durationMs) => {
    const what = change(cluster, draw);
    if (what !== null) cluster.tell(`${what} for ${seconds(times * durationMs)}`);
    cluster.later(durationMs * times, () => cluster.network.heal());
    return what !== null;
  };

/** Kills a server if enough others run, and restarts it after a while. */
function killed(
  cluster: SimulatedCluster,
  server: SimulatedServer | undefined,
  draw: Prng,
  durationMs: number,
  when: string,
): boolean {
  if (server === undefined || !cluster.maySpare(server, draw)) return false;
  server.kill();
  cluster.tell(`${server.id} is killed${when}, for ${seconds(durationMs)}`);
  cluster.restartLater(server, durationMs);
  return true;
}

export const FAULTS: readonly Fault[] = [
  fault('kill', 2, ANYWHERE, (cluster, draw, durationMs) =>
    killed(cluster, draw.pick(cluster.servers), draw, durationMs, ''),
  ),
  fault('power', 2, ANYWHERE, (cluster, _draw, durationMs) => {
    if (cluster.servers.some((server) => !server.hasStarted && !server.isRetired)) return false;
    if (cluster.weak.isRetired) return false;
    cluster.weak.losePower();
    cluster.tell(`${cluster.weak.id} loses its power, for ${seconds(durationMs)}`);
    cluster.restartLater(cluster.weak, durationMs);
    return true;
  }),
  fault('pause', 2, ANYWHERE, (cluster, draw, durationMs) => {
    const { process, runs } = draw.pick(cluster.servers);
    return runs && process !== null && paused(cluster, process, durationMs);
  }),
  fault('pause-client', 1, OF_CLIENTS, (cluster, draw, durationMs) =>
    paused(cluster, draw.pick(cluster.clients), durationMs),
  ),
  fault('kill-client', 1, OF_CLIENTS, (cluster, draw) => {
    const index = draw.integer(0, cluster.clients.length - 1);
    const client = cluster.clients[index];
    client?.end();
    cluster.tell(`${client?.name} is killed, and another client starts`);
    cluster.startClient(index);
    return true;
  }),
  fault('pause-mount', 2, OF_MOUNTS, (cluster, draw, durationMs) =>
    paused(cluster, draw.pick(cluster.machines).daemon, durationMs),
  ),
  fault('lose-mount', 1, OF_MOUNT_WORK, (cluster, draw) => {
    // Longer than its cache sessions, and than its locks' leases.
    const durationMs = AWAY_MS_MIN + draw.next() * AWAY_MS_MIN;
    const { daemon } = draw.pick(cluster.machines);
    if (draw.chance(0.5)) return paused(cluster, daemon, durationMs);
    const cut = ofLinks(() => {
      cutBetween(cluster, daemon.name, cluster.serverIds, 0);
      return `${daemon.name} reaches no server`;
    });
    return cut(cluster, draw, durationMs);
  }),
  fault('kill-mount', 2, OF_MOUNTS, (cluster, draw) => {
    const machine = draw.pick(cluster.machines);
    cluster.tell(`${machine.name} is killed, and another machine mounts`);
    cluster.replaceMachine(machine);
    return true;
  }),
  fault('remount', 1, OF_MOUNT_WORK, (cluster, draw) => {
    const machine = draw.pick(cluster.machines);
    cluster.tell(`${machine.name} is unmounted in good order, and mounts anew`);
    cluster.remountMachine(machine);
    return true;
  }),
  fault('memory-pressure', 1, OF_MOUNT_WORK, (cluster, draw) => {
    const { kernel, model, name } = draw.pick(cluster.machines);
    cluster.tell(`the kernel of ${name} forgets names and inodes that are not in use`);
    cluster.time.after(0, kernel, () => model.shrink());
    return true;
  }),
  fault(
    'power-of-all',
    3,
    { ...OF_MOUNT_WORK, fits: ({ losesAllPower }) => losesAllPower === true },
    (cluster, draw) => {
      // A sync that is answered too early loses data if the power is lost right after its answer.
      if (draw.chance(0.5)) cluster.losePowerEverywhere();
      else cluster.atNextSync(() => cluster.losePowerEverywhere());
      return true;
    },
  ),
  fault(
    'isolate-mount',
    2,
    OF_MOUNTS,
    ofLinks((cluster, draw) => {
      const { daemon } = draw.pick(cluster.machines);
      const from = cluster.serverIds.filter(() => draw.chance(0.8));
      const to = cluster.serverIds.filter(() => draw.chance(0.8));
      for (const id of from) cluster.network.cut(id, daemon.name);
      for (const id of to) cluster.network.cut(daemon.name, id);
      return `${daemon.name} does not reach ${to.join()} and is not reached by ${from.join()},`;
    }),
  ),
  fault(
    'isolate',
    1,
    ANYWHERE,
    ofLinks((cluster, draw) => {
      const { id } = draw.pick(cluster.servers);
      const oneWay = draw.integer(0, 2);
      cutBetween(cluster, id, cluster.everyone, oneWay);
      return `${id} ${WAYS[oneWay]} all others,`;
    }),
  ),
  fault(
    'part',
    2,
    ANYWHERE,
    ofLinks((cluster, draw) => {
      const server = draw.pick(cluster.servers);
      // Either a server loses the links to other servers only, or each machine is on one of two sides.
      if (draw.chance(0.5)) {
        cutBetween(cluster, server.id, cluster.serverIds, 0);
        return `${server.id} and the other servers do not reach each other,`;
      }
      const side = new Set(cluster.everyone.filter(() => draw.chance(0.5)));
      const others = cluster.everyone.filter((name) => !side.has(name));
      for (const one of side) cutBetween(cluster, one, others, 0);
      return `[${[...side]}] and [${others}] do not reach each other,`;
    }),
  ),
  fault(
    'slow-link',
    2,
    ANYWHERE,
    ofLinks((cluster, draw) => {
      const { id } = draw.pick(cluster.servers);
      const slow = cluster.everyone.filter((other) => other !== id && !draw.chance(0.4));
      for (const other of slow) cluster.network.slow(id, other, 5 + draw.next() * 300);
      return slow.length === 0 ? null : `messages from ${id} to ${slow.join()} are slow`;
    }, 2),
  ),
  fault(
    'cut',
    1,
    ANYWHERE,
    ofLinks((cluster, draw) => {
      const { id } = draw.pick(cluster.servers);
      const other = draw.pick(cluster.everyone.filter((name) => name !== id));
      const oneWay = draw.integer(0, 2);
      cutBetween(cluster, id, [other], oneWay);
      return `${id} ${WAYS[oneWay]} ${other},`;
    }),
  ),
  fault('foul', 2, ANYWHERE, weather(FOUL, 'requests and answers are lost or late')),
  ...DISK_FAULTS,
];

/** Faults that only runs that name them have: too many for all runs. */
export const NAMED_FAULTS: readonly Fault[] = [
  ...FAULTS,
  fault('kill-answering', 2, ANYWHERE, (cluster, draw, durationMs) => {
    cluster.http.atNextChange = (origin) => {
      // Then only the disks have the change.
      if (draw.chance(0.3)) return cluster.killEverywhere(draw);
      const server = cluster.servers.find((one) => one.origin === origin);
      killed(cluster, server, draw, durationMs, ' as it answers');
    };
    return true;
  }),
  // No start needs the page: the server finds it damaged while it runs.
  fault('damaged-page', 2, ANYWHERE, (cluster, _draw, durationMs) => {
    const { weak } = cluster;
    if (cluster.servers.some((server) => !server.hasStarted)) return false;
    weak.kill();
    weak.hasDamagedPage = cluster.time.asHost(() => weak.disk.damageNames());
    cluster.tell(`${weak.id} is killed for ${seconds(durationMs)}, and a page of its catalog is damaged`);
    cluster.restartLater(weak, durationMs);
    return weak.hasDamagedPage;
  }),
  fault('storm', 2, ANYWHERE, weather(STORM, 'every tenth request or answer is lost or late')),
];

function weather(changed: Weather, what: string): Fault['inject'] {
  return (cluster, _draw, durationMs) => {
    cluster.network.weather = changed;
    cluster.tell(`${what} for ${seconds(4 * durationMs)}`);
    cluster.later(durationMs * 4, () => {
      cluster.network.weather = FAIR;
    });
    return true;
  };
}

/** A fault of a run, before it happens. */
export interface PlannedFault {
  /** Its index in the plan of the seed. */
  readonly index: number;
  /** After the begin of the work. */
  readonly atMs: number;
  readonly fault: Fault;
  readonly durationMs: number;
}

const GAP_MS_MIN = 100;
const DURATION_MS_MIN = 50;

/**
 * @param table of possible faults
 * @param gapMs the longest time between two faults; drawn from the seed if absent
 * @returns the faults of a seed in order; a longer time has the same faults, and more after them
 */
export function faultPlan(
  cluster: SimulatedCluster,
  forMs: number,
  table: readonly Fault[],
  // Some seeds have few faults, some have many.
  gapMs: number = cluster.draw('gaps').pick([800, 1_500, 3_000]),
): PlannedFault[] {
  const fitting = table.filter(({ fits }) => fits?.(cluster.shape) ?? true);
  const total = fitting.reduce((sum, { weight }) => sum + weight, 0);
  const plan: PlannedFault[] = [];
  for (let [index, atMs] = [0, 0]; fitting.length > 0; index++) {
    const draw = cluster.draw(`plan of fault ${index}`);
    atMs += GAP_MS_MIN + draw.next() * gapMs;
    if (atMs >= forMs) break;
    let left = draw.next() * total;
    const fault = fitting.find(({ weight }) => {
      left -= weight;
      return left < 0;
    }) as Fault;
    const isShort = draw.chance(0.7);
    const durationMs = isShort ? DURATION_MS_MIN + draw.next() * 3_000 : 1_000 + draw.next() * 9_000;
    plan.push({ index, atMs, fault, durationMs });
  }
  return plan;
}

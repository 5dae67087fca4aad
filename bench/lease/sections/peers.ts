import { setTimeout as delay } from 'node:timers/promises';
import type { Chart } from '../chart.ts';
import type { LeaseCluster } from '../lease-cluster.ts';
import { PAPER } from '../paper.ts';
import { Etcd } from '../peers/etcd.ts';
import { ZooKeeper } from '../peers/zookeeper.ts';
import type { Goal, Report } from '../report.ts';
import { alternate, type Bench, type Section } from '../section.ts';
import { numberText, quantile, spreadText, summarize } from '../statistics.ts';

const GROUP = 3;
const TIMES_FASTER = 10;
/** All compile late: until then they have half their speed. */
const WARM_UP_MS = 10_000;
const REST_MS = 100;
const REST_PART_MAX = 0.05;
const REST_PERIODS_MAX = 50;

export const peers: Section = {
  title: 'The same leases from ZooKeeper and etcd, in the same run, three servers of each on loopback',
  run,
};

/** A service that grants leases. */
interface Contender {
  readonly name: string;
  batch(size: number): Promise<number>;
  singles(count: number): Promise<number[]>;
  /** CPU that the servers have used, in milliseconds. */
  cpuMs(): number;
}

/** The figures of one contender. */
interface Measured {
  readonly name: string;
  readonly batches: readonly { readonly size: number; readonly perSecond: readonly number[] }[];
  readonly singleP50Ms: number;
  /** Of the largest batches, in milliseconds per lease. */
  readonly serverCpuMsPerLease: number;
  readonly clientCpuMsPerLease: number;
}

async function run(bench: Bench): Promise<Report> {
  const missing: string[] = [];
  const stops: (() => void)[] = [];
  try {
    const trio = await bench.trio();
    const contenders = [ours(trio), ...(await theirs(bench, missing, stops))];
    const measured = await measure(bench, contenders);
    return report(measured, missing);
  } finally {
    for (const stop of stops) stop();
  }
}

function ours(trio: LeaseCluster): Contender {
  return {
    name: 'ours',
    batch: (size) => trio.batch(size, GROUP),
    singles: (count) => trio.singles(count),
    cpuMs: () => trio.cpuMs(),
  };
}

/** Starts the services that are installed. */
async function theirs(bench: Bench, missing: string[], stops: (() => void)[]): Promise<Contender[]> {
  const contenders: Contender[] = [];
  if (ZooKeeper.missing === null) {
    bench.progress('starting ZooKeeper');
    const zooKeeper = await ZooKeeper.start();
    stops.push(() => zooKeeper.service.stop());
    contenders.push({
      name: 'ZooKeeper',
      batch: (size) => zooKeeper.batch(size),
      singles: (count) => zooKeeper.singles(count),
      cpuMs: () => zooKeeper.service.cpuMs(),
    });
  } else {
    missing.push(
      `ZooKeeper is not installed: nothing was measured of it. To install it: ${ZooKeeper.missing}`,
    );
  }
  if (Etcd.missing === null) {
    bench.progress('starting etcd');
    const etcd = await Etcd.start();
    stops.push(() => etcd.stop());
    for (const style of ['lease-each', 'shared'] as const) {
      contenders.push({
        name: style === 'shared' ? 'etcd, one lease for all' : 'etcd, a lease for each',
        batch: (size) => etcd.batch(size, style),
        singles: (count) => etcd.singles(count, style),
        cpuMs: () => etcd.service.cpuMs(),
      });
    }
  } else {
    missing.push(`etcd is not installed: nothing was measured of it. To install it: ${Etcd.missing}`);
  }
  return contenders;
}

async function measure(bench: Bench, contenders: readonly Contender[]): Promise<Measured[]> {
  const sizes = bench.quick ? [200] : [1_000, 10_000];
  const singles = bench.quick ? 60 : 3_000;
  const largest = Math.max(...sizes);
  for (const contender of contenders) {
    bench.progress(`warming up ${contender.name}`);
    const untilMs = performance.now() + (bench.quick ? 0 : WARM_UP_MS);
    do await contender.batch(largest);
    while (performance.now() < untilMs);
    await contender.singles(singles / 3);
  }
  const serverCpuMs = contenders.map(() => 0);
  const clientCpuMs = contenders.map(() => 0);
  const batches: { size: number; measured: Record<string, number[]> }[] = [];
  for (const size of sizes) {
    bench.progress(`batches of ${numberText(size)}, all in turn`);
    const turns = contenders.map((contender, place) => {
      const turn = async (): Promise<number> => {
        await rest(contenders);
        const server = contender.cpuMs();
        const client = process.cpuUsage();
        const perSecond = await contender.batch(size);
        const { user, system } = process.cpuUsage(client);
        if (size === largest) {
          serverCpuMs[place] = (serverCpuMs[place] ?? 0) + contender.cpuMs() - server;
          clientCpuMs[place] = (clientCpuMs[place] ?? 0) + (user + system) / 1000;
        }
        return perSecond;
      };
      return [contender.name, turn] as const;
    });
    batches.push({ size, measured: await alternate(Object.fromEntries(turns), bench.runs) });
  }
  const leases = bench.runs * largest;
  const figures: Measured[] = [];
  for (const [place, contender] of contenders.entries()) {
    bench.progress(`single leases from ${contender.name}`);
    const latenciesMs = await contender.singles(singles);
    figures.push({
      name: contender.name,
      batches: batches.map(({ size, measured }) => ({ size, perSecond: measured[contender.name] ?? [] })),
      singleP50Ms: quantile(
        latenciesMs.toSorted((a, b) => a - b),
        0.5,
      ),
      serverCpuMsPerLease: (serverCpuMs[place] ?? 0) / leases,
      clientCpuMsPerLease: (clientCpuMs[place] ?? 0) / leases,
    });
  }
  return figures;
}

/** Waits until no contender works for the previous turn: Java machines compile, and etcd compacts. */
async function rest(contenders: readonly Contender[]): Promise<void> {
  const usedMs = (): number => contenders.reduce((sum, contender) => sum + contender.cpuMs(), 0);
  for (let period = 0; period < REST_PERIODS_MAX; period++) {
    const before = usedMs();
    await delay(REST_MS);
    if (usedMs() - before <= REST_PART_MAX * REST_MS) return;
  }
}

function report(measured: readonly Measured[], missing: readonly string[]): Report {
  const [own, ...others] = measured;
  if (own === undefined) throw new Error('Nothing was measured');
  const sizes = own.batches.map(({ size }) => size);
  const median = (contender: Measured, size: number): number =>
    summarize(contender.batches.find((batch) => batch.size === size)?.perSecond ?? []).median;
  return {
    table: {
      columns: [
        'leases/s',
        ...sizes.flatMap((size) => [`batch ${numberText(size)}`, 'ours / theirs']),
        'single p50, ms',
        `CPU of servers, batch ${numberText(Math.max(...sizes))}, µs/lease`,
        'of clients, µs/lease',
      ],
      rows: measured.map((contender) => [
        contender.name,
        ...contender.batches.flatMap(({ size, perSecond }) => [
          spreadText(summarize(perSecond)),
          contender === own ? '-' : `${numberText(median(own, size) / median(contender, size), 1)} x`,
        ]),
        numberText(contender.singleP50Ms, 3),
        numberText(contender.serverCpuMsPerLease * 1000),
        contender === own ? '-' : numberText(contender.clientCpuMsPerLease * 1000),
      ]),
    },
    goals: others.flatMap((other) =>
      sizes.map((size): Goal => {
        const ratio = median(own, size) / median(other, size);
        return {
          what: `leases per second against ${other.name}, batches of ${numberText(size)}`,
          wanted: `at least ${TIMES_FASTER} x`,
          measured: `${numberText(ratio, 1)} x`,
          met: ratio >= TIMES_FASTER,
        };
      }),
    ),
    notes: [
      'Their data are in a memory disk where there is one (/dev/shm), so that no disk slows them; ours writes none.',
      'With ours, the servers themselves acquire, as in the paper. The others have one client with a connection to each server and all ' +
        'requests under way at once (etcd: 256 at each server); it shares the machine with them, and its CPU is in the last column.',
      'ZooKeeper: an ephemeral node for each lease, over its own protocol. etcd: a key put if absent, over gRPC, either under ' +
        'a lease of its own, granted before, or under one lease for each client. Nothing is renewed meanwhile.',
      `The paper has ${numberText(PAPER.zooKeeperPerSecond)} leases/s for ZooKeeper and ${numberText(PAPER.fleasePerSecond)} for Flease, ` +
        `${numberText(PAPER.fleasePerSecond / PAPER.zooKeeperPerSecond, 1)} x.`,
      ...missing,
    ],
    figures: [{ name: 'lease-peers', chart: chartOf(measured, sizes) }],
    data: measured,
  };
}

function chartOf(measured: readonly Measured[], sizes: readonly number[]): Chart {
  return {
    kind: 'bars',
    title: 'Leases per second of three servers on one machine',
    categories: sizes.map((size) => `batches of ${numberText(size)}`),
    y: { label: 'leases per second', scale: 'linear' },
    series: measured.map((contender) => ({
      name: contender.name,
      points: contender.batches.map(({ perSecond }, place) => {
        const { median, min, max } = summarize(perSecond);
        return { x: place, y: median, low: min, high: max };
      }),
    })),
    references: [{ label: 'paper: ZooKeeper', y: PAPER.zooKeeperPerSecond }],
  };
}

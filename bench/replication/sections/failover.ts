import { setTimeout as delay } from 'node:timers/promises';
import type { FileLeaseStatus } from '../../../server/routing/service-interfaces.ts';
import { until } from '../../../test/cluster/real-cluster.ts';
import { HEADER_FORWARDED } from '../../../wire/http-api.ts';
import type { Goal, Report } from '../../lease/report.ts';
import { numberText, summarize } from '../../lease/statistics.ts';
import { fill } from '../fill.ts';
import type { BenchFile, ReplicaCluster } from '../replica-cluster.ts';
import type { Bench, Section } from '../section.ts';
import { longestGapMs, SteadyWriter } from '../steady-writer.ts';
import { WriteSession } from '../write-session.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;
const TIMING = { leaseMs: 2_000, clockSkewMs: 100 };
const GOAL_MS = 50;
/** How long the writer runs before the servers get a signal. */
const SETTLED_MS = 200;
/** How long the next primary is watched for further gaps. */
const WATCHED_MS = 300;
const CURRENT_MS_MAX = 60_000;
/** The most restarts of primaries until the file and the catalog have the wanted ones. */
const ARRANGE_TURNS_MAX = 20;
/** The objects of the sparse file are so far apart that it has this size. */
const SPARSE_BYTES = 100 * GIB;

const ENDS = ['SIGKILL', 'SIGTERM'] as const;
type End = (typeof ENDS)[number];

interface Trial {
  readonly end: End;
  /**
   * From the signal to the first acknowledgement by another primary; for SIGTERM from the last acknowledgement before
   * it.
   */
  readonly gapMs: number;
  /** The rest of the lease at the signal, and the clock skew after which others may become primary. */
  readonly owedMs: number;
  /** The error of that rest: the duration of its query. */
  readonly uncertainMs: number;
  /** The longest time between two acknowledgements before the signal, which is due to the machine. */
  readonly calmMs: number;
  /** Whether the same server was the catalog's primary. */
  readonly catalogToo: boolean;
}

interface Subject {
  readonly name: string;
  readonly file: BenchFile;
  readonly trials: Trial[];
}

export const failover: Section = {
  title: 'How long writes wait for the next primary, beyond what the lease of the last one forbids',
  run,
};

async function run(bench: Bench): Promise<Report> {
  const servers = await bench.servers(TIMING);
  try {
    const subjects = await makeFiles(bench, servers);
    for (const { name, file, trials } of subjects) {
      for (let turn = 0; turn < bench.runs; turn++) {
        for (const end of ENDS) {
          for (const catalogToo of [false, true]) {
            const who = catalogToo ? 'file and catalog' : 'the file alone';
            bench.progress(`${name}, ${end} of the primary of ${who}, ${turn + 1} of ${bench.runs}`);
            await arrange(servers, file, catalogToo);
            trials.push(await trial(servers, file, end));
          }
        }
      }
    }
    return report(subjects);
  } finally {
    await servers.stop();
  }
}

async function makeFiles(bench: Bench, servers: ReplicaCluster): Promise<Subject[]> {
  const objects = bench.quick ? 500 : 100_000;
  const sizeMib = bench.quick ? 1 : 64;
  const empty = await servers.createFile('empty', 128 * KIB);
  const dense = await servers.createFile('dense', 128 * KIB);
  await fill(servers, dense, { count: sizeMib, strideBytes: MIB, bytes: Buffer.alloc(MIB, 1) });
  const sparse = await servers.createFile('sparse', 8 * KIB);
  bench.progress(`a sparse file with ${numberText(objects)} objects`);
  const strideBytes = Math.floor(SPARSE_BYTES / objects / (8 * KIB)) * 8 * KIB;
  await fill(servers, sparse, { count: objects, strideBytes, bytes: Buffer.from('object') });
  const last = await WriteSession.begin(servers, sparse.file);
  const primary = servers.pool(await servers.cluster.primaryOf(sparse.path));
  await last.write(primary, SPARSE_BYTES - 8 * KIB, Buffer.from('the last one'));
  const subjects = [
    { name: 'empty', file: empty, trials: [] },
    { name: `${sizeMib} MiB`, file: dense, trials: [] },
    { name: `100 GiB with ${numberText(objects)} objects`, file: sparse, trials: [] },
  ];
  for (const { file } of subjects) await servers.cluster.current(file.path, CURRENT_MS_MAX);
  return subjects;
}

/** Restarts primaries until the file and the catalog have the same primary, or different ones. */
async function arrange(servers: ReplicaCluster, { path }: BenchFile, catalogToo: boolean): Promise<void> {
  const { cluster } = servers;
  for (let turn = 0; turn < ARRANGE_TURNS_MAX; turn++) {
    await cluster.ready();
    const { primary } = await cluster.current(path, CURRENT_MS_MAX);
    if (primary === null) throw new Error(`${path} has no primary`);
    const catalog = await catalogPrimary(servers, primary);
    if ((primary === catalog) === catalogToo) return;
    // Which server becomes primary next is random: every other time it is the right one.
    await cluster.kill(catalog, 'SIGTERM');
    await cluster.restart(catalog);
  }
  throw new Error(`${path} and the catalog do not get ${catalogToo ? 'one primary' : 'two primaries'}`);
}

/** @returns the catalog's primary, as soon as a running server names a running one */
async function catalogPrimary({ cluster }: ReplicaCluster, asked: string): Promise<string> {
  let primary: string | null = null;
  await until('the catalog has a primary', async () => {
    primary = (await cluster.status(asked)).catalog.primary;
    return primary !== null && cluster.isRunning(primary);
  });
  if (primary === null) throw new Error('unreachable');
  return primary;
}

async function trial(servers: ReplicaCluster, file: BenchFile, end: End): Promise<Trial> {
  const { cluster } = servers;
  await cluster.ready();
  const { primary, epoch } = await cluster.current(file.path, CURRENT_MS_MAX);
  if (primary === null) throw new Error(`${file.path} has no primary`);
  const writer = await SteadyWriter.start(servers, file);
  try {
    // At a random moment between two renewals of the lease.
    const beganMs = performance.now();
    await delay(SETTLED_MS + Math.random() * TIMING.leaseMs);
    const { catalog } = await cluster.status(primary);
    // Measured before the signal, so that the gap after it is not included.
    const calmMs = longestGapMs(writer.acknowledgements, beganMs, performance.now());
    const askedMs = performance.now();
    const remainingMs = await leaseRemainingMs(servers, primary, file);
    const toldMs = performance.now();
    const gone = cluster.kill(primary, end);
    const signalMs = performance.now();
    const first = await writer.first((acknowledgement) => acknowledgement.epoch > epoch);
    const untilMs = first.atMs + WATCHED_MS;
    await writer.first(({ atMs }) => atMs > untilMs);
    await gone;
    const leftMs = (askedMs + toldMs) / 2 + remainingMs - signalMs;
    const killed = end === 'SIGKILL';
    return {
      end,
      gapMs: killed ? first.atMs - signalMs : longestGapMs(writer.acknowledgements, signalMs, untilMs),
      owedMs: killed ? Math.max(0, leftMs) + TIMING.clockSkewMs : 0,
      uncertainMs: toldMs - askedMs,
      calmMs,
      catalogToo: catalog.primary === primary,
    };
  } finally {
    await writer.stop();
    if (!cluster.isRunning(primary)) cluster.spawn(primary);
  }
}

/**
 * @returns the rest of the lease as its holder sees it. The query is a message between servers: no other interface
 * returns it.
 */
async function leaseRemainingMs(
  servers: ReplicaCluster,
  primary: string,
  { file }: BenchFile,
): Promise<number> {
  const path = `/v1/data/${file}/standing`;
  const headers = { [HEADER_FORWARDED]: '1' };
  const response = await servers.pool(primary).request({ method: 'GET', path, headers });
  if (response.statusCode !== 200) throw new Error(`No standing: ${await response.body.text()}`);
  return ((await response.body.json()) as FileLeaseStatus).lease.remainingMs;
}

function report(subjects: readonly Subject[]): Report {
  const rows: string[][] = [];
  const goals: Goal[] = [];
  for (const { name, trials } of subjects) {
    for (const end of ENDS) {
      // The first write of a primary is reported to the catalog, so a file's gap includes a gap of the catalog.
      for (const catalogToo of [false, true]) {
        const chosen = trials.filter((one) => one.end === end && one.catalogToo === catalogToo);
        if (chosen.length === 0) continue;
        const who = catalogToo ? 'file and catalog' : 'file';
        const gaps = summarize(chosen.map(({ gapMs }) => gapMs));
        const beyond = summarize(chosen.map(({ gapMs, owedMs }) => gapMs - owedMs));
        const calm = summarize(chosen.map(({ calmMs }) => calmMs));
        rows.push([
          name,
          end,
          who,
          `${chosen.length}`,
          numberText(gaps.median),
          numberText(beyond.median),
          numberText(beyond.max),
          numberText(calm.median),
        ]);
        goals.push({
          what: `${name}, ${end} of the primary of ${who}: without writes ${end === 'SIGKILL' ? 'beyond lease and clock skew' : 'at all'}`,
          wanted: `at most ${GOAL_MS} ms`,
          measured: `median ${numberText(beyond.median)} ms, longest ${numberText(beyond.max)} ms`,
          met: beyond.max <= GOAL_MS,
        });
      }
    }
  }
  const uncertain = summarize(subjects.flatMap(({ trials }) => trials.map(({ uncertainMs }) => uncertainMs)));
  return {
    table: {
      columns: ['file', 'ended by', 'primary of', 'n', 'gap, ms', 'beyond, ms', 'longest', 'calm, ms'],
      rows,
    },
    goals,
    notes: [
      `Leases of ${TIMING.leaseMs / 1000} s, clock skew ${TIMING.clockSkewMs} ms. One writer sends the next write 2 ms after an acknowledgement or a failure. ` +
        'After `SIGKILL` the gap counts from the signal, and *beyond* is the gap without the remaining lease and the clock skew. After ' +
        '`SIGTERM` the gap is the longest time between two acknowledgements, and nothing is subtracted. *Calm* is the longest such ' +
        'time without failures; *beyond* contains it.',
      `The remaining lease was queried just before, which took ${numberText(uncertain.median, 1)} ms (at most ${numberText(uncertain.max, 1)}).`,
    ],
    figures: [],
    data: subjects.map(({ name, trials }) => ({ name, trials })),
  };
}

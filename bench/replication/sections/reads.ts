import { HEADER_SERVED } from '../../../wire/http-api.ts';
import type { Report } from '../../lease/report.ts';
import { alternate } from '../../lease/section.ts';
import { numberText, quantile, spreadText, summarize } from '../../lease/statistics.ts';
import { fill } from '../fill.ts';
import type { BenchFile, ReplicaCluster } from '../replica-cluster.ts';
import type { Bench, Section } from '../section.ts';
import { WriteSession } from '../write-session.ts';

const KIB = 1024;
const FILES = 4;
const FILE_BYTES = 1024 * KIB;
const OBJECT_BYTES = 128 * KIB;
const WRITE = Buffer.alloc(4 * KIB, 0x77);
/** The timing that servers have by default. */
const TIMING = { leaseMs: 5_000, clockSkewMs: 250 };
/** Requests under way at each server that is asked, so that all are asked alike. */
const CLIENTS_PER_SERVER = 8;
const WRITE_SHARE = 0.1;
const TOGETHER_MIN = 2.5;
const LOCAL_MIN = 0.95;

const WAYS = ['primary', 'backup', 'all'] as const;
type Way = (typeof WAYS)[number];

const WAY_NAMES: Readonly<Record<Way, string>> = {
  primary: 'all at the primary',
  backup: 'all at one backup',
  all: 'a share at each of three',
};

interface Load {
  readonly files: readonly BenchFile[];
  readonly primary: string;
  /** Servers that are read from. */
  readonly asked: readonly string[];
  readonly readBytes: number;
  readonly writeShare: number;
  readonly spanMs: number;
}

interface Measured {
  /** Of each server that was asked: reads for each second of CPU that it used. */
  readonly perCpuSecond: Readonly<Record<string, number>>;
  readonly together: number;
  /** Reads a second by the clock, of all. */
  readonly perSecond: number;
  /** Share of reads that the server answered that was asked. */
  readonly localShare: number;
  readonly refused: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

interface Row {
  readonly readBytes: number;
  readonly writeShare: number;
  readonly measured: Readonly<Record<Way, readonly Measured[]>>;
}

export const reads: Section = {
  title: 'Reads at replicas, for each second of CPU that their server uses',
  run,
};

async function run(bench: Bench): Promise<Report> {
  const servers = await bench.servers(TIMING);
  try {
    const { files, primary } = await hotFiles(servers);
    const backups = servers.ids.filter((id) => id !== primary);
    const rows: Row[] = [];
    for (const writeShare of [0, WRITE_SHARE]) {
      for (const readBytes of [4 * KIB, 64 * KIB]) {
        bench.progress(`reads of ${readBytes / KIB} KiB, ${writeShare * 100} % writes, three ways in turn`);
        const measured: Record<Way, Measured[]> = { primary: [], backup: [], all: [] };
        const once = (way: Way) => async (): Promise<number> => {
          const backup = backups[measured.backup.length % backups.length] as string;
          const asked = { primary: [primary], backup: [backup], all: servers.ids }[way];
          const spanMs = bench.quick ? 300 : 2_500;
          const figures = await load(servers, { files, primary, asked, readBytes, writeShare, spanMs });
          measured[way].push(figures);
          return figures.together;
        };
        const ways = { primary: once('primary'), backup: once('backup'), all: once('all') };
        // Once without counting: what is compiled and cached by then is so for all.
        await alternate(ways, 1);
        for (const way of WAYS) measured[way].length = 0;
        await alternate(ways, bench.runs);
        rows.push({ readBytes, writeShare, measured });
      }
    }
    return report(rows);
  } finally {
    await servers.stop('SIGTERM');
  }
}

/** Files that have the same primary, and are in every server's page cache. */
async function hotFiles(servers: ReplicaCluster): Promise<{ files: BenchFile[]; primary: string }> {
  const [primary] = servers.ids as [string];
  const files: BenchFile[] = [];
  for (let number = 0; number < FILES; number++) {
    const file = await servers.createFile(`hot-${number}`, OBJECT_BYTES);
    // Nobody is primary of a new file: the server becomes it that is asked first.
    const path = `/v1/data/${file.file}/state`;
    const response = await servers.pool(primary).request({ method: 'GET', path });
    await response.body.dump();
    const elected = await servers.cluster.primaryOf(file.path);
    if (elected !== primary) throw new Error(`${elected} and not ${primary} is primary of ${file.path}`);
    const bytes = Buffer.alloc(256 * KIB, number + 1);
    await fill(servers, file, { count: FILE_BYTES / bytes.length, strideBytes: bytes.length, bytes });
    await servers.cluster.current(file.path);
    files.push(file);
  }
  return { files, primary };
}

async function load(servers: ReplicaCluster, load: Load): Promise<Measured> {
  const counts = new Map(load.asked.map((id) => [id, 0]));
  const latenciesMs: number[] = [];
  const served = { primary: 0, local: 0, forwarded: 0 };
  let refused = 0;
  const sessions = await Promise.all(
    load.asked.flatMap(() =>
      Array.from({ length: CLIENTS_PER_SERVER }, () =>
        Promise.all(load.files.map(({ file }) => WriteSession.begin(servers, file))),
      ),
    ),
  );
  const beganMs = performance.now();
  const deadlineMs = beganMs + load.spanMs;
  const cpuBeforeMs = load.asked.map((id) => servers.cpuMs(id));

  const client = async (asked: string, place: number): Promise<void> => {
    const pool = servers.pool(asked);
    while (performance.now() < deadlineMs) {
      const index = Math.floor(Math.random() * load.files.length);
      const { file } = load.files[index] as BenchFile;
      if (Math.random() < load.writeShare) {
        const session = sessions[place]?.[index] as WriteSession;
        await session.write(servers.pool(load.primary), placeOf(WRITE.length), WRITE);
        continue;
      }
      const path = `/v1/data/${file}?offset=${placeOf(load.readBytes)}&length=${load.readBytes}`;
      const sentMs = performance.now();
      const response = await pool.request({ method: 'GET', path });
      const bytes = await response.body.arrayBuffer();
      if (response.statusCode !== 200) {
        refused += 1;
        continue;
      }
      if (bytes.byteLength !== load.readBytes) throw new Error(`A read gave ${bytes.byteLength} bytes`);
      latenciesMs.push(performance.now() - sentMs);
      counts.set(asked, (counts.get(asked) ?? 0) + 1);
      served[response.headers[HEADER_SERVED] as keyof typeof served] += 1;
    }
  };
  await Promise.all(
    load.asked.flatMap((id, place) =>
      Array.from({ length: CLIENTS_PER_SERVER }, (_, own) => client(id, place * CLIENTS_PER_SERVER + own)),
    ),
  );

  const spanMs = performance.now() - beganMs;
  const perCpuSecond: Record<string, number> = {};
  load.asked.forEach((id, place) => {
    const usedMs = servers.cpuMs(id) - (cpuBeforeMs[place] as number);
    perCpuSecond[id] = ((counts.get(id) ?? 0) * 1000) / usedMs;
  });
  const sorted = latenciesMs.toSorted((a, b) => a - b);
  return {
    perCpuSecond,
    together: Object.values(perCpuSecond).reduce((sum, one) => sum + one, 0),
    perSecond: (sorted.length * 1000) / spanMs,
    localShare: (served.primary + served.local) / (served.primary + served.local + served.forwarded),
    refused,
    p50Ms: quantile(sorted, 0.5),
    p99Ms: quantile(sorted, 0.99),
  };
}

function placeOf(bytes: number): number {
  return Math.floor(Math.random() * (FILE_BYTES / bytes)) * bytes;
}

function report(rows: readonly Row[]): Report {
  const median = (all: readonly Measured[], value: (one: Measured) => number): number =>
    summarize(all.map(value)).median;
  const ratios = (row: Row, way: Way): number[] =>
    row.measured[way].map(({ together }, run) => together / (row.measured.primary[run] as Measured).together);
  const name = (row: Row): string =>
    `${row.readBytes / KIB} KiB${row.writeShare > 0 ? `, ${row.writeShare * 100} % writes` : ''}`;
  return {
    table: {
      columns: [
        'reads',
        'where',
        'reads/CPU s',
        'of the primary alone',
        'answered there, %',
        'p50 ms',
        'p99 ms',
      ],
      rows: rows.flatMap((row) =>
        WAYS.map((way) => [
          name(row),
          WAY_NAMES[way],
          spreadText(summarize(row.measured[way].map(({ together }) => together))),
          spreadText(summarize(ratios(row, way)), 2),
          numberText(median(row.measured[way], ({ localShare }) => localShare) * 100, 1),
          numberText(
            median(row.measured[way], ({ p50Ms }) => p50Ms),
            2,
          ),
          numberText(
            median(row.measured[way], ({ p99Ms }) => p99Ms),
            2,
          ),
        ]),
      ),
    },
    goals: rows.flatMap((row) => {
      const together = summarize(ratios(row, 'all'));
      const local = Math.min(...row.measured.all.map(({ localShare }) => localShare));
      const goals = [
        {
          what: `${name(row)}: reads answered by the server that was asked`,
          wanted: `at least ${LOCAL_MIN * 100} %`,
          measured: `${numberText(local * 100, 1)} %`,
          met: local >= LOCAL_MIN,
        },
      ];
      if (row.writeShare === 0) {
        goals.push({
          what: `${name(row)}: three servers together, of what the primary alone reads for its CPU`,
          wanted: `at least ${TOGETHER_MIN}`,
          measured: spreadText(together, 2),
          met: together.median >= TOGETHER_MIN,
        });
      }
      return goals;
    }),
    notes: [
      `${FILES} files of 1 MiB that are in memory, ${CLIENTS_PER_SERVER} clients for each server that is asked, each with one ` +
        'request at a time. What servers do together is the sum of what each does for a second of its own CPU, all threads and the ' +
        'kernel included: the machine has fewer cores than there are servers.',
      'Where there are writes, clients send each of them to the primary, and it is paid from the CPU of the servers that have it.',
    ],
    figures: [],
    data: rows,
  };
}

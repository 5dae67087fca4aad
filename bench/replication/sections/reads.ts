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
/** The servers' default timing. */
const TIMING = { leaseMs: 5_000, clockSkewMs: 250 };
/** Concurrent requests at each server that is read, so that all have equal load. */
const CLIENTS_PER_SERVER = 8;
const WRITE_SHARE = 0.1;
const TOGETHER_MIN = 2.5;
const LOCAL_MIN = 0.95;

const WAYS = ['primary', 'backup', 'all'] as const;
type Way = (typeof WAYS)[number];

const WAY_NAMES: Readonly<Record<Way, string>> = {
  primary: 'each at the primary',
  backup: 'each at a backup',
  all: 'a share at each of three',
};

/** Files with one primary, in the page cache of each server. */
interface HotFiles {
  readonly primary: string;
  readonly files: readonly BenchFile[];
}

interface Load {
  /** The files that each server is asked for. */
  readonly asked: ReadonlyMap<string, HotFiles>;
  readonly readBytes: number;
  readonly writeShare: number;
  readonly spanMs: number;
}

interface Measured {
  /** Of each server: reads per second of CPU that it used. */
  readonly perCpuSecond: Readonly<Record<string, number>>;
  /**
   * Of clients that read the same files: one server's rate if each has its own files, that of all if they share them.
   */
  readonly together: number;
  /** Reads per second of all servers. */
  readonly perSecond: number;
  /** The share of reads that the asked server answered itself. */
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
    const own = new Map<string, HotFiles>();
    for (const id of servers.ids) own.set(id, await hotFiles(servers, id));
    const filesOf = (place: number): HotFiles => own.get(servers.ids[place % own.size] as string) as HotFiles;
    // All servers always have equal load: a read costs more CPU if more processes share the cores.
    const places: Readonly<Record<Way, (place: number) => number>> = {
      primary: (place) => place,
      backup: (place) => place + 1,
      all: () => 0,
    };
    const rows: Row[] = [];
    for (const writeShare of [0, WRITE_SHARE]) {
      for (const readBytes of [4 * KIB, 64 * KIB]) {
        bench.progress(`reads of ${readBytes / KIB} KiB, ${writeShare * 100} % writes, three ways in turn`);
        const measured: Record<Way, Measured[]> = { primary: [], backup: [], all: [] };
        const once = (way: Way) => async (): Promise<number> => {
          const asked = new Map(servers.ids.map((id, place) => [id, filesOf(places[way](place))]));
          const spanMs = bench.quick ? 300 : 2_500;
          const figures = await load(servers, { asked, readBytes, writeShare, spanMs });
          measured[way].push(figures);
          return figures.together;
        };
        const ways = { primary: once('primary'), backup: once('backup'), all: once('all') };
        // One run without counting: then everything is compiled and cached for all ways.
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

async function hotFiles(servers: ReplicaCluster, primary: string): Promise<HotFiles> {
  const files: BenchFile[] = [];
  for (let number = 0; number < FILES; number++) {
    const file = await servers.createFile(`hot-${primary}-${number}`, OBJECT_BYTES, primary);
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
  return { primary, files };
}

async function load(
  servers: ReplicaCluster,
  { asked, readBytes, writeShare, spanMs }: Load,
): Promise<Measured> {
  const ids = [...asked.keys()];
  const counts = new Map(ids.map((id) => [id, 0]));
  const latenciesMs: number[] = [];
  const served = { primary: 0, local: 0, forwarded: 0 };
  let refused = 0;
  const clients = await Promise.all(
    [...asked].flatMap(([id, hot]) =>
      Array.from({ length: CLIENTS_PER_SERVER }, async () => {
        const sessions = hot.files.map(({ file }) => WriteSession.begin(servers, file));
        return { id, hot, sessions: await Promise.all(sessions) };
      }),
    ),
  );
  const beganMs = performance.now();
  const deadlineMs = beganMs + spanMs;
  const cpuBeforeMs = ids.map((id) => servers.cpuMs(id));

  const run = async ({ id, hot, sessions }: (typeof clients)[number]): Promise<void> => {
    const pool = servers.pool(id);
    while (performance.now() < deadlineMs) {
      const index = Math.floor(Math.random() * hot.files.length);
      const { file } = hot.files[index] as BenchFile;
      if (Math.random() < writeShare) {
        const session = sessions[index] as WriteSession;
        await session.write(servers.pool(hot.primary), placeOf(WRITE.length), WRITE);
        continue;
      }
      const path = `/v1/data/${file}?offset=${placeOf(readBytes)}&length=${readBytes}`;
      const sentMs = performance.now();
      const response = await pool.request({ method: 'GET', path });
      const bytes = await response.body.arrayBuffer();
      if (response.statusCode !== 200) {
        refused += 1;
        continue;
      }
      if (bytes.byteLength !== readBytes) throw new Error(`A read gave ${bytes.byteLength} bytes`);
      latenciesMs.push(performance.now() - sentMs);
      counts.set(id, (counts.get(id) ?? 0) + 1);
      served[response.headers[HEADER_SERVED] as keyof typeof served] += 1;
    }
  };
  await Promise.all(clients.map(run));

  const tookMs = performance.now() - beganMs;
  const perCpuSecond: Record<string, number> = {};
  ids.forEach((id, place) => {
    const usedMs = servers.cpuMs(id) - (cpuBeforeMs[place] as number);
    perCpuSecond[id] = ((counts.get(id) ?? 0) * 1000) / usedMs;
  });
  const sorted = latenciesMs.toSorted((a, b) => a - b);
  return {
    perCpuSecond,
    together: ids.reduce((sum, id) => sum + (perCpuSecond[id] as number), 0) / new Set(asked.values()).size,
    perSecond: (sorted.length * 1000) / tookMs,
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
      `Three sets of ${FILES} files of 1 MiB in memory, each set with another primary; ${CLIENTS_PER_SERVER} clients at each server, each with ` +
        'one request at a time. In the first two rows of a group each server is the primary, or a backup, of its own files, and the ' +
        'figure is the mean of one server; in the third all three serve the same files, and the figure is their sum. Writes go to ' +
        'the primary of the file.',
    ],
    figures: [],
    data: rows,
  };
}

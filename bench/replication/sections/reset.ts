import { until } from '../../../test/cluster/real-cluster.ts';
import type { FileState, ServerStatus } from '../../../wire/http-api.ts';
import type { Goal, Report } from '../../lease/report.ts';
import { numberText, spreadText, summarize } from '../../lease/statistics.ts';
import type { PeerTraffic } from '../counters.ts';
import { fill } from '../fill.ts';
import type { BenchFile, ReplicaCluster } from '../replica-cluster.ts';
import type { Bench, Section } from '../section.ts';
import { WriteSession } from '../write-session.ts';

const KIB = 1024;
const GIB = 1024 ** 3;
const OBJECT_BYTES = 64 * KIB;
const FILE_BYTES = 100 * GIB;
const OBJECTS = 200_000;
/** The longest time of filling the file. */
const FILL_MS_MAX = 75_000;
const TIMING = { leaseMs: 2_000, clockSkewMs: 100 };
const LAGS = [0, 1, 1_000];
const CHANGE = Buffer.alloc(4 * KIB, 0x11);
/** The bytes of an object, and the fields that identify and check it. */
const BYTES_PER_OBJECT_MAX = CHANGE.length + KIB;
/** The traffic to find out which objects differ. */
const FINDING_BYTES_MAX = 256 * KIB;
const AGREED_BYTES_MAX = 64 * KIB;
const AGREED_MS_MAX = 100;
const CURRENT_MS_MAX = 120_000;

interface Reset {
  /** Objects that were changed while one of the two replicas was stopped. */
  readonly lag: number;
  /** From the request that starts an election to its answer. */
  readonly resetMs: number;
  /** Whether the outdated replica became primary. */
  readonly laggingLeads: boolean;
  /** Between the two servers from their start until both replicas are current. */
  readonly traffic: PeerTraffic;
}

export const reset: Section = {
  title: 'What it costs a new primary to agree with the other replicas about a large file',
  run,
};

async function run(bench: Bench): Promise<Report> {
  const servers = await bench.servers(TIMING);
  try {
    const wanted = bench.quick ? 1_000 : OBJECTS;
    const file = await servers.createFile('large', OBJECT_BYTES);
    const strideBytes = Math.floor(FILE_BYTES / wanted / OBJECT_BYTES) * OBJECT_BYTES;
    bench.progress(`a file of 100 GiB with up to ${numberText(wanted)} objects`);
    const bytes = Buffer.from('one of many objects');
    const objects = await fill(servers, file, { count: wanted, strideBytes, bytes, limitMs: FILL_MS_MAX });
    const primary = await servers.cluster.primaryOf(file.path);
    const session = await WriteSession.begin(servers, file.file);
    await session.write(servers.pool(primary), FILE_BYTES - 4 * KIB, Buffer.from('the last one'));
    const resets: Reset[] = [];
    for (let turn = 0; turn < bench.runs; turn++) {
      for (const lag of LAGS) {
        const count = Math.min(lag, objects);
        bench.progress(`one replica lacks ${numberText(count)} of ${numberText(objects)} objects`);
        resets.push({ ...(await measure(servers, file, count, strideBytes)), lag });
      }
    }
    return report(resets, objects);
  } finally {
    await servers.stop();
  }
}

/** One replica misses some writes; then it is made primary with the help of one that has them. */
async function measure(
  servers: ReplicaCluster,
  file: BenchFile,
  count: number,
  strideBytes: number,
): Promise<Omit<Reset, 'lag'>> {
  const { cluster } = servers;
  const { primary } = await cluster.current(file.path, CURRENT_MS_MAX);
  const [witness, lagging] = cluster.ids.filter((id) => id !== primary);
  if (primary === null || witness === undefined || lagging === undefined) throw new Error('Too few servers');
  await cluster.kill(lagging);
  if (count > 0) await fill(servers, file, { count, strideBytes, bytes: CHANGE });
  await Promise.all([cluster.kill(primary), cluster.kill(witness)]);
  const two = [witness, lagging];
  for (const id of two) cluster.spawn(id);
  const { leader, resetMs } = await elect(servers, {
    asked: lagging,
    present: two,
    file: file.file,
  });
  await until(
    'both replicas are current',
    async () => {
      const { replicas } = await cluster.info(lagging, file.path);
      return two.every((id) => replicas.find(({ server }) => server === id)?.state === 'current');
    },
    CURRENT_MS_MAX,
  );
  const traffic = await servers.traffic(two);
  await cluster.restart(primary);
  return { resetMs, laggingLeads: leader === lagging, traffic };
}

/**
 * Has one server try to become primary as soon as all members may vote: once they are fully ready, one of them may be
 * primary already to compare replicas.
 */
async function elect(
  servers: ReplicaCluster,
  {
    asked,
    present,
    file,
  }: { readonly asked: string; readonly present: readonly string[]; readonly file: number },
): Promise<{ readonly leader: string; readonly resetMs: number }> {
  await Promise.all(
    present.map((id) =>
      until(`${id} takes part in leases`, async () => {
        const response = await servers.pool(id).request({ method: 'GET', path: '/v1/status/self' });
        const { state } = (await response.body.json()) as ServerStatus;
        return state === 'serving';
      }),
    ),
  );
  const askedMs = performance.now();
  const response = await servers.pool(asked).request({ method: 'GET', path: `/v1/data/${file}/state` });
  const text = await response.body.text();
  if (response.statusCode !== 200) throw new Error(`No primary was elected: ${text}`);
  const { primary } = JSON.parse(text) as FileState;
  return { leader: primary, resetMs: performance.now() - askedMs };
}

function report(resets: readonly Reset[], objects: number): Report {
  const ofLag = (lag: number, value: (one: Reset) => number) =>
    summarize(resets.filter((one) => one.lag === lag).map(value));
  const agreed = ofLag(0, ({ traffic }) => traffic.bytes);
  const agreedMs = ofLag(0, ({ resetMs }) => resetMs);
  const beyond = (lag: number): number => ofLag(lag, ({ traffic }) => traffic.bytes).median - agreed.median;
  const goals: Goal[] = [
    {
      what: 'bytes between two servers from their start until replicas that agree have a primary',
      wanted: `at most ${numberText(AGREED_BYTES_MAX)}`,
      measured: spreadText(agreed),
      met: agreed.median <= AGREED_BYTES_MAX,
    },
    {
      what: 'time for a reset of replicas that agree, election included',
      wanted: `at most ${AGREED_MS_MAX} ms`,
      measured: `${spreadText(agreedMs)} ms`,
      met: agreedMs.median <= AGREED_MS_MAX,
    },
  ];
  for (const lag of LAGS.filter((one) => one > 0)) {
    const count = Math.min(lag, objects);
    const max = FINDING_BYTES_MAX + count * BYTES_PER_OBJECT_MAX;
    goals.push({
      what: `bytes beyond that where one replica lacks changes of ${numberText(count)} objects`,
      wanted: `at most ${numberText(max)}`,
      measured: numberText(beyond(lag)),
      met: beyond(lag) <= max,
    });
  }
  const other = resets.filter(({ laggingLeads }) => !laggingLeads).length;
  return {
    table: {
      columns: ['objects that differ', 'reset, ms', 'messages', 'bytes', 'bytes beyond those of none'],
      rows: LAGS.map((lag) => [
        numberText(Math.min(lag, objects)),
        spreadText(ofLag(lag, ({ resetMs }) => resetMs)),
        spreadText(ofLag(lag, ({ traffic }) => traffic.messages)),
        spreadText(ofLag(lag, ({ traffic }) => traffic.bytes)),
        numberText(beyond(lag)),
      ]),
    },
    goals,
    notes: [
      `A file of ${FILE_BYTES / GIB} GiB with ${numberText(objects)} objects of ${OBJECT_BYTES / KIB} KiB. One replica is away while 4 KiB ` +
        'of each object are changed. Then all servers stop; that replica starts again with one that has the changes, and is asked to ' +
        'become primary. Messages and bytes are all between the two until both replicas are current.',
      other === 0
        ? 'The replica that lagged became primary each time.'
        : `In ${other} of ${resets.length} runs the other replica became primary.`,
    ],
    figures: [],
    data: { objects, resets },
  };
}

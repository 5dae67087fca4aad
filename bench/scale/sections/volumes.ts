import { RealCluster } from '../../../test/cluster/real-cluster.ts';
import { quiet } from '../measures.ts';
import {
  clientOf,
  createDirectory,
  createFile,
  createFilled,
  createOwnVolumes,
  type OwnVolume,
} from '../own-volumes.ts';
import type { Report } from '../report.ts';
import { cpuBetween, cpuOf } from '../servers.ts';

const SERVERS = 6;
const SPREADS = [1, 3, 6] as const;
const ROUNDS = 2;
/** Creates of one measurement; a number that can be divided by all spreads. */
const CREATES = 2_400;
const SHOWN = 10_000;
/** Requests in flight for one volume, in each spread: fewer would be executed in smaller batches. */
const IN_FLIGHT = 24;
const FILLED_IN_FLIGHT = 6;
const CONTENTS = new Uint8Array(64).fill('c'.charCodeAt(0));
const FILES_PER_REQUEST = 50;
const RATIO_MAX = 0.25;

type Kind = 'empty files' | 'files of 64 bytes';
const KINDS: readonly Kind[] = ['empty files', 'files of 64 bytes'];

/** Processor time, in milliseconds. */
interface Cost {
  all: number;
  busiest: number;
}

/**
 * Creates in one volume with its own catalog against as many that are spread over several such volumes, in turn: what
 * the busiest server spends. No spreading makes it less than an equal part of the work of all servers: that is the
 * floor.
 */
export async function volumesSection(_wanted: unknown, report: Report): Promise<void> {
  const cluster = await RealCluster.start({ servers: SERVERS, lease: '5s' });
  try {
    const names = Array.from({ length: Math.max(...SPREADS) }, (_, place) => `volume-${place + 1}`);
    const volumes = await createOwnVolumes(cluster, names);
    await notePrimaries(cluster, volumes, report);
    const costs = new Map(KINDS.map((kind) => [kind, SPREADS.map((): Cost => ({ all: 0, busiest: 0 }))]));
    for (let round = 0; round < ROUNDS; round++) {
      for (const [place, spread] of SPREADS.entries()) {
        const turned = [...volumes.slice(round), ...volumes.slice(0, round)];
        const every = volumes.length / spread;
        const used = turned.filter((_, index) => index % every === 0);
        for (const kind of KINDS) {
          await quiet(cluster, cluster.ids);
          const { all, busiest } = await costOf(cluster, used, kind, `${kind} ${round}-${spread}`);
          const sum = costs.get(kind)?.[place] as Cost;
          sum.all += all;
          sum.busiest += busiest;
          report.note(`${kind} in ${spread} volumes, round ${round + 1}: ${busiest} ms of ${all} ms`);
        }
      }
    }
    for (const [kind, of] of costs) show(kind, of, report);
  } finally {
    await cluster.stop();
  }
}

function show(kind: Kind, costs: readonly Cost[], report: Report): void {
  const seconds = (ms: number): string => (((ms / ROUNDS / CREATES) * SHOWN) / 1_000).toFixed(2);
  for (const [place, { all, busiest }] of costs.entries())
    report.row(
      `${SHOWN} creates of ${kind} in ${SPREADS[place]} volumes`,
      `${seconds(busiest)} s of processor of the busiest server, ${seconds(all)} s of all ${SERVERS}`,
    );
  const [one, , six] = costs as readonly [Cost, Cost, Cost];
  const ratio = six.busiest / one.busiest;
  const floor = six.all / SERVERS / one.busiest;
  const isEmpty = kind === 'empty files';
  report.row(
    `the busiest server with creates of ${kind} in ${SPREADS[2]} volumes against one`,
    `${ratio.toFixed(2)}; the floor is ${floor.toFixed(2)}, an equal part of the work of all servers`,
    isEmpty ? `${RATIO_MAX}` : '',
    isEmpty ? ratio <= RATIO_MAX : null,
  );
}

async function costOf(
  cluster: RealCluster,
  volumes: readonly OwnVolume[],
  kind: Kind,
  directory: string,
): Promise<Cost> {
  const clients = volumes.map((volume) => ({ volume, client: clientOf(cluster, volume) }));
  try {
    const parents = await Promise.all(
      clients.map(({ client, volume }) => createDirectory(client, volume.name, `/${directory}`)),
    );
    const before = cpuOf(cluster, cluster.ids);
    await Promise.all(
      clients.map(({ client, volume: { name } }, place) => {
        const count = CREATES / volumes.length;
        if (kind === 'empty files')
          return inTurns(count, IN_FLIGHT, (number) => createFile(client, name, `/${directory}/${number}`));
        return inTurns(count / FILES_PER_REQUEST, FILLED_IN_FLIGHT, (number) => {
          const names = Array.from({ length: FILES_PER_REQUEST }, (_, file) => `${number}-${file}`);
          const files = new Map(names.map((each) => [each, CONTENTS]));
          return createFilled(client, name, parents[place] as number, files);
        });
      }),
    );
    return cpuBetween(before, cpuOf(cluster, cluster.ids));
  } finally {
    for (const { client } of clients) await client.close();
  }
}

/** Runs `work` with the numbers below `count`, at most `inFlight` at a time. */
async function inTurns(
  count: number,
  inFlight: number,
  work: (number: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: inFlight }, worker));
}

async function notePrimaries(
  cluster: RealCluster,
  volumes: readonly OwnVolume[],
  report: Report,
): Promise<void> {
  const primaries: string[] = [];
  for (const volume of volumes) {
    await using client = clientOf(cluster, volume);
    await createDirectory(client, volume.name, '/primary');
    primaries.push(client.catalogPrimary ?? 'unknown');
  }
  const first = volumes.map(({ firstFileMs }) => firstFileMs).toSorted((a, b) => a - b);
  report.row(
    'from the creation of a volume with its own catalog to its first file',
    `median ${first[Math.floor(first.length / 2)]?.toFixed(0)} ms, at most ${first.at(-1)?.toFixed(0)} ms`,
  );
  report.note(`primaries of the catalogs: ${primaries.join(', ')}`);
}

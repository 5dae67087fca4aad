import { RealCluster } from '../../../test/cluster/real-cluster.ts';
import type { QueryResults } from '../../../wire/catalog-api.ts';
import type { Wanted } from '../arguments.ts';
import { DIRECTORY_FILES, Filler } from '../filler.ts';
import { quiet } from '../measures.ts';
import type { Report } from '../report.ts';
import { cpuBetween, cpuOf } from '../servers.ts';

const VOLUME = 'main';
const FILES = 1_000;
const LOOKUPS = 20_000;
const ASKERS = 12;
const RATIO_MIN = 2.5;

/** Lookups at all members of the catalog against lookups at its primary: the work of the busiest server. */
export async function lookupsSection(_wanted: Wanted, report: Report): Promise<void> {
  const cluster = await RealCluster.start({ lease: '5s' });
  try {
    await cluster.createVolume(VOLUME);
    await new Filler(cluster, VOLUME).fillTo(FILES);
    await quiet(cluster, cluster.ids);
    const primary = await primaryOf(cluster);
    // The first queries at each member bring it a read lease.
    await ask(cluster, cluster.ids, LOOKUPS / 10);
    const one = await ask(cluster, [primary], LOOKUPS);
    const all = await ask(cluster, cluster.ids, LOOKUPS);
    const local = await cluster.counted('leasehold_catalog_member_reads_total');
    const ratio = one.busiest / all.busiest;
    report.row(
      'lookups: the busiest server, asking the primary against all three members',
      `${ratio.toFixed(2)} (${(one.busiest / LOOKUPS).toFixed(2)} ms of processor for one, ` +
        `${(all.busiest / LOOKUPS).toFixed(2)} ms; ${local} answered by backups)`,
      `${RATIO_MIN}`,
      ratio >= RATIO_MIN,
    );
  } finally {
    await cluster.stop();
  }
}

async function primaryOf(cluster: RealCluster): Promise<string> {
  const { catalog } = await cluster.status(cluster.ids[0] as string);
  if (catalog.primary === null) throw new Error('The catalog has no primary');
  return catalog.primary;
}

async function ask(
  cluster: RealCluster,
  ids: readonly string[],
  count: number,
): Promise<{ readonly all: number; readonly busiest: number }> {
  const before = cpuOf(cluster, cluster.ids);
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      const number = next++;
      const server = ids[number % ids.length] as string;
      const directory = number % (FILES / DIRECTORY_FILES);
      const path = `/d${directory}/a file with number ${number % DIRECTORY_FILES}`;
      const answer = await fetch(`${cluster.url(server)}/v1/catalog/queries`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ query: { kind: 'resolve', volume: VOLUME, path, follow: true } }),
      });
      const { attributes } = (await answer.json()) as QueryResults['resolve'];
      if (attributes?.kind !== 'file') throw new Error(`${path} is not found: ${answer.status}`);
    }
  };
  await Promise.all(Array.from({ length: ASKERS }, worker));
  return cpuBetween(before, cpuOf(cluster, cluster.ids));
}

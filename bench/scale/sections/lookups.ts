import { RealCluster } from '../../../test/cluster/real-cluster.ts';
import type { QueryResults } from '../../../wire/catalog-api.ts';
import type { Wanted } from '../arguments.ts';
import { DIRECTORY_FILES, Filler } from '../filler.ts';
import { quiet } from '../measures.ts';
import type { Report } from '../report.ts';
import { cpuOf } from '../servers.ts';

const VOLUME = 'main';
const FILES = 1_000;
const LOOKUPS = 20_000;
const ROUNDS = 2;
/** Requests in flight at each server: with fewer, it wakes up for each of them. */
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
    // The first queries at each member bring it a read lease, and the engine compiles what they use.
    await ask(cluster, cluster.ids, LOOKUPS);
    const sums = { one: 0, inTurn: 0, atOnce: 0 };
    for (let round = 0; round < ROUNDS; round++) {
      sums.one += Math.max(...(await ask(cluster, [primary], LOOKUPS)));
      const turns: (readonly number[])[] = [];
      for (const id of cluster.ids) turns.push(await ask(cluster, [id], LOOKUPS / cluster.ids.length));
      sums.inTurn += Math.max(
        ...cluster.ids.map((_, at) => turns.reduce((sum, of) => sum + (of[at] ?? 0), 0)),
      );
      sums.atOnce += Math.max(...(await ask(cluster, cluster.ids, LOOKUPS)));
    }
    const each = (ms: number): string => `${((ms / ROUNDS / LOOKUPS) * 1_000).toFixed(0)} µs`;
    const local = await cluster.counted('leasehold_catalog_member_reads_total');
    const ratio = sums.one / sums.inTurn;
    report.row(
      'lookups: the busiest server, all at the primary against a third at each member, one member after the other',
      `${ratio.toFixed(2)} (${each(sums.one)} and ${each(sums.inTurn)} of its processor for each of all lookups; ` +
        `${local} were answered by backups)`,
      `${RATIO_MIN}`,
      ratio >= RATIO_MIN,
    );
    report.row(
      'the same, at all members at once, which share the processors of this machine',
      (sums.one / sums.atOnce).toFixed(2),
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

/** @returns the processor time of each server meanwhile, in milliseconds */
async function ask(cluster: RealCluster, ids: readonly string[], count: number): Promise<readonly number[]> {
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
  await Promise.all(Array.from({ length: ASKERS * ids.length }, worker));
  const after = cpuOf(cluster, cluster.ids);
  return cluster.ids.map((id) => (after.get(id) ?? 0) - (before.get(id) ?? 0));
}

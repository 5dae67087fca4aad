import { RealCluster, until } from '../../../test/cluster/real-cluster.ts';
import type { Wanted } from '../arguments.ts';
import { Filler } from '../filler.ts';
import { idleOf, quiet } from '../measures.ts';
import type { Report } from '../report.ts';

const VOLUME = 'main';
const FILES = 3_000;
const FLATNESS_MAX = 1.5;
const KILLED = 3;
const SERVERS = 12;

/** Idle processor time per server in a cluster of many servers against one of three, and the loss of any three. */
export async function serversSection({ servers: wanted, idleS }: Wanted, report: Report): Promise<void> {
  const servers = wanted ?? SERVERS;
  const few = await idlePart(3, idleS);
  const cluster = await RealCluster.start({ servers, lease: '5s' });
  try {
    await cluster.createVolume(VOLUME);
    await new Filler(cluster, VOLUME).fillTo(FILES);
    await quiet(cluster, cluster.ids);
    const many = await idleOf(cluster, cluster.ids, idleS);
    const ratio = many.meanPart / few;
    report.row(
      `idle: processor of a server, of ${servers} servers against three`,
      `${ratio.toFixed(2)} (${(many.meanPart * 100).toFixed(2)} % of a core against ${(few * 100).toFixed(2)} %)`,
      `${FLATNESS_MAX}`,
      ratio <= FLATNESS_MAX,
    );
    const killed = cluster.ids.slice(-KILLED);
    for (const id of killed) await cluster.kill(id);
    for (const id of killed) cluster.spawn(id);
    await cluster.ready(killed);
    const asked = cluster.ids[0] as string;
    await until(
      'no replica is behind',
      async () => (await cluster.status(asked)).verdict === 'healthy',
      600_000,
    );
    const check = await fetch(`${cluster.url(asked)}/v1/files/${VOLUME}/d0/`, {
      headers: { accept: 'application/json' },
    });
    report.row(
      `${KILLED} of ${servers} servers are killed and started again`,
      check.ok ? 'all is there' : 'failed',
    );
  } finally {
    await cluster.stop();
  }
}

async function idlePart(servers: number, seconds: number): Promise<number> {
  const cluster = await RealCluster.start({ servers, lease: '5s' });
  try {
    await cluster.createVolume(VOLUME);
    await new Filler(cluster, VOLUME).fillTo((FILES * servers) / 3);
    await quiet(cluster, cluster.ids);
    return (await idleOf(cluster, cluster.ids, seconds)).meanPart;
  } finally {
    await cluster.stop();
  }
}

import { RealCluster, until } from '../../../test/cluster/real-cluster.ts';
import type { Wanted } from '../arguments.ts';
import { Filler } from '../filler.ts';
import { type CreateCost, createCost, idleOf, listingMs, quiet, restedMemory } from '../measures.ts';
import type { Report } from '../report.ts';
import { cpuBetween, cpuOf, databasesOf, freeBytes } from '../servers.ts';

const VOLUME = 'main';
const BYTES_PER_KIB = 1_024;
/** The part of the files that is there at the first measurement. */
const FIRST_PART = 10;
const FULL_FORM = 10_000_000;
const HOURS_MAX = 2;
const LISTING_MS_MAX = 50;
const SLOWER_MAX = 1.2;
const IDLE_PART_MAX = 0.05;
const TICK_MS_MAX = 20;
const MEMORY_MIB_MAX = 400;
const RESTART_S_MAX = 60;
/** Files that are created while a member is away, as a part of all. */
const MISSED_PART = 20;

/** A cluster of three servers that is filled with files: what it costs, at rest and in use. */
export async function filesSection({ files, bytes, idleS }: Wanted, report: Report): Promise<void> {
  const isFull = files >= FULL_FORM;
  const cluster = await RealCluster.start({ lease: '5s' });
  try {
    await cluster.createVolume(VOLUME);
    const filler = new Filler(cluster, VOLUME, bytes);
    await filler.fillTo(files / FIRST_PART);
    const early = await restedCreateCost(cluster, 'early');
    const freeBefore = freeBytes(cluster);
    const before = cpuOf(cluster, cluster.ids);
    const beganMs = performance.now();
    await filler.fillTo(files);
    const seconds = (performance.now() - beganMs) / 1_000;
    const made = files * (1 - 1 / FIRST_PART);
    const { all } = cpuBetween(before, cpuOf(cluster, cluster.ids));
    const hours = (FULL_FORM * seconds) / made / 3_600;
    report.row(
      `filling to ${files} files of ${bytes} bytes, 3 replicas`,
      `${(made / seconds).toFixed(0)}/s, ${((all / made) * 1_000).toFixed(0)} ms of processor for 1,000; ` +
        `10 M in ${hours.toFixed(1)} h`,
      `10 M in ${HOURS_MAX} h`,
      hours <= HOURS_MAX,
    );
    report.note(cluster.ids.map((id) => `${id}: ${databasesOf(cluster, id)}`).join('; '));
    const takenKiB = (freeBefore - freeBytes(cluster)) / made / BYTES_PER_KIB;
    report.row('disk space that the fill took, three servers', `${takenKiB.toFixed(1)} KiB a file`);
    const late = await restedCreateCost(cluster, 'late');
    const ratio = late.cpuMs / early.cpuMs;
    report.row(
      `an empty create with ${files} files against ${files / FIRST_PART}`,
      `${ratio.toFixed(2)} of the processor time (${late.cpuMs.toFixed(0)} ms for 1,000)`,
      `${SLOWER_MAX}`,
      ratio <= SLOWER_MAX,
    );
    const listing = await listingMs(cluster, VOLUME, filler);
    report.row(
      'ls of 1,000 names',
      `${listing.toFixed(0)} ms`,
      `${LISTING_MS_MAX} ms`,
      listing < LISTING_MS_MAX,
    );
    report.note(`quiet after ${(await quiet(cluster, cluster.ids)).toFixed(0)} s`);
    const idle = await idleOf(cluster, cluster.ids, idleS);
    report.row(
      'idle: processor of the busiest server',
      `${(idle.largestPart * 100).toFixed(1)} % of a core`,
      `${IDLE_PART_MAX * 100} %`,
      isFull ? idle.largestPart < IDLE_PART_MAX : null,
    );
    report.row(
      'idle: longest tick',
      `${idle.tickMs.toFixed(0)} ms`,
      `${TICK_MS_MAX} ms`,
      idle.tickMs <= TICK_MS_MAX,
    );
    const memory = await restedMemory(cluster, cluster.ids);
    report.row(
      'idle: memory of a server',
      `${memory.now} MiB, of it ${memory.ofFiles} MiB pages of files; at most ${memory.most} MiB`,
      `${MEMORY_MIB_MAX} MiB`,
      isFull ? memory.now < MEMORY_MIB_MAX : null,
    );
    await restart(cluster, filler, files, report);
  } finally {
    await cluster.stop();
  }
}

/** Without what the fill has left to do, and to read again: the same creates come first, unmeasured. */
async function restedCreateCost(cluster: RealCluster, label: string): Promise<CreateCost> {
  await quiet(cluster, cluster.ids);
  await createCost(cluster, [VOLUME], `${label}-before`);
  return createCost(cluster, [VOLUME], label);
}

/** A member of the catalog is away while files are created, then catches up. */
async function restart(cluster: RealCluster, filler: Filler, files: number, report: Report): Promise<void> {
  const [away = ''] = cluster.ids;
  await cluster.kill(away);
  await filler.fillTo(files + Math.ceil(files / MISSED_PART));
  const beganMs = performance.now();
  cluster.spawn(away);
  await cluster.ready([away]);
  const readyS = (performance.now() - beganMs) / 1_000;
  await until(
    'no replica is behind',
    async () => (await cluster.status(cluster.ids[1] as string)).verdict === 'healthy',
    3_600_000,
  );
  const seconds = (performance.now() - beganMs) / 1_000;
  report.row(
    `restart of a server that missed ${Math.ceil(files / MISSED_PART)} files`,
    `ready after ${readyS.toFixed(1)} s, the cluster is as before after ${seconds.toFixed(1)} s`,
    `${RESTART_S_MAX} s`,
    readyS < RESTART_S_MAX,
  );
}

import { setTimeout as delay } from 'node:timers/promises';
import { PAPER } from '../paper.ts';
import type { Report } from '../report.ts';
import type { Bench, Section } from '../section.ts';
import { numberText } from '../statistics.ts';

const CORE_SHARE_MAX = 1 / 3;
/** The number of leases that are acquired at once, so few that no lease is renewed too late. */
const STEP = 10_000;

export const renewals: Section = {
  title: 'CPU that holding costs: one process holds leases and renews them, two others vote',
  run,
};

async function run(bench: Bench): Promise<Report> {
  const count = bench.quick ? 1_000 : 100_000;
  const measureMs = bench.quick ? 2_000 : 2 * bench.tuning.leaseMs;
  const trio = await bench.trio();
  bench.progress(`acquiring ${numberText(count)} leases`);
  for (let acquired = 0; acquired < count; acquired += STEP)
    await trio.acquire(Math.min(STEP, count - acquired), trio.size, 1);
  bench.progress('waiting until renewals have found their rhythm');
  await delay(bench.tuning.leaseMs);
  const before = await trio.usage();
  bench.progress(`measuring for ${measureMs / 1000} s`);
  await delay(measureMs);
  const after = await trio.usage();
  const servers = after.map((usage, place) => {
    const earlier = before[place] ?? usage;
    const spanMs = usage.atMs - earlier.atMs;
    return {
      coreShare: (usage.cpuMs - earlier.cpuMs) / spanMs,
      renewedPerSecond: ((usage.renewed - earlier.renewed) * 1000) / spanMs,
      held: usage.held,
      lost: usage.lost - earlier.lost,
    };
  });
  await trio.giveBack();
  const [holder] = servers;
  if (holder === undefined) throw new Error('There is no holder');
  const leaseSeconds = bench.tuning.leaseMs / 1000;
  return {
    table: {
      columns: ['process', 'leases held', 'lost', 'renewals/s', 'share of one core, %'],
      rows: servers.map((server, place) => [
        place === 0 ? 'holder' : `acceptor ${place}`,
        numberText(server.held),
        numberText(server.lost),
        numberText(server.renewedPerSecond),
        numberText(server.coreShare * 100, 1),
      ]),
    },
    goals: [
      {
        what: `share of one core for ${numberText(count)} leases of ${leaseSeconds} s, at their holder`,
        wanted: 'less than 33.3 %, and none lost',
        measured: `${numberText(holder.coreShare * 100, 1)} %, ${holder.lost} lost, ${numberText(holder.held)} held`,
        met: holder.coreShare < CORE_SHARE_MAX && holder.lost === 0 && holder.held === count,
      },
    ],
    notes: [
      `Measured over ${measureMs / 1000} s, after ${leaseSeconds} s of warming up; CPU of the whole process, the system's part included.`,
      `The talk about the paper gives ${numberText(PAPER.openFilesAt60s)} open files a server with leases of 60 s, and ` +
        `${numberText(PAPER.openFilesAt14s)} with 14 s, over ${PAPER.fleaseMachines} machines.`,
    ],
    figures: [
      {
        name: 'lease-renewals',
        chart: {
          kind: 'bars',
          title: `CPU of holding ${numberText(count)} leases of ${leaseSeconds} s`,
          categories: servers.map((_, place) => (place === 0 ? 'holder' : `acceptor ${place}`)),
          y: { label: 'share of one core, %', scale: 'linear' },
          series: [
            {
              name: 'renewing',
              points: servers.map((server, place) => ({ x: place, y: server.coreShare * 100 })),
            },
          ],
          references: [{ label: 'goal for the holder', y: CORE_SHARE_MAX * 100 }],
        },
      },
    ],
    data: { count, leaseMs: bench.tuning.leaseMs, measureMs, servers },
  };
}

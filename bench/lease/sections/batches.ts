import { PAPER } from '../paper.ts';
import type { Report } from '../report.ts';
import { alternate, type Bench, type Section } from '../section.ts';
import { numberText, spreadText, summarize } from '../statistics.ts';

const GROUP = 3;

export const batches: Section = {
  title: 'Leases per second: three processes acquire at once, three vote on each lease',
  run,
};

async function run(bench: Bench): Promise<Report> {
  const sizes = bench.quick ? [100, 1_000] : [100, 1_000, 10_000, 50_000];
  const trio = await bench.trio();
  bench.progress('warming up');
  await trio.batch(Math.max(...sizes), GROUP);
  bench.progress(`batches of ${sizes.map((size) => numberText(size)).join(', ')}`);
  const contenders = Object.fromEntries(sizes.map((size) => [String(size), () => trio.batch(size, GROUP)]));
  const measured = await alternate(contenders, bench.runs);
  const figures = sizes.map((size) => ({ size, perSecond: measured[String(size)] as number[] }));
  const summaries = figures.map(({ size, perSecond }) => ({ size, summary: summarize(perSecond) }));
  const best = Math.max(...summaries.map(({ summary }) => summary.median)) / trio.size;
  return {
    table: {
      columns: ['batch', 'leases/s in all', 'leases/s per server'],
      rows: [
        ...summaries.map(({ size, summary }) => [
          numberText(size),
          spreadText(summary),
          numberText(summary.median / trio.size),
        ]),
        [
          `paper, Flease, ${PAPER.fleaseMachines} machines`,
          numberText(PAPER.fleasePerSecond),
          numberText(PAPER.fleasePerSecondPerMachine),
        ],
        ['paper, ZooKeeper', numberText(PAPER.zooKeeperPerSecond), '-'],
      ],
    },
    goals: [
      {
        what: "leases per second and server, at the best batch, against the paper's machines",
        wanted: `at least ${numberText(PAPER.fleasePerSecondPerMachine)}`,
        measured: numberText(best),
        met: best >= PAPER.fleasePerSecondPerMachine,
      },
    ],
    notes: [
      'Median of all runs, with the smallest and the largest. All three processes share this machine; in the paper each has its own.',
    ],
    figures: [
      {
        name: 'lease-batches',
        chart: {
          kind: 'lines',
          title: 'Leases acquired per second, three servers on one machine',
          x: { label: 'leases acquired at once', scale: 'log' },
          y: { label: 'leases per second', scale: 'log' },
          series: [
            {
              name: 'all three servers',
              points: summaries.map(({ size, summary }) => ({
                x: size,
                y: summary.median,
                low: summary.min,
                high: summary.max,
              })),
            },
            {
              name: 'each server',
              points: summaries.map(({ size, summary }) => ({ x: size, y: summary.median / trio.size })),
            },
          ],
          references: [
            {
              label: `paper: Flease, ${PAPER.fleaseMachines} machines together`,
              y: PAPER.fleasePerSecond,
            },
            { label: 'paper: ZooKeeper', y: PAPER.zooKeeperPerSecond },
            { label: 'paper: Flease, one machine', y: PAPER.fleasePerSecondPerMachine },
          ],
        },
      },
    ],
    data: { groupSize: GROUP, servers: trio.size, batches: figures },
  };
}

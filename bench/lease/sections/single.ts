import type { Report } from '../report.ts';
import type { Bench, Section } from '../section.ts';
import { numberText, quantile } from '../statistics.ts';

/** Points of the distribution in the chart. */
const STEPS = 200;

export const single: Section = {
  title: 'Latency of single acquisitions, one after the other, three processes over loopback',
  run,
};

async function run(bench: Bench): Promise<Report> {
  const count = bench.quick ? 150 : 6_000;
  const trio = await bench.trio();
  bench.progress(`${count} single leases`);
  await trio.singles(count / 3);
  const sorted = (await trio.singles(count)).toSorted((a, b) => a - b);
  const shares = [0.5, 0.9, 0.99, 1];
  return {
    table: {
      columns: ['share', 'ms'],
      rows: shares.map((share) => [
        share === 1 ? 'slowest' : `p${share * 100}`,
        numberText(quantile(sorted, share), 3),
      ]),
    },
    goals: [],
    notes: [`${numberText(sorted.length)} leases, a third of them by each server.`],
    figures: [
      {
        name: 'lease-single',
        chart: {
          kind: 'lines',
          title: 'Latency of single acquisitions, three servers on one machine',
          x: { label: 'milliseconds', scale: 'log' },
          y: { label: 'share of leases that took no longer, %', scale: 'linear' },
          series: [
            {
              name: 'one lease after the other',
              points: Array.from({ length: STEPS + 1 }, (_, step) => ({
                x: quantile(sorted, step / STEPS),
                y: (step / STEPS) * 100,
              })),
            },
          ],
          references: [],
        },
      },
    ],
    data: Object.fromEntries(shares.map((share) => [`p${share * 100}Ms`, quantile(sorted, share)])),
  };
}

import type { Chart } from '../chart.ts';
import type { LeaseCluster } from '../lease-cluster.ts';
import { PAPER } from '../paper.ts';
import type { Table } from '../report.ts';
import type { Bench, Section } from '../section.ts';
import { numberText, type Summary, spreadText, summarize } from '../statistics.ts';

/**
 * Leases that are wanted at once, of all servers together: the same for all settings. With many more, attempts of the
 * largest groups would time out on few cores and be repeated, so that congestion would be measured.
 */
const BATCH = { quick: 300, full: 3_000 };
/** One batch is short: a run has several. */
const REPEATS = { quick: 1, full: 5 };

/** One setting of a sweep over numbers of servers or sizes of groups. */
interface Setting {
  readonly servers: number;
  readonly groupSize: number;
}

interface Measured extends Setting {
  readonly perSecond: readonly number[];
}

export const processes: Section = {
  title: 'Leases per second by number of processes, three of which vote on each lease',
  async run(bench) {
    const counts = bench.quick ? [3, 5] : [3, 5, 9];
    const measured = await sweep(
      bench,
      counts.map((servers) => ({ servers, groupSize: 3 })),
    );
    const rows = summaries(measured);
    return {
      table: sweepTable('processes', rows, (setting) => setting.servers),
      goals: [],
      notes: [
        `${batchNote(bench)} Each lease is voted on by its proposer and two others, chosen in turn. ${machineNote()}`,
        `The paper has ${numberText(PAPER.fleasePerSecond)} leases/s on ${PAPER.fleaseMachines} machines, about ` +
          `${numberText(PAPER.fleasePerSecondPerMachine)} on each.`,
      ],
      figures: [
        {
          name: 'lease-processes',
          chart: sweepChart(
            'Leases per second by number of processes, groups of 3',
            'processes',
            rows,
            (setting) => setting.servers,
          ),
        },
      ],
      data: measured,
    };
  },
};

export const groups: Section = {
  title: 'Leases per second by size of the group that votes',
  async run(bench) {
    const sizes = bench.quick ? [3, 5] : [3, 5, 7, 9, 15];
    const measured = await sweep(
      bench,
      sizes.map((size) => ({ servers: size, groupSize: size })),
    );
    const rows = summaries(measured);
    return {
      table: sweepTable('group', rows, (setting) => setting.groupSize),
      goals: [],
      notes: [
        `${batchNote(bench)} As many processes as a group has members, all of which acquire. ${machineNote()}`,
      ],
      figures: [
        {
          name: 'lease-groups',
          chart: sweepChart(
            'Leases per second by group size',
            'servers in a group',
            rows,
            (setting) => setting.groupSize,
          ),
        },
      ],
      data: measured,
    };
  },
};

function batchNote(bench: Bench): string {
  return `Batches of ${numberText(bench.quick ? BATCH.quick : BATCH.full)} in all.`;
}

function machineNote(): string {
  return 'All processes share the cores of this machine, so that what more of them cost one another is in the figures.';
}

async function sweep(bench: Bench, settings: readonly Setting[]): Promise<Measured[]> {
  const measured: Measured[] = [];
  for (const setting of settings) {
    bench.progress(`${setting.servers} processes, groups of ${setting.groupSize}`);
    const own = setting.servers !== 3;
    const cluster = own ? await bench.servers(setting.servers) : await bench.trio();
    try {
      measured.push({ ...setting, perSecond: await runs(bench, cluster, setting.groupSize) });
    } finally {
      if (own) cluster.stop();
    }
  }
  return measured;
}

async function runs(bench: Bench, cluster: LeaseCluster, groupSize: number): Promise<number[]> {
  const batch = bench.quick ? BATCH.quick : BATCH.full;
  const repeats = bench.quick ? REPEATS.quick : REPEATS.full;
  const perSecond: number[] = [];
  // The first run warms up.
  for (let run = 0; run <= bench.runs; run++) {
    const rates: number[] = [];
    for (let repeat = 0; repeat < repeats; repeat++) rates.push(await cluster.batch(batch, groupSize));
    if (run > 0) perSecond.push(summarize(rates).median);
  }
  return perSecond;
}

interface Row extends Setting {
  readonly summary: Summary;
}

function summaries(measured: readonly Measured[]): Row[] {
  return measured.map((setting) => ({ ...setting, summary: summarize(setting.perSecond) }));
}

function sweepTable(what: string, rows: readonly Row[], by: (setting: Setting) => number): Table {
  return {
    columns: [what, 'leases/s in all', 'leases/s per server'],
    rows: rows.map((row) => [
      String(by(row)),
      spreadText(row.summary),
      numberText(row.summary.median / row.servers),
    ]),
  };
}

function sweepChart(
  title: string,
  label: string,
  rows: readonly Row[],
  by: (setting: Setting) => number,
): Chart {
  return {
    kind: 'lines',
    title,
    x: { label, scale: 'linear' },
    y: { label: 'leases per second', scale: 'log' },
    series: [
      {
        name: 'all servers',
        points: rows.map((row) => ({
          x: by(row),
          y: row.summary.median,
          low: row.summary.min,
          high: row.summary.max,
        })),
      },
      {
        name: 'each server',
        points: rows.map((row) => ({ x: by(row), y: row.summary.median / row.servers })),
      },
    ],
    references: [{ label: 'paper: Flease, one machine', y: PAPER.fleasePerSecondPerMachine }],
  };
}

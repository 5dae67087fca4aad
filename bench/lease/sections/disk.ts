import { join } from 'node:path';
import { diskFolder, type LoadReport, underLoad } from '../load.ts';
import type { Report } from '../report.ts';
import { alternate, type Bench, type Section } from '../section.ts';
import { numberText, spreadText, summarize } from '../statistics.ts';

const GROUP = 3;
const LOST_MAX = 0.1;
/** The CPU share of the load without a disk in the first run, when that of the writer is not known yet. */
const FIRST_SHARE = 0.05;

export const disk: Section = {
  title: 'Leases per second while the disk is busy',
  run,
};

async function run(bench: Bench): Promise<Report> {
  const folder = diskFolder();
  if (folder === null) {
    return {
      table: { columns: ['load'], rows: [] },
      goals: [],
      notes: ['No folder here is on a disk: nothing was measured.'],
      figures: [],
      data: null,
    };
  }
  const batch = bench.quick ? 500 : 10_000;
  const repeats = bench.quick ? 1 : 5;
  const trio = await bench.trio();
  const path = join(folder, 'written');
  const writers: LoadReport[] = [];
  const burners: LoadReport[] = [];
  bench.progress(`batches of ${numberText(batch)}, disk quiet and busy in turn`);
  // One batch may be shorter than one write: so each turn is several.
  const turn = async (): Promise<number> => {
    const rates: number[] = [];
    for (let repeat = 0; repeat < repeats; repeat++) rates.push(await trio.batch(batch, GROUP));
    return summarize(rates).median;
  };
  await turn();
  const writing = async (): Promise<number> => {
    const { result, load } = await underLoad({ kind: 'disk', path }, turn);
    writers.push(load);
    return result;
  };
  const measured = await alternate(
    {
      quiet: turn,
      writing,
      computing: async () => {
        const coreShare = writers.length > 0 ? meanShare(writers) : FIRST_SHARE;
        const { result, load } = await underLoad({ kind: 'cpu', coreShare }, turn);
        burners.push(load);
        return result;
      },
    },
    bench.runs,
  );
  const quiet = summarize(measured.quiet);
  const busy = summarize(measured.writing);
  const computing = summarize(measured.computing);
  const lost = 1 - busy.median / quiet.median;
  const spanMs = writers.reduce((sum, writer) => sum + writer.spanMs, 0);
  const megabytesPerSecond = writers.reduce((sum, writer) => sum + writer.writtenBytes, 0) / spanMs / 1000;
  const rows = [
    { name: 'disk quiet', summary: quiet, share: 0 },
    { name: 'disk written', summary: busy, share: meanShare(writers) },
    { name: 'as much CPU, no disk', summary: computing, share: meanShare(burners) },
  ];
  return {
    table: {
      columns: ['load', 'leases/s in all', 'against quiet', "the load's share of one core, %"],
      rows: rows.map(({ name, summary, share }) => [
        name,
        spreadText(summary),
        numberText(summary.median / quiet.median, 3),
        numberText(share * 100, 1),
      ]),
    },
    goals: [
      {
        what: 'leases per second lost while the disk is written',
        wanted: 'at most 10 %',
        measured: `${numberText(lost * 100, 1)} %`,
        met: lost <= LOST_MAX,
      },
    ],
    notes: [
      `Batches of ${numberText(batch)}. The writer writes ${numberText(megabytesPerSecond)} MB/s, each 8 MiB made durable ` +
        `before the next, ${writers[0]?.direct ? 'past the page cache' : 'through the page cache'}, into a file of at most 512 MiB.`,
      'What the load takes of the cores shows in the third row: only the rest of the loss is due to the disk.',
    ],
    figures: [
      {
        name: 'lease-disk',
        chart: {
          kind: 'bars',
          title: 'Leases per second while the disk is busy',
          categories: rows.map(({ name }) => name),
          y: { label: 'leases per second', scale: 'linear' },
          series: [
            {
              name: `batches of ${numberText(batch)}, three servers`,
              points: rows.map(({ summary }, place) => ({
                x: place,
                y: summary.median,
                low: summary.min,
                high: summary.max,
              })),
            },
          ],
          references: [{ label: 'goal: 10 % less than quiet', y: quiet.median * (1 - LOST_MAX) }],
        },
      },
    ],
    data: { batch, measured, writers, burners },
  };
}

/** @returns the mean share of one core that the loads have used */
function meanShare(loads: readonly LoadReport[]): number {
  const cpuMs = loads.reduce((sum, load) => sum + load.cpuMs, 0);
  const spanMs = loads.reduce((sum, load) => sum + load.spanMs, 0);
  return spanMs === 0 ? 0 : cpuMs / spanMs;
}

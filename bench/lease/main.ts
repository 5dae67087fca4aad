import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { LeaseTiming } from '../../lease/parameters.ts';
import { EXIT_FAILURE, wantedOrExit } from '../command-line.ts';
import { machineHere, machineText } from '../machine.ts';
import { argumentsOf, USAGE, type Wanted } from './arguments.ts';
import { LeaseCluster, type LeaseTuning } from './lease-cluster.ts';
import type { SectionName } from './names.ts';
import { goalText, type Report, reportText } from './report.ts';
import type { Bench, Section } from './section.ts';
import { batches } from './sections/batches.ts';
import { disk } from './sections/disk.ts';
import { memory } from './sections/memory.ts';
import { peers } from './sections/peers.ts';
import { renewals } from './sections/renewals.ts';
import { single } from './sections/single.ts';
import { groups, processes } from './sections/sweep.ts';
import { chartSvg } from './svg.ts';

const FIGURES = fileURLToPath(new URL('../../docs/figures/', import.meta.url));

const SECTIONS: Readonly<Record<SectionName, Section>> = {
  batches,
  processes,
  groups,
  disk,
  single,
  peers,
  memory,
  renewals,
};

const TIMING: LeaseTiming = { leaseMs: 15_000, clockSkewMaxMs: 500 };
/** Short leases have a short recovery wait. */
const TIMING_QUICK: LeaseTiming = { leaseMs: 2_000, clockSkewMaxMs: 50 };

async function run(wanted: Wanted): Promise<void> {
  const here = machineHere();
  say(machineText(here));
  say(
    `${wanted.quick ? 'quick, so that no figure means anything; ' : ''}${wanted.runs} runs of each, algorithm ${wanted.algorithm}\n`,
  );
  const tuning: LeaseTuning = { ...(wanted.quick ? TIMING_QUICK : TIMING), algorithm: wanted.algorithm };
  const shared: { trio: LeaseCluster | null } = { trio: null };
  const bench: Bench = {
    quick: wanted.quick,
    runs: wanted.runs,
    tuning,
    trio: async () => {
      if (shared.trio === null) {
        shared.trio = await bench.servers(3);
      } else if (!wanted.quick) {
        bench.progress('waiting until the servers have forgotten what they were asked before');
        await shared.trio.forgotten();
      }
      return shared.trio;
    },
    servers: (count) => {
      bench.progress(`starting ${count} lease servers, silent for the first ${tuning.leaseMs / 1000} s`);
      return LeaseCluster.start(count, tuning);
    },
    progress: (text) => process.stderr.write(`… ${text}\n`),
  };
  const reports: Partial<Record<SectionName, Report>> = {};
  for (const name of wanted.sections) {
    const section = SECTIONS[name];
    say(`\n${name}: ${section.title}\n`);
    let report: Report;
    try {
      report = await section.run(bench);
    } catch (error) {
      say(`failed: ${error instanceof Error ? error.message : error}\n`);
      process.exitCode = EXIT_FAILURE;
      // Servers of a failed section are of no use to the next one.
      shared.trio?.stop();
      shared.trio = null;
      continue;
    }
    reports[name] = report;
    say(`${reportText(report)}\n`);
    if (wanted.writeDocs) writeDocs(name, { machine: here, quick: wanted.quick, tuning, ...report });
  }
  const goals = Object.values(reports).flatMap((report) => report.goals);
  if (goals.length > 0) say(`\ngoals\n\n${goals.map(goalText).join('\n')}`);
  if (wanted.json !== null) {
    writeJson(wanted.json, { machine: here, quick: wanted.quick, tuning, sections: reports });
  }
}

/** Writes one file of values per section, so that one of them can be measured again alone. */
function writeDocs(
  name: SectionName,
  { figures, ...values }: Report & Readonly<Record<string, unknown>>,
): void {
  mkdirSync(FIGURES, { recursive: true });
  writeJson(join(FIGURES, `lease-${name}.json`), values);
  for (const figure of figures) writeFileSync(join(FIGURES, `${figure.name}.svg`), chartSvg(figure.chart));
}

function writeJson(path: string, value: unknown): void {
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

await run(wantedOrExit(argumentsOf(process.argv.slice(2)), USAGE));
// Servers and connections would keep the process alive; they end with it.
process.exit();

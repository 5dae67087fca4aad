import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { EXIT_FAILURE, wantedOrExit } from '../command-line.ts';
import { goalText, type Report, reportText } from '../lease/report.ts';
import { machineHere, machineText } from '../machine.ts';
import { argumentsOf, USAGE, type Wanted } from './arguments.ts';
import { type Chapter, documentWith } from './document.ts';
import type { SectionName } from './names.ts';
import { ReplicaCluster } from './replica-cluster.ts';
import type { Bench, Section } from './section.ts';
import { failover } from './sections/failover.ts';
import { reads } from './sections/reads.ts';
import { reset } from './sections/reset.ts';
import { writes } from './sections/writes.ts';

const DOCUMENT = fileURLToPath(new URL('../../docs/performance.md', import.meta.url));

const SECTIONS: Readonly<Record<SectionName, Section>> = { reads, writes, failover, reset };

async function run(wanted: Wanted): Promise<void> {
  const machine = machineText(machineHere());
  say(machine);
  say(`${wanted.quick ? 'quick, so that no figure means anything; ' : ''}${wanted.runs} runs of each\n`);
  const profile = wanted.profile === null ? null : resolve(wanted.profile);
  const bench: Bench = {
    quick: wanted.quick,
    runs: wanted.runs,
    servers: (timing) => {
      bench.progress('starting three servers');
      return ReplicaCluster.start(timing, profile);
    },
    progress: (text) => process.stderr.write(`… ${text}\n`),
  };
  const chapters: Chapter[] = [];
  for (const name of wanted.sections) {
    const { title, run: measure } = SECTIONS[name];
    say(`\n${name}: ${title}\n`);
    let report: Report;
    try {
      report = await measure(bench);
    } catch (error) {
      say(`failed: ${error instanceof Error ? (error.stack ?? error.message) : error}\n`);
      process.exitCode = EXIT_FAILURE;
      continue;
    }
    chapters.push({ name, title, report });
    say(`${reportText(report)}\n`);
  }
  const goals = chapters.flatMap(({ report }) => report.goals);
  if (goals.length > 0) say(`\ngoals\n\n${goals.map(goalText).join('\n')}`);
  if (wanted.json !== null) {
    const sections = Object.fromEntries(chapters.map(({ name, report }) => [name, report]));
    const values = { machine, quick: wanted.quick, runs: wanted.runs, sections };
    writeFileSync(wanted.json, `${JSON.stringify(values, null, 2)}\n`);
  }
  if (wanted.writeDocs && chapters.length > 0) {
    writeFileSync(DOCUMENT, documentWith(readFileSync(DOCUMENT, 'utf8'), machine, chapters));
  }
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

await run(wantedOrExit(argumentsOf(process.argv.slice(2)), USAGE));
// Servers and connections would keep the process alive; they end with it.
process.exit();

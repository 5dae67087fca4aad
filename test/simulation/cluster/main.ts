/** `npm run simulate:cluster`: see `--help`. */
import { wantedOrExit } from '../../../bench/command-line.ts';
import { commandOf, costText, USAGE, wantedOf } from './arguments.ts';
import { type RunOptions, type RunReport, runCluster } from './cluster-run.ts';
import { shrink } from './shrink.ts';
import { storyOf, withoutZeros } from './story.ts';

const write = (text: string): void => {
  process.stdout.write(`${text}\n`);
};

function shapeText({ servers, clients, mounts = 0, cache, volumes }: RunOptions): string {
  const mounted = mounts === 0 ? '' : ` ${mounts} mounts (${cache})`;
  return `${servers} servers ${clients} clients${mounted} ${volumes} volumes`;
}

/** Shrinks the run, and prints it as a story. */
async function tellShrunk(wanted: RunOptions, report: RunReport): Promise<void> {
  const shrunk = await shrink(wanted, report, (text) => write(`  shorter: ${text}`));
  write(`${shrunk.plays} runs were tried.\n\n${storyOf(shrunk.report)}\n`);
  for (const violation of shrunk.report.violations) write(`VIOLATION ${withoutZeros(violation)}`);
  write(commandOf(shrunk.options));
}

const { first, count, trace, shrinks, options } = wantedOrExit(wantedOf(process.argv.slice(2)), USAGE);
let failed = 0;
for (let seed = first; seed < first + count; seed++) {
  const before = process.cpuUsage();
  const wanted = options(seed);
  const report = await runCluster({ ...wanted, ...(trace ? { onNote: write } : {}) });
  const { simulatedMs, operations, unknown, events, requests, traceHash, undecided, coverage } = report;
  const { user, system } = process.cpuUsage(before);
  write(
    `seed ${seed} ${shapeText(wanted)}: ${(simulatedMs / 1_000).toFixed(0)} s, ${operations} operations (${unknown} unknown), ` +
      `${events} events, ${requests} requests, hash ${traceHash}, ${undecided} undecided; ` +
      costText(simulatedMs, operations, events, (user + system) / 1e6),
  );
  if (trace) write(JSON.stringify(Object.fromEntries(coverage)));
  for (const violation of report.violations) write(`seed ${seed}: VIOLATION ${withoutZeros(violation)}`);
  if (report.violations.length === 0) continue;
  write(commandOf(wanted));
  failed++;
  if (shrinks) await tellShrunk(wanted, report);
}
process.exit(failed > 0 ? 1 : 0);

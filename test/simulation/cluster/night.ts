/** `npm run simulate:cluster:night`: see `--help`. */
import { commandLineOf, countOption, UsageError, wantedOrExit } from '../../../bench/command-line.ts';
import { NightReport, nightOptions } from './night-report.ts';
import { runSeeds, type SeedLine } from './seed-pool.ts';

const USAGE = `npm run simulate:cluster:night -- [options]

Runs seeds of varied shape (servers, clients, mounts, volumes, caches, workloads, times) in two processes for some hours, and
appends one line for each seed to a report. It can be stopped with Ctrl-C, and continues with the same report.
Exit code 1: a seed violates a rule.

  --hours N        how long (8); fractions are possible
  --jobs N         processes (2)
  --first N        the first seed (1)
  --report FILE    (simulate-night.jsonl)
  --totals         prints the totals of the report, and runs nothing
  --help           prints this
`;

const MS_PER_HOUR = 3_600_000;
const TOTALS_EVERY_MS = 600_000;
const line = commandLineOf(
  process.argv.slice(2),
  { texts: ['hours', 'jobs', 'first', 'report'], flags: ['totals'] },
  ({ texts: { hours = '8', jobs = '2', first = '1', report = 'simulate-night.jsonl' }, flags }) => {
    const forHours = Number(hours);
    if (!(forHours > 0 && forHours <= 1_000)) throw new UsageError(`--hours takes a number, not "${hours}"`);
    return {
      ...{ forHours, jobs: countOption('jobs', jobs, 64), first: countOption('first', first, 1e9) },
      ...{ path: report, onlyTotals: flags.has('totals') },
    };
  },
);
const { forHours, jobs, first, path, onlyTotals } = wantedOrExit(line, USAGE);
const report = new NightReport(path);
const untilMs = Date.now() + forHours * MS_PER_HOUR;
let isStopped = onlyTotals;
let next = first;
let failed = 0;

function take(): number {
  while (report.has(next)) next++;
  return next++;
}

function took(answer: SeedLine): void {
  report.add(answer);
  const { seed, simulatedS, operations, violations, command } = answer;
  const verdict = violations.length === 0 ? 'well' : `VIOLATION ${violations[0]}\n${command}`;
  process.stdout.write(`seed ${seed}: ${simulatedS.toFixed(0)} s, ${operations} operations, ${verdict}\n`);
  if (violations.length > 0) failed++;
}

process.on('SIGINT', () => {
  if (isStopped) process.exit(1);
  process.stdout.write('stops after the seeds that run now\n');
  isStopped = true;
});
const totals = setInterval(() => process.stdout.write(report.text), TOTALS_EVERY_MS);
const more = () => (isStopped || Date.now() >= untilMs ? null : nightOptions(take()));
await runSeeds(jobs, more, took);
clearInterval(totals);
process.stdout.write(report.text);
process.exit(failed > 0 ? 1 : 0);

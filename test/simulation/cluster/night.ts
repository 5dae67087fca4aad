/** `npm run simulate:cluster:night`: see `--help`. */
import { type ChildProcess, fork } from 'node:child_process';
import { globSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { commandLineOf, countOption, UsageError, wantedOrExit } from '../../../bench/command-line.ts';
import { commandOf } from './arguments.ts';
import { foldersOf } from './in-simulation.ts';
import { NightReport, type NightSeed, nightOptions } from './night-report.ts';

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

const WORKER = join(import.meta.dirname, 'night-worker.ts');
const MS_PER_HOUR = 3_600_000;
const TOTALS_EVERY_MS = 600_000;
/** A process runs so many seeds before it is replaced: databases and code that it holds grow with them. */
const SEEDS_PER_PROCESS = 40;
/** A seed that takes longer hangs. */
const SEED_MS_MAX = 1_800_000;

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

/** Of a process that was killed. */
function removeFolders(pid: number | undefined): void {
  if (pid === undefined) return;
  for (const folder of globSync(`${foldersOf(pid)}*`)) rmSync(folder, { recursive: true, force: true });
}

/** @returns the line of a seed, also where its process ended or hangs */
function ask(worker: ChildProcess, seed: number): Promise<NightSeed> {
  return new Promise((resolve) => {
    const lost = (why: string): void => {
      worker.kill('SIGKILL');
      removeFolders(worker.pid);
      done({
        ...{
          seed,
          command: commandOf(nightOptions(seed)),
          cpuS: 0,
          simulatedS: 0,
          operations: 0,
          unknown: 0,
        },
        ...{ events: 0, undecided: 0, violations: [why], coverage: {} },
      });
    };
    const timer = setTimeout(
      () => lost(`the run hangs: ${SEED_MS_MAX / 60_000} minutes have passed`),
      SEED_MS_MAX,
    );
    const exited = (code: number | null, signal: string | null): void =>
      lost(`the process of the run ended with ${code ?? signal}`);
    const done = (answer: NightSeed): void => {
      clearTimeout(timer);
      worker.off('exit', exited);
      worker.off('message', done);
      resolve(answer);
    };
    worker.on('exit', exited);
    worker.on('message', done);
    worker.send(seed);
  });
}

async function work(): Promise<void> {
  while (!isStopped && Date.now() < untilMs) {
    const worker = fork(WORKER, { detached: true });
    for (let count = 0; count < SEEDS_PER_PROCESS && worker.connected; count++) {
      if (isStopped || Date.now() >= untilMs) break;
      const answer = await ask(worker, take());
      report.add(answer);
      const { seed, simulatedS, operations, violations, command } = answer;
      const verdict = violations.length === 0 ? 'well' : `VIOLATION ${violations[0]}\n${command}`;
      process.stdout.write(
        `seed ${seed}: ${simulatedS.toFixed(0)} s, ${operations} operations, ${verdict}\n`,
      );
      if (violations.length > 0) failed++;
    }
    if (worker.connected) worker.disconnect();
  }
}

process.on('SIGINT', () => {
  if (isStopped) process.exit(1);
  process.stdout.write('stops after the seeds that run now\n');
  isStopped = true;
});
const totals = setInterval(() => process.stdout.write(report.text), TOTALS_EVERY_MS);
await Promise.all(Array.from({ length: jobs }, work));
clearInterval(totals);
process.stdout.write(report.text);
process.exit(failed > 0 ? 1 : 0);

/** Processes that run seeds of the composed simulation, one after the other. */
import { type ChildProcess, fork } from 'node:child_process';
import { globSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { commandOf } from './arguments.ts';
import type { RunOptions } from './cluster-run.ts';
import { foldersOf } from './in-simulation.ts';

/** The sums of no runs. */
const NOTHING = { cpuS: 0, simulatedS: 0, operations: 0, unknown: 0, events: 0, undecided: 0 };
type Sums = Readonly<typeof NOTHING>;

/** The result of a seed. */
export interface SeedLine extends Sums {
  readonly seed: number;
  readonly command: string;
  readonly violations: readonly string[];
  readonly coverage: Readonly<Record<string, number>>;
}

/** @returns the line of a run of which only `known` is known */
export function seedLine(options: RunOptions, known: Partial<SeedLine>): SeedLine {
  const { seed } = options;
  return { seed, command: commandOf(options), ...NOTHING, violations: [], coverage: {}, ...known };
}

/** The sums of several runs. */
export class Totals {
  readonly lines: SeedLine[] = [];
  readonly coverage = new Map<string, number>();
  readonly sum = { ...NOTHING };

  add(line: SeedLine): void {
    this.lines.push(line);
    for (const name of Object.keys(NOTHING) as (keyof Sums)[]) this.sum[name] += line[name];
    for (const [name, count] of Object.entries(line.coverage))
      this.coverage.set(name, (this.coverage.get(name) ?? 0) + count);
  }

  get failed(): SeedLine[] {
    return this.lines.filter(({ violations }) => violations.length > 0);
  }
}

const WORKER = join(import.meta.dirname, 'seed-worker.ts');
/** Most objects of a simulation are short-lived: with a large nursery it needs a fifth less processor time. */
const NURSERY = ['--max-semi-space-size=64', '--min-semi-space-size=64'];
/** A process runs so many seeds before it is replaced, as its memory for databases and code grows. */
const SEEDS_PER_PROCESS = 40;
/** A seed that takes longer hangs. */
const SEED_MS_MAX = 1_800_000;

/** Removes the folders of a killed process. */
function removeFolders(pid: number | undefined): void {
  if (pid === undefined) return;
  for (const folder of globSync(`${foldersOf(pid)}*`)) rmSync(folder, { recursive: true, force: true });
}

/** @returns the line of a run, also if its process ended or hangs */
function ask(worker: ChildProcess, options: RunOptions): Promise<SeedLine> {
  return new Promise((resolve) => {
    const lost = (why: string): void => {
      worker.kill('SIGKILL');
      removeFolders(worker.pid);
      done(seedLine(options, { violations: [why] }));
    };
    const timer = setTimeout(
      () => lost(`the run hangs: ${SEED_MS_MAX / 60_000} minutes have passed`),
      SEED_MS_MAX,
    );
    const exited = (code: number | null, signal: string | null): void =>
      lost(`the process of the run ended with ${code ?? signal}`);
    const done = (answer: SeedLine): void => {
      clearTimeout(timer);
      worker.off('exit', exited);
      worker.off('message', done);
      resolve(answer);
    };
    worker.on('exit', exited);
    worker.on('message', done);
    worker.send(options);
  });
}

/**
 * Runs seeds in several processes at a time.
 * @param next returns the next run, or null
 * @param took called with the result of each
 */
export async function runSeeds(
  jobs: number,
  next: () => RunOptions | null,
  took: (line: SeedLine) => void,
): Promise<void> {
  const work = async (): Promise<void> => {
    let options = next();
    while (options !== null) {
      const worker = fork(WORKER, { detached: true, execArgv: NURSERY });
      for (let count = 0; options !== null && count < SEEDS_PER_PROCESS && worker.connected; count++) {
        took(await ask(worker, options));
        options = next();
      }
      if (worker.connected) worker.disconnect();
    }
  };
  await Promise.all(Array.from({ length: jobs }, work));
}

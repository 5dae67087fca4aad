/** The report of `npm run simulate:cluster:night`: one line of JSON for each seed. */
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import type { RunOptions } from './cluster-run.ts';
import { demandsOf, missedIn } from './demands.ts';
import { derived } from './derived.ts';
import { MOUNT_PATHS, RARE_PATHS } from './fast-paths.ts';
import { type SeedLine, Totals } from './seed-pool.ts';
import { shapeOf } from './shapes.ts';

/** @returns the options of a seed in a night: shape and time are drawn from the seed */
export function nightOptions(seed: number): RunOptions {
  return { seed, ...shapeOf(seed), forMs: derived(seed, 'time').pick([20_000, 40_000, 60_000, 120_000]) };
}

/** The results of many seeds; a night that was stopped continues from its file. */
export class NightReport {
  readonly #path: string;
  readonly #totals = new Totals();
  readonly #done = new Set<number>();

  constructor(path: string) {
    this.#path = path;
    if (!existsSync(path)) return;
    for (const line of readFileSync(path, 'utf8').split('\n')) {
      // A killed process may have left half a line.
      if (line.endsWith('}')) this.#count(JSON.parse(line) as SeedLine);
    }
  }

  has(seed: number): boolean {
    return this.#done.has(seed);
  }

  add(line: SeedLine): void {
    appendFileSync(this.#path, `${JSON.stringify(line)}\n`);
    this.#count(line);
  }

  #count(line: SeedLine): void {
    this.#totals.add(line);
    this.#done.add(line.seed);
  }

  get text(): string {
    const { coverage, failed, lines, sum } = this.#totals;
    const { cpuS, simulatedS, operations, unknown, events, undecided } = sum;
    const per = (amount: number): string => (amount / Math.max(cpuS, 1e-9)).toFixed(1);
    const missed = missedIn(coverage, [...demandsOf(), ...MOUNT_PATHS, ...RARE_PATHS]);
    const counts = [...coverage].sort(([a], [b]) => (a < b ? -1 : 1));
    return [
      `${lines.length} seeds, ${(simulatedS / 3_600).toFixed(2)} hours of cluster life in ${(cpuS / 3_600).toFixed(2)} hours of CPU`,
      `${operations} operations (${unknown} with an unknown outcome), ${events} events, ${undecided} keys undecided`,
      `a CPU second has ${per(simulatedS)} simulated seconds, ${per(operations)} operations, ${per(events)} events`,
      `counted: ${counts.map(([name, count]) => `${name} ${count}`).join(', ')}`,
      `not met: ${missed.length === 0 ? 'nothing' : missed.join(', ')}`,
      `${failed.length} seeds violate a rule`,
      ...failed.map(
        ({ command, violations: [first = ''] }) =>
          `  ${first.split('\n', 1)[0]?.slice(0, 200)}\n    ${command}`,
      ),
      '',
    ].join('\n');
  }
}

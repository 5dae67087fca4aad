import type { LeaseCluster, LeaseTuning } from './lease-cluster.ts';
import type { Report } from './report.ts';

/** What a section needs to run. */
export interface Bench {
  /** Small amounts: to see that it works, not how fast. */
  readonly quick: boolean;
  /** How often each measurement is repeated. */
  readonly runs: number;
  readonly tuning: LeaseTuning;
  /** The three servers that sections share, started by the first call. */
  trio(): Promise<LeaseCluster>;
  /** Starts servers for one section, which must stop them. */
  servers(count: number): Promise<LeaseCluster>;
  /** Prints what is being measured. */
  progress(text: string): void;
}

export interface Section {
  readonly title: string;
  run(bench: Bench): Promise<Report>;
}

/**
 * Runs the contenders in turn, with another one first each time, so that other load of the machine affects all alike.
 *
 * @returns the results of each, run by run
 */
export async function alternate<Name extends string>(
  contenders: Readonly<Record<Name, () => Promise<number>>>,
  runs: number,
): Promise<Record<Name, number[]>> {
  const names = Object.keys(contenders) as Name[];
  const measured = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<Name, number[]>;
  for (let run = 0; run < runs; run++) {
    for (let turn = 0; turn < names.length; turn++) {
      const name = names[(run + turn) % names.length] as Name;
      measured[name].push(await contenders[name]());
    }
  }
  return measured;
}

import type { LeaseCluster, LeaseTuning } from './lease-cluster.ts';
import type { Report } from './report.ts';

/** What a section finds when it runs. */
export interface Bench {
  /** Everything small: to see that it works, not how fast. */
  readonly quick: boolean;
  /** How often each measurement is repeated. */
  readonly runs: number;
  readonly tuning: LeaseTuning;
  /** The three servers that sections share, started when first asked for. */
  trio(): Promise<LeaseCluster>;
  /** Servers of a section's own, to be stopped by it. */
  servers(count: number): Promise<LeaseCluster>;
  /** Tells whoever waits what is being done. */
  progress(text: string): void;
}

export interface Section {
  readonly title: string;
  run(bench: Bench): Promise<Report>;
}

/**
 * Contenders take turns, and another one begins each time, so that what else the machine does meets all alike.
 *
 * @returns what each of them measured, run by run
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

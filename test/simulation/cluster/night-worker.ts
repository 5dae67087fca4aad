/** A process of `npm run simulate:cluster:night`: runs the seeds that it is sent, and answers each with a line of the report. */
import { commandOf } from './arguments.ts';
import { runCluster } from './cluster-run.ts';
import type { NightSeed } from './night-report.ts';
import { nightOptions } from './night-report.ts';

async function play(seed: number): Promise<NightSeed> {
  const options = nightOptions(seed);
  const before = process.cpuUsage();
  const line = (rest: Omit<NightSeed, 'seed' | 'command' | 'cpuS'>): NightSeed => {
    const { user, system } = process.cpuUsage(before);
    return { seed, command: commandOf(options), cpuS: (user + system) / 1e6, ...rest };
  };
  try {
    const { simulatedMs, operations, unknown, events, undecided, violations, coverage } =
      await runCluster(options);
    return line({
      ...{ simulatedS: simulatedMs / 1_000, operations, unknown, events, undecided },
      ...{ violations, coverage: Object.fromEntries([...coverage].sort()) },
    });
  } catch (error) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    return line({
      ...{ simulatedS: 0, operations: 0, unknown: 0, events: 0, undecided: 0 },
      ...{ violations: [`the run failed: ${text}`], coverage: {} },
    });
  }
}

process.on('message', (seed: number) => {
  void play(seed).then((line) => process.send?.(line));
});
process.on('disconnect', () => process.exit());

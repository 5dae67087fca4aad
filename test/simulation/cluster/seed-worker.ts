/** A process of `runSeeds`: runs the seeds that it is sent, and answers each with a line. */
import { commandOf } from './arguments.ts';
import { type RunOptions, runCluster } from './cluster-run.ts';
import type { SeedLine } from './seed-pool.ts';

async function play(options: RunOptions): Promise<SeedLine> {
  const { seed } = options;
  const before = process.cpuUsage();
  const line = (rest: Omit<SeedLine, 'seed' | 'command' | 'cpuS'>): SeedLine => {
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

process.on('message', (options: RunOptions) => {
  void play(options).then((line) => process.send?.(line));
});
process.on('disconnect', () => {
  // Servers of ended runs have left listeners that would sync descriptors which are closed.
  process.removeAllListeners('exit');
  process.exit();
});

/** A process of `runSeeds`: runs the seeds that it receives, and answers each with a line. */
import { type RunOptions, runCluster } from './cluster-run.ts';
import { type SeedLine, seedLine } from './seed-pool.ts';

async function play(options: RunOptions): Promise<SeedLine> {
  const before = process.cpuUsage();
  const cpuS = (): number => {
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1e6;
  };
  try {
    const { simulatedMs, operations, unknown, events, undecided, violations, coverage } =
      await runCluster(options);
    return seedLine(options, {
      ...{ cpuS: cpuS(), simulatedS: simulatedMs / 1_000, operations, unknown, events, undecided },
      ...{ violations, coverage: Object.fromEntries([...coverage].sort()) },
    });
  } catch (error) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    return seedLine(options, { cpuS: cpuS(), violations: [`the run failed: ${text}`] });
  }
}

process.on('message', (options: RunOptions) => {
  void play(options).then((line) => process.send?.(line));
});
process.on('disconnect', () => {
  // Servers of ended runs have left listeners that would sync closed descriptors.
  process.removeAllListeners('exit');
  process.exit();
});

/** `npm run simulate:cluster`: see `--help`. */
import { wantedOrExit } from '../../../bench/command-line.ts';
import { runCluster } from './cluster-run.ts';
import { costText, SEEDS_USAGE, seedsCommandLineOf } from './seeds-arguments.ts';

const USAGE = `npm run simulate:cluster -- [options]

Runs composed servers and client libraries in one process, on virtual time, from one seed, while they meet faults, and judges
what clients saw and what is stored (docs/TESTING.md). Exit code 1: a seed violates a rule.

  --servers N    3 to 7 servers (3)
  --clients N    client libraries (2)
${SEEDS_USAGE}`;

const COUNTS = [
  { name: 'servers', usual: 3, max: 7 },
  { name: 'clients', usual: 2, max: 16 },
];

const line = seedsCommandLineOf(process.argv.slice(2), COUNTS, [], (numbers) => ({
  servers: numbers.get('servers') as number,
  clients: numbers.get('clients') as number,
}));
const { first, count, trace, calm, forMs, servers, clients } = wantedOrExit(line, USAGE);
let failed = 0;
for (let seed = first; seed < first + count; seed++) {
  const before = process.cpuUsage();
  const report = await runCluster({
    ...{ seed, servers, clients, faults: !calm, forMs },
    ...(trace ? { onNote: (text: string) => process.stdout.write(`${text}\n`) } : {}),
  });
  const { simulatedMs, operations, unknown, events, requests, traceHash, undecided, coverage } = report;
  process.stdout.write(
    `seed ${seed}: ${(simulatedMs / 1_000).toFixed(0)} s, ${operations} operations (${unknown} unknown), ` +
      `${events} events, ${requests} requests, hash ${traceHash}, ${undecided} undecided; ` +
      `${costText(simulatedMs, operations, events, process.cpuUsage(before))}\n`,
  );
  if (trace) process.stdout.write(`${JSON.stringify(Object.fromEntries(coverage))}\n`);
  for (const violation of report.violations) process.stdout.write(`seed ${seed}: VIOLATION ${violation}\n`);
  if (report.violations.length > 0) failed++;
}
process.exit(failed > 0 ? 1 : 0);

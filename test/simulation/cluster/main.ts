import { parseArgs } from 'node:util';
import { durationParse } from '../../../base/duration.ts';
import { runCluster } from './cluster-run.ts';

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    count: { type: 'string', default: '1' },
    servers: { type: 'string', default: '3' },
    clients: { type: 'string', default: '2' },
    for: { type: 'string', default: '60s' },
    trace: { type: 'boolean', default: false },
    coverage: { type: 'boolean', default: false },
    calm: { type: 'boolean', default: false },
  },
});
const first = Number(values.seed ?? 1);
const count = values.seed === undefined ? Number.POSITIVE_INFINITY : Number(values.count);
let failed = 0;
for (let seed = first; seed < first + count; seed++) {
  const before = process.cpuUsage();
  const report = await runCluster({
    ...{ seed, servers: Number(values.servers), clients: Number(values.clients), faults: !values.calm },
    forMs: durationParse(values.for) ?? 60_000,
    ...(values.trace ? { onNote: (line: string) => process.stdout.write(`${line}\n`) } : {}),
  });
  const { user, system } = process.cpuUsage(before);
  const cpuS = (user + system) / 1e6;
  const { simulatedMs, operations, unknown, events, requests, traceHash, undecided } = report;
  process.stdout.write(
    `seed ${seed}: ${(simulatedMs / 1_000).toFixed(0)} s, ${operations} operations (${unknown} unknown), ` +
      `${events} events, ${requests} requests, hash ${traceHash}, ${undecided} undecided; a CPU second has ` +
      `${(simulatedMs / 1_000 / cpuS).toFixed(1)} simulated seconds, ${(operations / cpuS).toFixed(0)} operations, ` +
      `${(events / cpuS).toFixed(0)} events\n`,
  );
  if (values.coverage) process.stdout.write(`${JSON.stringify(Object.fromEntries(report.coverage))}\n`);
  for (const violation of report.violations) process.stdout.write(`seed ${seed}: VIOLATION ${violation}\n`);
  if (report.violations.length > 0) failed++;
}
process.exit(failed > 0 ? 1 : 0);

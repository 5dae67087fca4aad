/** `npm run simulate:mounts -- [--seed N] [--count N] [--cache strict|leases] [--mounts 2] [--for 30s] [--trace] [--calm]`: for ever without a seed. */
import { parseArgs } from 'node:util';
import { durationParse } from '../../../base/duration.ts';
import { CACHES, type Cache, runMounts } from './mounts-run.ts';

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    count: { type: 'string', default: '1' },
    cache: { type: 'string' },
    mounts: { type: 'string', default: '2' },
    for: { type: 'string', default: '30s' },
    trace: { type: 'boolean', default: false },
    calm: { type: 'boolean', default: false },
  },
});
const first = Number(values.seed ?? 1);
const count = values.seed === undefined ? Number.POSITIVE_INFINITY : Number(values.count);
const caches = values.cache === undefined ? CACHES : [values.cache as Cache];
let failed = 0;
for (let seed = first; seed < first + count; seed++) {
  for (const cache of caches) {
    const before = process.cpuUsage();
    const report = await runMounts({
      ...{ seed, cache, mounts: Number(values.mounts), faults: !values.calm },
      forMs: durationParse(values.for) ?? 30_000,
      ...(values.trace ? { onNote: (line: string) => process.stdout.write(`${line}\n`) } : {}),
    });
    const { user, system } = process.cpuUsage(before);
    const cpuS = (user + system) / 1e6;
    const { simulatedMs, operations, unknown, events, traceHash, undecided, coverage, violations } = report;
    process.stdout.write(
      `seed ${seed} ${cache}: ${(simulatedMs / 1_000).toFixed(0)} s, ${operations} operations (${unknown} unknown), ` +
        `${events} events, hash ${traceHash}, ${undecided} undecided, ${(simulatedMs / 1_000 / cpuS).toFixed(1)} ` +
        `simulated seconds in a CPU second; ${JSON.stringify(Object.fromEntries(coverage))}\n`,
    );
    for (const violation of violations)
      process.stdout.write(`seed ${seed} ${cache}: VIOLATION ${violation}\n`);
    if (violations.length > 0) failed++;
  }
}
process.exit(failed > 0 ? 1 : 0);

/** `npm run simulate:mounts`: see `--help`. */
import { UsageError, wantedOrExit } from '../../../bench/command-line.ts';
import { costText, SEEDS_USAGE, seedsCommandLineOf } from '../cluster/seeds-arguments.ts';
import { CACHES, type Cache, runMounts } from './mounts-run.ts';

const USAGE = `npm run simulate:mounts -- [options]

Runs three composed servers and mounts below a model of the Linux kernel in one process, on virtual time, from one seed, while they
meet faults, and judges what programs saw (docs/TESTING.md). Exit code 1: a seed violates a rule.

  --mounts N     mounts of one volume (2)
  --cache NAME   ${CACHES.join(' or ')} (one after the other)
${SEEDS_USAGE}`;

function cachesNamed(name: string | undefined): readonly Cache[] {
  if (name === undefined) return CACHES;
  const named = CACHES.filter((one) => one === name);
  if (named.length === 0) throw new UsageError(`--cache is ${CACHES.join(' or ')}, not "${name}"`);
  return named;
}

const COUNTS = [{ name: 'mounts', usual: 2, max: 4 }];

const line = seedsCommandLineOf(process.argv.slice(2), COUNTS, ['cache'], (numbers, { cache }) => ({
  mounts: numbers.get('mounts') as number,
  caches: cachesNamed(cache),
}));
const { first, count, trace, calm, forMs, mounts, caches } = wantedOrExit(line, USAGE);
let failed = 0;
for (let seed = first; seed < first + count; seed++) {
  for (const cache of caches) {
    const before = process.cpuUsage();
    const report = await runMounts({
      ...{ seed, cache, mounts, faults: !calm, forMs },
      ...(trace ? { onNote: (text: string) => process.stdout.write(`${text}\n`) } : {}),
    });
    const { simulatedMs, operations, unknown, events, traceHash, undecided, coverage, violations } = report;
    process.stdout.write(
      `seed ${seed} ${cache}: ${(simulatedMs / 1_000).toFixed(0)} s, ${operations} operations (${unknown} unknown), ` +
        `${events} events, hash ${traceHash}, ${undecided} undecided; ` +
        `${costText(simulatedMs, operations, events, process.cpuUsage(before))}\n`,
    );
    if (trace) process.stdout.write(`${JSON.stringify(Object.fromEntries(coverage))}\n`);
    for (const violation of violations)
      process.stdout.write(`seed ${seed} ${cache}: VIOLATION ${violation}\n`);
    if (violations.length > 0) failed++;
  }
}
process.exit(failed > 0 ? 1 : 0);

/**
 * Measures how long the index of a large file occupies the event loop: a sparse file of 2 TiB, and a dense one.
 *
 *     npm run bench:large-files -- [GiB of the dense file, 200 by default]
 */
import {
  LARGE_FILE,
  type LargeOperation,
  largeOperations,
  stagedCopy,
  withLargeReplica,
} from '../../test/storage/large-operations.ts';
import { LARGE_OBJECT_BYTES, type TickCosts, tickCosts } from '../../test/storage/large-replica.ts';
import { DiskFixture } from '../../test/storage/stores.ts';

const GIB = 1024 ** 3;
/** Each of its objects is staged first, which takes longer than all else. */
const COPY_GIB = 20;
const denseGib = Number(process.argv[2] ?? 200);

function print(name: string, { ticks, longestMs, totalMs }: TickCosts): void {
  const [longest, total] = [longestMs.toFixed(1), totalMs.toFixed(0)];
  console.log(`${name.padEnd(36)} ${String(ticks).padStart(7)} ${longest.padStart(9)} ${total.padStart(9)}`);
}

async function measure(name: string, sizeBytes: number, denseBytes: number, operation: LargeOperation) {
  await withLargeReplica(sizeBytes, denseBytes, async (replica) => {
    print(`${name}: ${operation.name}`, await tickCosts(() => operation.run(replica)));
  });
}

console.log(
  `${''.padEnd(36)} ${'ticks'.padStart(7)} ${'longest'.padStart(9)} ${'total'.padStart(9)}  (CPU, ms; without garbage collection)`,
);
for (const operation of largeOperations) await measure('2 TiB sparse', 2048 * GIB, GIB, operation);
for (const operation of largeOperations)
  await measure(`${denseGib} GiB dense`, denseGib * GIB, denseGib * GIB, operation);
const copy = await DiskFixture.make();
const install = await stagedCopy(copy, LARGE_FILE, (COPY_GIB * GIB) / LARGE_OBJECT_BYTES);
print(`${COPY_GIB} GiB, objects of a byte: install`, await tickCosts(install));
await copy.dispose();
console.log(`Memory: ${Math.round(process.memoryUsage().rss / 1024 ** 2)} MiB`);

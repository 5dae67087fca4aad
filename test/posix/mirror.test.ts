/**
 * Goal: two mounts of one volume behave as one file system; what a mount has cached is visible for its caching time
 * only.
 * Method: a seed draws calls on two mounts and a local directory, with pauses that end around the end of a caching
 * time.
 */
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { RealCluster } from '../cluster/real-cluster.ts';
import { isLong, SERVERS_OF_FORM } from '../long.ts';
import { Mirror } from './mirror.ts';
import { mountPairsOver, noMounts, transports, transportsOfForm } from './mounts.ts';

const STEPS = Number(process.env.STEPS ?? (isLong ? 150 : 35));
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 1_000_000));
const TTL_MS = 150;
const CACHES = [
  { cache: `ttl:${TTL_MS}ms`, ttlMs: TTL_MS },
  { cache: 'leases', ttlMs: 0 },
  { cache: 'strict', ttlMs: 0 },
] as const;

const skip = await noMounts();
if (skip === false) await define();
else test('two mounts and the local disk', { skip }, () => undefined);

async function define(): Promise<void> {
  const cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
  after(() => cluster.stop());
  await cluster.createVolume('main');
  // All mounts start before the first test is declared: if no declared test is left to run, the runner ends.
  const mounted = [];
  for (const { cache, ttlMs } of CACHES) {
    // What a mount caches does not depend on the way to the kernel: only one kind of cache is tested over all ways.
    const ways = await (cache === 'leases' ? transports() : transportsOfForm());
    for (const pair of await mountPairsOver(ways, cluster, '--cache', cache)) {
      mounted.push({ ...pair, cache, ttlMs });
    }
  }
  for (const { transport, mounts, cache, ttlMs } of mounted) {
    test(`${transport}, ${cache}: two mounts and the local disk (SEED=${SEED})`, async (t) => {
      const local = await mkdtemp(join(tmpdir(), 'leasehold-mirror-'));
      t.after(() => rm(local, { recursive: true }));
      const folder = `${transport}-${cache.replace(':', '-')}`;
      await mkdir(mounts[0].path(folder));
      const roots = mounts.map((mount) => mount.path(folder));
      const isByPath = transport === 'native';
      const mirror = new Mirror(roots, local, { seed: SEED, steps: STEPS, ttlMs, isByPath });
      assert.equal(mirror.run(), null);
      t.diagnostic([...mirror.counts].map(([kind, count]) => `${count} ${kind}`).join(', '));
    });
  }
}

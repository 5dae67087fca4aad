/**
 * Goal: an open reads what another mount has written and closed, also if the cached attributes of the file expire at
 * that moment. The kernel may just have received them, and would read only up to their size.
 * Method: a file is written on one mount and then on the other, and opened on the first around the end of its caching
 * time.
 */
import assert from 'node:assert/strict';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { RealCluster } from '../cluster/real-cluster.ts';
import { isLong, SERVERS_OF_FORM } from '../long.ts';
import { mountPairsOver, noMounts, transportsOfForm } from './mounts.ts';

const AGE_MS = 100;
/** The mount answers the kernel at most this long after it received attributes. */
const HEARD_MS = 5;
const STEP_MS = isLong ? 0.15 : 0.3;
/** A sleeping thread wakes up at most this late; otherwise one attempt misses the moment. */
const SPUN_MS = 3;

/** The thread sleeps on it: the mounts are other processes, and this loop needs no event. */
const sleeper = new Int32Array(new SharedArrayBuffer(4));

const skip = await noMounts();
if (skip === false) await define();
else test('an open never reads outdated contents', { skip }, () => undefined);

async function define(): Promise<void> {
  const cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
  after(() => cluster.stop());
  await cluster.createVolume('main');
  const mounted = await mountPairsOver(await transportsOfForm(), cluster, '--cache', `ttl:${AGE_MS}ms`);
  for (const { transport, mounts } of mounted) {
    test(`${transport}: an open never reads outdated contents around the end of the caching time`, () => {
      const [here, there] = mounts.map(({ directory }) => directory) as [string, string];
      for (let afterMs = -1; afterMs < HEARD_MS; afterMs += STEP_MS) {
        const name = `${transport}-${afterMs.toFixed(2)}`;
        writeFileSync(join(there, name), 'one\n');
        const beganMs = performance.now();
        appendFileSync(join(here, name), 'two\n');
        appendFileSync(join(there, name), 'three\n');
        const opensMs = beganMs + AGE_MS + afterMs;
        Atomics.wait(sleeper, 0, 0, Math.max(0, opensMs - SPUN_MS - performance.now()));
        while (performance.now() < opensMs);
        assert.equal(readFileSync(join(here, name), 'utf8'), 'one\ntwo\nthree\n', name);
      }
    });
  }
}

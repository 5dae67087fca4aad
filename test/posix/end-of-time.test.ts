/**
 * Goal: what another mount closed is seen by whoever opens it, also where what a mount remembers of the file ends in that very moment: the
 * kernel may just have been told of it, and reads no further than to the size that it was told.
 * Method: a file is written on one mount and then on the other, and is opened on the first one around the end of its time.
 */
import assert from 'node:assert/strict';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { RealCluster } from '../cluster/real-cluster.ts';
import { isLong, SERVERS_OF_FORM } from '../long.ts';
import { mountPairsOver, noMounts, transportsOfForm } from './mounts.ts';

const AGE_MS = 100;
/** From what is heard of a file it takes the mount so long, at the most, to tell of it. */
const HEARD_MS = 5;
const STEP_MS = isLong ? 0.15 : 0.3;
/** A thread that sleeps wakes up this much late at the most, or the moment is missed once. */
const SPUN_MS = 3;

/** The thread sleeps on it: programs on the mounts and this loop need no event of it. */
const sleeper = new Int32Array(new SharedArrayBuffer(4));

const skip = await noMounts();
if (skip === false) await define();
else test('what is opened is not the past', { skip }, () => undefined);

async function define(): Promise<void> {
  const cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
  after(() => cluster.stop());
  await cluster.createVolume('main');
  const mounted = await mountPairsOver(await transportsOfForm(), cluster, '--cache', `ttl:${AGE_MS}ms`);
  for (const { transport, mounts } of mounted) {
    test(`${transport}: what is opened is not the past, whenever that is`, () => {
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

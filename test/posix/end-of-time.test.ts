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
import { mountPairs, noMounts } from './mounts.ts';

const AGE_MS = 200;
/** From what is heard of a file it takes the mount so long, at the most, to tell of it. */
const HEARD_MS = 5;
const STEP_MS = 0.15;

const skip = await noMounts();
if (skip === false) await define();
else test('what is opened is not the past', { skip }, () => undefined);

async function define(): Promise<void> {
  const cluster = await RealCluster.start();
  after(() => cluster.stop());
  await cluster.createVolume('main');
  const mounted = await mountPairs(cluster, '--cache', `ttl:${AGE_MS}ms`);
  for (const { transport, mounts } of mounted) {
    test(`${transport}: what is opened is not the past, whenever that is`, () => {
      const [here, there] = mounts.map(({ directory }) => directory) as [string, string];
      for (let afterMs = -1; afterMs < HEARD_MS; afterMs += STEP_MS) {
        const name = `${transport}-${afterMs.toFixed(2)}`;
        writeFileSync(join(there, name), 'one\n');
        const beganMs = performance.now();
        appendFileSync(join(here, name), 'two\n');
        appendFileSync(join(there, name), 'three\n');
        while (performance.now() < beganMs + AGE_MS + afterMs);
        assert.equal(readFileSync(join(here, name), 'utf8'), 'one\ntwo\nthree\n', name);
      }
    });
  }
}

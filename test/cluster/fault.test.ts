/**
 * Goal: a fault of native code ends a server at once, by the signal that the system sends, and no acknowledged write is
 * lost.
 * Method: real servers receive each of these signals. A process that listens for such a signal would not end after a
 * real fault: when the listener has run, the failed instruction is executed again, and so on, without service or end.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { ask } from '../http/ask.ts';
import { RealCluster } from './real-cluster.ts';

const FAULTS = ['SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGILL', 'SIGSEGV', 'SIGTRAP'] as const;

const cluster = await RealCluster.start();
after(() => cluster.stop());
await cluster.createVolume('main');

test('a fault ends a server by its signal, and acknowledged writes stay', async () => {
  const body = randomBytes(20_000);
  const stored = await ask(cluster.url('s1'), 'PUT', '/v1/files/main/kept', { body });
  assert.equal(stored.status, 201, stored.text);
  for (let first = 0; first < FAULTS.length; first += cluster.ids.length) {
    for (const [place, id] of cluster.ids.entries()) {
      const fault = FAULTS[first + place];
      assert.equal(await cluster.kill(id, fault), fault);
    }
    for (const id of cluster.ids) cluster.spawn(id);
    await cluster.ready();
    const read = await ask(cluster.url('s2'), 'GET', '/v1/files/main/kept');
    assert.ok(read.bytes.equals(body), read.text.slice(0, 300));
  }
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { ServerId } from '../../base/ids.ts';
import type { PeerAddress, TransportHandlers } from '../../server/transport/transport.ts';
import { freeAddresses, type PeerProcess, startPeer } from '../transport/peer-cluster.ts';

const [A, B] = ['a', 'b'] as [ServerId, ServerId];

interface Seen {
  readonly handlers: TransportHandlers;
  readonly events: string[];
}

function seeing(): Seen {
  const events: string[] = [];
  const handlers: TransportHandlers = {
    message: (from, _channel, payload) => void events.push(`${from} says ${Buffer.from(payload).toString()}`),
    connected: (peer) => void events.push(`${peer} connected`),
    disconnected: (peer) => void events.push(`${peer} disconnected`),
    call: async (_from, method) => Buffer.from(method),
  };
  return { handlers, events };
}

async function until(holds: () => boolean): Promise<void> {
  for (const deadlineMs = performance.now() + 10_000; performance.now() < deadlineMs; await delay(5)) {
    if (holds()) return;
  }
  throw new Error('It did not come to hold');
}

async function addresses(count: number): Promise<PeerAddress[]> {
  const ids = Array.from({ length: count }, (_, place) => `${place}`);
  return [...(await freeAddresses(...ids)).values()];
}

test('a server is made a peer while both run, and unknown again', { timeout: 30_000 }, async (t) => {
  const [atA, atB] = (await addresses(2)) as [PeerAddress, PeerAddress];
  const [seenA, seenB] = [seeing(), seeing()];
  const started: PeerProcess[] = [];
  t.after(() => Promise.all(started.map((one) => one.kill())));
  const start = async (server: ServerId, seen: Seen, peers: [ServerId, PeerAddress][]) => {
    const one = await startPeer({ server, handlers: seen.handlers, peers: new Map(peers) });
    started.push(one);
    return one.transport;
  };
  const a = await start(A, seenA, [[A, atA]]);
  const b = await start(B, seenB, [
    [B, atB],
    [A, atA],
  ]);
  await delay(100);
  assert.equal(b.isConnected(A), false, 'a does not know b yet');

  a.addPeer(B, atB);
  a.addPeer(A, atA);
  assert.deepEqual(a.peers, [B], 'A server is no peer of itself');
  await until(() => a.isConnected(B) && b.isConnected(A));
  assert.equal(Buffer.from(await a.call(B, 'hello', new Uint8Array(0), 5_000)).toString(), 'hello');

  a.removePeer(B);
  await until(() => !b.isConnected(A) && seenA.events.includes('b disconnected'));
  assert.deepEqual(a.peers, []);
  await assert.rejects(a.call(B, 'hello', new Uint8Array(0), 500), { code: 'no-majority' });
  a.removePeer(B);

  a.addPeer(B, atB);
  await until(() => a.isConnected(B) && b.isConnected(A));
  b.send(A, 1, Buffer.from('again'));
  await until(() => seenA.events.includes('b says again'));
});

test('a peer that moved is found at its new address', { timeout: 30_000 }, async (t) => {
  const [atA, atB, elsewhere] = (await addresses(3)) as [PeerAddress, PeerAddress, PeerAddress];
  const a = await startPeer({ server: A, handlers: seeing().handlers, peers: new Map([[A, atA]]) });
  t.after(() => a.kill());
  a.transport.addPeer(B, atB);
  const b = await startPeer({
    server: B,
    handlers: seeing().handlers,
    peers: new Map([
      [A, atA],
      [B, elsewhere],
    ]),
  });
  t.after(() => b.kill());
  await delay(100);
  assert.equal(a.transport.isConnected(B), false);
  a.transport.addPeer(B, elsewhere);
  await until(() => a.transport.isConnected(B) && b.transport.isConnected(A));
});

/**
 * Goal: the report that a file has no locks costs no frame of its own, neither the call nor its answer, because no
 * request waits for them.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { pino } from 'pino';
import type { FileId, ServerId } from '../../base/ids.ts';
import { type PeerHandlersParts, peerHandlers } from '../../server/compose/peer-handlers.ts';
import { type UnlockedEnd, UnlockedEnds } from '../../server/file/unlocked-ends.ts';
import { DEFERRED_MS_MAX } from '../../server/transport/outbox.ts';
import { CHANNEL_LEASE, type TransportHandlers } from '../../server/transport/transport.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryNetwork, type MemoryTransport } from '../transport/memory-transport.ts';

const [A, B] = ['a', 'b'] as [ServerId, ServerId];
const ENDING: UnlockedEnd = { file: 7 as FileId, counter: 3 };
const log = pino({ level: 'silent' });

/** Runs all that the event loop has to do now, and what follows from it; time does not pass. */
async function settled(): Promise<void> {
  for (let turns = 0; turns < 20; turns++) await turn();
}

test('the report that a file has no locks, and its answer, are sent together with urgent messages', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const network = new MemoryNetwork(systemWorld);
  const heard: UnlockedEnd[] = [];
  const join = (server: ServerId) => {
    const made: { transport?: MemoryTransport } = {};
    const transport = (): MemoryTransport => made.transport ?? assert.fail('It is there');
    const lockEndings = new UnlockedEnds({
      world: systemWorld,
      log,
      isConnected: (peer) => transport().isConnected(peer),
      call: (...argv) => transport().call(...argv),
      received: (ending) => heard.push(ending),
    });
    const { call, isDeferrable: isSpare } = peerHandlers({ lockEndings } as PeerHandlersParts);
    const rest = { message: () => undefined, connected: () => undefined, disconnected: () => undefined };
    const handlers = { ...rest, call, isDeferrable: isSpare } as TransportHandlers;
    made.transport = network.join({ server, handlers, log });
    return { transport: made.transport, lockEndings };
  };
  const [a, b] = [join(A), join(B)];
  t.after(() => Promise.all([a, b].map(({ transport }) => transport.close())));
  const frames = (): number[] => [a, b].map(({ transport }) => transport.stats().framesReceived);
  await settled();
  a.lockEndings.notify(ENDING, [B]);
  await settled();
  assert.deepEqual(frames(), [0, 0], 'No request waits for it');
  a.transport.send(B, CHANNEL_LEASE, Uint8Array.of(1));
  await settled();
  assert.deepEqual([heard, frames()], [[ENDING], [0, 1]], 'Nor for the answer');
  b.transport.send(A, CHANNEL_LEASE, Uint8Array.of(1));
  await settled();
  assert.deepEqual([frames(), a.transport.stats().messagesReceived], [[1, 1], 2]);
  a.lockEndings.notify(ENDING, [B]);
  await settled();
  t.mock.timers.tick(DEFERRED_MS_MAX);
  await settled();
  assert.equal(heard.length, 2, 'Without another message it is still sent');
  t.mock.timers.tick(DEFERRED_MS_MAX);
});

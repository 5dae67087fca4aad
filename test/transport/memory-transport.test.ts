import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import { CHANNEL_LEASE, type Transport } from '../../server/transport/transport.ts';
import { systemWorld } from '../../world/system-world.ts';
import { Recorder, transportConformance } from '../conformance/transport.ts';
import { MemoryNetwork } from './memory-transport.ts';

const log = pino({ level: 'silent' });

transportConformance('memory', () => {
  const network = new MemoryNetwork(systemWorld);
  const transports: Transport[] = [];
  return {
    start: (server, handlers, limits = {}) => {
      const transport = network.join({ server, handlers, limits, log });
      transports.push(transport);
      return Promise.resolve(transport);
    },
    stop: async () => {
      for (const transport of transports) await transport.close();
    },
  };
});

test('memory: servers of a cut pair receive nothing from each other until it is healed', async () => {
  const [A, B] = ['s1' as ServerId, 's2' as ServerId];
  const network = new MemoryNetwork(systemWorld);
  const heard = new Recorder();
  const a = network.join({ server: A, handlers: new Recorder(), log });
  network.join({ server: B, handlers: heard, log });
  await heard.until(() => a.isConnected(B), 'connected');
  a.send(B, CHANNEL_LEASE, Uint8Array.of(1));
  network.cut(A, B);
  assert.equal(a.isConnected(B), false);
  a.send(B, CHANNEL_LEASE, Uint8Array.of(2));
  network.heal();
  a.send(B, CHANNEL_LEASE, Uint8Array.of(3));
  await heard.until(() => heard.heard.length === 1, 'the message after the cut');
  assert.deepEqual([...(heard.heard[0]?.payload ?? [])], [3]);
  assert.deepEqual(heard.changes, ['+s1', '-s1', '+s1']);
});

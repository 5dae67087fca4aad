/**
 * What a server reports of the files of which it is primary, while operations are under way and when a replica stays
 * behind.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { ServerId } from '../../base/ids.ts';
import { Clock } from '../../server/process/clock.ts';
import { LocalStatusService } from '../../server/status/status-service.ts';
import { patientWorld } from '../patient-world.ts';
import { FILE, requestOf, SmallCluster, type SmallServer } from './small-cluster.ts';

const LEASE_MS = 2_000;
const BYTES = Uint8Array.of(1, 2, 3);

function statusOf({ id, host, lease, store, transport }: SmallServer): LocalStatusService {
  return new LocalStatusService({
    self: id,
    cluster: 'test',
    urls: new Map((['a', 'b', 'c'] as ServerId[]).map((server) => [server, `http://${server}:1`])),
    known: { catalogReplicas: null, stateOf: () => 'in', maintenanceUntilMs: () => null, labelsOf: () => [] },
    timing: { leaseMs: LEASE_MS, clockSkewMaxMs: 0 },
    operationTimeoutMs: 1_000,
    world: patientWorld,
    clock: new Clock(patientWorld),
    host,
    lease,
    named: { claimCount: 0, voterCount: 3, recoveringMs: () => 0 },
    store,
    failure: () => null,
    scrub: () => null,
    isConnected: (server) => transport.isConnected(server),
  });
}

test('a replica that applies a moment later is not reported, and one that stays behind is', async (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c'], {}, { leaseMs: LEASE_MS });
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, , c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  const status = statusOf(a);
  assert.deepEqual((await status.self()).connected, ['b', 'c']);

  // Each write is answered by two of three, and the third receives it later.
  const lags: string[] = [];
  for (let number = 1; number <= 20; number++) {
    await a.files.write(FILE, requestOf(number), number, BYTES);
    const states = a.host.loaded(FILE)?.peers(() => true) ?? [];
    lags.push(...states.map(({ state }) => state));
    assert.deepEqual([status.underReplicated(), status.behind()], [[], {}], `after write ${number}`);
  }
  assert.ok(lags.includes('catching-up'), 'Otherwise the test showed nothing');

  // The disk of one makes no progress.
  const disk = new EventTarget();
  const apply = c.store.apply.bind(c.store);
  t.mock.method(c.store, 'apply', async (...all: Parameters<typeof apply>) => {
    await once(disk, 'moves');
    return apply(...all);
  });
  const fromMs = patientWorld.nowMs();
  await a.files.write(FILE, requestOf(21), 0, BYTES);
  assert.deepEqual(status.underReplicated(), []);
  while (status.underReplicated().length === 0) await delay(10);
  const afterMs = patientWorld.nowMs() - fromMs;
  assert.deepEqual(status.behind(), { [c.id]: 1 });
  assert.ok(afterMs > 900, `it was reported after ${afterMs} ms`);
  // Also while others continue.
  await a.files.write(FILE, requestOf(22), 0, BYTES);
  assert.deepEqual(status.underReplicated(), [FILE]);
});

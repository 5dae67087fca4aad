import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WokenWork } from '../../server/process/woken-work.ts';
import { patientWorld } from '../patient-world.ts';

test('one run at a time, another after a wake meanwhile, and again after a failure', async () => {
  const gates: PromiseWithResolvers<void>[] = [];
  const failures: unknown[] = [];
  const began: PromiseWithResolvers<void>[] = [0, 1, 2, 3].map(() => Promise.withResolvers<void>());
  const work = new WokenWork({
    world: patientWorld,
    retryMs: 5,
    work: () => {
      const gate = Promise.withResolvers<void>();
      gates.push(gate);
      began[gates.length - 1]?.resolve();
      return gate.promise;
    },
    failed: (error) => failures.push(error),
  });
  for (let wakes = 0; wakes < 3; wakes++) work.wake();
  assert.equal(gates.length, 1);
  gates[0]?.resolve();
  await began[1]?.promise;
  gates[1]?.reject(new Error('full'));
  await work.ended();
  assert.deepEqual([gates.length, failures.length], [2, 1]);
  // Without a wake.
  await began[2]?.promise;
  work.wake();
  work.close();
  gates[2]?.resolve();
  await work.ended();
  work.wake();
  assert.equal(gates.length, 3);
});

test('after its end, a failed run is not repeated', async () => {
  let runs = 0;
  const work = new WokenWork({
    world: patientWorld,
    retryMs: 1,
    work: async () => {
      runs++;
      throw new Error('no primary');
    },
    failed: () => undefined,
  });
  work.wake();
  await work.ended();
  work.close();
  await patientWorld.sleep(10);
  assert.equal(runs, 1);
});

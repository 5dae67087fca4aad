import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WakeQueue } from '../../server/drivers/wake-queue.ts';
import { Clock } from '../../server/process/clock.ts';
import { patientWorld } from '../patient-world.ts';

test('sleepers wake in the order of their times, equal ones in the order of their requests', async () => {
  const clock = new Clock(patientWorld);
  const wakes = new WakeQueue(patientWorld, clock);
  const nowMs = clock.nowMs();
  const order: string[] = [];
  await new Promise<void>((resolve) => {
    wakes.at(nowMs + 30, () => {
      order.push('last');
      resolve();
    });
    wakes.at(nowMs + 10, () => order.push('second'));
    wakes.at(nowMs + 10, () => order.push('third'));
    wakes.at(nowMs - 5, () => order.push('first'));
  });
  assert.deepEqual(order, ['first', 'second', 'third', 'last']);
  wakes.close();
});

test('no sleeper is woken before the lease clock shows the time', async () => {
  const clock = new Clock(patientWorld);
  const wakes = new WakeQueue(patientWorld, clock);
  const times = Array.from({ length: 200 }, (_, place) => clock.nowMs() + ((place * 37) % 40));
  const early = await Promise.all(
    times.map(
      (atMs) =>
        new Promise<boolean>((resolve) => {
          wakes.at(atMs, () => resolve(clock.nowMs() < atMs));
        }),
    ),
  );
  assert.equal(early.filter(Boolean).length, 0);
  wakes.close();
});

test('a sleeper may ask to be woken again while it is being woken', async () => {
  const clock = new Clock(patientWorld);
  const wakes = new WakeQueue(patientWorld, clock);
  let rounds = 0;
  await new Promise<void>((resolve) => {
    const again = (): void => {
      rounds++;
      if (rounds === 5) resolve();
      else wakes.at(clock.nowMs() + 1, again);
    };
    wakes.at(clock.nowMs(), again);
  });
  assert.equal(rounds, 5);
  wakes.close();
});

test('a sleeper that repeatedly asks for a past time lets others run', async () => {
  const wakes = new WakeQueue(patientWorld, new Clock(patientWorld));
  let rounds = 0;
  const again = (): void => {
    rounds++;
    wakes.at(0, again);
  };
  wakes.at(0, again);
  await new Promise((resolve) => setTimeout(resolve, 5));
  wakes.close();
  assert.ok(rounds > 0, 'It was woken');
});

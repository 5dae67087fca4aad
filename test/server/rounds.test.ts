import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Timer } from '../../base/world.ts';
import { Rounds } from '../../server/process/rounds.ts';

const TIMER: Timer = { cancel: () => undefined, unref: () => TIMER };

/** Rounds whose period passes by `tick`. */
class World {
  readonly failures: unknown[] = [];
  readonly rounds: Rounds;
  isDue = true;
  begun = 0;
  readonly endings: string[] = [];
  work: () => Promise<void> = async () => undefined;
  tick = (): void => assert.fail('There is a timer');

  constructor() {
    this.rounds = new Rounds({
      world: {
        every: (periodMs, run) => {
          assert.equal(periodMs, 7);
          this.tick = run;
          return { ...TIMER, cancel: () => this.endings.push('cancelled') };
        },
      },
      periodMs: 7,
      isDue: () => this.isDue,
      work: () => {
        this.begun++;
        return this.work();
      },
      failed: (error) => void this.failures.push(error),
    });
  }
}

test('a round begins in each period in which it is due, and not before the one under way has ended', async () => {
  const world = new World();
  const { promise, resolve: end } = Promise.withResolvers<void>();
  world.work = () => promise;
  world.tick();
  world.tick();
  await world.rounds.run();
  assert.equal(world.begun, 1);
  end();
  await promise;
  await Promise.resolve();
  world.isDue = false;
  world.tick();
  assert.equal(world.begun, 1);
  await world.rounds.run();
  assert.equal(world.begun, 2, 'A requested round is due');
  world.rounds.close();
  assert.deepEqual(world.endings, ['cancelled']);
});

test('a round that fails is reported, and the next one begins', async () => {
  const world = new World();
  const [late, atOnce] = [new Error('No primary'), new Error('A mistake')];
  world.work = () => Promise.reject(late);
  await world.rounds.run();
  world.work = () => {
    throw atOnce;
  };
  await world.rounds.run();
  world.work = async () => undefined;
  await world.rounds.run();
  assert.deepEqual([world.begun, world.failures], [3, [late, atOnce]]);
});

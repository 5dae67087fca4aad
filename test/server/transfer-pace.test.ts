import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TransferPace } from '../../server/file/transfer-pace.ts';
import { turn } from './transfer-pair.ts';

/** Time that passes only when the test says so. */
class GivenTime {
  #nowMs = 5_000;
  #sleepers: { readonly atMs: number; readonly wake: () => void }[] = [];

  nowMs(): number {
    return this.#nowMs;
  }

  at(atMs: number, wake: () => void): void {
    this.#sleepers.push({ atMs, wake });
  }

  async pass(ms: number): Promise<void> {
    this.#nowMs += ms;
    const due = this.#sleepers.filter(({ atMs }) => atMs <= this.#nowMs);
    this.#sleepers = this.#sleepers.filter(({ atMs }) => atMs > this.#nowMs);
    for (const { wake } of due) wake();
    await turn();
  }
}

test('a pace lets calls pass at its rate, in the order of their requests', async () => {
  const time = new GivenTime();
  const pace = new TransferPace(1_000_000, time);
  const taken: number[] = [];
  for (let number = 0; number < 30; number++) void pace.take(100_000).then(() => taken.push(number));
  await turn();
  // A tenth of a second in advance, and the one that is paid for afterwards.
  assert.deepEqual(taken, [0, 1]);
  for (let tenths = 1; tenths <= 10; tenths++) {
    await time.pass(100);
    assert.equal(taken.length, 2 + tenths);
  }
  assert.deepEqual(
    taken,
    [...taken].sort((a, b) => a - b),
  );
});

test('a pace saves up little while it is not used', async () => {
  const time = new GivenTime();
  const pace = new TransferPace(1_000_000, time);
  await pace.take(100_000);
  await time.pass(60_000);
  let taken = 0;
  for (let number = 0; number < 30; number++) void pace.take(100_000).then(() => taken++);
  await turn();
  assert.equal(taken, 2);
});

test('an object that is larger than a second of the pace passes, and later ones wait for it', async () => {
  const time = new GivenTime();
  const pace = new TransferPace(1_000, time);
  await pace.take(4_100);
  let done = false;
  void pace.take(1).then(() => {
    done = true;
  });
  await time.pass(3_900);
  assert.equal(done, false);
  await time.pass(200);
  assert.equal(done, true);
});

test('a pace without a bound lets everything pass at once', async () => {
  const pace = new TransferPace(Infinity, new GivenTime());
  for (let times = 0; times < 10; times++) await pace.take(2 ** 40);
});

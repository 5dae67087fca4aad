import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import {
  SEARCH_PERIOD_MAX_MS,
  SEARCH_PERIOD_MS,
  SearchSchedule,
} from '../../client/transport/search-schedule.ts';
import { systemWorld } from '../../world/system-world.ts';

/** A schedule on a simulated clock. */
class Bench {
  readonly schedule: SearchSchedule;
  searches = 0;
  /** Ends the search under way, with or without a new server. */
  end: ((isNews: boolean) => void) | null = null;
  readonly #timers: TestContext['mock']['timers'];
  #nowMs = 1_000;

  constructor(t: TestContext) {
    this.#timers = t.mock.timers;
    this.#timers.enable({ apis: ['setTimeout', 'setInterval'] });
    const world = { ...systemWorld, nowMs: () => this.#nowMs };
    this.schedule = new SearchSchedule(world, () => {
      this.searches++;
      return new Promise((resolve) => {
        this.end = resolve;
      });
    });
    t.after(() => this.schedule.close());
  }

  async ended(isNews: boolean): Promise<void> {
    this.end?.(isNews);
    await setImmediate();
  }

  pass(ms: number): void {
    this.#nowMs += ms;
    this.#timers.tick(ms);
  }
}

test('the first requested search begins at once, a further one after its pause', async (t) => {
  const bench = new Bench(t);
  bench.schedule.request();
  assert.equal(bench.searches, 1);
  await bench.ended(true);
  bench.schedule.request();
  bench.schedule.request();
  bench.pass(SEARCH_PERIOD_MS - 1);
  assert.equal(bench.searches, 1);
  bench.pass(1);
  assert.equal(bench.searches, 2, 'Without another request');
  await bench.ended(true);
  bench.pass(SEARCH_PERIOD_MS);
  assert.equal(bench.searches, 2, 'Two requests were one search');
});

test('a request during a search starts another one', async (t) => {
  const bench = new Bench(t);
  bench.schedule.request();
  bench.schedule.request();
  await bench.ended(true);
  bench.pass(SEARCH_PERIOD_MS);
  assert.equal(bench.searches, 2);
});

test('while searches find nothing new, they become rarer, until a server is lost', async (t) => {
  const bench = new Bench(t);
  const waits: number[] = [];
  for (let round = 0; round < 5; round++) {
    bench.schedule.request();
    const before = bench.searches;
    let waitedMs = 0;
    for (; bench.searches === before && waitedMs <= SEARCH_PERIOD_MAX_MS; waitedMs += SEARCH_PERIOD_MS)
      bench.pass(SEARCH_PERIOD_MS);
    waits.push(waitedMs / SEARCH_PERIOD_MS);
    await bench.ended(false);
  }
  assert.deepEqual(waits.slice(1), [2, 4, 6, 6]);
  bench.schedule.requestSoon();
  const before = bench.searches;
  bench.pass(SEARCH_PERIOD_MS);
  assert.equal(bench.searches, before + 1);
  await bench.ended(false);
  bench.schedule.request();
  bench.pass(2 * SEARCH_PERIOD_MS - 1);
  assert.equal(bench.searches, before + 1);
  bench.pass(1);
  assert.equal(bench.searches, before + 2);
});

test('without a request, a search runs now and then, and none after the end', async (t) => {
  const bench = new Bench(t);
  bench.pass(SEARCH_PERIOD_MAX_MS);
  assert.equal(bench.searches, 1);
  bench.schedule.request();
  bench.schedule.close();
  await bench.ended(true);
  bench.pass(2 * SEARCH_PERIOD_MAX_MS);
  assert.equal(bench.searches, 1);
});

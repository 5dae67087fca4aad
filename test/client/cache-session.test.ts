/**
 * Goal: a client uses cached answers as long as it may, and no longer, whatever answers it receives.
 * Method: a session whose polls the test answers, in a simulated time.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { Timer } from '../../base/world.ts';
import { CacheSession } from '../../client/cluster/cache-session.ts';
import type { CacheAnswer, CacheRequest } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';

interface Poll {
  readonly request: CacheRequest;
  readonly sentMs: number;
  answer(answer: Partial<CacheAnswer>): void;
  fail(): void;
}

class SessionRun {
  nowMs = 0;
  ended = 0;
  readonly recalled: number[] = [];
  /** A recall is acknowledged after this. */
  forgotten = Promise.resolve();
  /** No grant is used after this. */
  unused = Promise.resolve();
  /** No acknowledged change is pending after this. */
  flushed = Promise.resolve();
  readonly polls: Poll[] = [];
  readonly session: CacheSession;
  /** Those of this run alone: the process has other tests, and what they leave. */
  readonly #timers = new Set<{ readonly atMs: number; readonly then: () => void }>();
  /** Time by which timers run: they do not while the process is suspended. */
  #timedMs = 0;

  constructor(idleMs?: number) {
    this.session = new CacheSession({
      client: 7,
      ...(idleMs === undefined ? {} : { idleMs }),
      poll: (request) => {
        const sentMs = this.nowMs;
        return new Promise((resolve, reject) => {
          this.polls.push({
            request,
            sentMs,
            answer: (answer) => {
              const whole = { session: 1, validMs: 1_000, recalls: [], through: 0, fenced: true, ...answer };
              resolve({ answer: whole, sentMs });
            },
            fail: () => reject(new Error('no server answers')),
          });
        });
      },
      recalled: async (inodes) => {
        this.recalled.push(...inodes);
        await this.forgotten;
      },
      ended: () => {
        this.ended++;
      },
      unused: () => this.unused,
      flushed: () => this.flushed,
      world: {
        ...systemWorld,
        nowMs: () => this.nowMs,
        after: (ms, then) => this.#after(ms, then),
        sleep: (ms, { signal } = {}) =>
          new Promise((resolve) => {
            this.#after(ms, resolve);
            signal?.addEventListener('abort', () => resolve());
          }),
      },
      failed: () => undefined,
    });
    this.session.start();
  }

  #after(ms: number, then: () => void): Timer {
    const due = { atMs: this.#timedMs + ms, then };
    this.#timers.add(due);
    const timer: Timer = { cancel: () => void this.#timers.delete(due), unref: () => timer };
    return timer;
  }

  async pass(ms: number): Promise<void> {
    this.nowMs += ms;
    this.#timedMs += ms;
    const due = [...this.#timers].filter(({ atMs }) => atMs <= this.#timedMs);
    for (const timer of due.toSorted((a, b) => a.atMs - b.atMs)) if (this.#timers.delete(timer)) timer.then();
    await turn();
  }

  async stop(): Promise<void> {
    const stopped = this.session.stop();
    this.last().fail();
    await stopped;
  }

  last(): Poll {
    const poll = this.polls.at(-1);
    assert.ok(poll !== undefined);
    return poll;
  }
}

test('a session counts from when its poll was sent, and expires if no answer arrives', async () => {
  const run = new SessionRun();
  await run.pass(300);
  run.last().answer({});
  await run.pass(0);
  assert.equal(run.session.remainingMs, 700);
  assert.equal(run.session.session, 1);
  // Disconnected: from here on no poll is answered.
  const { ended } = run;
  run.last().fail();
  await run.pass(699);
  assert.equal(run.session.remainingMs, 1);
  assert.equal(run.ended, ended);
  await run.pass(1);
  assert.equal(run.session.session, null);
  assert.equal(run.ended, ended + 1);
  await run.stop();
});

test('a recall is acknowledged only after the client has dropped the answer', async () => {
  const run = new SessionRun();
  await run.pass(1);
  run.last().answer({ recalls: [5, 6], through: 2 });
  await run.pass(1);
  assert.deepEqual(run.recalled, [5, 6]);
  assert.deepEqual(run.last().request, { client: 7, session: 1, acked: 2, fenced: true });
  await run.stop();
});

test('a session that a primary does not know ends at once, with all its grants', async () => {
  const run = new SessionRun();
  await run.pass(1);
  run.last().answer({ recalls: [5], through: 9 });
  await run.pass(1);
  const { ended } = run;
  run.last().answer({ session: 2, validMs: 500 });
  await run.pass(1);
  assert.ok(run.ended > ended);
  assert.equal(run.session.session, 2);
  assert.deepEqual(run.last().request, { client: 7, session: 2, left: 1, acked: 0, fenced: true });
  run.last().answer({ session: null, validMs: 0 });
  await run.pass(1);
  assert.equal(run.session.remainingMs, 0);
  assert.deepEqual(
    run.last().request,
    { client: 7, left: 2, acked: 0, fenced: true },
    'It uses nothing cached',
  );
  await run.stop();
});

test('a session that its primary ends is left once no grant is used', async () => {
  const run = new SessionRun();
  await run.pass(1);
  run.last().answer({});
  await run.pass(1);
  const { promise, resolve } = Promise.withResolvers<void>();
  run.unused = promise;
  run.last().answer({ session: null, validMs: 0 });
  await run.pass(1);
  const { ended, polls } = run;
  assert.deepEqual([ended > 0, run.session.session, polls.length], [true, null, 2]);
  resolve();
  await run.pass(0);
  assert.equal(run.last().request.left, 1);
  await run.stop();
});

test('a session that its primary ends is left once no acknowledged change is pending', async () => {
  const run = new SessionRun();
  await run.pass(1);
  run.last().answer({});
  await run.pass(1);
  const { promise, resolve } = Promise.withResolvers<void>();
  run.flushed = promise;
  run.last().answer({ session: null, validMs: 0 });
  await run.pass(1);
  assert.equal(run.polls.length, 2);
  resolve();
  await run.pass(0);
  assert.equal(run.last().request.left, 1);
  await run.stop();
});

test('a session that was renewed too late begins a new one', async () => {
  const run = new SessionRun();
  await run.pass(1);
  run.last().answer({ validMs: 100 });
  await run.pass(1);
  // The process was suspended: neither timers nor answers ran while the time passed.
  run.nowMs += 5_000;
  assert.equal(run.session.session, null);
  const { ended } = run;
  run.last().answer({ validMs: 6_000 });
  await turn();
  assert.ok(run.ended > ended);
  assert.ok(run.session.remainingMs > 0);
  await run.stop();
});

test('in another catalog a session begins anew, and acknowledges none of its recalls for the former one', async () => {
  const run = new SessionRun();
  const { promise, resolve } = Promise.withResolvers<void>();
  run.forgotten = promise;
  run.last().answer({ recalls: [5], through: 3 });
  await turn();
  const { ended } = run;
  run.session.restart();
  assert.deepEqual([run.session.session, run.ended], [null, ended + 1]);
  await turn();
  assert.equal(run.polls.length, 1, 'The recall is still being handled');
  resolve();
  await turn();
  assert.deepEqual(run.last().request, { client: 7, acked: 0, fenced: true });
  run.last().answer({ session: 2 });
  await turn();
  assert.deepEqual(run.last().request, { client: 7, session: 2, acked: 0, fenced: true });
  // The answer of the former catalog is late.
  run.session.restart();
  run.last().answer({ session: 2 });
  await turn();
  await run.pass(100);
  assert.deepEqual([run.session.session, run.last().request.session], [null, undefined]);
  await run.stop();
});

test('an unused session is replaced by another, which acknowledges only its own recalls', async () => {
  const run = new SessionRun(5_000);
  run.session.markUsed();
  await run.pass(1);
  const { promise, resolve } = Promise.withResolvers<void>();
  run.forgotten = promise;
  run.last().answer({ recalls: [5], through: 3, validMs: 60_000 });
  await run.pass(4_000);
  run.session.markUsed();
  await run.pass(4_999);
  assert.equal(run.session.session, 1, 'It was used since');
  const { ended } = run;
  await run.pass(1);
  assert.deepEqual([run.session.session, run.ended], [null, ended + 1]);
  resolve();
  await turn();
  assert.deepEqual(run.last().request, { client: 7, left: 1, acked: 0, fenced: true });
  run.last().answer({ session: null });
  await turn();
  assert.deepEqual(run.last().request, { client: 7, acked: 0, fenced: true });
  run.last().answer({ session: 2 });
  await turn();
  assert.deepEqual(run.last().request, { client: 7, session: 2, acked: 0, fenced: true });
  const closed = run.session.close();
  run.last().fail();
  await turn();
  run.last().answer({ session: null });
  await closed;
  assert.deepEqual(run.last().request, { client: 7, left: 2, acked: 0, fenced: true });
});

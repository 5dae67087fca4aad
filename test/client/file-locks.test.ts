import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { LOCK_END } from '../../base/lock-end.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { LockBody, LockHeld, LockRenewal, LockRenewalBody } from '../../wire/lock-api.ts';
import { patientWorld } from '../patient-world.ts';

const { sleep: delay } = patientWorld;
const FILE = 7;
const LEASE_MS = 600;
const LOCK: LockHeld = { owner: 'o', kind: 'posix', type: 'exclusive', start: 0n, end: LOCK_END, pid: 1 };

type Answer = { readonly status?: number; readonly body: object };

/** A primary that does as the test says. */
class Primary {
  readonly locks: LockBody[] = [];
  readonly renewals: LockRenewalBody[] = [];
  /** When the first request arrived. */
  receivedMs = 0;
  epoch = 1;
  leaseMs = LEASE_MS;
  onLock: (body: LockBody, url: string) => Promise<Answer> = async () => ({ body: this.grant() });
  onRenewal: (body: LockRenewalBody) => Promise<Answer> = async () => ({ body: this.renewal() });
  onChange: (url: string) => Promise<Answer> = never;
  readonly client: ClusterClient;
  readonly lost: LockHeld[] = [];

  private constructor(url: string, operationTimeoutMs: number) {
    this.client = new ClusterClient({ world: patientWorld, servers: [url], operationTimeoutMs });
  }

  static async start(t: TestContext, operationTimeoutMs = 5_000): Promise<Primary> {
    const made: { primary?: Primary } = {};
    const server = createServer((request, response) => void made.primary?.answer(request, response));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const primary = new Primary(
      `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      operationTimeoutMs,
    );
    made.primary = primary;
    t.after(async () => {
      await primary.client.close();
      server.closeAllConnections();
      server.close();
    });
    return primary;
  }

  open() {
    return this.client.fileLocks(FILE, { lost: (_file, locks) => this.lost.push(...locks) });
  }

  grant() {
    return { primary: 's1', epoch: this.epoch, leaseMs: this.leaseMs };
  }

  renewal(lost: readonly number[] = []): LockRenewal {
    return { ...this.grant(), lost };
  }

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = '';
    for await (const chunk of request) text += chunk;
    const { status = 200, body } = await this.#answerTo(request.url ?? '', text);
    const type = status === 200 ? 'application/json' : 'application/problem+json';
    response.writeHead(status, { 'content-type': type }).end(JSON.stringify(body));
  }

  async #answerTo(url: string, text: string): Promise<Answer> {
    if (this.receivedMs === 0) this.receivedMs = patientWorld.nowMs();
    if (url.includes('/locks?since=')) {
      const body = JSON.parse(text) as LockBody;
      this.locks.push(body);
      return this.onLock(body, url);
    }
    if (url.includes('&under=')) return this.onChange(url);
    if (url.includes('/renew?since=')) {
      const body = JSON.parse(text) as LockRenewalBody;
      this.renewals.push(body);
      return this.onRenewal(body);
    }
    return { body: {} };
  }
}

const REFUSED: Answer = { status: 409, body: { code: 'locked', title: 'Another has a lock' } };

async function never(): Promise<Answer> {
  return new Promise(() => undefined);
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await delay(2);
}

test('held locks are renewed, all of them, as long as they are held', async (t) => {
  const primary = await Primary.start(t);
  const locks = primary.open();
  await locks.lock(LOCK, false);
  await locks.unlock({ ...LOCK, start: 10n, end: 19n });
  await until(() => primary.renewals.length >= 5);
  assert.deepEqual(
    primary.renewals.at(-1)?.locks.map(({ start, end }) => [start, end]),
    [
      [0, 9],
      [20, Number.MAX_SAFE_INTEGER],
    ],
  );
  assert.equal(locks.isLost('posix', 'o'), false);
  await locks.close();
  assert.deepEqual([primary.locks.at(-1)?.type, primary.lost], ['unlock', []]);
});

test('a lease counts from its request, not from its answer', async (t) => {
  const primary = await Primary.start(t);
  // Long, so that the answer arrives in time.
  primary.leaseMs = 4 * LEASE_MS;
  primary.onLock = async () => {
    await delay(primary.leaseMs * 0.6);
    return { body: primary.grant() };
  };
  primary.onRenewal = never;
  const locks = primary.open();
  await locks.lock(LOCK, false);
  assert.equal(locks.isLost('posix', 'o'), false);
  await delay(primary.receivedMs + primary.leaseMs - patientWorld.nowMs());
  assert.equal(locks.isLost('posix', 'o'), true, 'From now on the server may grant them to others');
  await assert.rejects(locks.lock(LOCK, false), (error: ServiceError) => error.code === 'lease-lost');
  await locks.unlock(LOCK);
  assert.equal(locks.isLost('posix', 'o'), false);
});

test("an answer that arrives after the lease's end restores no lock", async (t) => {
  const primary = await Primary.start(t);
  primary.onRenewal = async () => {
    await delay(LEASE_MS * 1.2);
    return { body: primary.renewal() };
  };
  const locks = primary.open();
  await locks.lock(LOCK, false);
  await delay(LEASE_MS * 2);
  assert.equal(locks.isLost('posix', 'o'), true);
  assert.equal(primary.lost.length, 1);
});

test('locks that a primary does not know are lost, the others are not', async (t) => {
  const primary = await Primary.start(t);
  const locks = primary.open();
  await locks.lock({ ...LOCK, end: 9n }, false);
  await locks.lock({ ...LOCK, owner: 'p', start: 10n }, false);
  primary.onRenewal = async ({ locks: named }) => ({
    body: primary.renewal(named.flatMap(({ owner }, place) => (owner === 'p' ? [place] : []))),
  });
  await until(() => locks.isLost('posix', 'p'));
  assert.equal(locks.isLost('posix', 'o'), false);
});

test('a primary that received no renewal of a lock does not count as having renewed it', async (t) => {
  const primary = await Primary.start(t);
  // Long, because the difference shows only after the part of it at which a lock is renewed.
  primary.leaseMs = 4 * LEASE_MS;
  const locks = primary.open();
  await locks.lock({ ...LOCK, end: 9n }, false);
  const { promise: held, resolve: go } = Promise.withResolvers<void>();
  primary.onRenewal = async () => {
    if (primary.renewals.length > 1) return never();
    await held;
    return { body: { ...primary.renewal(), epoch: 2 } };
  };
  await until(() => primary.renewals.length === 1);
  await locks.lock({ ...LOCK, start: 20n }, false);
  go();
  await until(() => primary.renewals.length === 2);
  assert.deepEqual(
    primary.renewals.map(({ locks: named }) => named.length),
    [1, 2],
  );
  await delay(primary.receivedMs + primary.leaseMs - patientWorld.nowMs());
  assert.equal(locks.isLost('posix', 'o'), true, 'It has not received all of them');
});

test('a waiting request is repeated under the same number until the lock is granted', async (t) => {
  const primary = await Primary.start(t);
  primary.onLock = async () => (primary.locks.length < 3 ? REFUSED : { body: primary.grant() });
  const locks = primary.open();
  await locks.lock(LOCK, true);
  assert.equal(new Set(primary.locks.map(({ number }) => number)).size, 1);
  assert.equal(primary.locks.length, 3);
});

test('a lock that a new primary did not set is requested again, in its epoch', async (t) => {
  const primary = await Primary.start(t);
  const locks = primary.open();
  primary.epoch = 7;
  const named: (string | null)[] = [];
  primary.onLock = async (_body, url) => {
    named.push(new URL(url, 'http://s1').searchParams.get('epoch'));
    return { body: { ...primary.grant(), ...(named.length < 2 && { outdated: true }) } };
  };
  await locks.lock(LOCK, false);
  assert.deepEqual(named, ['0', '7']);
  assert.equal(new Set(primary.locks.map(({ number }) => number)).size, 1);
  // The next open of the file knows its primary.
  await primary.open().lock({ ...LOCK, owner: 'p' }, false);
  assert.deepEqual(named, ['0', '7', '7']);
});

test('a request that does not wait outlasts the time in which locks are reclaimed, but no refusal', async (t) => {
  const primary = await Primary.start(t, 600);
  const locks = primary.open();
  const claimed = { status: 503, body: { code: 'busy', title: 'Locks are claimed' } };
  let untilMs = patientWorld.nowMs() + 300;
  primary.onLock = async () => (patientWorld.nowMs() < untilMs ? claimed : { body: primary.grant() });
  await locks.lock(LOCK, false);
  assert.equal(new Set(primary.locks.map(({ number }) => number)).size, 1);
  untilMs = Infinity;
  await assert.rejects(
    locks.lock({ ...LOCK, owner: 'p' }, false),
    (error: ServiceError) => error.code === 'busy',
  );
  untilMs = 0;
  await locks.close();
});

test('an aborted wait leaves nothing, and keeps the locks that were held before', async (t) => {
  const primary = await Primary.start(t);
  const locks = primary.open();
  await locks.lock({ ...LOCK, type: 'shared', start: 10n, end: 19n }, false);
  primary.onLock = async ({ waitMs }) => (waitMs > 0 ? never() : { body: primary.grant() });
  const abort = new AbortController();
  const waiting = locks.lock({ ...LOCK, end: 29n }, true, abort.signal);
  await until(() => primary.locks.length === 2);
  abort.abort(new Error('by intent'));
  await assert.rejects(waiting, /by intent/);
  const given = primary.locks[1] as LockBody;
  const rest = primary.locks.slice(2);
  assert.deepEqual(
    rest.map(({ type, start, end }) => [type, start, end]),
    [
      ['unlock', 0, 9],
      ['shared', 10, 19],
      ['unlock', 20, 29],
    ],
  );
  for (const { pending, stamp } of rest) {
    assert.ok(stamp > given.number && !pending.includes(given.number), 'The aborted wait has ended');
  }
});

test('without a lock, no unlock is sent', async (t) => {
  const primary = await Primary.start(t);
  const locks = primary.open();
  await locks.unlock(LOCK);
  await locks.lock({ ...LOCK, start: 10n, end: 19n }, false);
  await locks.unlock({ ...LOCK, start: 20n });
  assert.equal(primary.locks.length, 1);
  await locks.close();
});

test('a lock of the whole file that cannot be changed is lost', async (t) => {
  const primary = await Primary.start(t);
  const locks = primary.open();
  await locks.lock({ ...LOCK, kind: 'flock', type: 'shared' }, false);
  primary.onLock = async () => REFUSED;
  await assert.rejects(
    locks.lock({ ...LOCK, kind: 'flock' }, false),
    (error: ServiceError) => error instanceof ServiceError && error.code === 'locked',
  );
  await delay(LEASE_MS);
  assert.deepEqual(primary.renewals, [], 'No lock to renew');
});

test('a refused change is sent again under locks that were set later, unless one was lost', async (t) => {
  const primary = await Primary.start(t);
  const locks = primary.open();
  const file = primary.client.openFile(FILE, { locks: () => locks });
  const under: string[] = [];
  const answers: ((answer: Answer) => void)[] = [];
  primary.onChange = (url) => {
    under.push(/under=([0-9-]+)/.exec(url)?.[1] ?? '');
    return new Promise((resolve) => answers.push(resolve));
  };
  const refusal: Answer = { status: 409, body: { code: 'lease-lost', title: 'Not these locks' } };
  const whole: Answer = {
    body: { ...primary.grant(), seq: 1, sizeBytes: 0, contents: { epoch: 1, seq: 1 } },
  };
  await locks.lock(LOCK, false);
  const before = { result: file.truncate(0) };
  await until(() => answers.length === 1);
  locks.fence();
  answers[0]?.(refusal);
  await until(() => answers.length === 2);
  answers[1]?.(whole);
  await before.result;
  assert.notEqual(under[0], under[1]);

  const after = { result: file.truncate(0) };
  after.result.catch(() => undefined);
  await until(() => answers.length === 3);
  primary.onRenewal = async () => ({ body: primary.renewal([0]) });
  await until(() => locks.isLost('posix', 'o'));
  await locks.unlock(LOCK);
  await locks.lock(LOCK, false);
  answers[2]?.(refusal);
  await assert.rejects(after.result, (error: ServiceError) => error.code === 'lease-lost');
  assert.equal(answers.length, 3);
  primary.onRenewal = async () => ({ body: primary.renewal() });
  await locks.close();
});

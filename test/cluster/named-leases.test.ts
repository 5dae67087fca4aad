import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { ServerId } from '../../base/ids.ts';
import { EXIT_LEASE_LOST, EXIT_LEASE_TAKEN } from '../../client/commands/lease.ts';
import { NamedLeaseClient } from '../../client/lease/named-lease-client.ts';
import { leaseMembers } from '../../server/named/name-voters.ts';
import type { GrantedLease, LeaseEvent, LeaseList, LeaseQueryAnswer } from '../../wire/named-lease-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { type Answer, ask, askJson, problemIn } from '../http/ask.ts';
import { isLong, onlyLong } from '../long.ts';
import { FencedResource } from './fenced-resource.ts';
import { LAUNCHER, RealCluster, until } from './real-cluster.ts';

/** A holder that gets no processor for half of it still refreshes in time. */
const TTL_MS = 4_000;
const TTL_MS_MAX = 5_000;
const SKEW_MS = 100;
/** Servers that die one after the other while a lease is held. */
const DYING = isLong ? ['s1', 's2'] : ['s1'];
/** The longest wait for a lease of a dead holder, on a machine that is not busy. */
const TAKEOVER_MS = TTL_MS + SKEW_MS;
const OLD_NODE = new URL('../client/old-node.ts', import.meta.url).href;
const WORKER = fileURLToPath(new URL('lease-worker.ts', import.meta.url));

// Four servers, so that one of them is no member of a name.
const cluster = await RealCluster.start({
  servers: 4,
  lease: '2s',
  clockSkew: `${SKEW_MS}ms`,
  flags: ['--named-lease-max', `${TTL_MS_MAX}ms`],
});
after(() => cluster.stop());
const resource = await FencedResource.start();
after(() => resource.close());
const contenders = new Set<Contender>();
after(() => {
  for (const contender of contenders) contender.child.kill('SIGKILL');
});
await namesServed();

/** `leasehold lease acquire`, as a user starts it. */
class Contender {
  readonly child: ChildProcess;
  readonly ended: Promise<number | null>;
  stderr = '';

  constructor(name: string, who: string, ...options: readonly string[]) {
    const argv = ['lease', 'acquire', name, '--ttl', `${TTL_MS}ms`, '--owner', who, ...options];
    this.child = spawn(
      process.execPath,
      [LAUNCHER, ...argv, '--', process.execPath, WORKER, resource.url, who],
      {
        env: { ...process.env, LEASEHOLD_SERVERS: cluster.urls.join(',') },
        stdio: ['ignore', 'inherit', 'pipe'],
      },
    );
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
    });
    this.ended = once(this.child, 'close').then(([code]) => code as number | null);
    contenders.add(this);
    void this.ended.then(() => contenders.delete(this));
  }

  /** Resolves when it has printed that it waits; fails if it ends before. */
  async waits(): Promise<void> {
    while (!this.stderr.includes('waiting')) {
      const saying = once(this.child.stderr as NodeJS.EventEmitter, 'data').then(() => false);
      const hasEnded = await Promise.race([this.ended.then(() => true), saying]);
      if (hasEnded) throw new Error(`It ended with ${await this.ended} instead of waiting: ${this.stderr}`);
    }
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }
}

/** Resolves when every server that runs takes part in named leases. */
async function namesServed(): Promise<void> {
  await until('all servers take part in leases of names', async () => {
    const running = cluster.ids.filter((id) => cluster.isRunning(id));
    const answers = await Promise.all(running.map((id) => ask(cluster.url(id), 'GET', '/v1/leases/any')));
    return answers.every(({ status }) => status === 200);
  });
}

function membersOf(name: string): { members: string[]; other: string } {
  const members: string[] = leaseMembers(name, cluster.ids as readonly ServerId[]);
  return { members, other: cluster.ids.find((id) => !members.includes(id)) as string };
}

function request(
  id: string,
  method: string,
  path: string,
  options: { readonly session?: number; readonly body?: object } = {},
): Promise<Answer> {
  const { session, body } = options;
  return ask(cluster.url(id), method, `/v1/leases/${path}`, {
    headers: {
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(session === undefined ? {} : { 'leasehold-session': String(session) }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
}

async function acquire(id: string, name: string, session: number, owner = 'test'): Promise<GrantedLease> {
  const body = { owner, ttlMs: TTL_MS };
  const answer = await request(id, 'POST', encodeURIComponent(name), { session, body });
  assert.equal(answer.status, 201, answer.text);
  return JSON.parse(answer.text) as GrantedLease;
}

/** @returns whether a process can still act; an ended one may stay listed until its parent has waited for it */
function alive(pid: number): boolean {
  if (!existsSync(`/proc/${pid}/stat`)) return false;
  const [, state] = /\) (.)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? [];
  return state !== 'Z' && state !== 'X';
}

/** Checks that no two holders have worked at the same time, and none with an earlier token after one with a later. */
function assertOneAtATime(from: number): void {
  const acts = resource.acts.slice(from).filter(({ who }) => who !== 'test');
  let last = acts[0];
  for (const act of acts) {
    assert.ok(last !== undefined && act.token >= last.token, `${act.who} acted after ${last?.who} had begun`);
    last = act;
  }
  assert.ok(acts.length > 0 && acts.every(({ accepted }) => accepted), 'No act was refused');
}

test('one of three contenders works; after its kill another continues, within the promised time', async (t) => {
  const from = resource.acts.length;
  const names = ['a', 'b', 'c'];
  const three = new Map(names.map((who) => [who, new Contender('three', who)]));
  const first = await resource.next(({ who }) => three.has(who));
  const others = [...three].filter(([who]) => who !== first.who).map(([, contender]) => contender);
  await Promise.all(others.map((contender) => contender.waits()));
  const look = await askJson<LeaseQueryAnswer>(cluster.url('s1'), '/v1/leases/three');
  assert.deepEqual([look.held, look.owner, look.token], [true, first.who, first.token]);

  three.get(first.who)?.signal('SIGKILL');
  const killedMs = performance.now();
  const second = await resource.next(({ token }) => token > first.token);
  const waitedMs = second.atMs - killedMs;
  t.diagnostic(
    `${second.who} acted ${Math.round(waitedMs)} ms after the kill, ${(waitedMs / TAKEOVER_MS).toFixed(2)} of lease and skew`,
  );
  await until(
    'the command of the killed one has ended',
    async () => !alive(first.pid) && !alive(first.supervisor),
  );

  three.get(second.who)?.signal('SIGTERM');
  assert.equal(await three.get(second.who)?.ended, 128 + 15, 'The exit code of its command');
  const third = await resource.next(({ token }) => token > second.token);
  assert.deepEqual([first.who, second.who, third.who].toSorted(), names);
  three.get(third.who)?.signal('SIGINT');
  assert.equal(await three.get(third.who)?.ended, 128 + 2);
  assert.ok(!alive(third.pid));
  assertOneAtATime(from);
});

test('with the option not to wait, a held lease is refused at once', async () => {
  const client = new NamedLeaseClient({ world: systemWorld, servers: cluster.urls });
  // Refreshed until the contender has queried it, however long a program takes to start.
  const held = await client.acquire('busy', { ttlMs: TTL_MS, owner: 'test' });
  const contender = new Contender('busy', 'impatient', '--no-wait');
  assert.equal(await contender.ended, EXIT_LEASE_TAKEN);
  assert.match(contender.stderr, /Held by test for another \d+ ms/);
  await held.release();
  await client.close();
});

test('a lease longer than servers grant is refused with the limit, and the command is not started', async () => {
  const contender = new Contender('long', 'greedy', '--ttl', `${TTL_MS_MAX + 1}ms`);
  assert.equal(await contender.ended, 2);
  assert.match(
    contender.stderr,
    /Cannot acquire lease "long".*between 400 .* and 5000 \(--named-lease-max\), not 5001/,
  );
  assert.ok(resource.acts.every(({ who }) => who !== 'greedy'));
});

test('a lease that another command releases or takes over is lost before the next refresh', async (t) => {
  const client = new NamedLeaseClient({ world: systemWorld, servers: cluster.urls });
  for (const [name, heir] of [
    ['robbed/1', null],
    ['robbed/2', 4242],
  ] as const) {
    const { members, other } = membersOf(name);
    const held = await client.acquire(name, { ttlMs: TTL_MS_MAX, owner: 'test' });
    const fromMs = performance.now();
    const lost = once(held.lost, 'abort');
    held.watch();
    const { session } = held;
    assert.equal((await request(other, 'DELETE', encodeURIComponent(name), { session })).status, 204);
    if (heir !== null) await acquire(members[0] ?? '', name, heir);
    await lost;
    t.diagnostic(`lost ${Math.round(performance.now() - fromMs)} ms after it was granted`);
    assert.ok(held.lostEarly && !held.isHeld);
    assert.match((held.lost.reason as Error).message, /another client has released it|test holds it/);
    await held.release();
  }
  await client.close();
});

test('a keeper is stopped beyond its lease: its command has ended before another begins', async (t) => {
  const from = resource.acts.length;
  const old = new Contender('stopped', 'old');
  const before = await resource.next(({ who }) => who === 'old');
  const heir = new Contender('stopped', 'heir');
  await heir.waits();
  old.signal('SIGSTOP');
  const stoppedMs = performance.now();
  const taken = await resource.next(({ who }) => who === 'heir');
  t.diagnostic(
    `taken over ${((taken.atMs - stoppedMs) / TAKEOVER_MS).toFixed(2)} lease and skew after the stop`,
  );
  assert.ok(!alive(before.pid), 'The command was stopped by its supervisor, while the keeper was suspended');
  const last = resource.acts.findLast(({ who }) => who === 'old');
  t.diagnostic(
    `the old command acted last ${Math.round(taken.atMs - (last?.atMs ?? 0))} ms before the new one`,
  );
  old.signal('SIGCONT');
  assert.equal(await old.ended, EXIT_LEASE_LOST);
  assertOneAtATime(from);
  assert.equal(await resource.act(before.token), 409, 'Its fencing token is refused');
  heir.signal('SIGTERM');
  await heir.ended;
});

test('all processes of a holder are stopped beyond its lease: what the command still sends on resuming is refused', async (t) => {
  const old = new Contender('frozen', 'cold');
  const before = await resource.next(({ who }) => who === 'cold');
  const heir = new Contender('frozen', 'warm');
  await heir.waits();
  const frozen = [before.pid, before.supervisor, old.child.pid as number];
  for (const pid of frozen) process.kill(pid, 'SIGSTOP');
  const taken = await resource.next(({ who }) => who === 'warm');
  // The worst order: the command resumes first.
  for (const pid of frozen) process.kill(pid, 'SIGCONT');
  assert.equal(await old.ended, EXIT_LEASE_LOST);
  assert.ok(!alive(before.pid), 'Its supervisor has killed it');
  const late = resource.acts.filter(({ who, atMs }) => who === 'cold' && atMs > taken.atMs);
  t.diagnostic(`${late.length} acts of the command after it woke up, all refused`);
  assert.ok(late.every(({ accepted }) => !accepted));
  assert.equal(await resource.act(before.token), 409);
  heir.signal('SIGTERM');
  await heir.ended;
});

test('a supervisor that is killed takes its command with it', async () => {
  const contender = new Contender('unsupervised', 'x');
  const act = await resource.next(({ who }) => who === 'x');
  process.kill(act.supervisor, 'SIGKILL');
  assert.equal(await contender.ended, 1);
  await until('its command has ended', async () => !alive(act.pid));
});

test('a launcher that is killed takes keeper and command with it', async () => {
  const command = ['lease', 'acquire', 'launched', '--ttl', `${TTL_MS}ms`, '--'];
  const worker = [process.execPath, WORKER, resource.url, 'launched'];
  const launcher = spawn(process.execPath, [LAUNCHER, ...command, ...worker], {
    env: {
      ...process.env,
      NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --import=${OLD_NODE}`,
      LEASEHOLD_SERVERS: cluster.urls.join(','),
    },
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  const { pid } = await resource.next(({ who }) => who === 'launched');
  launcher.kill('SIGKILL');
  await until('the command has ended', async () => !alive(pid));
  await until('the lease is released', async () => {
    const { held } = await askJson<LeaseQueryAnswer>(cluster.url('s1'), '/v1/leases/launched');
    return !held;
  });
});

test('tokens rise over release, expiry, the death of a server and of all servers', {
  skip: onlyLong('test/simulation/cluster/wholes.test.ts'),
}, async (t) => {
  const name = 'rising';
  const { members } = membersOf(name);
  const [one = '', two = ''] = members;
  const tokens: number[] = [];
  const take = async (id: string, session: number): Promise<void> => {
    await until(`session ${session} has the lease`, async () => {
      const body = { owner: `session ${session}`, ttlMs: TTL_MS };
      const answer = await request(id, 'POST', name, { session, body });
      if (answer.status !== 201) return false;
      tokens.push((JSON.parse(answer.text) as GrantedLease).token);
      return true;
    });
  };
  await take(one, 1);
  const again = await acquire(two, name, 1);
  assert.equal(again.token, tokens[0], 'The same session is granted the lease that it holds, at any server');
  assert.equal((await request(two, 'DELETE', name, { session: 1 })).status, 204);
  await take(two, 2);
  const lost = await request(one, 'PATCH', name, { session: 1, body: { ttlMs: TTL_MS } });
  assert.deepEqual([lost.status, problemIn(lost).code], [409, 'lease-lost']);
  await take(one, 3); // After the end of 2.
  await cluster.kill(one);
  await take(two, 4);
  for (const id of cluster.ids) await cluster.kill(id);
  for (const id of cluster.ids) cluster.spawn(id);
  await cluster.ready();
  const silent = await request(one, 'GET', name);
  t.diagnostic(`right after the start of all: ${silent.status} ${silent.headers['retry-after'] ?? ''}`);
  await namesServed();
  await take(one, 5);
  t.diagnostic(`tokens: ${tokens.join(' ')}`);
  for (const [place, token] of tokens.entries()) {
    assert.ok(
      place === 0 || token > (tokens[place - 1] ?? Infinity),
      `${token} follows ${tokens[place - 1]}`,
    );
  }
});

test('a holder keeps its lease while servers die and restart, one after the other', {
  skip: onlyLong('test/named/driver.test.ts'),
}, async () => {
  const from = resource.acts.length;
  // A client that handles a server's death still refreshes in time.
  const contender = new Contender('steady', 'steady', '--ttl', `${TTL_MS_MAX}ms`);
  const { token } = await resource.next(({ who }) => who === 'steady');
  for (const id of DYING) {
    await cluster.kill(id);
    const killedMs = performance.now();
    await resource.next(({ who, atMs }) => who === 'steady' && atMs > killedMs + 1.5 * TTL_MS_MAX);
    await cluster.restart(id);
    await namesServed();
  }
  assert.ok(resource.acts.slice(from).every((act) => act.who !== 'steady' || act.token === token));
  assert.equal(contender.child.exitCode, null);
  contender.signal('SIGTERM');
  assert.equal(await contender.ended, 128 + 15);
  assertOneAtATime(from);
});

test('without a majority a command is stopped before its lease ends, and queries answer nothing as certain', async () => {
  const name = 'alone';
  const { members, other } = membersOf(name);
  const contender = new Contender(name, 'alone');
  const { token, pid } = await resource.next(({ who }) => who === 'alone');
  const [first = '', second = ''] = members;
  const look = JSON.parse((await request(other, 'GET', name)).text) as LeaseQueryAnswer;
  const killedMs = performance.now();
  await Promise.all([cluster.kill(first), cluster.kill(second)]);
  assert.equal(await contender.ended, EXIT_LEASE_LOST);
  assert.ok(!alive(pid));
  assert.match(contender.stderr, /it could not be refreshed in time; the command is stopped/);
  const last = resource.acts.findLast(({ who }) => who === 'alone');
  assert.ok(last !== undefined && last.atMs - killedMs < TTL_MS, 'It never acted beyond a whole lease');
  assert.deepEqual([look.held, look.token], [true, token]);
  const asked = await request(other, 'POST', name, { session: 21, body: { owner: 'x', ttlMs: TTL_MS } });
  assert.deepEqual([asked.status, problemIn(asked).code], [503, 'unknown']);
  assert.deepEqual(problemIn(asked).unreachable, [first, second]);
  await Promise.all([cluster.restart(first), cluster.restart(second)]);
  await namesServed();
});

/** A watcher receives each event long before that. */
const WATCHED_MS_MAX = 120_000;

test('a watch at a server that is no member reports every change, and continues when the member that it queries dies', async (t) => {
  const name = 'watched/one:x';
  const { members, other } = membersOf(name);
  const [asked = '', second = ''] = members;
  const client = new NamedLeaseClient({ world: systemWorld, servers: [cluster.url(other)] });
  const controller = new AbortController();
  const told: LeaseEvent[] = [];
  const heard = new Set<() => void>();
  const watching = (async () => {
    for await (const event of client.watch(name, { signal: controller.signal })) {
      told.push(event);
      for (const wake of heard) wake();
      heard.clear();
    }
  })().catch((error: unknown) => {
    if (!controller.signal.aborted) throw error;
  });
  const after = async (kind: string, token?: number): Promise<void> => {
    const limit = AbortSignal.timeout(WATCHED_MS_MAX);
    while (!told.some((event) => event.kind === kind && (token === undefined || event.token === token))) {
      if (limit.aborted) assert.fail(`"${kind}" ${token} was not reported, but ${JSON.stringify(told)}`);
      await new Promise<void>((resolve) => {
        heard.add(resolve);
        limit.addEventListener('abort', () => resolve(), { once: true });
      });
    }
  };
  const path = encodeURIComponent(name);
  /**
   * A lease that begins and ends before it can be reported is left out: the test holds each lease until it has been
   * reported.
   */
  const whileHeld = async (session: number, work: () => Promise<void>): Promise<void> => {
    const body = { ttlMs: TTL_MS };
    const refreshing = setInterval(() => void request(second, 'PATCH', path, { session, body }), TTL_MS / 4);
    await work().finally(() => clearInterval(refreshing));
  };
  await after('state');
  const { token } = await acquire(second, name, 11);
  await whileHeld(11, async () => {
    await after('acquired', token);
    const body = { value: 'here:1' };
    const set = await request(other, 'PUT', `${path}/keys/endpoint`, { session: 11, body });
    assert.equal(set.status, 200, set.text);
    await after('keys', token);
  });
  assert.equal((await request(second, 'DELETE', path, { session: 11 })).status, 204);
  await after('released', token);
  const next = await acquire(second, name, 12);
  await whileHeld(12, () => after('acquired', next.token));
  await after('expired', next.token);
  await cluster.kill(asked);
  const last = await acquire(second, name, 13);
  await whileHeld(13, () => after('acquired', last.token));
  t.diagnostic(told.map((event) => event.kind).join(' '));
  assert.equal(told[0]?.kind, 'state');
  assert.ok(told.every((event) => !JSON.stringify(event).includes('session')));
  controller.abort();
  await watching;
  await client.close();
  await until('no watch is left, neither here nor at a member', async () => {
    const running = cluster.ids.filter((id) => cluster.isRunning(id));
    const metrics = await Promise.all(running.map((id) => ask(cluster.url(id), 'GET', '/metrics')));
    return metrics.every(({ text }) => /^leasehold_named_lease_watches 0$/m.test(text));
  });
  await cluster.restart(asked);
  await namesServed();
});

test('other clients never see the session', async () => {
  const granted = await acquire('s2', 'shown/a', 4711);
  assert.equal(granted.session, 4711);
  const body = { owner: 'other', ttlMs: TTL_MS };
  const answers = [
    await request('s1', 'GET', 'shown%2Fa'),
    await request('s1', 'GET', 'shown%2Fa?consistency=stale'),
    await request('s1', 'POST', 'shown%2Fa', { body }),
    await request('s1', 'PATCH', 'shown%2Fa', { session: 1, body: {} }),
    await request('s1', 'DELETE', 'shown%2Fa', { session: 1 }),
    await request('s3', 'PUT', 'shown%2Fa/keys/k', { session: 1, body: { value: 'v' } }),
    await ask(cluster.url('s4'), 'GET', '/v1/leases?prefix=shown/'),
  ];
  assert.deepEqual(
    answers.map(({ status }) => status),
    [200, 200, 409, 409, 409, 409, 200],
  );
  for (const { text } of answers) {
    assert.ok(text.includes(String(granted.token)), text);
    assert.ok(!text.includes('4711') && !text.includes('"session"'), text);
  }
  const { leases, unreachable } = JSON.parse(answers.at(-1)?.text ?? '') as LeaseList;
  assert.deepEqual(
    leases.map(({ name, owner }) => [name, owner]),
    [['shown/a', 'test']],
  );
  assert.deepEqual(unreachable, []);
});

test('impossible requests are refused with a reason', async () => {
  const owner = 'x';
  const ttlMs = TTL_MS;
  const keys = Object.fromEntries(Array.from({ length: 33 }, (_, number) => [`k${number}`, 'v']));
  const cases: [string, string, object, number, RegExp][] = [
    ['POST', 'a%20b', { owner, ttlMs }, 400, /a name has 1 to 255/],
    ['POST', `a${'b'.repeat(255)}`, { owner, ttlMs }, 400, /a name has/],
    ['POST', 'a', { owner, ttlMs: TTL_MS_MAX + 1 }, 400, /between 400 .* and 5000 /],
    ['POST', 'a', { owner, ttlMs: 399 }, 400, /between 400/],
    ['POST', 'a', { owner: '', ttlMs }, 400, /Invalid "owner"/],
    ['POST', 'a', { owner, ttlMs, keys }, 413, /at most 32 keys/],
    ['POST', 'a', { owner, ttlMs, keys: { a: 'x'.repeat(1_025) } }, 413, /more than 1024/],
    ['POST', 'a', { owner, ttlMs, keys: { 'a b': 'x' } }, 400, /a key has/],
    ['POST', 'a', { owner, ttlMs, key: 1 }, 400, /malformed/],
    ['POST', 'a', { ttlMs }, 400, /malformed/],
    ['PATCH', 'a', { ttlMs }, 400, /Leasehold-Session/],
    ['PUT', 'a', {}, 405, /does not support PUT/],
  ];
  for (const [method, path, body, status, reason] of cases) {
    const answer = await request('s1', method, path, { body });
    assert.equal(answer.status, status, answer.text);
    assert.match(problemIn(answer).detail, reason);
  }
  const eight = Object.fromEntries(
    Array.from({ length: 8 }, (_, number) => [`k${number}`, 'x'.repeat(1_024)]),
  );
  const full = await request('s1', 'POST', 'a', { body: { owner, ttlMs, keys: eight } });
  assert.deepEqual([full.status, problemIn(full).code], [413, 'too-large']);
  assert.equal((await request('s1', 'GET', 'a/keys/none')).status, 404);
});

/**
 * Goal: real servers and the command line produce every problem code and every exit code that the documents list.
 * Method: the test brings real servers, two of them on separate disks, into the state of each code; the last test
 * compares the codes that occurred with the documents, and fails if one is missing.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import Database from 'better-sqlite3';
import { ERRORS, type ErrorCode, ServiceError } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { Access } from '../../client/transport/access.ts';
import type { LockRenewal } from '../../wire/lock-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { runCli } from '../client/run-cli.ts';
import { type Answer, ask, askJson, problemIn } from '../http/ask.ts';
import { fillDisk, onDiskOfItsOwn } from '../repair/own-disk.ts';
import { SecureCluster } from '../security/secure-cluster.ts';
import { flipByte } from '../storage/damage.ts';
import type { LoopDisk } from '../storage/loop-disk.ts';
import { LAUNCHER, RealCluster, until } from './real-cluster.ts';

/** Of `leasehold lease acquire` alone: test/named/lease-command.test.ts. */
const EXITS_OF_LEASES = new Set([120, 121, 126, 127]);
const FILES = '/v1/files/main';
const JSON_LABEL = { 'content-type': 'application/json' };
const DISK_MIB = 96;
/** Less than a server keeps free of contents on such a disk. */
const LEFT_BYTES = 9 * 2 ** 20;
const LINKS_MAX = 65_000;
const LOCKS_OF_CLIENT_MAX = 4_096;
const EVENT_WATCHERS_MAX = 64;
const CLOCK_MODULE = new URL('wall-clock.ts', import.meta.url).href;

const seen = new Set<ErrorCode>();
const exits = new Set<number>();
const disks: LoopDisk[] = [];
let cluster: RealCluster;
let secure: SecureCluster;
let client: ClusterClient;
let why: string | null = null;

before(async () => {
  cluster = await RealCluster.start({ flags: ['--named-lease-max', '1s', '--op-timeout', '5s'] });
  client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  await cluster.createVolume('main');
  for (const id of ['s2', 's3']) {
    const made = await onDiskOfItsOwn(cluster, id, DISK_MIB);
    if (made.disk === null) why = made.why;
    else disks.push(made.disk);
  }
  await put('f');
  await put('d/full/a?parents=true');
  await client.command({ kind: 'volume-create', name: 'second', replicas: 3, objectBytes: 4096 });
  const policy = 'read-only' as const;
  await client.command({ kind: 'volume-create', name: 'kept', replicas: 3, objectBytes: 4096, policy });
  await attach('joined', '/junction');
});

after(async () => {
  client.close();
  await secure?.stop();
  for (const id of cluster.ids) await cluster.kill(id);
  for (const disk of disks) disk.remove();
  await cluster.stop();
});

/** One server's own answer, repeated as often as it asks for a retry because of an election. */
async function at(method: string, path: string, options: Parameters<typeof ask>[3] = {}): Promise<Answer> {
  let answer: Answer | null = null;
  await until(`s1 answers ${method} ${path}`, async () => {
    answer = await ask(cluster.url('s1'), method, path, options);
    return answer.status !== 503;
  });
  assert.ok(answer !== null);
  return answer;
}

async function put(name: string): Promise<void> {
  const { status, text } = await at('PUT', `${FILES}/${name}`, { body: 'contents' });
  assert.ok(status < 300, text);
}

function post(path: string, body: object, headers: Record<string, string> = {}): Promise<Answer> {
  return at('POST', path, { headers: { ...JSON_LABEL, ...headers }, body: JSON.stringify(body) });
}

/** Creates a volume with a catalog of its own, and attaches it at a path of `main`. */
async function attach(name: string, path: string): Promise<void> {
  await client.command({ kind: 'catalog-create', name, replicas: 3, objectBytes: 4096 });
  await client.admin.attach(name, { volume: 'main', path });
}

/** Checks that an answer is a complete problem document of this code. */
function isProblem(code: ErrorCode, answer: Answer): void {
  assert.equal(answer.status, ERRORS[code].status, answer.text);
  assert.equal(answer.headers['content-type'], 'application/problem+json');
  const problem = problemIn(answer);
  assert.deepEqual([problem.code, problem.title], [code, ERRORS[code].title]);
  assert.ok(problem.detail.length > 10);
  assert.equal(answer.headers['retry-after'] !== undefined, ERRORS[code].status === 503);
  seen.add(code);
}

async function isRefused(code: ErrorCode, work: Promise<unknown>): Promise<void> {
  await assert.rejects(work, (error) => error instanceof ServiceError && error.code === code);
  seen.add(code);
}

async function exitOf(argv: readonly string[], input = ''): Promise<number> {
  const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
  const { code, stderr } = await runCli(argv, { env, input });
  assert.ok(code !== null, stderr);
  exits.add(code);
  return code;
}

async function inode(path: string): Promise<number> {
  return (await askJson<{ file: number }>(cluster.url('s1'), `/v1/info/main/${path}`)).file;
}

/** Codes that a single request produces. */
const REQUESTS: Readonly<Partial<Record<ErrorCode, () => Promise<Answer>>>> = {
  'bad-request': () => at('GET', `${FILES}/../x`),
  'not-found': () => at('GET', `${FILES}/none`),
  exists: () => at('POST', `${FILES}/f?move-to=/d&overwrite=false`),
  'not-directory': () => at('GET', `${FILES}/f/`),
  'is-directory': () => at('PUT', `${FILES}/d`, { body: 'x' }),
  'not-empty': () => at('DELETE', `${FILES}/d/`),
  'precondition-failed': () => at('PUT', `${FILES}/f`, { body: 'x', headers: { 'if-none-match': '*' } }),
  'range-unsatisfiable': () => at('GET', `${FILES}/f`, { headers: { range: 'bytes=99-' } }),
  'digest-mismatch': () =>
    at('PUT', `${FILES}/f`, { body: 'x', headers: { 'content-md5': 'AAAAAAAAAAAAAAAAAAAAAA==' } }),
  'name-too-long': () => at('GET', `${FILES}/${'n'.repeat(256)}`),
  'symlink-loop': async () => {
    const place = { volume: 'main', path: '/loop' };
    await client.command({ kind: 'symlink', place, target: 'loop', uid: 0, gid: 0 });
    return at('GET', `${FILES}/loop`);
  },
  'cross-volume': () => at('POST', `${FILES}/f?move-to=second:/f`),
  junction: () => {
    const query = { kind: 'resolve', volume: 'main', path: '/junction/f', follow: true };
    return post('/v1/catalog/queries', { query });
  },
  attached: () => {
    const command = { kind: 'remove-directory', place: { volume: 'main', path: '/junction' } };
    return post('/v1/catalog/commands', { session: 79, number: 1, command });
  },
  'no-attribute': async () =>
    post('/v1/catalog/queries', { query: { kind: 'xattr', inode: await inode('f'), name: 'user.none' } }),
  'too-large': () => at('PATCH', `${FILES}/f?append`, { body: Buffer.alloc(4 * 2 ** 20 + 1) }),
  'read-only': () => at('PUT', '/v1/files/main@monday/f'),
  protected: async () => {
    await at('PUT', `${FILES}/protected`, { body: 'x' });
    await at('POST', `${FILES}/protected?set-flags=immutable`);
    return at('PUT', `${FILES}/protected`, { body: 'y' });
  },
  sealed: async () => {
    await at('PUT', '/v1/files/kept/f', { body: 'x' });
    return at('PATCH', '/v1/files/kept/f?append', { body: 'y' });
  },
  'session-expired': async () => {
    const kept = { kind: 'keep-orphan', inode: await inode('f') };
    // A session begins with small numbers: one that begins with this has been forgotten.
    return post('/v1/catalog/commands', { session: 77, number: 200, command: kept });
  },
  'fence-lost': async () => {
    const kept = { kind: 'keep-orphan', inode: await inode('f') };
    // No primary has given out such a delegation.
    const cache = { client: 7, forgets: [], under: 7, fence: [{ inode: await inode('d'), generation: 7 }] };
    return post('/v1/catalog/commands', { session: 78, number: 1, cache, command: kept });
  },
  'lease-taken': async () => {
    // On a busy machine one lease may have ended when the other is requested.
    for (let turn = 1; ; turn++) {
      const answer = await post('/v1/leases/taken', { owner: `owner ${turn}`, ttlMs: 1_000 });
      if (answer.status >= 400) return answer;
    }
  },
  'lease-lost': () =>
    at('PATCH', '/v1/leases/never', { headers: { ...JSON_LABEL, 'leasehold-session': '7' }, body: '{}' }),
  'not-primary': async () => {
    const file = await inode('f');
    const primary = await cluster.primaryOf('main/f');
    const other = cluster.ids.find((id) => id !== primary) as string;
    const headers = { 'leasehold-forwarded': '1' };
    return ask(cluster.url(other), 'POST', `/v1/data/${file}/flush`, { headers });
  },
  'quota-exceeded': async () => {
    await client.command({ kind: 'volume-set', name: 'second', quotaInodes: 1 });
    return at('PUT', '/v1/files/second/one-more', { body: 'x' });
  },
};

for (const [code, produce] of Object.entries(REQUESTS)) {
  test(code, async () => isProblem(code as ErrorCode, await produce()));
}

/** Requests for locks that are under way together. */
const AT_A_TIME = 16;
/** Locks are renewed after that time, a sixth of their lease, as clients do. */
const RENEW_MS = 1_000;

function rangeAt(start: number) {
  return { owner: 'o', kind: 'posix', type: 'exclusive', start, end: start, pid: 1 };
}

/** A client's requests for locks on one file, each with its own stamp. */
class Locks {
  readonly #client: number;
  readonly #path: string;
  readonly #pending = new Set<number>();
  #stamp = 0;

  constructor(client: number, file: number) {
    this.#client = client;
    this.#path = `/v1/data/${file}/locks`;
  }

  /**
   * Locks last until they are renewed.
   * @returns those that the client still has
   */
  async renew(starts: readonly number[]): Promise<number[]> {
    const body = { client: this.#client, stamp: ++this.#stamp, pending: [], locks: starts.map(rangeAt) };
    const renewal = { headers: JSON_LABEL, body: JSON.stringify(body) };
    const { status, text } = await ask(cluster.url('s1'), 'POST', `${this.#path}/renew`, renewal);
    assert.equal(status, 200, text);
    const lost = new Set((JSON.parse(text) as LockRenewal).lost);
    return starts.filter((_, place) => !lost.has(place));
  }

  async lock(start: number, waitMs = 0): Promise<Answer> {
    const stamp = ++this.#stamp;
    this.#pending.add(stamp);
    const range = rangeAt(start);
    const pending = [...this.#pending];
    try {
      return await ask(cluster.url('s1'), 'POST', this.#path, {
        headers: JSON_LABEL,
        body: JSON.stringify({ client: this.#client, stamp, number: stamp, pending, waitMs, ...range }),
      });
    } finally {
      this.#pending.delete(stamp);
    }
  }
}

test('locked, deadlock and lock-limit', async () => {
  const file = await inode('f');
  const [one, two] = [new Locks(1, file), new Locks(2, file)];
  assert.equal((await one.lock(0)).status, 200);
  isProblem('locked', await two.lock(0));
  let deadlock: Answer | null = null;
  // On a busy machine one wait may have ended, and even its lock, before the other one waits for it.
  while (deadlock === null) {
    assert.equal((await one.lock(0)).status, 200);
    assert.equal((await two.lock(2)).status, 200);
    let isOver = false;
    const waiting = one.lock(2, 2_000).finally(() => {
      isOver = true;
    });
    await until('the first one waits', async () => {
      const locks = `/v1/data/${file}/locks`;
      const { waiting: count } = await askJson<{ waiting: number }>(cluster.url('s1'), locks);
      return count === 1 || isOver;
    });
    const answer = await two.lock(0, 2_000);
    if (problemIn(answer).code === 'deadlock') deadlock = answer;
    else isProblem('locked', answer);
    isProblem('locked', await waiting);
  }
  isProblem('deadlock', deadlock);
  const many = new Locks(3, file);
  let held: number[] = [];
  let renewedMs = performance.now();
  let start = 100;
  let last: Answer | null = null;
  // The client has them only while it renews them in time, for which a busy machine may lack the time: it takes more
  // until one is refused.
  while (last === null) {
    // Adjacent ranges would be one lock.
    const starts = Array.from({ length: AT_A_TIME }, () => (start += 2));
    const answers = await Promise.all(starts.map((each) => many.lock(each, 2_000)));
    for (const [place, answer] of answers.entries()) {
      // If a busy machine costs the file its primary, the next primary first lets clients reclaim their locks.
      if (answer.status === 503) isProblem('busy', answer);
      else if (answer.status === 200) held.push(starts[place] as number);
      else last ??= answer;
    }
    // A renewal may report locks as lost by now that were not lost when one more was refused.
    if (last !== null) break;
    if (performance.now() - renewedMs < RENEW_MS && answers.every(({ status }) => status === 200)) continue;
    held = await many.renew(held);
    renewedMs = performance.now();
  }
  isProblem('lock-limit', last);
  assert.ok(held.length >= LOCKS_OF_CLIENT_MAX, `${held.length} locks: ${last.text}`);
});

test('busy', async () => {
  const watchers = Array.from({ length: EVENT_WATCHERS_MAX }, () =>
    httpRequest(`${cluster.url('s1')}/v1/events`).on('error', () => undefined),
  );
  try {
    await Promise.all(
      watchers.map((watcher) => new Promise((resolve) => watcher.on('response', resolve).end())),
    );
    isProblem('busy', await ask(cluster.url('s1'), 'GET', '/v1/events'));
  } finally {
    for (const watcher of watchers) watcher.destroy();
  }
});

test('unauthorized and forbidden, exit code 6', async () => {
  let reader = '';
  secure = await SecureCluster.start({
    flags: ({ folder }) => {
      const book = join(folder, 'tokens.json');
      const flags = ['--role', 'read', '--tokens', book];
      const made = spawnSync(process.execPath, [LAUNCHER, 'token', 'create', 'reader', ...flags], {
        encoding: 'utf8',
      });
      assert.equal(made.status, 0, made.stderr);
      reader = made.stdout.trim();
      return ['--tokens', book];
    },
  });
  const as = (token: string): ClusterClient =>
    new ClusterClient({
      world: systemWorld,
      servers: secure.urls,
      access: new Access({ ca: secure.authority.ca, token }),
    });
  const place = { volume: 'main', path: '/d' };
  for (const [code, token] of [
    ['unauthorized', `${reader.slice(0, -4)}AAAA`],
    ['forbidden', reader],
  ] as const) {
    const one = as(token);
    await isRefused(code, one.command({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 }));
    one.close();
  }
  const cli = ['ls', 'main:/', '--servers', secure.urls.join(','), '--ca', secure.authority.ca];
  assert.equal(await exitOf(cli), 6);
});

test('exit codes 0, 2, 3 and 4', async () => {
  assert.equal(await exitOf(['ls', 'main:/d']), 0);
  assert.equal(await exitOf(['ls', 'main']), 2);
  assert.equal(await exitOf(['ls', 'main:/none']), 3);
  assert.equal(await exitOf(['mkdir', 'main:/d']), 4);
});

test('integrity, recovering and too-many-links, exit code 8', { timeout: 120_000 }, async () => {
  await put('rotten');
  const linked = await inode('f');
  const { file } = await cluster.current('main/rotten');
  for (const id of cluster.ids) await cluster.kill(id, 'SIGTERM');
  const objects = (file % 256).toString(16).padStart(2, '0');
  for (const id of cluster.ids) {
    flipByte(join(cluster.data(id), 'objects', objects, `${file}.dat`), 3);
    // Creating so many takes half a minute.
    const catalog = new Database(join(cluster.data(id), 'catalog.db'));
    catalog.prepare('UPDATE inodes SET links = ? WHERE id = ?').run(LINKS_MAX, linked);
    catalog.close();
  }
  for (const id of cluster.ids) cluster.spawn(id);
  await until('s1 says that it recovers', async () => {
    const answer = await ask(cluster.url('s1'), 'GET', '/readyz');
    // On a busy machine it may have recovered before the request.
    if (answer.status === 200) {
      await cluster.kill('s1');
      cluster.spawn('s1');
    }
    if (answer.status !== 503 || problemIn(answer).code !== 'recovering') return false;
    isProblem('recovering', answer);
    return true;
  });
  await cluster.ready();
  isProblem('integrity', await at('GET', `${FILES}/rotten`));
  assert.equal(await exitOf(['get', 'main:/rotten', '-']), 8);
  const place = { volume: 'main', path: '/one-more-link' };
  await isRefused('too-many-links', client.command({ kind: 'link', inode: linked, place }));
});

test('moving', { timeout: 120_000 }, async () => {
  const headers = { ...JSON_LABEL, 'leasehold-catalog': '0' };
  let [volumes, number] = [0, 0];
  // The copy of an empty volume is short, so another one may have to move.
  await until('a change meets a volume that moves', async () => {
    const name = `moving${volumes++}`;
    await cluster.createVolume(name);
    const { catalog } = await client.command({ kind: 'volume-move', name });
    for (let state = 'creating'; state === 'creating'; ) {
      const command = { kind: 'make-directory', place: { volume: name, path: `/d${number}` } };
      const body = { session: 71, number: ++number, command: { ...command, mode: 0o755, uid: 0, gid: 0 } };
      const url = cluster.url(cluster.ids[number % cluster.ids.length] as string);
      const answer = await ask(url, 'POST', '/v1/catalog/commands', { headers, body: JSON.stringify(body) });
      if (answer.status === 503 && problemIn(answer).code === 'moving') {
        isProblem('moving', answer);
        await client.command({ kind: 'volume-move-abort', name }).catch(() => undefined);
        return true;
      }
      const { catalogs } = await client.query({ kind: 'catalogs' });
      state = catalogs.find((one) => one.number === catalog.number)?.state ?? 'removed';
    }
    return false;
  });
});

test('clock-fault, exit code 7', { timeout: 120_000 }, async () => {
  await cluster.kill('s1');
  const environment = { NODE_OPTIONS: `--import ${CLOCK_MODULE}`, WALL_CLOCK_OFF_MS: '5000' };
  cluster.spawn('s1', environment);
  await until('s1 says that its clock is wrong', async () => {
    const answer = await ask(cluster.url('s1'), 'GET', '/readyz');
    if (answer.status !== 503 || problemIn(answer).code !== 'clock-fault') return false;
    isProblem('clock-fault', answer);
    return true;
  });
  assert.equal(await exitOf(['status']), 7);
  const { text } = await ask(cluster.url('s1'), 'GET', '/v1/events/self');
  assert.match(text, /The clock of s1 jumped, or differs from most others .*: it takes part in no lease/);
  await cluster.kill('s1');
  await cluster.restart('s1');
});

test('no-space and storage, exit code 1', { timeout: 120_000 }, async (t) => {
  if (why !== null) return t.skip(why);
  for (const disk of disks) fillDisk(disk, LEFT_BYTES);
  const body = Buffer.alloc(1_000_000, 1);
  await until('a writer gets the error', async () => {
    const answer = await ask(cluster.url('s1'), 'PUT', `${FILES}/large-${Math.random()}`, { body });
    if (answer.status !== 507) return false;
    isProblem('no-space', answer);
    return true;
  });
  assert.equal(await exitOf(['put', '-', 'main:/large'], body.toString()), 1);
  const [disk] = disks;
  if (disk?.failReadOnly() !== true) return t.skip('this kernel cannot do that to a file system');
  await until('s2 says that its disk failed', async () => {
    const path = `${FILES}/small-${Math.random()}`;
    await ask(cluster.url('s1'), 'PUT', path, { body: 'x' });
    const answer = await ask(cluster.url('s2'), 'GET', '/readyz');
    if (answer.status !== 500) return false;
    isProblem('storage', answer);
    return true;
  });
});

test('unknown and no-majority, exit code 5', { timeout: 120_000 }, async () => {
  const hasty = new ClusterClient({
    world: systemWorld,
    servers: [cluster.url('s1')],
    operationTimeoutMs: 1_000,
  });
  // Its session begins here: otherwise a query would precede the command.
  await hasty.query({ kind: 'volumes' });
  // As two machines that hang: requests to them may have been executed or not.
  for (const id of ['s2', 's3']) process.kill(cluster.pid(id), 'SIGSTOP');
  const place = { volume: 'main', path: '/perhaps' };
  const command = { kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 } as const;
  await isRefused('unknown', hasty.command(command));
  hasty.close();
  for (const id of ['s2', 's3']) await cluster.kill(id);
  await until('s1 knows that it is alone', async () => {
    const answer = await ask(cluster.url('s1'), 'GET', `${FILES}/f`);
    if (answer.status !== 503 || problemIn(answer).code !== 'no-majority') return false;
    isProblem('no-majority', answer);
    return true;
  });
  assert.equal(await exitOf(['ls', 'main:/', '--timeout', '3s']), 5);
});

test('internal', async (t) => {
  // Another program uses the port of a server that is down, and answers as no server does.
  const stranger = createServer((_, response) => response.end('welcome')).listen(
    cluster.port('s2'),
    '127.0.0.1',
  );
  t.after(() => stranger.close());
  await once(stranger, 'listening');
  isProblem('internal', await ask(cluster.url('s1'), 'GET', '/v1/scrub?server=s2'));
});

test('exactly the documented codes occurred', (t) => {
  if (why !== null) return t.skip(why);
  const codes = rowsOf('docs/errors.md', /^\| `([a-z-]+)` \|/gm);
  assert.deepEqual([...seen].sort(), codes.sort());
  const known = rowsOf('docs/cli.md', /^\| (\d+) \|/gm).map(Number);
  assert.deepEqual(
    [...exits].sort(),
    known.filter((code) => !EXITS_OF_LEASES.has(code)),
  );
});

function rowsOf(document: string, row: RegExp): string[] {
  const text = readFileSync(new URL(`../../${document}`, import.meta.url), 'utf8');
  return [...text.matchAll(row)].map(([, code]) => code as string);
}

/**
 * Goal: an executed request is not executed again, neither by a server that was paused nor by a client that had no
 * answer, after other clients have changed the name.
 * Method: requests over HTTP to a real catalog, one of them delayed on its way.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import { SESSION_WINDOW } from '../../catalog/sessions.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { RequestId } from '../../replica/operation.ts';
import type { Command, CommandRequest } from '../../wire/catalog-api.ts';
import { HEADER_CATALOG_SEQ } from '../../wire/http-api.ts';
import { FLUSH_SESSIONS_MAX } from '../../wire/request-limits.ts';
import { patientWorld } from '../patient-world.ts';
import { ask } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

const TUS = { 'tus-resumable': '1.0.0' };
const PATH = '/v1/files/main/x';

async function started(
  t: { after(work: () => Promise<void>): void },
  options: Parameters<typeof FakeCluster.start>[0] = {},
): Promise<FakeCluster> {
  const cluster = await FakeCluster.start(options);
  t.after(() => cluster.close());
  return cluster;
}

/** Delays the first command of the kind that a server sends, until it is released. */
function holdFirst(
  cluster: FakeCluster,
  kind: Command['kind'],
): { readonly held: Promise<void>; letGo(): void } {
  const { promise: held, resolve: reached } = Promise.withResolvers<void>();
  const { promise: gone, resolve: letGo } = Promise.withResolvers<void>();
  let isFirst = true;
  cluster.intercept = async ({ method, request }) => {
    if (method !== 'execute' || (request as CommandRequest).command.kind !== kind || !isFirst) return;
    isFirst = false;
    reached();
    await gone;
  };
  return { held, letGo };
}

test('an upload that two servers complete is completed once', async (t) => {
  const cluster = await started(t);
  const [one, two] = [cluster.server(0).url, cluster.server(1).url];
  const made = await ask(one, 'POST', PATH, { headers: { ...TUS, 'upload-length': '6' } });
  const upload = new URL(String(made.headers.location), one).pathname;
  const replace = holdFirst(cluster, 'replace');
  const headers = { ...TUS, 'content-type': 'application/offset+octet-stream', 'upload-offset': '0' };
  const paused = ask(one, 'PATCH', upload, { headers, body: 'upload' });
  await replace.held;
  assert.equal((await ask(two, 'HEAD', upload, { headers: TUS })).headers['upload-offset'], '6');
  assert.equal((await ask(two, 'GET', PATH)).text, 'upload');
  assert.equal((await ask(two, 'PUT', PATH, { body: 'later' })).status, 204);
  replace.letGo();
  assert.equal((await paused).status, 204, 'It was completed');
  assert.equal((await ask(two, 'GET', PATH)).text, 'later');
});

test('a request with a key that two servers execute is executed once', async (t) => {
  const cluster = await started(t);
  const [one, two] = [cluster.server(0).url, cluster.server(1).url];
  const keyed = { headers: { 'idempotency-key': 'k' }, body: 'keyed' };
  const { promise: gone, resolve: letGo } = Promise.withResolvers<void>();
  const { promise: held, resolve: reached } = Promise.withResolvers<void>();
  let isFirst = true;
  // On its way to the unlinked file: the key's outcome is queried after that.
  cluster.intercept = async ({ method }) => {
    if (method !== 'write' || !isFirst) return;
    isFirst = false;
    reached();
    await gone;
  };
  const paused = ask(one, 'PUT', PATH, keyed);
  await held;
  assert.equal((await ask(two, 'PUT', PATH, keyed)).status, 201);
  assert.equal((await ask(two, 'PUT', PATH, { body: 'later' })).status, 204);
  letGo();
  assert.equal((await paused).status, 201);
  assert.equal((await ask(two, 'GET', PATH)).text, 'later');
});

test("all attempts of a write with a key name the file and the session's start that the first one named", async (t) => {
  const cluster = await started(t);
  const [one, two] = [cluster.server(0).url, cluster.server(1).url];
  const append = (server: string, key?: string) =>
    ask(server, 'PATCH', `${PATH}?append`, {
      headers: key === undefined ? {} : { 'idempotency-key': key },
      body: key ?? '.',
    });
  await ask(one, 'PUT', PATH, { body: '' });
  const attempts: {
    readonly session: number | undefined;
    readonly file: FileId | undefined;
    readonly request: unknown;
  }[] = [];
  let isLost = true;
  cluster.intercept = ({ method, file, request }) => {
    if (method !== 'write') return;
    attempts.push({ session: request?.session, file, request });
    if (isLost) throw new ServiceError('storage', 'Lost on its way');
  };
  assert.equal((await append(one, 'k')).status, 500);
  isLost = false;
  await append(one);
  assert.equal((await append(two, 'k')).status, 204);
  const file = attempts[0]?.file;
  assert.ok(file !== undefined);
  const text = () => cluster.contentsOf(file).bytes.toString();
  assert.equal(text(), '.k');
  await ask(one, 'PUT', PATH, { body: 'another' });
  assert.equal((await append(two, 'k')).status, 204, 'The answer is repeated');
  assert.equal(text(), '.k');
  assert.equal((await ask(two, 'GET', PATH)).text, 'another', 'The name has another file by now');
  const keyed = attempts.filter(({ session }) => session === attempts[0]?.session);
  assert.ok(keyed.length >= 3);
  for (const attempt of keyed) assert.deepEqual(attempt, keyed[0]);

  isLost = true;
  assert.equal((await append(one, 'l')).status, 500);
  isLost = false;
  await ask(one, 'PUT', PATH, { body: 'a third' });
  const refused = await append(two, 'l');
  assert.equal(refused.status, 412, refused.text);
  assert.equal((await ask(one, 'DELETE', PATH)).status, 204);
  assert.equal((await append(two, 'l')).status, 404);
  assert.equal((await ask(one, 'GET', PATH)).status, 404);
});

test('two concurrent attempts of a write with a key both use what the faster one has pinned', async (t) => {
  const cluster = await started(t);
  const [one, two] = [cluster.server(0).url, cluster.server(1).url];
  const append = (server: string, headers: Readonly<Record<string, string>> = {}) =>
    ask(server, 'PATCH', `${PATH}?append`, { headers, body: '.' });
  await ask(one, 'PUT', PATH, { body: '' });
  const slow = holdFirst(cluster, 'pin-write');
  const slower = append(one, { 'idempotency-key': 'k' });
  await slow.held;
  await append(one);
  const since = new Map<number, Set<number>>();
  const intercept = cluster.intercept;
  cluster.intercept = (call) => {
    if (call.method === 'write' && call.request?.since !== undefined) {
      const { session, since: named } = call.request;
      since.set(session, (since.get(session) ?? new Set()).add(named));
    }
    return intercept(call);
  };
  const faster = await append(two, { 'idempotency-key': 'k' });
  slow.letGo();
  assert.deepEqual([(await slower).status, faster.status], [204, 204]);
  assert.deepEqual(
    [...since.values()].map(({ size }) => size),
    [1],
  );
});

test('what a write with a key has pinned survives a loss of power before the write is sent', async (t) => {
  const cluster = await started(t);
  await ask(cluster.server(0).url, 'PUT', PATH, { body: '' });
  const calls: string[] = [];
  cluster.intercept = ({ method, request }) => {
    const kind = method === 'execute' ? (request as CommandRequest).command.kind : method;
    if (/^(flush|flush-catalog|pin-write|state|write)$/.test(kind)) calls.push(kind);
  };
  await ask(cluster.server(0).url, 'PATCH', `${PATH}?append`, {
    headers: { 'idempotency-key': 'k' },
    body: 'k',
  });
  const order = calls.filter((kind, place) => kind !== calls[place - 1]);
  assert.deepEqual(order, ['state', 'flush', 'pin-write', 'flush-catalog', 'write', 'flush']);
});

test('writes of one file share a session, and answers of those with a key are kept', async (t) => {
  const cluster = await started(t);
  const { url } = cluster.server(0);
  await ask(url, 'PUT', PATH, { body: '' });
  const requests: RequestId[] = [];
  cluster.intercept = ({ method, request }) => {
    if (method === 'write') requests.push(request as RequestId);
  };
  for (const key of ['k', null, 'l', null, 'm', null]) {
    const headers: Record<string, string> = key === null ? {} : { 'idempotency-key': key };
    assert.equal((await ask(url, 'PATCH', `${PATH}?append`, { headers, body: '.' })).status, 204);
  }
  const [keyed, plain] = requests.map(({ session }) => session);
  assert.notEqual(keyed, plain);
  assert.deepEqual(
    requests.map(({ session, number, answered }) => [session, number, answered]),
    [1, 2, 3].flatMap((number) => [
      [keyed, number, 0],
      [plain, number, number - 1],
    ]),
  );
});

test('a client names with each command when its session began, and begins another if it is forgotten', async (t) => {
  const cluster = await started(t);
  await using client = new ClusterClient({ world: patientWorld, servers: [cluster.server(1).url] });
  const make = (name: string) => {
    const place = { parent: 1, name };
    return client.command({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 });
  };
  const { attributes } = await make('a');
  await make('b');
  const [first, second] = cluster.seen.slice(-2);
  assert.equal(first?.since, second?.since);
  assert.equal(typeof first?.since, 'number');
  assert.equal(first?.session, second?.session);
  const answer = await ask(cluster.server(2).url, 'POST', '/v1/catalog/queries', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query: { kind: 'volumes' } }),
  });
  assert.ok(
    Number(answer.headers[HEADER_CATALOG_SEQ]) > Number(first?.since),
    'A forwarded answer names it, too',
  );
  let isForgotten = true;
  cluster.intercept = ({ method }) => {
    if (method !== 'execute' || !isForgotten) return;
    isForgotten = false;
    throw new ServiceError('session-expired', 'So many others came since');
  };
  await client.command({ kind: 'set-attributes', inode: attributes.inode, mode: 0o700 });
  const third = cluster.commands.at(-1);
  assert.notEqual(third?.session, first?.session);
  assert.ok(Number(third?.since) > Number(first?.since));
});

test('a server names when its own sessions began', async (t) => {
  const cluster = await started(t);
  for (const server of [0, 2]) {
    assert.equal(
      (await ask(cluster.server(server).url, 'PUT', `${PATH}${server}`, { body: 'x' })).status,
      201,
    );
    assert.equal(typeof cluster.commands.at(-1)?.since, 'number', `Server ${server}`);
  }
});

test('a flush names the answered commands of all epochs of the catalog, and a missing one is an error once', async (t) => {
  const cluster = await started(t);
  await using client = new ClusterClient({ world: patientWorld, servers: [cluster.server(0).url] });
  const make = (name: string) => {
    const place = { parent: 1, name };
    return client.command({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 });
  };
  for (const name of ['a', 'b']) await make(name);
  cluster.catalogEpoch = 2;
  // The answer to the third command names the new epoch, so that the fourth one begins another session.
  for (const name of ['c', 'd']) await make(name);
  const [first, , , second] = cluster.commands.map(({ session }) => session) as [
    number,
    number,
    number,
    number,
  ];
  assert.notEqual(first, second);
  cluster.isLossy = true;
  await assert.rejects(client.flushCatalog(), { name: 'ServiceError', code: 'storage' });
  assert.deepEqual(cluster.flushed.pop(), [
    { session: first, numbers: [1, 2, 3] },
    { session: second, numbers: [1] },
  ]);
  assert.equal(client.hasUnflushedCommands, false);
  await client.flushCatalog();
  assert.deepEqual(cluster.flushed.pop(), []);
});

test('a loss that a flush finds is reported although a later request of that flush fails', async (t) => {
  const cluster = await started(t);
  const { url } = cluster.server(0);
  await using client = new ClusterClient({ world: patientWorld, servers: [url], operationTimeoutMs: 300 });
  // Each epoch begins a session; a flush names more of them than fit in one request.
  for (let count = 0; count < FLUSH_SESSIONS_MAX + 5; count++) {
    cluster.catalogEpoch++;
    await client.command({ kind: 'set-attributes', inode: 1, mode: 0o755 });
  }
  cluster.isLossy = true;
  cluster.intercept = ({ method }) => {
    if (method === 'flush-catalog' && cluster.flushed.length > 0)
      throw new ServiceError('no-majority', 'planted');
  };
  cluster.flushed.length = 0;
  await assert.rejects(client.flushCatalog(), { code: 'no-majority' });
  cluster.isLossy = false;
  cluster.intercept = () => {};
  assert.equal(client.hasUnflushedCommands, true);
  await assert.rejects(client.flushCatalog(), { code: 'storage' });
  assert.equal(client.hasUnflushedCommands, false);
  await client.flushCatalog();
});

test('a flush finds an executed command, however many commands were refused', async (t) => {
  const cluster = await started(t);
  await using client = new ClusterClient({ world: patientWorld, servers: [cluster.server(0).url] });
  const place = { parent: 1, name: 'a' };
  const make = () => client.command({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 });
  await make();
  for (let count = 0; count <= SESSION_WINDOW; count++)
    await assert.rejects(make(), { name: 'ServiceError', code: 'exists' });
  await client.flushCatalog();
});

test('a command that waits for its flush is remembered, whatever else its server executes meanwhile', async (t) => {
  // The delayed request waits for as long as all others take.
  const cluster = await started(t, { operationTimeoutMs: 120_000 });
  const { url } = cluster.server(0);
  assert.equal((await ask(url, 'PUT', PATH, { body: 'x' })).status, 201);
  const { promise: held, resolve: reached } = Promise.withResolvers<void>();
  const { promise: gone, resolve: letGo } = Promise.withResolvers<void>();
  let isFirst = true;
  cluster.intercept = async ({ method }) => {
    if (method !== 'flush-catalog' || !isFirst) return;
    isFirst = false;
    reached();
    await gone;
  };
  const removed = ask(url, 'DELETE', PATH);
  await held;
  // More than the catalog remembers of one session.
  for (let number = 0; number <= SESSION_WINDOW; number++)
    assert.equal((await ask(url, 'PUT', `/v1/files/main/d${number}/`)).status, 201);
  letGo();
  assert.equal((await removed).status, 204);
  assert.equal(cluster.commands.filter(({ command }) => command.kind === 'unlink').length, 1);
});

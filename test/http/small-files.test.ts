/**
 * Goal: a small file that is uploaded by HTTP is created with contents, or staged if that is impossible.
 * Method: the HTTP layer over fake services, which create files with contents without replication.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { Command, CommandResults } from '../../wire/catalog-api.ts';
import { patientWorld } from '../patient-world.ts';
import { ask } from './ask.ts';
import { FakeCluster, type Interceptor } from './fake-services.ts';

const PATH = '/v1/files/main/small';

async function started(t: TestContext): Promise<FakeCluster> {
  const cluster = await FakeCluster.start({ createsWithContents: true });
  t.after(() => cluster.close());
  return cluster;
}

/** The catalog's primary refuses a kind of command, like a member of an earlier release. */
function refusing(kind: Command['kind']): Interceptor {
  return ({ method, request }) => {
    if (method !== 'execute' || request === undefined || !('command' in request)) return;
    if (request.command.kind !== kind) return;
    throw new ServiceError('precondition-failed', 'Server s3 runs an old release', { outdated: ['s3'] });
  };
}

test('if a server has an earlier release, a file is staged, with and without conditions', async (t) => {
  const cluster = await started(t);
  // Not the catalog's primary: the refusal comes from another server.
  const { url } = cluster.server(1);
  const first = await ask(url, 'PUT', PATH, { body: 'first' });
  assert.equal(first.status, 201);
  assert.equal(cluster.commands.at(-1)?.command.kind, 'replace-with-contents');
  cluster.intercept = refusing('replace-with-contents');
  const { etag = '' } = first.headers;
  assert.equal((await ask(url, 'PUT', PATH, { body: 'second', headers: { 'if-match': etag } })).status, 204);
  assert.equal((await ask(url, 'PUT', `${PATH}-2`, { body: 'third' })).status, 201);
  assert.equal((await ask(url, 'GET', PATH)).text, 'second');
  assert.equal((await ask(url, 'PUT', PATH, { body: 'x', headers: { 'if-match': etag } })).status, 412);
});

test('contents that lose the name to another file, or are staged after all, are garbage at once', async (t) => {
  const cluster = await started(t);
  const [one, two] = [cluster.server(0), cluster.server(1)];
  const kinds = () => cluster.commands.splice(0).map(({ command }) => command.kind);
  const reservedOf = async (inode: number) =>
    (await two.gateway.queryCatalog({ kind: 'placed', inodes: [inode] })).reserved;
  let stored = 0;
  const others = (work: () => Promise<unknown>): Interceptor => {
    return async ({ method, request }) => {
      if (method !== 'execute' || request === undefined || !('command' in request)) return;
      if (request.command.kind !== 'replace-with-contents') return;
      stored = request.command.inode;
      assert.deepEqual(await reservedOf(stored), [stored]);
      cluster.intercept = async () => undefined;
      await work();
    };
  };
  cluster.intercept = others(() => ask(two.url, 'PUT', PATH, { body: 'faster' }));
  const only = { 'if-none-match': '*' };
  assert.equal((await ask(one.url, 'PUT', PATH, { body: 'slower', headers: only })).status, 412);
  assert.deepEqual(kinds(), ['replace-with-contents', 'replace-with-contents', 'void-inodes']);
  assert.deepEqual(await reservedOf(stored), []);
  assert.equal((await ask(two.url, 'GET', PATH)).text, 'faster');
  cluster.intercept = others(() => two.gateway.command({ kind: 'volume-set', name: 'main', policy: 'all' }));
  assert.equal((await ask(one.url, 'PUT', `${PATH}-2`, { body: 'staged' })).status, 201);
  assert.ok(kinds().includes('void-inodes'));
  assert.deepEqual(await reservedOf(stored), []);
  assert.equal((await ask(two.url, 'GET', `${PATH}-2`)).text, 'staged');
});

test('a file that exceeds the quota leaves no contents', async (t) => {
  const cluster = await started(t);
  const { url, gateway } = cluster.server(1);
  const put = (path: string, bytes: number) => ask(url, 'PUT', path, { body: 'x'.repeat(bytes) });
  const set = (changes: { quotaBytes?: number; quotaInodes?: number; trashMs?: number }) =>
    gateway.command({ kind: 'volume-set', name: 'main', ...changes });
  assert.equal((await put(PATH, 600)).status, 201);
  await set({ quotaBytes: 1_000 });
  assert.equal((await put(`${PATH}-2`, 401)).status, 507);
  assert.equal(cluster.wholesStored, 1);
  // A replaced file frees its space, unless it is kept.
  assert.equal((await put(PATH, 1_000)).status, 204);
  await set({ trashMs: 60_000 });
  assert.equal((await put(PATH, 1_000)).status, 507);
  assert.equal(cluster.wholesStored, 2);
  assert.equal((await put(`${PATH}?trash=false`, 1_000)).status, 204);
  await set({ quotaBytes: 0, quotaInodes: 2 });
  assert.equal((await put(`${PATH}-2`, 1)).status, 507);
  assert.equal(cluster.wholesStored, 3);
});

test('a staged file that exceeds the quota is collected in the next round', async (t) => {
  const cluster = await started(t);
  const { url, gateway } = cluster.server(1);
  await gateway.command({ kind: 'volume-set', name: 'main', quotaBytes: 1_000 });
  assert.equal((await ask(url, 'PUT', PATH, { body: 'x'.repeat(700_000) })).status, 507);
  assert.equal(collected(cluster), 1);
});

/** @returns how many staged files the next round collects */
function collected(cluster: FakeCluster): number {
  const command: Command = { kind: 'collect', beforeNs: '1', countMax: 10 };
  return (cluster.execute({ session: 7, number: 1, command }) as CommandResults['collect']).inodes.length;
}

test('a form with a refused file names the files that are stored, and leaves nothing of the others', async (t) => {
  const cluster = await started(t);
  let named = 0;
  cluster.intercept = ({ method, request }) => {
    if (method !== 'execute' || request === undefined || !('command' in request)) return;
    if (request.command.kind === 'replace' && ++named === 2)
      throw new ServiceError('quota-exceeded', 'planted');
  };
  const body = 'x'.repeat(700_000);
  const boundary = 'xyz';
  const parts = ['a', 'b', 'c'].map(
    (name) =>
      `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\n\r\n${body}\r\n`,
  );
  const form = {
    body: `${parts.join('')}--${boundary}--\r\n`,
    headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
  };
  const answer = await ask(cluster.server(0).url, 'POST', '/v1/files/main/', form);
  assert.equal(answer.status, 507);
  assert.match(answer.text, /Stored so far: \\"a\\"/);
  assert.equal(collected(cluster), 2);
});

test('a staged file with a wrong digest is collected in the next round', async (t) => {
  const cluster = await started(t);
  const digest = { 'content-digest': 'sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:' };
  const how = { body: 'x'.repeat(700_000), headers: digest };
  assert.equal((await ask(cluster.server(0).url, 'PUT', PATH, how)).status, 400);
  assert.equal(collected(cluster), 1);
});

test('the rest of a body is read and dropped if its file cannot be staged', {
  timeout: 20_000,
}, async (t) => {
  const cluster = await started(t);
  const { url } = cluster.server(0);
  cluster.intercept = ({ method, request }) => {
    if (method === 'execute' && request !== undefined && 'command' in request)
      if (request.command.kind === 'create-orphan') throw new ServiceError('no-space', 'planted');
  };
  const body = 'x'.repeat(4 * 1024 * 1024);
  const boundary = 'xyz';
  const part = `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n${body}\r\n`;
  const form = {
    body: `${part}--${boundary}--\r\n`,
    headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
  };
  assert.equal((await ask(url, 'POST', '/v1/files/main/', form)).status, 507);
  const chunked = { body, headers: { 'transfer-encoding': 'chunked' } };
  assert.equal((await ask(url, 'PUT', PATH, chunked)).status, 507);
  const announced = { body, headers: { 'content-length': String(body.length) } };
  assert.equal((await ask(url, 'PUT', PATH, announced)).status, 507);
});

test('the answer names the server that created the file, which orders its changes', async (t) => {
  const cluster = await started(t);
  const { headers } = await ask(cluster.server(1).url, 'PUT', PATH, { body: 'x' });
  const names = ['leasehold-primary', 'leasehold-epoch', 'leasehold-role'];
  assert.deepEqual(
    names.map((name) => headers[name]),
    ['s2', '1', 'primary'],
  );
  assert.ok(headers.etag);
});

test('a staged file is not collected while it is uploaded, however soon others are', async (t) => {
  const cluster = await started(t);
  const collected: number[] = [];
  cluster.intercept = ({ method, request }) => {
    if (method !== 'execute' || request === undefined || !('command' in request)) return;
    if (request.command.kind !== 'replace') return;
    const beforeNs = String(BigInt(patientWorld.wallMs()) * 1_000_000n);
    const { inodes } = cluster.execute({
      session: 7,
      number: 1,
      command: { kind: 'collect', beforeNs, countMax: 10 },
    }) as CommandResults['collect'];
    collected.push(...inodes);
  };
  const answer = await ask(cluster.server(0).url, 'PUT', PATH, { body: 'x'.repeat(700_000) });
  assert.deepEqual([answer.status, collected], [201, []], answer.text);
});

test('a file behind a symbolic link counts against the quotas of its own directory', async (t) => {
  const cluster = await FakeCluster.start({ createsWithContents: true });
  t.after(() => cluster.close());
  const { url, gateway } = cluster.server(1);
  const owner = { uid: 0, gid: 0 };
  const at = (path: string) => ({ volume: 'main', path });
  const made = await gateway.command({ kind: 'make-directory', place: at('/a'), mode: 0o755, ...owner });
  await gateway.command({ kind: 'set-quota', inode: made.attributes.inode, quota: { quotaBytes: 100 } });
  assert.equal((await ask(url, 'PUT', '/v1/files/main/big', { body: 'x' })).status, 201);
  await gateway.command({ kind: 'symlink', place: at('/a/link'), target: '/big', ...owner });
  assert.equal((await ask(url, 'PUT', '/v1/files/main/a/link', { body: 'x'.repeat(500) })).status, 204);
});

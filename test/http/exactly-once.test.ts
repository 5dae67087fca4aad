/**
 * Goal: what was carried out is not carried out again, by the server that was paused or by the client that had no
 * answer, when others have changed the name since.
 * Method: requests over HTTP to a real catalog, one of them held up on its way.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster-client.ts';
import type { CommandRequest } from '../../wire/catalog-api.ts';
import { HEADER_CATALOG_SEQ } from '../../wire/http-api.ts';
import { ask } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

const TUS = { 'tus-resumable': '1.0.0' };
const PATH = '/v1/files/main/x';

async function started(t: { after(work: () => Promise<void>): void }): Promise<FakeCluster> {
  const cluster = await FakeCluster.start();
  t.after(() => cluster.close());
  return cluster;
}

/** Holds up the first `replace` that a server sends, until it is let go. */
function holdReplace(cluster: FakeCluster): { readonly held: Promise<void>; letGo(): void } {
  const { promise: held, resolve: reached } = Promise.withResolvers<void>();
  const { promise: gone, resolve: letGo } = Promise.withResolvers<void>();
  let isFirst = true;
  cluster.intercept = async ({ method, request }) => {
    if (method !== 'execute' || (request as CommandRequest).command.kind !== 'replace' || !isFirst) return;
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
  const replace = holdReplace(cluster);
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

test('a request with a key that two servers carry out is carried out once', async (t) => {
  const cluster = await started(t);
  const [one, two] = [cluster.server(0).url, cluster.server(1).url];
  const keyed = { headers: { 'idempotency-key': 'k' }, body: 'keyed' };
  const { promise: gone, resolve: letGo } = Promise.withResolvers<void>();
  const { promise: held, resolve: reached } = Promise.withResolvers<void>();
  let isFirst = true;
  // On its way to the file without a name: what became of the key is asked for after that.
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

test('a client names with each command when its session began, and begins another where it is forgotten', async (t) => {
  const cluster = await started(t);
  await using client = new ClusterClient({ servers: [cluster.server(1).url] });
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

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Command } from '../../wire/catalog-api.ts';
import { ask } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

/** Needs more than one request, in nested directories. */
const NAMES = 10_050;
const DEPTH = 30;

test('a tree that is too large for one request is removed by the next', async (t) => {
  const cluster = await FakeCluster.start({ servers: 1, replicas: 1 });
  t.after(() => cluster.close());
  const { url } = cluster.server(0);
  let number = 0;
  const run = (command: Command) => cluster.execute({ session: 9, number: ++number, command });
  let directory = 'tree';
  for (let depth = 0; depth < DEPTH; depth++) {
    run({
      kind: 'make-directory',
      place: { volume: 'main', path: `/${directory}` },
      mode: 0o755,
      uid: 0,
      gid: 0,
    });
    for (let index = 0; index < NAMES / DEPTH - 1; index++) {
      const place = { volume: 'main', path: `/${directory}/l${index}` };
      run({ kind: 'symlink', place, target: 'x', uid: 0, gid: 0 });
    }
    directory += '/d';
  }
  const remove = () => ask(url, 'DELETE', '/v1/files/main/tree/?recursive=true');
  const first = await remove();
  assert.equal(first.status, 202);
  assert.deepEqual(JSON.parse(first.text), { removed: 10_000, more: true });
  assert.equal((await ask(url, 'GET', '/v1/files/main/tree/')).status, 200);
  assert.equal((await remove()).status, 204);
  assert.equal((await ask(url, 'GET', '/v1/files/main/tree/')).status, 404);
});

test('a removed directory stays removed, however often the catalog changes its primary meanwhile', async (t) => {
  const cluster = await FakeCluster.start({ servers: 1, replicas: 1 });
  t.after(() => cluster.close());
  const { url } = cluster.server(0);
  const place = { volume: 'main', path: '/tree' };
  const made: Command = { kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 };
  cluster.execute({ session: 9, number: 1, command: made });
  cluster.intercept = ({ method }) => {
    if (method === 'execute') cluster.catalogEpoch++;
  };
  assert.equal((await ask(url, 'DELETE', '/v1/files/main/tree/?recursive=true')).status, 204);
  assert.equal((await ask(url, 'DELETE', '/v1/files/main/tree/?recursive=true')).status, 404);
  const link = { volume: 'main', path: '/link' };
  cluster.execute({
    session: 9,
    number: 2,
    command: { kind: 'symlink', place: link, target: 'x', uid: 0, gid: 0 },
  });
  assert.equal((await ask(url, 'DELETE', '/v1/files/main/?recursive=true')).status, 202, 'The root stays');
});

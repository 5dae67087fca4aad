/**
 * Goal: the recipe of docs/gateways.md works: rclone serves a mount by WebDAV, and by S3 if it supports that.
 * Method: the command of the recipe on a mount of a real cluster, and requests as clients of the protocol send them.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { freePorts } from '../../client/dev/free-ports.ts';
import { until } from '../cluster/real-cluster.ts';
import { ask } from '../http/ask.ts';
import { type OnMount, onMount, skip } from './on-mount.ts';

const RECIPES = readFileSync(new URL('../../docs/gateways.md', import.meta.url), 'utf8');
const rclone = spawnSync('rclone', ['help', 'flags']).status === 0;
const reason = skip !== false ? skip : rclone ? false : 'rclone is not installed';

if (reason !== false) test('rclone on a mount of a real cluster', { skip: reason }, () => undefined);
else define(await onMount());

function define(on: OnMount): void {
  test('WebDAV', async (t) => {
    const { base, server } = await serve(on, 'webdav');
    t.after(() => server.kill());
    const bytes = randomBytes(3_000_000);
    assert.equal((await ask(base, 'MKCOL', '/docs')).status, 201);
    assert.equal((await ask(base, 'PUT', '/docs/a.bin', { body: bytes })).status, 201);
    assert.ok((await ask(base, 'GET', '/docs/a.bin')).bytes.equals(bytes));
    const found = await ask(base, 'PROPFIND', '/docs/', { headers: { depth: '1' } });
    assert.equal(found.status, 207);
    assert.match(found.text, /a\.bin/);
    const headers = { destination: `${base}/docs/b.bin` };
    assert.equal((await ask(base, 'MOVE', '/docs/a.bin', { headers })).status, 201);
    // Files written by WebDAV are visible to all clients.
    const direct = await ask(on.cluster.urls[0] as string, 'GET', `/v1/files/${on.volume}/docs/b.bin`);
    assert.ok(direct.bytes.equals(bytes));
    assert.equal((await ask(base, 'DELETE', '/docs/b.bin')).status, 204);
    assert.equal((await ask(base, 'GET', '/docs/b.bin')).status, 404);
  });
}

/** Runs the recipe with a free port. */
async function serve(
  on: OnMount,
  protocol: string,
): Promise<{ readonly base: string; readonly server: ChildProcess }> {
  const recipe = new RegExp(`^rclone (serve ${protocol} .*)$`, 'm').exec(RECIPES)?.[1];
  assert.ok(recipe !== undefined, `There is a recipe for ${protocol}`);
  const [port] = await freePorts(1);
  const address = `127.0.0.1:${port}`;
  const words = recipe
    .replace('/mnt/leasehold', on.mount.directory)
    .replace(/127\.0\.0\.1:\d+/, address)
    .split(' ');
  const server = spawn('rclone', words, { env: { ...process.env, ...on.env }, stdio: 'ignore' });
  const base = `http://${address}`;
  await until('rclone serves', async () => {
    const answer = await ask(base, 'OPTIONS', '/').catch(() => null);
    return answer !== null;
  });
  return { base, server };
}

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

const TUS = { 'tus-resumable': '1.0.0' };
const PIECE = { ...TUS, 'content-type': 'application/offset+octet-stream' };

async function begun(t: { after(work: () => Promise<void>): void }) {
  const cluster = await FakeCluster.start();
  t.after(() => cluster.close());
  const { url } = cluster.server(0);
  const headers = { ...TUS, 'upload-length': '8' };
  const made = await ask(url, 'POST', '/v1/files/main/piecemeal', { headers });
  assert.equal(made.status, 201, made.text);
  const path = new URL(String(made.headers.location), url).pathname;
  const offset = async () => (await ask(url, 'HEAD', path, { headers: TUS })).headers['upload-offset'];
  const send = (at: number, body: string, to = path) =>
    ask(url, 'PATCH', to, { headers: { ...PIECE, 'upload-offset': String(at) }, body });
  return { url, path, offset, send };
}

test("an upload's position is that of its received pieces, and it continues only from there", async (t) => {
  const { url, offset, send } = await begun(t);
  assert.equal(await offset(), '0');
  assert.equal((await send(0, 'one')).status, 204);
  assert.equal(await offset(), '3');
  assert.equal((await send(0, 'two')).status, 409);
  assert.equal((await send(3, '-and-')).status, 204);
  assert.equal((await ask(url, 'GET', '/v1/files/main/piecemeal')).text, 'one-and-');
});

test('an upload is continued by its secret URL, and not by its number', async (t) => {
  const { path, offset, send } = await begun(t);
  const other = path.replace(/[0-9a-f]{32}$/, '0'.repeat(32));
  assert.notEqual(other, path);
  assert.equal((await send(0, 'stranger', other)).status, 404);
  assert.equal(await offset(), '0');
});

/**
 * Goal: a command whose answer was lost is not executed again after the cluster has forgotten its session: another
 * client may have created the name again. The same of an append whose file has forgotten its session.
 * Method: three servers that remember 20 sessions; requests as clients of this release and of the one before send them,
 * and as many requests with an Idempotency-Key, and from other sessions, as make the servers forget.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { SESSIONS_MAX as FILE_SESSIONS_MAX } from '../../replica/sessions.ts';
import { type FileState, HEADER_CATALOG_SEQ } from '../../wire/http-api.ts';
import { ask } from '../http/ask.ts';
import { plantedEnv } from '../planted/plant.ts';
import { RealCluster } from './real-cluster.ts';

const few = plantedEnv([
  { file: 'catalog/sessions.ts', in: 'SESSIONS_MAX', find: '10_000', replace: '20' },
  { file: 'catalog/sessions.ts', in: 'SESSIONS_FORGOTTEN', find: '500', replace: '5' },
]);
const cluster = await RealCluster.start({ environment: () => few });
after(() => cluster.stop());
await cluster.createVolume('main');
const [url] = cluster.urls as [string];
const json = { 'content-type': 'application/json' };

async function put(name: string, headers: Readonly<Record<string, string>> = {}): Promise<void> {
  const answer = await ask(url, 'PUT', `/v1/files/main/${name}`, { headers, body: name });
  assert.ok(answer.status === 201 || answer.status === 204, answer.text);
}

function command(body: object) {
  return ask(url, 'POST', '/v1/catalog/commands', { headers: json, body: JSON.stringify(body) });
}

async function seq(): Promise<number> {
  const body = JSON.stringify({ query: { kind: 'volumes' } });
  const { headers } = await ask(url, 'POST', '/v1/catalog/queries', { headers: json, body });
  return Number(headers[HEADER_CATALOG_SEQ]);
}

for (const { release, name, session } of [
  { release: 'this release', name: 'x', session: 71 },
  { release: 'the release before', name: 'y', session: 72 },
])
  test(`a client of ${release} does not remove what was created after its removal`, async () => {
    await put(name);
    const since = release === 'this release' ? { since: await seq() } : {};
    const unlink = { kind: 'unlink', place: { volume: 'main', path: name } };
    const request = { session, number: 1, ...since, command: unlink };
    assert.equal((await command(request)).status, 200, 'This answer is lost');
    await put(name);
    for (let key = 0; key < 40; key++) await put('other', { 'idempotency-key': `${name}${key}` });
    const began = await seq();
    for (let other = 1; other <= 40; other++) {
      const keep = { kind: 'keep-orphan', inode: 1 };
      await command({ session: session * 1000 + other, number: 1, since: began, command: keep });
    }
    const again = await command(request);
    assert.equal((await ask(url, 'GET', `/v1/files/main/${name}`)).text, name, again.text);
    if (release === 'this release')
      assert.equal((JSON.parse(again.text) as { code: string }).code, 'session-expired');
    else assert.equal(again.status, 200, 'The answer is repeated');
  });

/** As a mount with its own session writes. */
async function appendAsMount(name: string, session: number): Promise<void> {
  const file = `/v1/data/${(await cluster.info('s1', `main/${name}`)).file}`;
  const { seq: since } = JSON.parse((await ask(url, 'GET', `${file}/state`)).text) as FileState;
  const request = `offset=append&session=${session}&number=1&since=${since}`;
  const headers = { 'content-type': 'application/octet-stream' };
  const written = await ask(url, 'PUT', `${file}?${request}`, { headers, body: '.' });
  assert.equal(written.status, 200, written.text);
}

test('an append with a key is not executed again after its file has forgotten it', async () => {
  await put('log');
  const append = (body: string, headers: Readonly<Record<string, string>> = {}) =>
    ask(url, 'PATCH', '/v1/files/main/log?append', { headers, body });
  const keyed = () => append('keyed', { 'idempotency-key': 'append' });
  const { status, headers } = await keyed();
  assert.equal(status, 204, 'This answer is lost');
  const again = await keyed();
  assert.deepEqual([again.status, again.headers.etag], [204, headers.etag], 'The answer is repeated');
  for (let other = 1; other <= FILE_SESSIONS_MAX; other++) await appendAsMount('log', other);
  const late = await keyed();
  const { text } = await ask(url, 'GET', '/v1/files/main/log');
  assert.equal(text, `logkeyed${'.'.repeat(FILE_SESSIONS_MAX)}`);
  assert.equal(late.status, 409, late.text);
  assert.equal((JSON.parse(late.text) as { code: string }).code, 'session-expired');
});

test('more concurrent writes of one file than it remembers sessions are executed, each once', async () => {
  await put('crowd');
  const count = FILE_SESSIONS_MAX;
  const writers = Array.from({ length: 2 * count }, async (_, place) => {
    const headers: Record<string, string> = place < count ? { 'idempotency-key': `crowd ${place}` } : {};
    const server = cluster.urls[place % cluster.urls.length] as string;
    const send = () => ask(server, 'PATCH', '/v1/files/main/crowd?append', { headers, body: '.' });
    const first = await send();
    assert.equal(first.status, 204, first.text);
    if (place >= count) return;
    assert.deepEqual((await send()).headers['leasehold-offset'], first.headers['leasehold-offset']);
  });
  await Promise.all(writers);
  const { text } = await ask(url, 'GET', '/v1/files/main/crowd');
  assert.equal(text, `crowd${'.'.repeat(2 * count)}`);
});

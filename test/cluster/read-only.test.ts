import assert from 'node:assert/strict';
import { randomBytes, randomInt } from 'node:crypto';
import { after, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import type { FileState, Problem } from '../../wire/http-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { runCli } from '../client/run-cli.ts';
import { type Answer, ask } from '../http/ask.ts';
import { ClusterMount, run, runOk } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: a file of a volume with the policy `read-only` is at all its servers when it is stored, never changes again,
 * and is read at each of them whatever happens to the others. Real processes; files are read by number, since the
 * catalog needs a majority.
 */
const GRACE_MS = 1_500;

const cluster = await RealCluster.start({ flags: ['--op-timeout', '6s', '--gc-grace', `${GRACE_MS}ms`] });
after(() => cluster.stop());
const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
const created = await runCli(['volume', 'create', 'archive', '--policy', 'read-only'], { env });
assert.equal(created.code, 0, created.stderr);
await cluster.createVolume('main');

const BODY = randomBytes(300_000);
const number = await store('report', BODY);

/** @returns the number of the new file */
async function store(name: string, body: Buffer, at = 's1'): Promise<number> {
  const answer = await ask(cluster.url(at), 'PUT', `/v1/files/archive/${name}`, { body });
  assert.ok(answer.status < 300, answer.text);
  // An entity tag begins with the file's number.
  return Number.parseInt(String(answer.headers.etag).slice(1), 16);
}

/** What this server itself has, without asking another. */
function readHere(id: string, file: number, length: number): Promise<Answer> {
  const path = `/v1/data/${file}?offset=0&length=${length}`;
  return ask(cluster.url(id), 'GET', path, { headers: { 'leasehold-forwarded': '1' } });
}

async function assertHere(id: string, file: number, body: Buffer): Promise<void> {
  const answer = await readHere(id, file, body.length + 1);
  assert.equal(answer.status, 200, `${id}: ${answer.text.slice(0, 300)}`);
  assert.ok(answer.bytes.equals(body), `${id} has what was stored`);
  assert.equal(answer.headers['leasehold-served'], 'local');
}

function problemOf({ text }: Answer): Problem {
  return JSON.parse(text) as Problem;
}

function write(id: string, file: number): Promise<Answer> {
  const path = `/v1/data/${file}?offset=0&session=${randomInt(1, 2 ** 47)}&number=1&since=0`;
  return ask(cluster.url(id), 'PUT', path, { body: 'other', headers: { 'content-type': 'text/plain' } });
}

test('a stored file is at all servers at once, and each answers by itself', async () => {
  for (const id of cluster.ids) await assertHere(id, number, BODY);
  for (const id of cluster.ids) {
    const state = await ask(cluster.url(id), 'GET', `/v1/data/${number}/state`);
    assert.equal((JSON.parse(state.text) as FileState).sealed, true);
  }
});

test('changes are refused everywhere; the name may get another file', async () => {
  for (const id of cluster.ids) {
    const refused = await write(id, number);
    assert.deepEqual([refused.status, problemOf(refused).code], [409, 'sealed'], refused.text);
  }
  const cut = `/v1/data/${number}/truncate?size=0&session=5&number=1&since=0`;
  assert.equal(problemOf(await ask(cluster.url('s2'), 'POST', cut)).code, 'sealed');
  for (const id of cluster.ids) await assertHere(id, number, BODY);

  const other = randomBytes(5_000);
  const replacement = await store('replaced', randomBytes(100));
  assert.notEqual(await store('replaced', other, 's3'), replacement);
  assert.ok((await ask(cluster.url('s2'), 'GET', '/v1/files/archive/replaced')).bytes.equals(other));
});

test("files that the command line stores are sealed as well, also empty ones; other volumes' are not", async () => {
  for (const input of ['some text', '']) {
    const put = await runCli(['put', '-', 'archive:/put'], { env, input });
    assert.equal(put.code, 0, put.stderr);
    const { file } = await cluster.info('s1', 'archive/put');
    for (const id of cluster.ids) await assertHere(id, file, Buffer.from(input));
  }
  const client = new ClusterClient({ world: systemWorld, servers: [cluster.url('s1')] });
  try {
    await uploadFile(client, 'main', '/open', piecesOf('one'));
    const { file } = await cluster.info('s1', 'main/open');
    const refused = await ask(cluster.url('s1'), 'POST', `/v1/data/${file}/seal`);
    assert.equal(refused.status, 400, refused.text);
    await client.openFile(file).write(0, Buffer.from('two'));
  } finally {
    await client.close();
  }
});

test('through a mount a file is sealed at its close, and opened for reading only', {
  skip: await obstacle(),
}, async (t) => {
  const mount = await ClusterMount.start(cluster, 'archive', '--op-timeout', '15s');
  t.after(() => mount.stop());
  // The shell closes and duplicates descriptors before it has written all of it.
  await runOk('sh', ['-c', '(echo one; echo two) > "$0"', mount.path('lines')]);
  const refused = await run('sh', ['-c', 'echo three >> "$0"', mount.path('lines')]);
  assert.notEqual(refused.code, 0);
  assert.match(refused.text, /Read-only file system/);
  const { file } = await cluster.info('s1', 'archive/lines');
  for (const id of cluster.ids) await assertHere(id, file, Buffer.from('one\ntwo\n'));
  for (const script of [
    'truncate -s 1 "$0"',
    'echo x > "$0"',
    'dd if=/dev/zero of="$0" bs=1 count=1 conv=notrunc',
  ]) {
    const failed = await run('sh', ['-c', script, mount.path('lines')]);
    assert.notEqual(failed.code, 0, script);
    assert.match(failed.text, /Read-only file system/, script);
  }
  assert.equal((await runOk('cat', [mount.path('lines')])).text, 'one\ntwo\n');

  // Mode, owner and times are set before the copy is closed.
  await runOk('sh', ['-c', 'cp -p "$0" "$1"', mount.path('lines'), mount.path('copy')]);
  const again = await run('sh', ['-c', 'echo three >> "$0"', mount.path('copy')]);
  assert.match(again.text, /Read-only file system/);

  // An empty new file gets its contents later; names and modes stay the catalog's affair.
  await runOk('sh', [
    '-c',
    'touch "$0" && echo later > "$0" && chmod 600 "$0" && mv "$0" "$0.new"',
    mount.path('late'),
  ]);
  assert.equal((await runOk('cat', [mount.path('late.new')])).text, 'later\n');
  await runOk('rm', [mount.path('late.new')]);
  await mount.unmount();
});

test('two of three servers are down: the third still answers, also after a restart', async () => {
  for (const id of ['s1', 's2']) await cluster.kill(id);
  await assertHere('s3', number, BODY);
  const answer = await ask(cluster.url('s3'), 'GET', `/v1/data/${number}?offset=0&length=1000`);
  assert.equal(answer.status, 200, 'Not only to servers that forward');
  assert.ok(answer.bytes.equals(BODY.subarray(0, 1000)));
  assert.equal(problemOf(await write('s3', number)).code, 'sealed');
  await cluster.kill('s3');
  cluster.spawn('s3');
  await until('s3 answers again, alone', async () => (await readHere('s3', number, 1)).status === 200);
  await assertHere('s3', number, BODY);
  const byName = await ask(cluster.url('s3'), 'GET', '/v1/files/archive/report');
  assert.equal(byName.status, 503, 'Names need a majority');
  for (const id of ['s1', 's2']) cluster.spawn(id);
  await cluster.ready();
  assert.ok((await ask(cluster.url('s1'), 'GET', '/v1/files/archive/report')).bytes.equals(BODY));
});

test('a server that was down when a file was stored gets it after its restart', async () => {
  await cluster.kill('s2');
  const body = randomBytes(200_000);
  const late = await store('late', body);
  for (const id of ['s1', 's3']) await assertHere(id, late, body);
  await cluster.restart('s2');
  await until('s2 has it by itself', async () => {
    const answer = await readHere('s2', late, body.length);
    return answer.headers['leasehold-served'] === 'local' && answer.bytes.equals(body);
  });
});

test('a sealed file is deleted like any other', async () => {
  const path = '/v1/files/archive/report';
  assert.equal((await ask(cluster.url('s2'), 'DELETE', path)).status, 204);
  assert.equal((await ask(cluster.url('s1'), 'GET', path)).status, 404);
  await until('no server has it any more', async () => {
    const answers = await Promise.all(cluster.ids.map((id) => readHere(id, number, 1)));
    return answers.every(({ status }) => status !== 200);
  });
});

async function* piecesOf(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}

async function obstacle(): Promise<string | false> {
  const found = await mountObstacle();
  return found === null ? false : `Nothing can be mounted: ${found}`;
}

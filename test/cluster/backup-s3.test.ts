/**
 * Goal: a chain of backups in S3 is written, verified and restored by the command line as one in a directory is, also
 * while a server is killed; a command that is stopped leaves neither an upload nor a snapshot.
 * Method: a real cluster, which is also the store; a proxy chooses the moment of each failure.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { ListMultipartUploadsCommand } from '@aws-sdk/client-s3';
import { Prng } from '../../base/prng.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { assertRefused, LAUNCHER, printedBy, runCli } from '../client/run-cli.ts';
import { FaultyProxy, type Passing } from '../s3/faulty-proxy.ts';
import { startS3Cluster } from '../s3/s3-cluster.ts';
import { clientOf } from '../s3/s3-server.ts';
import { RandomChanges } from './random-changes.ts';
import { until } from './real-cluster.ts';
import { treeText } from './tree-text.ts';

const MIB = 2 ** 20;
const LARGE_BYTES = 20 * MIB;

const { cluster, urls } = await startS3Cluster(3);
const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
after(() => client.close());
const proxy = await FaultyProxy.start(urls[0] as string);
const folder = mkdtempSync(join(tmpdir(), 'leasehold-backup-s3-'));
after(() => rmSync(folder, { recursive: true }));
const keyFile = join(folder, 'key');
writeFileSync(keyFile, 'b25lIHNlY3JldCBmb3IgYWxsIHRoZSB0ZXN0cyBoZXJl\n');
const env = {
  LEASEHOLD_SERVERS: cluster.urls.join(','),
  AWS_ENDPOINT_URL_S3: proxy.url,
  AWS_ACCESS_KEY_ID: 'any',
  AWS_SECRET_ACCESS_KEY: 'any',
};
await cluster.createVolume('backups');

beforeEach(() => {
  proxy.fault = () => null;
  proxy.passed.length = 0;
});

function cli(...words: string[]): Promise<string> {
  return printedBy(words, { env });
}

function refused(exit: number, why: RegExp, ...words: string[]): Promise<void> {
  return assertRefused(words, exit, why, { env });
}

async function putLarge(volume: string, path: string): Promise<void> {
  const { attributes } = await client.command({
    ...{ kind: 'create-file', place: { volume, path }, mode: 0o644, uid: 0, gid: 0, exclusive: true },
  });
  const handle = client.openFile(attributes.inode);
  for (let at = 0; at < LARGE_BYTES; at += MIB) await handle.write(at, Buffer.alloc(MIB, at / MIB));
}

async function uploads(): Promise<number> {
  const { Uploads = [] } = await clientOf({ url: urls[0] as string }).send(
    new ListMultipartUploadsCommand({ Bucket: 'backups' }),
  );
  return Uploads.length;
}

async function snapshots(volume: string): Promise<string[]> {
  return (await client.query({ kind: 'snapshots', volume })).snapshots.map(({ name }) => name);
}

const isPart = ({ method, url }: Passing): boolean => method === 'PUT' && url.searchParams.has('partNumber');

test('each snapshot of a chain is restored as it was, although a server is killed meanwhile', async () => {
  const place = 's3://backups/daily/main/';
  await cluster.createVolume('main');
  const changes = new RandomChanges(client, 'main', new Prng(5));
  const trees = new Map<string, string[]>();
  proxy.fault = async (request) => {
    // The second part of the first backup.
    if (trees.size > 0 || !isPart(request) || request.url.searchParams.get('partNumber') !== '2') return null;
    if (!cluster.isRunning('s1')) return null;
    await cluster.kill('s1');
    proxy.target = urls[1] as string;
    return { kind: 'cut-request', bytes: 1 };
  };
  await putLarge('main', '/large');
  for (const since of [[], ['--since', 'last'], ['--since', 'last']]) {
    await changes.make(15);
    const text = await cli('backup', 'main', place, ...since, '--key-file', keyFile, '--json');
    const { snapshot } = JSON.parse(text) as { readonly snapshot: string };
    trees.set(snapshot, await treeText(client, `main@${snapshot}`));
  }
  assert.ok(!cluster.isRunning('s1'), 'The server was killed');
  await cluster.restart('s1');
  proxy.target = urls[0] as string;
  assert.deepEqual(await snapshots('main'), [[...trees.keys()].at(-1)], 'Only the latest base stays');
  const verified = JSON.parse(await cli('backup', 'verify', place, '--key-file', keyFile, '--json'));
  assert.equal(verified.verified.length, trees.size);
  assert.deepEqual(verified.problems, []);
  for (const [index, [snapshot, tree]] of [...trees].entries()) {
    await cluster.createVolume(`restored-${index}`);
    // A slash at the end changes nothing.
    const from = index === 0 ? place : place.replace(/\/$/, '');
    await cli('restore', from, `restored-${index}`, '--snapshot', snapshot, '--key-file', keyFile);
    assert.deepEqual(await treeText(client, `restored-${index}`), tree);
  }
  assert.equal(await uploads(), 0);
  await refused(8, /it is encrypted/, 'backup', 'verify', place);
});

test('a single object continues another one beside it', async () => {
  await cluster.createVolume('single');
  const changes = new RandomChanges(client, 'single', new Prng(4));
  await changes.make(10);
  const [first, second] = ['s3://backups/objects/a.lhb', 's3://backups/objects/b.lhb'];
  await cli('snapshot', 'create', 'single@monday');
  await cli('backup', 'single@monday', first);
  await changes.make(10);
  await cli('snapshot', 'create', 'single@tuesday');
  await cli('backup', 'single@tuesday', second, '--since', 'monday');
  await cluster.createVolume('single-restored');
  await refused(
    3,
    /There is no backup c.lhb in s3:\/\/backups\/objects\//,
    ...[...['restore', 's3://backups/objects/c.lhb', 'single-restored']],
  );
  await cli('restore', second, 'single-restored');
  assert.deepEqual(await treeText(client, 'single-restored'), await treeText(client, 'single@tuesday'));
  await refused(4, /a.lhb: it exists already/, 'backup', 'single@tuesday', first);
  await refused(3, /NoSuchBucket/, 'backup', 'single@tuesday', 's3://nowhere/x/');
  await refused(2, /only chains of backups/, 'backup', 'single', 's3://backups/main.tar.gz');
  await refused(2, /names no bucket/, 'backup', 'single', 's3:///x/');
  await refused(3, /There are no backups in s3:\/\/backups\/none\//, 'backup', 'verify', 's3://backups/none');
});

test('credentials are read from a profile, too', async () => {
  mkdirSync(join(folder, '.aws'));
  const file =
    '[other]\naws_access_key_id = x\n\n[default]\naws_access_key_id=any\naws_secret_access_key = any\n';
  writeFileSync(join(folder, '.aws/credentials'), file);
  const own = { ...env, AWS_ACCESS_KEY_ID: '', AWS_ENDPOINT_URL_S3: '', HOME: folder };
  const words = ['backup', 'verify', 's3://backups/objects/', '--s3-endpoint', proxy.url];
  const { code, stderr } = await runCli(words, { env: own });
  assert.equal(code, 0, stderr);
  const none = await runCli(words, { env: { ...own, AWS_PROFILE: 'other' } });
  assert.equal(none.code, 6);
  assert.match(none.stderr, /no credentials\n.*profile "other"/);
});

test('a backup that is stopped leaves no upload and no snapshot; a killed one leaves no backup', async () => {
  await cluster.createVolume('stopped');
  await putLarge('stopped', '/large');
  const words = [LAUNCHER, 'backup', 'stopped', 's3://backups/stopped/'];
  const { promise: never } = Promise.withResolvers<void>();
  proxy.fault = (request) => (isPart(request) ? { kind: 'hold', until: never } : null);
  for (const signal of ['SIGINT', 'SIGKILL'] as const) {
    const child = spawn(process.execPath, words, { env: { ...process.env, ...env }, stdio: 'ignore' });
    proxy.passed.length = 0;
    await until('parts are sent', async () => proxy.passed.some(isPart));
    child.kill(signal);
    const [, ended] = await once(child, 'exit');
    assert.equal(ended, signal);
    assert.equal(await uploads(), signal === 'SIGINT' ? 0 : 1);
    assert.equal((await snapshots('stopped')).length, signal === 'SIGINT' ? 0 : 1);
  }
  proxy.fault = () => null;
  await refused(3, /There are no backups/, 'backup', 'verify', 's3://backups/stopped/');
  await cli('backup', 'stopped', 's3://backups/stopped/');
  await cli('backup', 'verify', 's3://backups/stopped/');
});

test('an increment whose last answer is lost does not end the chain', async () => {
  const place = 's3://backups/lost/';
  await cluster.createVolume('lost');
  const changes = new RandomChanges(client, 'lost', new Prng(5));
  await changes.make(5);
  await cli('backup', 'lost', place);
  await changes.make(5);
  let isLost = false;
  proxy.fault = ({ method }) => {
    if (isLost) return { kind: 'answer', status: 503, code: 'SlowDown' };
    if (method !== 'PUT') return null;
    isLost = true;
    return { kind: 'lose-answer' };
  };
  await refused(5, /SlowDown/, 'backup', 'lost', place, '--since', 'last', '--timeout', '1s');
  proxy.fault = () => null;
  await changes.make(5);
  await cli('backup', 'lost', place, '--since', 'last');
  await cli('backup', 'verify', place);
  await cluster.createVolume('lost-restored');
  await cli('restore', place, 'lost-restored');
  const [snapshot] = await snapshots('lost');
  assert.deepEqual(await treeText(client, 'lost-restored'), await treeText(client, `lost@${snapshot}`));
});

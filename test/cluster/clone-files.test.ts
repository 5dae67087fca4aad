/**
 * Goal: a file of a clone gets contents of its own before its first change, whatever the change, and even if a server
 * ends meanwhile: the change is made to the snapshot's contents, and neither the source nor its snapshot changes. Real
 * processes.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { systemWorld } from '../../world/system-world.ts';
import { printedBy, runCli } from '../client/run-cli.ts';
import { ask } from '../http/ask.ts';
import { ClusterMount, runOk } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

const NO_MOUNT = (await mountObstacle()) ?? false;
const TEXT = 'contents of the snapshot';
const MIB = 1024 * 1024;
/** Several objects, and a last one that is not full. */
const BIG = randomBytes(3 * MIB + 1_234);

const cluster = await RealCluster.start({ flags: ['--op-timeout', '10s'] });
after(() => cluster.stop());
await cluster.createVolume('main');
const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
after(() => client.close());
const servers = ['--servers', cluster.urls.join(',')];
let clones = 0;

async function put(path: string, body: Uint8Array | string): Promise<void> {
  const answer = await ask(cluster.url('s1'), 'PUT', `/v1/files/${path}?parents=true`, { body });
  assert.ok(answer.status < 300, answer.text);
}

async function bytesOf(path: string, id = 's2'): Promise<Buffer> {
  const answer = await fetch(`${cluster.url(id)}/v1/files/${path}`);
  assert.equal(answer.status, 200, path);
  return Buffer.from(await answer.arrayBuffer());
}

/** A clone of `main@monday`. */
async function clone(): Promise<string> {
  const name = `clone${++clones}`;
  await printedBy(['volume', 'clone', 'main@monday', name, ...servers]);
  return name;
}

async function inodeOf(volume: string, path: string) {
  const { attributes } = await client.query({ kind: 'resolve', volume, path, follow: false });
  return attributes;
}

async function unfilled(name: string): Promise<number> {
  return (await client.query({ kind: 'volume', name })).volume.clone?.unfilled ?? 0;
}

await put('main/file', TEXT);
await put('main/big', BIG);
await put('main/empty', '');
await put('main/before', TEXT);
await put('main/dir/inner', TEXT);
await put('main/sparse', 'begin');
{
  const file = client.openFile((await inodeOf('main', '/sparse')).inode);
  await file.truncate(8 * MIB);
  await file.write(5 * MIB + 7, Buffer.from('middle'));
  await file.settle();
}
await printedBy(['snapshot', 'create', 'main@monday', ...servers]);
await client.openFile((await inodeOf('main', '/before')).inode).write(0, Buffer.from('CHANGED'));

test('a write, at each server, changes the contents of the snapshot, and only the clone', async () => {
  for (const [place, id] of cluster.ids.entries()) {
    const name = await clone();
    const { inode, shared, replicas } = await inodeOf(name, '/big');
    assert.deepEqual([shared, replicas], [true, []]);
    const own = new ClusterClient({ world: systemWorld, servers: [cluster.url(id)] });
    await own.openFile(inode).write(MIB, Buffer.from('new'));
    await own.close();
    const expected = Buffer.from(BIG);
    expected.write('new', MIB);
    for (const reader of cluster.ids) assert.deepEqual(await bytesOf(`${name}/big`, reader), expected);
    const filled = await inodeOf(name, '/big');
    assert.deepEqual([filled.shared, filled.replicas.length, filled.view], [undefined, 3, 1], `${place}`);
  }
  assert.deepEqual(await bytesOf('main/big'), BIG);
  assert.deepEqual(await bytesOf('main@monday/big'), BIG);
});

test('appends, truncations, holes, empty files and files that changed since the snapshot', async () => {
  const name = await clone();
  const open = async (path: string) => client.openFile((await inodeOf(name, path)).inode);
  await (await open('/file')).write('append', Buffer.from(' and more'));
  assert.equal(`${await bytesOf(`${name}/file`)}`, `${TEXT} and more`);
  await (await open('/big')).truncate(MIB + 5);
  assert.deepEqual(await bytesOf(`${name}/big`), BIG.subarray(0, MIB + 5));
  await (await open('/empty')).write(0, Buffer.from('x'));
  assert.equal(`${await bytesOf(`${name}/empty`)}`, 'x');
  await (await open('/before')).write(0, Buffer.from('C'));
  assert.equal(`${await bytesOf(`${name}/before`)}`, `C${TEXT.slice(1)}`);
  assert.equal(`${await bytesOf('main/before')}`, `CHANGED${TEXT.slice(7)}`);
  const holes = await open('/sparse');
  const before = await holes.extent(0, 'hole');
  await holes.write(6, Buffer.from('!'));
  assert.deepEqual((await holes.extent(0, 'hole')).found, (before.found ?? 0) + 2, 'The rest is a hole');
  assert.equal((await holes.extent(MIB, 'data')).found, 5 * MIB);
  const bytes = await bytesOf(`${name}/sparse`);
  assert.deepEqual([bytes.length, `${bytes.subarray(5 * MIB + 7, 5 * MIB + 13)}`], [8 * MIB, 'middle']);
  const inner = await open('/dir/inner');
  const locked = await inner.extent(0, 'hole');
  assert.equal(locked.found, TEXT.length, 'A read does not copy');
  assert.equal((await inodeOf(name, '/dir/inner')).shared, true);
  await inner.flush();
  assert.equal((await inodeOf(name, '/dir/inner')).shared, undefined);
  assert.equal(await unfilled(name), 0);
  assert.equal((await runCli(['check', ...servers])).code, 0);
});

test('a mount changes files of a clone like others', { skip: NO_MOUNT }, async () => {
  const name = await clone();
  const mount = await ClusterMount.start(cluster, name);
  const script = `
    test "$(cat file)" = '${TEXT}'
    echo more >> file && test "$(tail -c 5 file)" = more
    head -c 24 file | cmp - <(printf '%s' '${TEXT}')
    truncate -s 5 before && test "$(cat before)" = conte
    printf 'XY' | dd of=big bs=1 seek=100 conv=notrunc,fsync status=none && test "$(stat -c %s big)" = ${BIG.length}
    test "$(dd if=big bs=1 skip=100 count=2 status=none)" = XY
    echo whole > dir/inner && test "$(cat dir/inner)" = whole
    flock sparse true
    cp -p big copy && cmp big copy
    touch -d @7 empty && echo 1 >> empty && test "$(cat empty)" = 1
  `;
  try {
    await runOk('bash', ['-e', '-c', script], { cwd: mount.directory });
  } finally {
    await mount.stop();
  }
  assert.equal(`${await bytesOf(`${name}/file`)}`, `${TEXT}more\n`);
  assert.equal(`${await bytesOf('main@monday/file')}`, TEXT);
});

test('a server that is killed while it copies loses nothing', async () => {
  for (const id of cluster.ids) {
    const name = await clone();
    const { inode } = await inodeOf(name, '/big');
    const writing = client.openFile(inode).write(1, Buffer.from('after'));
    await cluster.kill(id);
    await writing;
    const expected = Buffer.from(BIG);
    expected.write('after', 1);
    const [other = ''] = cluster.ids.filter((one) => one !== id);
    assert.deepEqual(await bytesOf(`${name}/big`, other), expected);
    await cluster.restart(id);
    assert.deepEqual(await bytesOf(`${name}/big`, id), expected);
  }
  await until('all replicas are equal', async () => (await runCli(['check', ...servers])).code === 0);
});

test('a clone that is flattened needs its snapshot no longer, also if the primary ends meanwhile', async () => {
  const name = await clone();
  assert.match(await printedBy(['volume', 'ls', ...servers]), /CLONE OF[\s\S]*main@monday/);
  const refused = await runCli(['snapshot', 'rm', 'main@monday', ...servers]);
  assert.equal(refused.code, 4);
  assert.match(refused.stderr, new RegExp(`has contents of the clones? .*"${name}"`));
  await printedBy(['volume', 'flatten', name, '--no-wait', ...servers]);
  const primary = client.catalogPrimary ?? 's1';
  await cluster.kill(primary);
  await until('all is copied', async () => (await unfilled(name)) === 0);
  await cluster.restart(primary);
  assert.match(await printedBy(['volume', 'flatten', name, ...servers]), /needs no snapshot/);
  for (const { name: other } of (await client.query({ kind: 'volumes' })).volumes)
    if (other !== 'main') await printedBy(['volume', 'flatten', other, ...servers]);
  await printedBy(['snapshot', 'rm', 'main@monday', ...servers]);
  assert.deepEqual(await bytesOf(`${name}/big`), BIG);
  assert.equal(`${await bytesOf(`${name}/before`)}`, TEXT);
  assert.doesNotMatch(await printedBy(['volume', 'ls', ...servers]), /CLONE OF/);
});

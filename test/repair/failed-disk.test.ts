import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { ClusterStatus } from '../../wire/http-api.ts';
import { RealCluster, until } from '../cluster/real-cluster.ts';
import { ask } from '../http/ask.ts';
import { LAUNCHER } from '../launcher.ts';
import { onlyLong } from '../long.ts';
import type { LoopDisk } from '../storage/loop-disk.ts';
import { fillDisk, fillWholeDisk, onDiskOfItsOwn } from './own-disk.ts';

/** SQLite's default. */
const DATABASE_PAGE_BYTES = 4096;

/** 256 bytes, repeated. */
const body = (seed: number, bytes = 300_000): Buffer =>
  Buffer.alloc(bytes, Buffer.from(Array.from({ length: 256 }, (_, at) => (at * 11 + seed * 37) & 0xff)));

async function put(cluster: RealCluster, id: string, name: string, seed: number): Promise<void> {
  await until(`${name} is stored through ${id}`, async () => {
    const answer = await ask(cluster.url(id), 'PUT', `/v1/files/main/${name}`, { body: body(seed) });
    if (answer.status >= 300) throw new Error(answer.text);
    return true;
  });
}

async function isThere(cluster: RealCluster, id: string, name: string, seed: number): Promise<void> {
  const answer = await ask(cluster.url(id), 'GET', `/v1/files/main/${name}`);
  assert.equal(answer.status, 200, answer.text.slice(0, 300));
  assert.ok(body(seed).equals(answer.bytes), `${name} through ${id}`);
}

/** A server reports itself what happened to it. */
async function hasTold(cluster: RealCluster, id: string, sentence: RegExp): Promise<void> {
  await until(`${id} says ${sentence}`, async () => {
    const { text } = await ask(cluster.url(id), 'GET', '/v1/events/self');
    const { happenings } = JSON.parse(text) as { happenings: { text: string }[] };
    return happenings.some((told) => sentence.test(told.text));
  });
}

/**
 * Goal: a server whose index is lost or garbage does not start as if it were new; with `--rebuild`, it starts empty and
 * gets all its replicas from the others, which serve all the while.
 */
test('a server with a damaged index is rebuilt from the others', { timeout: 180_000 }, async () => {
  const cluster = await RealCluster.start();
  try {
    await cluster.createVolume('main');
    for (const name of ['a', 'b', 'c']) await put(cluster, 's1', name, name.charCodeAt(0));
    await cluster.kill('s3');
    fs.writeFileSync(join(cluster.data('s3'), 'index.db'), Buffer.alloc(20_000, 'no database'));
    fs.rmSync(join(cluster.data('s3'), 'index.db-wal'));
    const meta = () => JSON.parse(fs.readFileSync(join(cluster.data('s3'), 'META'), 'utf8'));
    const { storageId } = meta();

    const refused = spawnSync(process.execPath, [LAUNCHER, 'server', ...cluster.flags('s3')], {
      encoding: 'utf8',
      timeout: 60_000,
    });
    assert.equal(refused.status, 2, refused.stderr);
    assert.match(refused.stderr, /index\.db.*--rebuild/s);
    await put(cluster, 's1', 'd', 100);
    await isThere(cluster, 's2', 'a', 97);

    cluster.spawn('s3', { LEASEHOLD_REBUILD: 'true' });
    await cluster.ready(['s3']);
    assert.notEqual(meta().storageId, storageId, 'It is another store now');
    assert.ok(fs.existsSync(join(cluster.data('s3'), 'damaged-1', 'index.db')));
    for (const name of ['a', 'b', 'c', 'd']) {
      await cluster.current(`main/${name}`);
      await isThere(cluster, 's3', name, name.charCodeAt(0));
    }
    // It counts again: with another one down, there is a majority.
    await cluster.kill('s1');
    await put(cluster, 's3', 'e', 101);
    await isThere(cluster, 's2', 'a', 97);
    await isThere(cluster, 's3', 'e', 101);
  } finally {
    await cluster.stop();
  }
});

/**
 * Goal: a server that a restart cannot help says what to do, and ends with the code for which it is not started again.
 */
test('a server whose index has overwritten pages asks for a rebuild', {
  timeout: 120_000,
  skip: onlyLong('the test of a damaged index, with test/storage/damaged-folder.test.ts,'),
}, async () => {
  const cluster = await RealCluster.start();
  try {
    await cluster.createVolume('main');
    for (const name of ['a', 'b', 'c']) await put(cluster, 's1', name, name.charCodeAt(0));
    await cluster.kill('s3', 'SIGTERM');
    const index = join(cluster.data('s3'), 'index.db');
    const pages = fs.readFileSync(index);
    fs.writeFileSync(index, pages.fill(0xa5, DATABASE_PAGE_BYTES));
    const refused = spawnSync(process.execPath, [LAUNCHER, 'server', ...cluster.flags('s3')], {
      encoding: 'utf8',
      timeout: 60_000,
    });
    assert.equal(refused.status, 2, refused.stderr);
    assert.match(refused.stderr, /^leasehold: Cannot open .*is damaged.*--rebuild/m);
    cluster.spawn('s3', { LEASEHOLD_REBUILD: 'true' });
    await cluster.ready(['s3']);
    await cluster.current('main/a');
  } finally {
    await cluster.stop();
  }
});

/**
 * Goal: a server starts on a full disk by the space that it has reserved, and frees what was deleted while it was down;
 * without reserved space it ends with the code for which it is started again.
 */
test('a server starts on a full disk, and collects garbage', {
  timeout: 240_000,
  skip: onlyLong('test/server/full-start.test.ts'),
}, async (t) => {
  const cluster = await RealCluster.start({ flags: ['--gc-grace', '1s'] });
  let disk: LoopDisk | null = null;
  try {
    await cluster.createVolume('main');
    const made = await onDiskOfItsOwn(cluster, 's2', 64);
    if (made.disk === null) return t.skip(made.why);
    disk = made.disk;
    for (const name of ['a', 'b', 'c', 'd']) await put(cluster, 's1', name, name.charCodeAt(0));
    for (const name of ['a', 'b', 'c', 'd']) await cluster.current(`main/${name}`);
    const ballast = join(cluster.data('s2'), 'ballast');
    await until('space is reserved', async () => fs.existsSync(ballast));
    await cluster.kill('s2');
    for (const name of ['a', 'b', 'c'])
      assert.equal((await ask(cluster.url('s1'), 'DELETE', `/v1/files/main/${name}`)).status, 204);
    fillWholeDisk(disk);
    const containers = (): number =>
      fs
        .readdirSync(join(cluster.data('s2'), 'objects'), { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.dat')).length;
    const before = containers();
    await cluster.restart('s2');
    assert.match(cluster.log('s2'), /the disk is full: starting with the reserved space/);
    await until('what was deleted is removed', async () => containers() <= before - 3);
    await isThere(cluster, 's2', 'd', 100);

    await cluster.kill('s2');
    fs.rmSync(ballast, { force: true });
    fillWholeDisk(disk);
    const refused = spawnSync(process.execPath, [LAUNCHER, 'server', ...cluster.flags('s2')], {
      encoding: 'utf8',
      timeout: 60_000,
    });
    assert.equal(refused.status, 5, refused.stderr);
    assert.match(refused.stderr, /^leasehold: Cannot use .* its disk is full .*Free some space/m);
  } finally {
    await cluster.kill('s2');
    disk?.remove();
    await cluster.stop();
  }
});

const FAILURES: Readonly<
  Record<string, { readonly fail: (disk: LoopDisk) => boolean; readonly skip: string | false }>
> = {
  'answers every call with EIO': { fail: (disk) => disk.cutPower(), skip: false },
  'becomes read-only': {
    fail: (disk) => disk.failReadOnly(),
    skip: onlyLong('the test of a disk that answers with EIO'),
  },
};

/**
 * Goal: a server whose disk fails while it runs reports it, lets the others elect another primary, and serves nothing
 * more; the others continue. Started again on an intact disk, it catches up.
 */
for (const [what, { fail, skip }] of Object.entries(FAILURES)) {
  test(`a server whose disk ${what} stops serving`, { timeout: 240_000, skip }, async (t) => {
    const cluster = await RealCluster.start();
    let disk: LoopDisk | null = null;
    try {
      await cluster.createVolume('main');
      const made = await onDiskOfItsOwn(cluster, 's2', 192);
      if (made.disk === null) return t.skip(made.why);
      disk = made.disk;
      for (const name of ['a', 'b', 'c', 'd']) await put(cluster, 's2', name, name.charCodeAt(0));
      if (!fail(disk)) return t.skip('this kernel cannot do that to a file system');
      // Whichever server was the primary: all files can be read and written through the remaining servers.
      for (const name of ['a', 'b', 'c', 'd', 'e']) await put(cluster, 's1', name, name.charCodeAt(0) + 1);
      for (const name of ['a', 'b', 'c', 'd', 'e'])
        await isThere(cluster, 's3', name, name.charCodeAt(0) + 1);
      await until('s2 says that its disk failed', async () => {
        const answer = await ask(cluster.url('s1'), 'GET', '/v1/status');
        const status = JSON.parse(answer.text) as ClusterStatus;
        const s2 = status.servers.find(({ id }) => id === 's2');
        if (s2?.state !== 'storage-failed') return false;
        assert.equal(status.verdict, 'degraded');
        assert.ok(status.reasons.some((reason) => /Server s2 has failed: Cannot .+/.test(reason)));
        return true;
      });
      assert.equal((await ask(cluster.url('s2'), 'GET', '/readyz')).status, 500);
      assert.match(cluster.log('s2'), /the disk failed: this server lets its leases expire/);
      await hasTold(cluster, 's2', /^The disk of s2 failed \(Cannot .+\): it lets its leases expire/);
      await cluster.kill('s2');
      disk.repower();
      await cluster.restart('s2');
      for (const name of ['a', 'e']) {
        await cluster.current(`main/${name}`);
        await isThere(cluster, 's2', name, name.charCodeAt(0) + 1);
      }
    } finally {
      await cluster.kill('s2');
      disk?.remove();
      await cluster.stop();
    }
  });
}

/** Less than a server keeps free of contents for other purposes, on disks of this size, and more than half of that. */
const LEFT_BYTES = 9 * 2 ** 20;

/** Goal: a backup whose disk is full delays no write, and catches up by itself once there is free space again. */
test('a backup whose disk is full lags, and catches up', { timeout: 240_000 }, async (t) => {
  const cluster = await RealCluster.start();
  let disk: LoopDisk | null = null;
  try {
    await cluster.createVolume('main');
    const made = await onDiskOfItsOwn(cluster, 's2', 96);
    if (made.disk === null) return t.skip(made.why);
    disk = made.disk;
    await put(cluster, 's1', 'before', 1);
    const filler = fillDisk(disk, 64 * 4096);
    for (const name of ['b', 'c', 'd']) await put(cluster, 's1', name, name.charCodeAt(0));
    for (const name of ['b', 'c', 'd']) await isThere(cluster, 's3', name, name.charCodeAt(0));
    const full = await cluster.status('s1');
    assert.equal(full.verdict, 'degraded');
    assert.ok(full.reasons.some((reason) => reason.startsWith('The disk of server s2 is full')));
    await hasTold(cluster, 's2', /^The disk of s2 is nearly full: other servers become primary of its files/);
    fs.rmSync(filler);
    for (const name of ['b', 'c', 'd']) await cluster.current(`main/${name}`, 60_000);
    await isThere(cluster, 's2', 'd', 100);
    const own = (await cluster.status('s2')).servers.find(({ id }) => id === 's2');
    assert.equal(own?.state, 'serving', 'A full disk is no failed one');
    await hasTold(cluster, 's2', /^The disk of s2 has free space again\.$/);
  } finally {
    await cluster.kill('s2');
    disk?.remove();
    await cluster.stop();
  }
});

/**
 * Goal: if most disks are full, writers get the error in time, and reading and deleting continue, because the space
 * that these need is kept free.
 */
test('two of three disks are full: writers get an error, other requests succeed', {
  timeout: 240_000,
  skip: onlyLong('test/simulation/cluster/cluster.test.ts, with its full disks,'),
}, async (t) => {
  const cluster = await RealCluster.start();
  const disks: LoopDisk[] = [];
  try {
    await cluster.createVolume('main');
    for (const id of ['s2', 's3']) {
      const made = await onDiskOfItsOwn(cluster, id, 96);
      if (made.disk === null) return t.skip(made.why);
      disks.push(made.disk);
    }
    await put(cluster, 's1', 'before', 1);
    const fillers = disks.map((disk) => fillDisk(disk, LEFT_BYTES));
    await until('a writer gets the error', async () => {
      const name = `/v1/files/main/more-${Math.random()}`;
      const answer = await ask(cluster.url('s1'), 'PUT', name, { body: body(2, 1_000_000) });
      if (answer.status === 201) return false;
      assert.equal(JSON.parse(answer.text).code, 'no-space', answer.text);
      return true;
    });
    for (const disk of disks) {
      const { bavail, bsize } = fs.statfsSync(disk.folder);
      assert.ok(bavail * bsize > LEFT_BYTES / 4, 'Files kept for their names still exist');
    }
    await isThere(cluster, 's2', 'before', 1);
    assert.equal((await ask(cluster.url('s1'), 'DELETE', '/v1/files/main/before')).status, 204);
    for (const filler of fillers) fs.rmSync(filler);
    await put(cluster, 's1', 'after', 3);
    await isThere(cluster, 's3', 'after', 3);
  } finally {
    for (const id of ['s2', 's3']) await cluster.kill(id);
    for (const disk of disks) disk.remove();
    await cluster.stop();
  }
});

/**
 * Goal: if the only majority has a full disk, present contents are read, and a write that needs free space is refused
 * at once: an append with a number in the order would have to be stored before any server could become the file's
 * primary again.
 */
test('one disk is full and another server is dead: appends are refused, and all files are read', {
  timeout: 240_000,
  skip: onlyLong('test/simulation/cluster/cluster.test.ts, with its full disks,'),
}, async (t) => {
  const cluster = await RealCluster.start();
  let disk: LoopDisk | null = null;
  try {
    await cluster.createVolume('main');
    const made = await onDiskOfItsOwn(cluster, 's3', 96);
    if (made.disk === null) return t.skip(made.why);
    disk = made.disk;
    for (const name of ['one', 'another']) {
      await put(cluster, 's1', name, 1);
      await cluster.current(`main/${name}`);
    }
    const filler = fillDisk(disk, 64 * 4096);
    // An operation that the others do not know yet would have to be stored first.
    await hasTold(cluster, 's3', /^The disk of s3 is/);
    await cluster.kill('s1');
    await until('s2 knows', async () => {
      const { servers } = await cluster.status('s2');
      return servers.find(({ id }) => id === 's1')?.state !== 'serving';
    });
    for (const name of ['one', 'another']) {
      const append = () =>
        ask(cluster.url('s2'), 'PATCH', `/v1/files/main/${name}?append`, { body: body(2, 10) });
      await until(`an append to ${name} is refused`, async () => {
        const { status, text } = await append();
        assert.ok(status >= 300, 'No majority can store it');
        return JSON.parse(text).code === 'no-space';
      });
      await until(`${name} is read`, async () => {
        await isThere(cluster, 's2', name, 1);
        return true;
      });
    }
    fs.rmSync(filler);
    await until('there is free space again', async () => {
      const path = '/v1/files/main/one?append';
      return (await ask(cluster.url('s2'), 'PATCH', path, { body: body(2, 10) })).status < 300;
    });
  } finally {
    await cluster.kill('s3');
    disk?.remove();
    await cluster.stop();
  }
});

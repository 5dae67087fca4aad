import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import type { QueryResults } from '../../wire/catalog-api.ts';
import { isLong } from '../long.ts';
import { ClusterMount, run } from './cluster-mount.ts';
import { LAUNCHER, RealCluster, until } from './real-cluster.ts';

/**
 * Goal: a volume never exceeds its quota, whatever several mounts do with the same files; and once no program writes,
 * its counters equal a recount of its files.
 * Method: three programs on two mounts rewrite, append to, cut, replace and remove the same few files of a volume with
 * a trash, which is emptied when it is full. Meanwhile the test queries sizes; in the second half a server is killed.
 */
const VOLUME = 'recount';
const QUOTA = 2 * 1024 * 1024;
const FOR_S = isLong ? 6 : 3;

const PROGRAM = `
import os, random, sys, time
folder, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
rng, end = random.Random(seed), time.time() + seconds
done = refused = 0
def pieces(fd, size):
    while size > 0:
        size -= os.write(fd, b'x' * min(size, 65536))
while time.time() < end:
    path = os.path.join(folder, 'f%d' % rng.randrange(6))
    try:
        action = rng.randrange(10)
        if action < 4:
            fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        elif action < 7:
            fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        elif action < 8:
            fd = os.open(path + '.new%d' % seed, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        elif action < 9:
            os.truncate(path, rng.randrange(300000))
            continue
        else:
            os.unlink(path)
            continue
        try:
            pieces(fd, rng.randrange(600000))
            if rng.randrange(2): os.fsync(fd)
        finally:
            os.close(fd)
        if action == 7: os.rename(path + '.new%d' % seed, path)
        done += 1
    except OSError as error:
        refused += 1
        time.sleep(0.02)
print(done, refused)
`;

const obstacle = kernelTransportObstacle();
const cluster = obstacle === null ? await RealCluster.start() : null;
after(() => cluster?.stop());

async function ask<Kind extends keyof QueryResults>(query: { kind: Kind; [key: string]: unknown }) {
  assert.ok(cluster !== null);
  const id = cluster.ids.find((each) => cluster.isRunning(each)) as string;
  const response = await fetch(`${cluster.url(id)}/v1/catalog/queries`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query }),
  });
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as QueryResults[Kind];
}

const volume = async () => (await ask({ kind: 'volume', name: VOLUME })).volume;

/** Sizes of linked files, as their primaries know them, and of files in the trash. */
async function recount(root: number) {
  const { entries } = await ask({ kind: 'list', inode: root, after: '', countMax: 1_000 });
  const named = entries.reduce((sum, { attributes }) => sum + attributes.sizeBytes, 0);
  const { files } = await ask({ kind: 'trash', volume: VOLUME, path: '/', after: null, countMax: 1_000 });
  const trashed = files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  return {
    named: named + trashed,
    trashed,
    live: entries.filter(({ attributes }) => attributes.live).length,
  };
}

async function emptyTrash(): Promise<void> {
  assert.ok(cluster !== null);
  const argv = ['trash', 'empty', VOLUME, '--servers', cluster.urls.join(',')];
  await promisify(execFile)(process.execPath, [LAUNCHER, ...argv]);
}

const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;
test('two mounts never exceed a quota together, and its counters equal a recount', {
  skip,
}, async (t) => {
  assert.ok(cluster !== null);
  const argv = ['volume', 'create', VOLUME, '--quota', `${QUOTA}`, '--trash', '1h'];
  await promisify(execFile)(process.execPath, [LAUNCHER, ...argv, '--servers', cluster.urls.join(',')]);
  const mounts = await Promise.all([0, 1].map(() => ClusterMount.start(cluster, VOLUME)));
  t.after(() => Promise.all(mounts.map((mount) => mount.stop())));
  const { root } = await volume();
  let most = 0;
  for (const isKilled of [false, true]) {
    let isOver = false;
    const programs = [0, 1, 0].map((mount, seed) =>
      run('python3', ['-c', PROGRAM, mounts[mount]?.directory ?? '', `${seed}`, `${FOR_S}`], {
        timeoutMs: 240_000,
      }),
    );
    const ended = Promise.all(programs).finally(() => {
      isOver = true;
    });
    const victim = cluster.ids[1] as string;
    if (isKilled) {
      await delay(FOR_S * 300);
      await cluster.kill(victim);
    }
    while (!isOver) {
      const { namedBytes, trashedBytes } = await volume().catch(() => ({ namedBytes: 0, trashedBytes: 0 }));
      most = Math.max(most, namedBytes);
      if (trashedBytes > QUOTA / 3) await emptyTrash().catch(() => undefined);
      await delay(100);
    }
    for (const { code, text } of await ended) {
      assert.equal(code, 0, text);
      t.diagnostic(`done and refused: ${text.trim()}`);
    }
    if (isKilled) await cluster.restart(victim);
    let last = '';
    await until(
      'the counters are those of a recount',
      async () => {
        const { namedBytes, trashedBytes } = await volume();
        const { named, trashed, live } = await recount(root);
        last = JSON.stringify({ namedBytes, named, trashedBytes, trashed, live });
        if (namedBytes === named && trashedBytes === trashed) return true;
        throw new Error(last);
      },
      90_000,
    );
    t.diagnostic(last);
    assert.ok(most <= QUOTA, `${most} bytes of ${QUOTA}`);
  }
  assert.ok(most > QUOTA / 2, `The test came near the quota: ${most} bytes of ${QUOTA}`);
});

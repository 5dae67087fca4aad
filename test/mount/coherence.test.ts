/**
 * Goal: with `--cache leases` two mounts never show each other's outdated state by any call, and what the kernel may
 * cache expires by itself if the mount's process is stopped.
 * Method: several actors change and query things on both mounts at once, and `Register` judges each answer. Then a
 * mount is stopped while the other one changes what its kernel has cached. `npm run coherence` runs longer, and with
 * faults.
 */
import assert from 'node:assert/strict';
import { chmod, mkdir, open, stat, writeFile } from 'node:fs/promises';
import { after, test } from 'node:test';
import type { ClusterMount } from '../cluster/cluster-mount.ts';
import { RealCluster } from '../cluster/real-cluster.ts';
import { isLong, SERVERS_OF_FORM } from '../long.ts';
import { mountPairsOver, noMounts, transportsOfForm } from '../posix/mounts.ts';
import { Coherence } from './coherence.ts';
import { Register } from './register.ts';
import { unpromised } from './subjects.ts';

const ROUNDS = Number(process.env.ROUNDS ?? (isLong ? 400 : 150));
const SEED = Number(process.env.SEED ?? 1);
/** The number of times that a mount is to be stopped between request and answer, and of attempts at most. */
const STOPS = 5;
const STOPS_TRIED_MAX = 200;
const LOOKS_MAX = 6;

test('a query is judged by the changes and queries before it', () => {
  const register = new Register();
  const is = (version: number) => (other: number) => other === version;
  assert.equal(register.judge(0, 1, is(0)), null);
  const first = register.begin(10);
  assert.equal(register.judge(5, 9, is(1))?.includes('what never was'), true, 'Not begun yet');
  assert.equal(register.judge(11, 12, is(0)), null, 'The change is in progress');
  assert.equal(register.judge(11, 13, is(1)), null, 'A change in progress may be seen');
  assert.match(
    register.judge(14, 15, is(0)) ?? '',
    /version 0 instead of 1/,
    'The new version was seen before',
  );
  register.made(first, 20);
  register.begin(30);
  assert.match(register.judge(40, 41, is(0)) ?? '', /version 0 instead of 1 to 2/);
  const mixes = (from: number, to: number) => from === 1 && to === 2;
  assert.equal(
    register.judge(40, 41, is(2), mixes),
    null,
    'A mapped read may see it before the cluster has it',
  );
  assert.equal(register.judge(42, 43, is(1)), null, 'A mapped read proves nothing for other reads');
  assert.equal(register.judge(44, 45, is(-1), mixes), null, 'A mapped read may see parts of each version');
  assert.equal(register.judge(44, 45, is(-1))?.includes('what never was'), true);
  assert.equal(register.judge(46, 47, is(2)), null);
});

const skip = await noMounts();
if (skip === false) await define();
else test('two mounts that cache', { skip }, () => undefined);

async function define(): Promise<void> {
  const cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
  after(() => cluster.stop());
  await cluster.createVolume('main');
  const pairs = await mountPairsOver(await transportsOfForm(), cluster, '--cache', 'leases');

  for (const { transport, mounts } of pairs) {
    const places = mounts.map((mount) => ({ path: (name: string) => mount.path(transport, name) }));
    test(`over ${transport}: no query shows an outdated version`, async (t) => {
      await mkdir(mounts[0].path(transport));
      const without = unpromised(transport);
      const coherence = new Coherence(places, { seed: SEED, groups: 1, rounds: ROUNDS, actors: 4, without });
      const { changes, looks, failed, wrong } = await coherence.run();
      t.diagnostic(`${changes} changes, ${looks} looks`);
      // The name may be replaced between the kernel's look-up and its call for the inode, which is unlinked then.
      const unexpected = [...failed.keys()].filter((what) => !/^(target|replaced) ENOENT$/.test(what));
      assert.deepEqual([...wrong, ...unexpected], []);
      assert.ok(changes > ROUNDS / 10 && looks > ROUNDS / 2, `${changes} changes, ${looks} looks`);
    });
    test(`over ${transport}: a handle shows what another mount writes to an open file`, () =>
      written(mounts));
    test(`over ${transport}: what a kernel caches expires while its mount is stopped`, () => stopped(mounts));
    test(`over ${transport}: a kernel drops what its own mount changes`, () => changedHere(mounts));
  }
}

async function written([one, two]: readonly [ClusterMount, ClusterMount]): Promise<void> {
  const writer = await open(one.path('written'), 'w');
  const reader = await open(two.path('written'), 'r');
  try {
    for (let version = 1; version <= 5; version++) {
      await writer.write(Buffer.from([version]));
      await writer.sync();
      await chmod(one.path('written'), 0o600 + version);
      const { size, mode } = await reader.stat();
      assert.deepEqual({ size, mode: mode & 0o777 }, { size: version, mode: 0o600 + version });
      const { bytesRead } = await reader.read(Buffer.alloc(1), 0, 1, version - 1);
      assert.equal(bytesRead, 1);
    }
  } finally {
    await writer.close();
    await reader.close();
  }
}

async function stopped([one, two]: readonly [ClusterMount, ClusterMount]): Promise<void> {
  await mkdir(one.path('stopped'), { recursive: true });
  await chmod(one.path('stopped'), 0o755);
  await writeFile(one.path('stopped-file'), 'old');
  const directory = await open(two.path('stopped'), 'r');
  const file = await open(two.path('stopped-file'), 'r');
  const text = async (): Promise<string> => {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(10), 0, 10, 0);
    return buffer.toString('utf8', 0, bytesRead);
  };
  try {
    assert.equal((await directory.stat()).mode & 0o777, 0o755);
    assert.equal(await text(), 'old');
    process.kill(two.pid, 'SIGSTOP');
    try {
      // Each change waits until the stopped mount's kernel no longer caches what it changes.
      await chmod(one.path('stopped'), 0o700);
      await writeFile(one.path('stopped-file'), 'newer');
      const looks = Promise.all([directory.stat(), text()]);
      // The kernel asks its mount, which is stopped; an answer from its cache would have been the old one.
      process.kill(two.pid, 'SIGCONT');
      const [stats, read] = await looks;
      assert.equal(stats.mode & 0o777, 0o700);
      assert.equal(read, 'newer');
    } finally {
      process.kill(two.pid, 'SIGCONT');
    }
  } finally {
    await directory.close();
    await file.close();
  }
}

/** Stops a mount between the request and the answer of its change, which the other mount then shows already. */
async function changedHere([one, two]: readonly [ClusterMount, ClusterMount]): Promise<void> {
  await mkdir(one.path('changed-here'), { recursive: true });
  const directory = await open(one.path('changed-here'), 'r');
  const modeOf = ({ mode }: { readonly mode: number }): number => mode & 0o777;
  let met = 0;
  try {
    for (let attempt = 0; met < STOPS && attempt < STOPS_TRIED_MAX; attempt++) {
      const mode = 0o700 + (attempt % 0o77);
      await directory.stat();
      const change = chmod(one.path('changed-here'), mode);
      // So many queries take about as long as a request and its answer: some attempts stop the mount too soon or too
      // late.
      for (let looks = attempt % LOOKS_MAX; looks > 0; looks--) await stat(two.path('changed-here'));
      process.kill(one.pid, 'SIGSTOP');
      try {
        if (modeOf(await stat(two.path('changed-here'))) !== mode) continue;
        met++;
        const look = directory.stat();
        await stat(two.path('changed-here'));
        process.kill(one.pid, 'SIGCONT');
        assert.equal(modeOf(await look), mode, `attempt ${attempt}`);
      } finally {
        process.kill(one.pid, 'SIGCONT');
        await change;
      }
    }
  } finally {
    await directory.close();
  }
  assert.ok(met > 0, 'The mount was stopped between its request and the answer at least once');
}

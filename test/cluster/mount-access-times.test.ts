import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, stat, utimes, writeFile } from 'node:fs/promises';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { GATHER_MS } from '../../fuse/pending/access-times.ts';
import { systemWorld } from '../../world/system-world.ts';
import { isLong, SERVERS_OF_FORM } from '../long.ts';
import { ClusterMount, runOk } from './cluster-mount.ts';
import { earlierRelease } from './earlier-release.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: reads on a mount update access times as its options promise: at once on the mount, later at the cluster, and at
 * the mount's end at the latest. Reading costs no request, and a cluster that does not know reads causes no failed
 * call.
 * Method: mounts with each option over each transport, and a client that queries the catalog.
 */
const skip = (await mountObstacle()) ?? false;
const overKernel = kernelTransportObstacle() === null;
const LONG_AGO = new Date(5_000);

const WAYS = [
  ...(overKernel && !isLong ? [] : [['native', '--transport', 'native']]),
  ...(overKernel
    ? [
        ['kernel', '--transport', 'kernel'],
        ['kernel and strict', '--transport', 'kernel', '--cache', 'strict'],
        ...(isLong ? [['kernel and leases', '--transport', 'kernel', '--cache', 'leases']] : []),
      ]
    : []),
] as const;

const cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
after(() => cluster.stop());
await cluster.createVolume('main');
const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
after(() => client.close());

async function storedMs(path: string): Promise<number> {
  const { accessedNs } = await client.resolve('main', path);
  return Number(BigInt(accessedNs) / 1_000_000n);
}

function told(): Promise<number> {
  return cluster.counted('leasehold_catalog_commands_total', 'kind="note-accesses"');
}

/** A file and a directory whose last read was long ago. */
async function unread(mount: ClusterMount, name: string): Promise<{ file: string; directory: string }> {
  const [file, directory] = [mount.path(`${name}-f`), mount.path(`${name}-d`)];
  await writeFile(file, 'contents');
  await mkdir(directory);
  for (const path of [file, directory]) await utimes(path, LONG_AGO, LONG_AGO);
  return { file, directory };
}

async function optionsOf(mount: ClusterMount): Promise<readonly string[]> {
  const table = await readFile('/proc/self/mounts', 'utf8');
  const line = table.split('\n').find((each) => each.split(' ')[1] === mount.directory);
  return line?.split(' ')[3]?.split(',') ?? [];
}

for (const [place, [way, ...flags]] of WAYS.entries()) {
  test(`what is read gets the present as its access time (${way})`, { skip }, async (t) => {
    const mount = await ClusterMount.start(cluster, 'main', ...flags);
    t.after(() => mount.stop());
    assert.ok((await optionsOf(mount)).includes('relatime'));
    const { file, directory } = await unread(mount, `way${place}`);
    const beganMs = Date.now();
    await readFile(file);
    await readdir(directory);
    for (const path of [file, directory]) assert.ok((await stat(path)).atimeMs >= beganMs - 1, path);
    assert.equal((await stat(file)).mtimeMs, LONG_AGO.getTime());
    // The kernel has its pages by now.
    await utimes(file, LONG_AGO, LONG_AGO);
    await readFile(file);
    assert.ok((await stat(file)).atimeMs >= beganMs - 1, 'also if the kernel answers');
    const shown = (await stat(file)).atimeMs;
    await readFile(file);
    assert.equal((await stat(file)).atimeMs, shown, 'It was read since its last change');
    await mount.unmount();
    assert.ok((await storedMs(`/way${place}-f`)) >= beganMs - 1, 'The end of the mount waits for it');
    assert.ok((await storedMs(`/way${place}-d`)) >= beganMs - 1);
  });
}

test('a mount that ends in order reports its reads, a killed one does not', {
  skip,
}, async (t) => {
  const mounts = [
    await ClusterMount.start(cluster, 'main'),
    await ClusterMount.start(cluster, 'main'),
  ] as const;
  for (const mount of mounts) t.after(() => mount.stop());
  for (const [place, mount] of mounts.entries()) {
    const { file } = await unread(mount, `end${place}`);
    await readFile(file);
  }
  const beganMs = Date.now();
  process.kill(mounts[0].pid, 'SIGTERM');
  process.kill(mounts[1].pid, 'SIGKILL');
  await until('the reads are reported', async () => (await storedMs('/end0-f')) > LONG_AGO.getTime());
  assert.ok(Date.now() - beganMs < 4_000, 'The interval has not passed');
  assert.equal(await storedMs('/end1-f'), LONG_AGO.getTime());
});

test('the mount follows its options, and the table of mounts shows them', { skip }, async (t) => {
  const transport = overKernel ? 'kernel' : 'native';
  const mounted = async (options: string): Promise<ClusterMount> => {
    const mount = await ClusterMount.start(cluster, 'main', '--transport', transport, '-o', options);
    t.after(() => mount.stop());
    return mount;
  };
  const never = await mounted('noatime');
  assert.ok((await optionsOf(never)).includes('noatime'));
  const { file, directory } = await unread(never, 'options');
  await readFile(file);
  await readdir(directory);
  for (const path of [file, directory]) assert.equal((await stat(path)).atimeMs, LONG_AGO.getTime());
  const readOnly = await mounted('ro');
  await readFile(readOnly.path('options-f'));
  assert.equal((await stat(readOnly.path('options-f'))).atimeMs, LONG_AGO.getTime());
  const files = await mounted('nodiratime,strictatime');
  if (overKernel) {
    const options = await optionsOf(files);
    assert.deepEqual(
      options.filter((word) => word.endsWith('atime')),
      ['nodiratime'],
      'With strictatime the kernel shows no option',
    );
  }
  await readdir(files.path('options-d'));
  assert.equal((await stat(files.path('options-d'))).atimeMs, LONG_AGO.getTime());
  const times: number[] = [];
  for (let turn = 0; turn < 3; turn++) {
    await readFile(files.path('options-f'));
    times.push((await stat(files.path('options-f'))).atimeMs);
    await delay(20);
  }
  assert.equal(new Set(times).size, 3, times.join());
});

test('many reads are few requests, and files that are soon removed are none', { skip }, async (t) => {
  const mount = await ClusterMount.start(cluster, 'main');
  t.after(() => mount.stop());
  const folder = mount.path('many');
  await mkdir(folder);
  const names = Array.from({ length: 60 }, (_, count) => `${folder}/f${count}`);
  const start = await told();
  const beganMs = performance.now();
  for (const name of names) {
    await writeFile(name, 'x');
    await readFile(name);
  }
  await runOk('rm', ['-r', folder]);
  // The mount reports reads of those files that still exist after the interval.
  const whileThere = Math.floor((performance.now() - beganMs) / GATHER_MS);
  await delay(GATHER_MS + 1_000);
  const before = await told();
  assert.ok(
    before - start <= whileThere,
    `${before - start} commands in ${whileThere} times ${GATHER_MS} ms`,
  );
  await mkdir(folder);
  for (const name of names) await writeFile(name, 'x');
  const readMs = performance.now();
  for (const name of names) await readFile(name);
  await until('the reads are reported', async () => (await told()) > before);
  const whileRead = Math.floor((performance.now() - readMs) / GATHER_MS);
  await mount.unmount();
  assert.ok((await told()) - before <= whileRead + 2, `${(await told()) - before} commands`);
});

test('a cluster that does not know reads is asked once, and no call fails', { skip }, async (t) => {
  const earlier = await RealCluster.start({
    servers: SERVERS_OF_FORM,
    environment: () => earlierRelease(),
  });
  t.after(() => earlier.stop());
  await earlier.createVolume('main');
  const mount = await ClusterMount.start(earlier, 'main');
  t.after(() => mount.stop());
  const { file } = await unread(mount, 'old');
  await readFile(file);
  const isLogged = async (): Promise<boolean> =>
    /refuses access times/.test(await readFile(mount.log, 'utf8'));
  await until('that is refused', isLogged);
  await until('what is not kept is not shown', async () => (await stat(file)).atimeMs === LONG_AGO.getTime());
  await readFile(file);
  await mount.unmount();
  assert.equal((await readFile(mount.log, 'utf8')).split('refuses access times').length, 2);
});

/**
 * Goal: a directory of very many entries is listed completely, each name once, while others are added and removed. A
 * program can seek to positions that it was answered. The mount holds only a part of the listing in memory.
 * Method: many parallel commands create entries, and `opendir` reads them in steps. `ENTRIES=1000000` takes a day;
 * figures are diagnostics.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { type ClusterMount, run } from '../cluster/cluster-mount.ts';
import { memoryPeakMiB, RealCluster } from '../cluster/real-cluster.ts';
import { SERVERS_OF_FORM } from '../long.ts';
import { mountPairsOver, noMounts, transportsOfForm } from './mounts.ts';
import { Ground } from './rules.ts';

const ENTRIES = Number(process.env.ENTRIES ?? 2_000);
const PARALLEL = 256;
const STEP = 500;
const OPERATION_LIMIT_MS = 120_000;
/** 150,000 entries take 300 MiB, and so do 500,000; an idle mount takes 160. */
const MEMORY_MIB_MAX = 360;
const LIST_MS_MAX = 600_000;

const skip = await noMounts();
if (skip === false) await define();
else test('a directory of many entries', { skip }, () => undefined);

function seconds(sinceMs: number): number {
  return (performance.now() - sinceMs) / 1_000;
}

function nameOf(index: number): string {
  return `n${String(index).padStart(7, '0')}`;
}

async function define(): Promise<void> {
  const cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
  after(() => cluster.stop());
  await cluster.createVolume('main');
  const pairs = await mountPairsOver(await transportsOfForm(), cluster);
  const client = new ClusterClient({
    world: systemWorld,
    servers: cluster.urls,
    operationTimeoutMs: OPERATION_LIMIT_MS,
  });
  after(() => client.close());

  test(`${ENTRIES} entries are created`, { timeout: 1_800_000 }, async (t) => {
    const place = { volume: 'main', path: '/d' };
    await client.command({ kind: 'make-directory', place, mode: 0o777, uid: 0, gid: 0 });
    const startedMs = performance.now();
    await eachOf(ENTRIES, (index) => make(client, nameOf(index)));
    t.diagnostic(`${Math.round(ENTRIES / seconds(startedMs))} entries a second`);
    for (const id of cluster.ids) {
      t.diagnostic(`server ${id} has held ${Math.round(memoryPeakMiB(cluster.pid(id)))} MiB at the most`);
    }
  });

  for (const { transport, mounts } of pairs) {
    test(`over ${transport} ls lists all entries`, { timeout: LIST_MS_MAX }, async (t) => {
      const startedMs = performance.now();
      const { text } = await run('sh', ['-c', 'ls "$1" | wc -l', 'sh', mounts[1].path('d')], {
        timeoutMs: LIST_MS_MAX,
      });
      t.diagnostic(`ls | wc -l took ${seconds(startedMs).toFixed(1)} s`);
      t.diagnostic(`the mount has held ${Math.round(memoryPeakMiB(mounts[1].pid))} MiB at the most`);
      assert.ok(Number(text) >= ENTRIES, text);
    });

    test(
      `over ${transport} all entries are read in steps, and positions are found again`,
      { timeout: LIST_MS_MAX },
      (t) => listed(client, transport, mounts[0], (line) => t.diagnostic(line)),
    );
  }
}

async function eachOf(count: number, call: (index: number) => Promise<unknown>): Promise<void> {
  const indexes = Array.from({ length: count }, (_, index) => index).values();
  // The workers share one iterator.
  const worker = async (): Promise<void> => {
    for (const index of indexes) await call(index);
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
}

function make(client: ClusterClient, name: string): Promise<unknown> {
  const place = { volume: 'main', path: `/d/${name}` };
  return client.command({ kind: 'symlink', place, target: 'target', uid: 0, gid: 0 });
}

async function listed(
  client: ClusterClient,
  transport: string,
  mount: ClusterMount,
  say: (line: string) => void,
): Promise<void> {
  const ground = new Ground(mount.directory);
  try {
    const program = ground.program('root');
    await program.value('open-directory', 'l', mount.path('d'));
    const told: string[] = [];
    const positions = new Map<number, string>();
    for (let round = 0; ; round++) {
      positions.set(told.length, await program.value('tell-directory', 'l'));
      const names = (await program.value('read-entries', 'l', STEP)).split(' ').filter((name) => name !== '');
      if (names.length === 0) break;
      told.push(...names);
      // Other names are added and removed before and after the position of the reader.
      for (const at of [0, ENTRIES / 2, ENTRIES]) await make(client, `${nameOf(at + round)}-${transport}`);
      if (round < 3) continue;
      const place = { volume: 'main', path: `/d/${nameOf(3)}-${transport}` };
      if (round === 3) await client.command({ kind: 'unlink', place });
    }
    const own = told.filter((name) => /^n\d{7}$/.test(name));
    assert.equal(new Set(told).size, told.length, 'No name is listed twice');
    assert.deepEqual(
      [...own].sort(),
      Array.from({ length: ENTRIES }, (_, index) => nameOf(index)),
    );

    // Backwards, so that each read follows a seek to another position; not to the beginning, which would list again.
    const stays = new Set(own);
    const later = [...positions].slice(1, -1).reverse();
    assert.ok(later.length > 0);
    for (const [count, position] of later) {
      await program.value('seek-directory', 'l', position);
      const names = (await program.value('read-entries', 'l', STEP)).split(' ');
      const wanted = told.slice(count, count + STEP).filter((name) => stays.has(name));
      const found = names.filter((name) => stays.has(name));
      assert.deepEqual(found.slice(0, wanted.length), wanted, `at the position after ${count} names`);
    }
    await program.value('close-directory', 'l');
  } finally {
    await ground.stop();
  }
  const mib = memoryPeakMiB(mount.pid);
  say(`the mount has held ${Math.round(mib)} MiB at the most`);
  assert.ok(mib < MEMORY_MIB_MAX, `The mount held ${mib} MiB`);
}

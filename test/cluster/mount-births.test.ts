/**
 * Goal: files that a mount creates by itself, and that the cluster learns of at their close, then exist for all
 * clients, whole, whichever process dies meanwhile; and two mounts never both create a name.
 * Method: real servers and real mounts; servers and mounts are killed while files are created, and another mount
 * compares.
 */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { mkdir, open, readdir, readFile, stat, unlink, writeFile } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { UNLINK_STREAK_MS } from '../../fuse/pending/unlink-streaks.ts';
import { systemWorld } from '../../world/system-world.ts';
import { noMount } from '../fuse/mounted.ts';
import { isLong, onlyLong } from '../long.ts';
import { transportsOfForm } from '../posix/mounts.ts';
import { ClusterMount } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

const VOLUME = 'births';
/** Names for which two mounts race. */
const NAMES = isLong ? 60 : 20;
const LOAD_MS = isLong ? 10_000 : 4_000;
const KILLS = isLong ? 2 : 1;
const NEW = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;

let cluster: RealCluster;
let client: ClusterClient;

/** Files that servers have created with contents since their start. */
function bornCount(): Promise<number> {
  return cluster.counted('leasehold_creations_with_contents_total', 'outcome="created"');
}

/** Files that single commands have removed from the catalog since its servers' start. */
function singlyRemovedCount(): Promise<number> {
  return cluster.counted('leasehold_catalog_commands_total', 'kind="unlink"', 'outcome="done"');
}

/** Creates files until the mount creates them by itself. */
async function warm(folder: string): Promise<void> {
  const before = await bornCount();
  let count = 0;
  await until('the mount makes files by itself', async () => {
    await writeFile(`${folder}/warm${count++}`, 'warm');
    return (await bornCount()) > before;
  });
}

function textOf(number: number): string {
  return `${number} `.repeat(1 + ((number * 37) % 2_000));
}

before(async () => {
  // Longer than the pauses of a busy machine: removals that the mount has not sent are void once its session has ended.
  cluster = await RealCluster.start({ lease: '8s' });
  client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  await cluster.createVolume(VOLUME);
});

after(async () => {
  await client.close();
  await cluster.stop();
});

describe('files that a mount creates by itself', { skip: noMount }, async () => {
  for (const transport of await transportsOfForm()) {
    test(`one of two mounts creates a name (${transport})`, async (t) => {
      const mounts = [
        await ClusterMount.start(cluster, VOLUME, '--transport', transport),
        await ClusterMount.start(cluster, VOLUME, '--transport', transport, '--cache', 'leases'),
      ] as const;
      for (const mount of mounts) t.after(() => mount.stop());
      const folder = `race-${transport}`;
      await mkdir(mounts[0].path(folder));
      await warm(mounts[0].path(folder));
      const made = await Promise.all(
        mounts.map(async (mount, place) => {
          const names: string[] = [];
          for (let number = 0; number < NAMES; number++) {
            const name = `n${number}`;
            try {
              const file = await open(mount.path(folder, name), NEW);
              await file.writeFile(`by ${place}`);
              await file.close();
              names.push(name);
            } catch (error) {
              if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
            }
          }
          return names;
        }),
      );
      for (let number = 0; number < NAMES; number++) {
        const name = `n${number}`;
        const makers = [0, 1].filter((place) => made[place]?.includes(name));
        assert.equal(makers.length, 1, `${name} was made by ${makers.length} mounts`);
        for (const mount of mounts)
          assert.equal(await readFile(mount.path(folder, name), 'utf8'), `by ${makers[0]}`);
      }
    });

    test(`a new open file is found at once where cached answers are not allowed, and soon elsewhere (${transport})`, async (t) => {
      const maker = await ClusterMount.start(cluster, VOLUME, '--transport', transport);
      t.after(() => maker.stop());
      const strict = await ClusterMount.start(cluster, VOLUME, '--transport', transport, '--cache', 'strict');
      t.after(() => strict.stop());
      const leases = await ClusterMount.start(cluster, VOLUME, '--transport', transport, '--cache', 'leases');
      t.after(() => leases.stop());
      const folder = `looks-${transport}`;
      await mkdir(maker.path(folder));
      await warm(maker.path(folder));
      for (const [place, looker] of [strict, leases].entries()) {
        await readdir(looker.path(folder));
        const file = await open(maker.path(folder, `open${place}`), NEW);
        assert.ok((await readdir(looker.path(folder))).includes(`open${place}`));
        await file.writeFile('contents');
        await file.close();
        assert.equal(await readFile(looker.path(folder, `open${place}`), 'utf8'), 'contents');
      }
      const file = await open(maker.path(folder, 'last'), NEW);
      await until('it is at the cluster', () =>
        client.resolve(VOLUME, `/${folder}/last`).then(
          () => true,
          () => false,
        ),
      );
      await file.close();
    });

    test(`a closed file survives the mount's process (${transport})`, async (t) => {
      const maker = await ClusterMount.start(cluster, VOLUME, '--transport', transport);
      t.after(() => maker.stop());
      const other = await ClusterMount.start(cluster, VOLUME, '--transport', transport);
      t.after(() => other.stop());
      const folder = `killed-${transport}`;
      await mkdir(maker.path(folder));
      await warm(maker.path(folder));
      const before = await bornCount();
      const closed: number[] = [];
      const makers = [0, 1, 2, 3].map(async (worker) => {
        for (let number = worker; ; number += 4) {
          try {
            await writeFile(maker.path(folder, `f${number}`), textOf(number));
          } catch {
            // The mount has ended: whether this file exists is unknown.
            return;
          }
          closed.push(number);
        }
      });
      await until('some are made', async () => closed.length >= 100);
      process.kill(maker.pid, 'SIGKILL');
      await Promise.all(makers);
      assert.ok((await bornCount()) - before > 50, 'They were created with contents');
      for (const number of closed)
        assert.equal(await readFile(other.path(folder, `f${number}`), 'utf8'), textOf(number));
      // A client that creates a name there waits for the dead mount's session, and no longer.
      await writeFile(other.path(folder, 'afterwards'), 'made');
    });
  }

  for (const transport of await transportsOfForm()) {
    test(`files removed on a mount no longer exist for a mount without cache, and for all clients after the unmount (${transport})`, async (t) => {
      const mount = await ClusterMount.start(cluster, VOLUME, '--transport', transport);
      t.after(() => mount.stop());
      const strict = await ClusterMount.start(cluster, VOLUME, '--transport', transport, '--cache', 'strict');
      t.after(() => strict.stop());
      const [looked, left] = [`looked-${transport}`, `left-${transport}`];
      for (const folder of [looked, left]) {
        await mkdir(mount.path(folder));
        await warm(mount.path(folder));
        for (const name of await readdir(mount.path(folder))) await unlink(mount.path(folder, name));
        const made = Array.from({ length: 120 }, (_, number) => `f${number}`);
        await Promise.all(made.map((name) => writeFile(mount.path(folder, name), name)));
      }
      /**
       * @returns how many took so long here that the mount may have waited for the next one for more than a streak's
       * pause
       */
      const remove = async (folder: string) => {
        let late = 0;
        for (let number = 0; number < 100; number++) {
          const beganMs = performance.now();
          await unlink(mount.path(folder, `f${number}`));
          if (performance.now() - beganMs > UNLINK_STREAK_MS / 2) late++;
        }
        return late;
      };
      const before = await singlyRemovedCount();
      const late = await remove(looked);
      const listed = await readdir(strict.path(looked));
      assert.equal(listed.length, 20);
      assert.ok(listed.every((name) => Number(name.slice(1)) >= 100));
      const singly = (await singlyRemovedCount()) - before;
      t.diagnostic(`Of 100 removals ${singly} waited for the cluster; ${late} were answered late`);
      // A streak that has ended begins again after two unlinks, and requests the directory's delegation after eight.
      assert.ok(singly < 20 + 8 * late, `The unlinks are asynchronous: ${singly} waited, ${late} were late`);
      await remove(left);
      await mount.unmount();
      const { inode } = await client.resolve(VOLUME, `/${left}`);
      const { entries } = await client.query({ kind: 'list', inode, after: '', countMax: 1_000 });
      assert.equal(entries.length, 20);
    });
  }

  test('of files removed a moment before the mount was killed, only the last ones may exist again', async (t) => {
    const mount = await ClusterMount.start(cluster, VOLUME);
    t.after(() => mount.stop());
    await mkdir(mount.path('torn'));
    await warm(mount.path('torn'));
    const nameOf = (number: number) => `f${String(number).padStart(4, '0')}`;
    const names = Array.from({ length: 300 }, (_, number) => nameOf(number));
    await Promise.all(names.map((name) => writeFile(mount.path('torn', name), name)));
    let removed = 0;
    const removing = (async () => {
      for (; removed < names.length; removed++) await unlink(mount.path('torn', nameOf(removed)));
    })();
    await until('some are removed', async () => removed >= 50);
    process.kill(mount.pid, 'SIGKILL');
    // The outcome of the removal under way is unknown.
    await assert.rejects(removing);
    const { inode } = await client.resolve(VOLUME, '/torn');
    const { entries } = await client.query({ kind: 'list', inode, after: 'f', countMax: 1_000 });
    const there = entries.map(({ name }) => name).filter((name) => name.startsWith('f'));
    t.diagnostic(`${removed} removed, ${names.length - there.length} gone`);
    assert.deepEqual(there, names.slice(names.length - there.length), 'In their order');
    assert.ok(there.length >= names.length - removed - 1);
  });

  test('an archive that is unpacked while servers are killed is complete', {
    skip: onlyLong('test/simulation/cluster/cluster.test.ts'),
  }, async (t) => {
    const maker = await ClusterMount.start(cluster, VOLUME, '--op-timeout', '60s');
    t.after(() => maker.stop());
    await mkdir(maker.path('unpacked'));
    let isDone = false;
    let killed = 0;
    const kills = (async () => {
      while (!isDone) {
        const { primary } = await client.status().then(({ catalog }) => catalog);
        if (primary !== null) {
          await cluster.kill(primary);
          killed++;
          await delay(500);
          await cluster.restart(primary);
        }
        await delay(2_000);
      }
    })();
    const untilMs = performance.now() + LOAD_MS;
    const isOver = () => performance.now() >= untilMs && killed >= KILLS;
    const closed: number[] = [];
    const makers = [0, 1, 2, 3].map(async (worker) => {
      for (let number = worker; !isOver(); number += 4) {
        const folder = maker.path('unpacked', `d${Math.floor(number / 40)}`);
        await mkdir(folder, { recursive: true });
        await writeFile(`${folder}/f${number}`, textOf(number), { flag: 'wx' });
        closed.push(number);
      }
      return worker;
    });
    await Promise.all(makers);
    isDone = true;
    await kills;
    await maker.unmount();
    const other = await ClusterMount.start(cluster, VOLUME, '--op-timeout', '60s');
    t.after(() => other.stop());
    const there = new Set<number>();
    for (const folder of await readdir(other.path('unpacked'))) {
      for (const name of await readdir(other.path('unpacked', folder))) {
        const number = Number(name.slice(1));
        assert.equal(await readFile(other.path('unpacked', folder, name), 'utf8'), textOf(number));
        there.add(number);
      }
    }
    t.diagnostic(`${there.size} files, ${killed} servers killed`);
    assert.deepEqual(
      closed.filter((number) => !there.has(number)),
      [],
    );
  });

  test('the close that exceeds a quota reports it', {
    skip: onlyLong('test/cluster/mount-quota.test.ts'),
  }, async (t) => {
    await client.command({
      kind: 'volume-create',
      ...{ name: 'small', replicas: 3, objectBytes: 131_072, quotaBytes: 10 * 1024 * 1024 },
    });
    const mount = await ClusterMount.start(cluster, 'small');
    t.after(() => mount.stop());
    await mkdir(mount.path('d'));
    await warm(mount.path('d'));
    const bytes = Buffer.alloc(100_000, 'x');
    let made = 0;
    const fill = async () => {
      for (; made < 200; made++) await writeFile(mount.path('d', `f${made}`), bytes);
    };
    // EDQUOT, for which Node has no name.
    await assert.rejects(fill(), { errno: -122 });
    assert.ok(made >= 90, `${made} files`);
    for (let number = 0; number < made; number++)
      assert.equal((await stat(mount.path('d', `f${number}`))).size, bytes.length);
  });
});

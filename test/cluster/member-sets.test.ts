/**
 * Goal: for one file and one number of a view there is one member set, on every server, whichever server is paused
 * while files are created; and what a close acknowledged is readable with its bytes.
 * Method: five real servers and a mount that creates files with contents; the creating server, which is the catalog's
 * primary, is paused for longer than a creation is waited for, twice, and then killed. At the end the servers' disks
 * are compared.
 */
import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import Database from 'better-sqlite3';
import type { View } from '../../replica/view.ts';
import { noMount } from '../fuse/mounted.ts';
import { ClusterMount } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

const VOLUME = 'sets';
const WRITERS = 6;
/** Files that are read at a time. */
const READERS = 8;
const BYTES = 30_000;
/** Longer than contents of new files wait for a majority. */
const PAUSE_MS = 4_000;

function contentsOf(name: string): string {
  return name.padEnd(BYTES, `${name} `);
}

/** @returns the views of all replicas of a server that has ended, by file */
function viewsOf(cluster: RealCluster, id: string): Map<number, View> {
  const index = new Database(join(cluster.data(id), 'index.db'), { readonly: true });
  try {
    const rows = index.prepare('SELECT file, view FROM files').all() as { file: number; view: string }[];
    return new Map(rows.map(({ file, view }) => [file, JSON.parse(view) as View]));
  } finally {
    index.close();
  }
}

/** @returns files for which servers have different members under the same number of a view */
function forks(cluster: RealCluster): string[] {
  const seen = new Map<string, string>();
  const found: string[] = [];
  for (const id of cluster.ids) {
    for (const [file, { number, members, joint }] of viewsOf(cluster, id)) {
      const view = `${file} view ${number}`;
      const own = JSON.stringify([members.toSorted(), joint?.toSorted()]);
      const known = seen.get(view) ?? own;
      seen.set(view, known);
      if (known !== own) found.push(`${view}: ${known}, ${own} at ${id}`);
    }
  }
  return found;
}

describe('member sets of new files', { skip: noMount }, () => {
  test('a pause or a kill of the creating server forks no file, and loses none', async (t) => {
    const cluster = await RealCluster.start({ servers: 5 });
    t.after(() => cluster.stop());
    await cluster.createVolume(VOLUME);
    const mount = await ClusterMount.start(cluster, VOLUME);
    t.after(() => mount.stop());
    const folder = mount.path('files');
    await mkdir(folder);
    const bornCount = () => cluster.counted('leasehold_creations_with_contents_total', 'outcome="created"');
    for (let count = 0; (await bornCount()) === 0; count++)
      await writeFile(join(folder, `warm${count}`), 'warm');

    const closed: string[] = [];
    const failures: unknown[] = [];
    let isOver = false;
    const writers = Array.from({ length: WRITERS }, async (_, writer) => {
      for (let number = 0; !isOver; number++) {
        const name = `w${writer}-${number}`;
        try {
          await writeFile(join(folder, name), contentsOf(name), { flag: 'wx' });
          closed.push(name);
        } catch (error) {
          failures.push(error);
        }
        await delay(20);
      }
    });
    for (const trouble of ['pause', 'pause', 'kill'] as const) {
      await delay(500);
      const { primary } = (await cluster.status(cluster.ids[0] as string)).catalog;
      assert.ok(primary !== null);
      if (trouble === 'kill') {
        await cluster.kill(primary);
        await cluster.restart(primary);
      } else {
        cluster.signal(primary, 'SIGSTOP');
        await delay(PAUSE_MS);
        cluster.signal(primary, 'SIGCONT');
      }
      const before = closed.length;
      await until('files are made again', async () => closed.length > before + WRITERS);
    }
    isOver = true;
    await Promise.all(writers);
    assert.deepEqual(failures, []);

    const other = await ClusterMount.start(cluster, VOLUME, '--cache', 'strict');
    t.after(() => other.stop());
    const left = closed.values();
    const reader = async (): Promise<void> => {
      for (const name of left)
        assert.equal(await readFile(other.path('files', name), 'utf8'), contentsOf(name), name);
    };
    await Promise.all(Array.from({ length: READERS }, reader));
    await other.unmount();
    await mount.unmount();
    await Promise.all(cluster.ids.map((id) => cluster.kill(id, 'SIGTERM')));
    assert.deepEqual(forks(cluster), []);
    t.diagnostic(`${closed.length} files`);
  });
});

/**
 * Goal: of two mounts that create one name exclusively only one succeeds, by open(O_EXCL), mkdir, symlink, link or
 * renameat2(RENAME_NOREPLACE), also if the first one is paused for longer than its session, before or after its answer.
 * What the other one writes to such a file meanwhile, and syncs, stays.
 * Method: real servers and real mounts; each call has a separate process, and one mount's process is stopped around its
 * calls.
 */
import assert from 'node:assert/strict';
import { mkdir, open, readFile, writeFile } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { noMounts, transportsOfForm } from '../posix/mounts.ts';
import { type Outcome, Program, USERS } from '../posix/program.ts';
import { ClusterMount } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

const VOLUME = 'locks';
const CALLS = ['open', 'mkdir', 'symlink', 'link', 'rename'] as const;
/** The first mount is stopped so long after its calls began; null: after they were answered. */
const STOPPED_AFTER_MS = [null, 1] as const;

const obstacle = await noMounts();

let cluster: RealCluster;

before(async () => {
  cluster = await RealCluster.start();
  await cluster.createVolume(VOLUME);
});

after(() => cluster.stop());

/** A mount whose calls each have a separate process. */
class Locker {
  readonly mount: ClusterMount;
  readonly #programs = new Map(CALLS.map((call) => [call, new Program(USERS.root)]));

  constructor(mount: ClusterMount) {
    this.mount = mount;
  }

  /**
   * Creates one name by each call.
   * @param by prefix of names that only this mount uses
   */
  take(folder: string, by: string): Promise<Outcome[]> {
    const [own, name] = [`${folder}/${by}`, (call: string) => this.mount.path(folder, call)];
    const of = (call: (typeof CALLS)[number]) => this.#programs.get(call) as Program;
    return Promise.all([
      of('open').call('open', name('open'), name('open'), 'CREAT|EXCL|WRONLY'),
      of('mkdir').call('mkdir', name('mkdir')),
      of('symlink').call('symlink', 'target', name('symlink')),
      of('link').call('link', this.mount.path(`${own}-linked`), name('link')),
      of('rename').call('rename-with', this.mount.path(`${own}-moved`), name('rename'), 1),
    ]);
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#programs.values()].map((program) => program.stop()));
    await this.mount.stop();
  }
}

async function writeSynced(path: string, text: string): Promise<void> {
  await using file = await open(path, 'w');
  await file.writeFile(text);
  await file.sync();
}

async function paused<Result>(pid: number, work: () => Promise<Result>): Promise<Result> {
  process.kill(pid, 'SIGSTOP');
  try {
    return await work();
  } finally {
    process.kill(pid, 'SIGCONT');
  }
}

describe('names that are created exclusively', { skip: obstacle, concurrency: true }, async () => {
  const ways = (await transportsOfForm()).flatMap((transport) =>
    ['ttl:1s', 'leases'].map((cache) => ({ transport, cache })),
  );
  for (const { transport, cache } of ways) {
    test(`one of two mounts creates each name (${transport}, ${cache})`, async (t) => {
      const start = async () =>
        new Locker(await ClusterMount.start(cluster, VOLUME, '--transport', transport, '--cache', cache));
      const [one, other] = [await start(), await start()];
      t.after(() => one.stop());
      t.after(() => other.stop());
      for (const [round, afterMs] of STOPPED_AFTER_MS.entries()) {
        const folder = `${transport}-${cache.slice(0, 3)}-${round}`;
        await mkdir(other.mount.path(folder));
        for (const by of ['one', 'other'])
          for (const use of ['linked', 'moved'])
            await writeFile(other.mount.path(folder, `${by}-${use}`), by);
        // Two files that are created one after the other get the directory delegated to their mount.
        await until('the mount sees the directory', () =>
          writeFile(one.mount.path(folder, 'warm'), '').then(() => true),
        );
        for (let count = 0; count < 5; count++) await writeFile(one.mount.path(folder, `warm${count}`), '');
        const taking = one.take(folder, 'one');
        if (afterMs === null) await taking;
        else await delay(afterMs);
        // Closed also if the test fails: the garbage collector would close it in the test's thread, which a stopped
        // mount would block.
        await using kept = afterMs === null ? await open(one.mount.path(folder, 'kept'), 'wx') : null;
        await kept?.write('by its creator, and long');
        const theirs = await paused(one.mount.pid, async () => {
          // These need the directory: the first mount's session has ended when they are answered.
          const taken = await other.take(folder, 'other');
          if (kept !== null) await writeSynced(other.mount.path(folder, 'kept'), 'by the other');
          return taken;
        });
        const ours = await taking;
        if (kept !== null) {
          // It returns 0 if the contents were at the cluster before the pause.
          await kept.close().catch((error: unknown) => assert.match(String(error), /EIO/));
          const text = await readFile(other.mount.path(folder, 'kept'), 'utf8');
          assert.equal(text, 'by the other', 'What was synced stays');
        }
        for (const [place, call] of CALLS.entries()) {
          const outcomes = [ours[place], theirs[place]].map((outcome) => outcome?.errno ?? 'success');
          assert.deepEqual(
            outcomes.toSorted(),
            ['EEXIST', 'success'],
            `${call}, stopped after ${afterMs} ms`,
          );
        }
      }
    });
  }
});

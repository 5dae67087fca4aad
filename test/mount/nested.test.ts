/**
 * Goal: a mount shows volumes with catalogs of their own, attached below each other, as one tree. What happens to one
 * of them, or to its catalog, concerns the others as little as on separate mounts.
 * Method: real servers and mounts: `inner` is attached in `team`, and `team` in `main`.
 */
import assert from 'node:assert/strict';
import { mkdir, open, readdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { printedBy } from '../client/run-cli.ts';
import { ClusterMount, run, runOk } from '../cluster/cluster-mount.ts';
import { HANDLES_VALID, openedByHandles } from '../cluster/file-handles.ts';
import { RealCluster, until } from '../cluster/real-cluster.ts';
import { mountOver, noMounts, transportsOfForm } from '../posix/mounts.ts';
import { Coherence } from './coherence.ts';
import { unpromised } from './subjects.ts';

const ROUNDS = 60;
const TEAM = ['projects', 'team'] as const;
const INNER = [...TEAM, 'deep', 'inner'] as const;

/** A mount that caches names by time shows other clients' changes of them within a second. */
const SHOWN_MS_MAX = 10_000;

async function isAbsent(path: string): Promise<boolean> {
  try {
    await stat(path);
    return false;
  } catch (error) {
    assert.equal((error as NodeJS.ErrnoException).code, 'ENOENT');
    return true;
  }
}

const skip = await noMounts();
if (skip === false) await define();
else test('a mount of nested volumes', { skip }, () => undefined);

async function define(): Promise<void> {
  const cluster = await RealCluster.start({ servers: 5 });
  after(() => cluster.stop());
  const leasehold = (...argv: readonly string[]): Promise<string> => {
    const running = cluster.ids.filter((id) => cluster.isRunning(id)).map((id) => cluster.url(id));
    return printedBy(argv, { env: { LEASEHOLD_SERVERS: running.join(',') } });
  };
  const catalogOf = async (volume: string): Promise<{ members: string[]; primary: string | null }> => {
    const listed = JSON.parse(await leasehold('volume', 'ls', '--json')) as {
      catalogs: { name: string; members: string[]; primary: string | null }[];
    };
    const found = listed.catalogs.find(({ name }) => name === volume);
    assert.ok(found, `${volume} is listed`);
    return found;
  };
  await cluster.createVolume('main');
  await leasehold('mkdir', 'main:/projects');
  await leasehold('volume', 'create', 'team', '--own-catalog', '--at', 'main:/projects/team');
  await leasehold('mkdir', 'main:/projects/team/deep');
  await leasehold('volume', 'create', 'inner', '--own-catalog', '--at', 'main:/projects/team/deep/inner');

  for (const transport of await transportsOfForm()) {
    test(`programs use the tree (${transport})`, async (t) => {
      const mount = await mountOver(cluster, transport);
      t.after(() => mount.stop());
      const shell = async (script: string): Promise<string> =>
        (await runOk('sh', ['-ec', script], { cwd: mount.directory })).text.trim();
      const failure = async (script: string): Promise<string> => {
        const { code, text } = await run('sh', ['-ec', script], { cwd: mount.directory });
        assert.notEqual(code, 0, script);
        return text;
      };
      // Over the native transport, programs see the names of a file as several files.
      const format = transport === 'native' ? '%a %Y' : '%a %Y %h';
      await shell('mkdir -p one/two; echo text > one/two/f; ln -s two/f one/link; ln one/two/f one/two/g');
      await shell('chmod 640 one/two/f; touch -d "2001-02-03 04:05:06" one/two/f');
      await shell(`cp -a one ${TEAM.join('/')}/; cp -a ${TEAM.join('/')}/one ${INNER.join('/')}/`);
      await shell(`diff -r one ${INNER.join('/')}/one`);
      assert.equal(
        await shell(`stat -c '${format}' one/two/f ${INNER.join('/')}/one/two/f | uniq | wc -l`),
        '1',
      );
      assert.equal(await shell('find . -name f | wc -l'), '3');
      assert.equal(await shell(`find . -name inner -newermt 2001-01-01 -type d`), `./${INNER.join('/')}`);
      assert.equal(await shell(`cd ${INNER.join('/')}; pwd -P; ls ..`), `${mount.path(...INNER)}\ninner`);
      await shell(
        `du -s . > /dev/null; df ${INNER.join('/')} > /dev/null; stat -f ${TEAM.join('/')} > /dev/null`,
      );
      await shell(
        `mv one/two/f ${TEAM.join('/')}/moved; grep text ${TEAM.join('/')}/moved; test ! -e one/two/f`,
      );
      assert.match(await failure(`ln one/two/g ${TEAM.join('/')}/hard`), /cross-device/i);
      await shell('head -c 3000000 /dev/urandom > big; cp big projects/team/big; cmp big projects/team/big');
      await shell('cp projects/team/big projects/team/deep/inner/big; cmp big projects/team/deep/inner/big');
      if ((await run('git', ['--version'])).code === 0) {
        await shell(
          'git init -q projects/team/repository; cd projects/team/repository; echo x > x; git add x',
        );
        await shell(
          'cd projects/team/repository; git -c user.name=t -c user.email=t@t commit -qm x; git status --porcelain; git fsck',
        );
        await shell('git clone -q projects/team/repository projects/team/deep/inner/clone');
      }
      assert.equal(
        await shell('getfattr --only-values -n leasehold.volume projects/team/deep/inner'),
        'inner',
      );
      assert.match(await failure('rmdir projects/team'), /busy/i);
      assert.match(await failure('rm -r projects/team/deep/inner'), /inner'?: Device or resource busy/);
      assert.equal(await shell('ls -A projects/team/deep/inner'), '');
      assert.match(await failure('mkdir empty; mv -T empty projects/team'), /busy/i);
      await shell(
        'mv projects/team projects/renamed; grep text projects/renamed/moved; mv projects/renamed projects/team',
      );
      await shell('sync projects/team/moved; rm -r one empty big projects/team/[a-ce-z]*');
      assert.equal((await mount.unmount()).code, 0);
    });

    test(`two mounts of the tree show each other's changes (${transport})`, async (t) => {
      const mounts = [
        await mountOver(cluster, transport, '--cache', 'leases'),
        await mountOver(cluster, transport, '--cache', 'leases'),
      ] as const;
      for (const mount of mounts) t.after(() => mount.stop());
      const base = `coherent-${transport}`;
      await mkdir(mounts[0].path(...INNER, base));
      assert.ok((await stat(mounts[1].path(...INNER, base))).isDirectory());
      const places = mounts.map((mount) => ({ path: (name: string) => mount.path(...INNER, base, name) }));
      const without = unpromised(transport);
      const coherence = new Coherence(places, { seed: 1, groups: 1, rounds: ROUNDS, actors: 4, without });
      const { changes, looks, failed, wrong } = await coherence.run();
      const unexpected = [...failed.keys()].filter((what) => !/^(target|replaced) ENOENT$/.test(what));
      assert.deepEqual([...wrong, ...unexpected], []);
      assert.ok(changes > 0 && looks > 0);
      // The junction itself is a name of the directory above it.
      const [one, other] = mounts;
      await rename(one.path(...INNER), one.path(...TEAM, 'moved'));
      await assert.rejects(stat(other.path(...INNER)), { code: 'ENOENT' });
      assert.ok((await stat(other.path(...TEAM, 'moved', base))).isDirectory());
      await rename(other.path(...TEAM, 'moved'), other.path(...INNER));
      assert.ok((await stat(one.path(...INNER, base))).isDirectory());
    });
  }

  test("a kill of the primary of an attached volume's catalog delays its calls, and none fails", async (t) => {
    const mount = await ClusterMount.start(cluster, 'main');
    t.after(() => mount.stop());
    const { primary } = await catalogOf('team');
    assert.ok(primary !== null);
    const directory = mount.path(...TEAM, 'killed');
    await mkdir(directory);
    const names = Array.from({ length: 120 }, (_, index) => `f${index}`);
    const written = (async () => {
      for (const name of names) {
        await writeFile(join(directory, name), name);
        await rename(join(directory, name), join(directory, `${name}-renamed`));
      }
    })();
    await cluster.kill(primary);
    for (const name of names) await writeFile(mount.path('projects', name), name);
    await written;
    const other = await ClusterMount.start(cluster, 'main');
    t.after(() => other.stop());
    for (const name of names) {
      assert.equal(await readFile(other.path(...TEAM, 'killed', `${name}-renamed`), 'utf8'), name);
      assert.equal(await readFile(other.path('projects', name), 'utf8'), name);
    }
    await cluster.restart(primary);
  });

  test('what is open in a volume stays usable after it is detached', async (t) => {
    const mounts = [await ClusterMount.start(cluster, 'main'), await ClusterMount.start(cluster, 'main')];
    for (const mount of mounts) t.after(() => mount.stop());
    const [mount, other] = mounts as [ClusterMount, ClusterMount];
    const file = await open(mount.path(...TEAM, 'open'), 'w+');
    await file.writeFile('before');
    assert.equal(await readFile(other.path(...TEAM, 'open'), 'utf8'), 'before');
    await leasehold('volume', 'detach', 'main:/projects/team');
    for (const { directory } of mounts)
      await until('the name is gone', () => isAbsent(join(directory, ...TEAM)), SHOWN_MS_MAX);
    await file.write(Buffer.from('after!'), 0, 6, 0);
    await file.sync();
    await file.close();
    await leasehold('volume', 'attach', 'team', 'main:/again');
    for (const { directory } of mounts)
      assert.equal(await readFile(join(directory, 'again', 'open'), 'utf8'), 'after!');
    assert.deepEqual(await readdir(other.path('again', 'deep')), ['inner']);
    await leasehold('volume', 'detach', 'team');
    await leasehold('volume', 'attach', 'team', 'main:/projects/team');
    await until('the tree is as before', async () => !(await isAbsent(mount.path(...INNER))), SHOWN_MS_MAX);
  });

  test('a mount of a path in an attached volume is one of that volume', async (t) => {
    await leasehold('mkdir', 'team:/deep/more');
    const mount = await ClusterMount.start(cluster, 'main:/projects/team/deep');
    t.after(() => mount.stop());
    assert.deepEqual((await readdir(mount.directory)).toSorted(), ['inner', 'more']);
    await writeFile(mount.path('inner', 'through'), 'text');
    assert.equal((await mount.unmount()).code, 0);
    assert.equal(await leasehold('get', 'inner:/through', '-'), 'text');
  });

  test('a file handle leads into an attached volume', {
    skip: kernelTransportObstacle() ?? false,
  }, async (t) => {
    await cluster.createVolume('other');
    const mounts = await Promise.all(
      ['main', 'main', 'other'].map((volume) =>
        ClusterMount.start(cluster, volume, '-o', 'transport=kernel'),
      ),
    );
    for (const mount of mounts) t.after(() => mount.stop());
    const [first, second, other] = mounts as [ClusterMount, ClusterMount, ClusterMount];
    const inner = first.path(...INNER);
    assert.equal(await openedByHandles(inner, second.directory, other.directory), HANDLES_VALID);
  });

  test('a volume that has moved from the root catalog is entered as any other', async (t) => {
    const used = await ClusterMount.start(cluster, 'main');
    t.after(() => used.stop());
    await stat(used.path('projects'));
    await cluster.createVolume('moved');
    await leasehold('mkdir', 'moved:/d');
    const put = await fetch(`${cluster.url('s1')}/v1/files/moved/d/old`, { method: 'PUT', body: 'old' });
    assert.equal(put.status, 201);
    await leasehold('volume', 'own-catalog', 'moved');
    await leasehold('volume', 'attach', 'moved', 'main:/projects/moved');
    const fresh = await ClusterMount.start(cluster, 'main');
    t.after(() => fresh.stop());
    for (const [place, mount] of [used, fresh].entries()) {
      const at = (...names: string[]): string => mount.path('projects', 'moved', ...names);
      await until('the volume is entered', async () => (await readdir(at())).length > 0);
      assert.equal(await readFile(at('d', 'old'), 'utf8'), 'old');
      await writeFile(at('d', `new-${place}`), 'new');
      await rename(at('d', `new-${place}`), at(`new-${place}`));
      await mkdir(at(`made-${place}`));
      await assert.rejects(rename(at('d', 'old'), mount.path('projects', 'old')), { code: 'EXDEV' });
      // Numbers of the root catalog, on both sides.
      assert.ok((await stat(at('d', 'old'))).ino !== (await stat(mount.path('projects'))).ino);
    }
    assert.equal(await leasehold('get', 'main:/projects/moved/new-0', '-'), 'new');
    assert.equal(await readFile(used.path('projects', 'moved', 'new-1'), 'utf8'), 'new');
    await Promise.all([used, fresh].map(async (mount) => assert.equal((await mount.unmount()).code, 0)));
  });

  test('a volume that cannot be reached fails alone', async (t) => {
    const used = await ClusterMount.start(cluster, 'main', '--op-timeout', '4s');
    t.after(() => used.stop());
    await stat(used.path(...TEAM));
    const fresh = await ClusterMount.start(cluster, 'main', '--op-timeout', '4s');
    t.after(() => fresh.stop());
    const [one = '', two = ''] = (await catalogOf('team')).members;
    await Promise.all([cluster.kill(one), cluster.kill(two)]);
    const timedOut = { code: 'ETIMEDOUT' };
    for (const mount of [used, fresh]) {
      await until('the root catalog serves', async () => {
        const { code } = await run('mkdir', ['-p', mount.path('projects', 'beside')]);
        return code === 0;
      });
      await assert.rejects(readdir(mount.path(...TEAM)), timedOut);
      const beside = mount.path('projects', `made-${mount.pid}`);
      await mkdir(beside);
      await rename(beside, `${beside}-renamed`);
      assert.ok((await readdir(mount.path('projects'))).includes('team'));
    }
    await Promise.all([cluster.restart(one), cluster.restart(two)]);
    await until('the volume is reached again', async () => {
      const outcomes = await Promise.allSettled([used, fresh].map((mount) => stat(mount.path(...INNER))));
      return outcomes.every(({ status }) => status === 'fulfilled');
    });
  });
}

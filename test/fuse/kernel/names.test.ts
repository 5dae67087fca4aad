/**
 * Goal: while a name is cached the kernel sends no request for it, and still no open uses outdated names or contents.
 * Method: a mount over a cluster in memory, whose contents and names the test changes as another mount would.
 */
import assert from 'node:assert/strict';
import {
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { kernelTransportObstacle } from '../../../fuse/kernel/kernel-mount.ts';
import { TestMount } from '../mounted.ts';

const skip = kernelTransportObstacle() ?? false;
const FILES = 300;
const NAMES_KEPT_MS = 1_100;
const LONG = { ageMaxMs: 3_600_000 };

/** @param more sets the time for which the mount caches, for tests that do not wait for its end */
function overKernel(
  name: string,
  run: (mount: TestMount) => Promise<void>,
  more: { readonly ageMaxMs?: number } = {},
): void {
  const start = (t: TestContext): Promise<TestMount> => TestMount.start(t, 20_000, 'kernel', more);
  test(name, { skip, timeout: 120_000 }, async (t) => run(await start(t)));
}

/** @returns the number of requests that the cluster receives during `work`, by kind */
async function asked(mount: TestMount, work: () => Promise<unknown>): Promise<Record<string, number>> {
  const before = (await mount.report()).calls;
  await work();
  const { calls } = await mount.report();
  const counts = Object.entries(calls).map(([call, count]) => [call, count - (before[call] ?? 0)] as const);
  return Object.fromEntries(counts.filter(([, count]) => count > 0));
}

overKernel(
  'names that were listed with their attributes are not looked up',
  async (mount) => {
    const names = Array.from({ length: FILES }, (_, index) => `f${index}`);
    await mkdir(mount.path('d'));
    await Promise.all(names.map((name) => symlink(name, mount.path('d', name))));
    const calls = await asked(mount, async () => {
      const { stdout, code } = await mount.shell('ls -l d');
      assert.equal(code, 0);
      for (const name of names) assert.ok(stdout.includes(` ${name} -> ${name}\n`), name);
    });
    assert.deepEqual([calls.lookup ?? 0, calls.attributes ?? 0], [0, 0], JSON.stringify(calls));
  },
  LONG,
);

overKernel(
  'a name that was looked up is not looked up again while it is cached',
  async (mount) => {
    await writeFile(mount.path('a'), 'contents');
    await mount.shell('sync');
    const path = mount.path('a');
    await stat(path);
    await stat(path);
    const looks = 50;
    const calls = await asked(mount, async () => {
      for (let look = 0; look < looks; look++) await stat(path);
    });
    assert.deepEqual([calls.lookup ?? 0, calls.attributes ?? 0], [0, 0], JSON.stringify(calls));
  },
  LONG,
);

overKernel('an open reads all that another mount has written before', async (mount) => {
  await writeFile(mount.path('a'), 'short');
  for (const text of ['a good deal longer than before', 'less', 'and longer once more']) {
    assert.ok((await stat(mount.path('a'))).size > 0);
    await mount.writeFromElsewhere('a', text);
    assert.equal(await readFile(mount.path('a'), 'utf8'), text);
    assert.equal((await stat(mount.path('a'))).size, text.length);
  }
});

overKernel('an open uses the file that has the name now', async (mount) => {
  await writeFile(mount.path('a'), 'first');
  for (const text of ['the second', 'third']) {
    assert.ok((await stat(mount.path('a'))).size > 0);
    const handle = await open(mount.path('a'), 'r');
    await mount.replaceFromElsewhere('a', text);
    // The open file stays the same; the name is looked up again by the next open.
    assert.equal((await handle.stat()).size > 0, true);
    await handle.close();
    assert.equal(await readFile(mount.path('a'), 'utf8'), text);
  }
});

overKernel('a file that another mount has renamed is not opened by its earlier name', async (mount) => {
  await writeFile(mount.path('log'), 'old');
  await stat(mount.path('log'));
  await mount.renameFromElsewhere('log', 'log.1');
  await assert.rejects(readFile(mount.path('log')), { code: 'ENOENT' });
  assert.equal(await readFile(mount.path('log.1'), 'utf8'), 'old');
  await writeFile(mount.path('log'), 'new');
  const handle = await open(mount.path('log'), 'r');
  await mount.renameFromElsewhere('log', 'log.2');
  const again = await open(`/proc/self/fd/${handle.fd}`, 'r');
  assert.equal(await again.readFile('utf8'), 'new', 'An open file can be opened again by its descriptor');
  await again.close();
  await handle.close();
});

overKernel(
  'a file that another mount has renamed is not written by its earlier name, also if both names are cached',
  async (mount) => {
    const [log, old] = [mount.path('log'), mount.path('log.1')];
    for (const cut of [(path: string) => writeFile(path, 'new'), (path: string) => truncate(path, 0)]) {
      await writeFile(log, 'first');
      for (let look = 0; look < 2; look++) await stat(log);
      await mount.renameFromElsewhere('log', 'log.1');
      for (let look = 0; look < 2; look++) await stat(old);
      for (let round = 0; round < 2; round++) assert.equal(await readFile(old, 'utf8'), 'first');
      const outcome = await cut(log).catch(({ code }) => code);
      assert.equal(await readFile(old, 'utf8'), 'first');
      assert.equal(await readFile(log, 'utf8').catch(() => outcome), outcome ?? 'new');
      await rm(log, { force: true });
    }
  },
  LONG,
);

overKernel('a file system stays mounted on a directory whose name is looked up again', async (mount) => {
  const below = mount.path('below');
  await mkdir(below);
  await mount.shell('mount -t tmpfs none below');
  const { dev } = await stat(below);
  const looked = await asked(mount, async () => {
    for (let round = 0; round < 3; round++) {
      await delay(NAMES_KEPT_MS);
      assert.equal((await stat(below)).dev, dev);
    }
  });
  assert.ok((looked.lookup ?? 0) > 0, JSON.stringify(looked));
  assert.equal((await mount.shell('umount below')).code, 0);
  assert.notEqual((await stat(below)).dev, dev);
});

overKernel('programs see changes of the same mount at once', async (mount) => {
  await mkdir(mount.path('d'));
  const at = (name: string): string => mount.path('d', name);
  for (let round = 0; round < 20; round++) {
    await writeFile(at('new'), String(round));
    await stat(at('new'));
    await rename(at('new'), at('kept'));
    assert.equal(await readFile(at('kept'), 'utf8'), String(round));
    assert.deepEqual(await readdir(mount.path('d')), ['kept']);
    await assert.rejects(stat(at('new')), { code: 'ENOENT' });
    await unlink(at('kept'));
    await assert.rejects(stat(at('kept')), { code: 'ENOENT' });
  }
});

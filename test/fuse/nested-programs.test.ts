/**
 * Goal: programs use a mount with an attached volume like any tree: what is not possible between two volumes they do
 * by themselves, and a junction stays.
 */
import assert from 'node:assert/strict';
import { mkdir, open, stat, statfs } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { overTransports } from './mounted.ts';

overTransports(
  'programs copy, move, find and remove in a tree of two volumes',
  async (start) => {
    const mount = await start();
    const ok = async (script: string): Promise<string> => {
      const { stdout, stderr, code } = await mount.shell(`set -e; ${script}`);
      assert.equal(code, 0, `${script}: ${stdout}${stderr}`);
      return stdout.trim();
    };
    await ok('mkdir -p one/two; echo text > one/two/f; ln -s two/f one/link; ln one/two/f one/two/g');
    await ok(
      'cp -a one a/one; diff -r one a/one; test "$(stat -c %Y a/one/two/f)" = "$(stat -c %Y one/two/f)"; test "$(readlink a/one/link)" = two/f',
    );
    assert.equal(await ok('find . -name f | sort'), './a/one/two/f\n./one/two/f');
    assert.equal(await ok('cd a/one/two; pwd -P'), mount.path('a', 'one', 'two'));
    assert.equal(await ok('cd a; ls ..'), 'a\none');
    assert.equal(
      await ok('test "$(stat -c %i a)" = "$(ls -id a | cut -d" " -f1)"; ls -i | grep -c " a$"'),
      '1',
    );
    await ok('du -s . a one > /dev/null; df a > /dev/null; stat -f a > /dev/null');
    assert.match((await mount.shell('ln one/two/f a/hard')).stderr, /cross-device/i);
    await ok(
      'mv one/two/f a/moved; test "$(cat a/moved)" = text; test ! -e one/two/f; mv a/moved back; cat back',
    );
    await ok(
      'head -c 3000000 /dev/urandom > big; cp big a/big; cmp big a/big; cp --reflink=auto a/big again; cmp big again',
    );
    if ((await mount.shell('git --version')).code === 0) {
      await ok('git init -q a/repository; cd a/repository; echo x > x; git add x');
      await ok('cd a/repository; git -c user.name=t -c user.email=t@t commit -qm x; git status --porcelain');
    }
    assert.match((await mount.shell('rmdir a')).stderr, /busy/i);
    await ok('mv back a; mv one a/moved-one; test -L a/moved-one/link');
    assert.match((await mount.shell('rm -r a')).stderr, /'a': Device or resource busy/);
    assert.equal(await ok('ls -A a; echo text > a/kept; sync a/kept'), '');
    await ok('mv a b; cat b/kept; mv b a');
    const { sizes, nestedSizes } = await mount.report();
    assert.deepEqual([sizes.kept, nestedSizes], [undefined, { kept: 5 }]);
  },
  undefined,
  { nested: true },
);

overTransports(
  'df of an open directory answers while its volume does not',
  async (start) => {
    const mount = await start();
    await mkdir(mount.path('d'));
    await stat(mount.path('a'));
    const directory = await open(mount.path('d'));
    // Until then names are cached.
    await delay(1_100);
    await mount.disturb({ stalled: true });
    assert.notEqual((await statfs(`/proc/self/fd/${directory.fd}`)).blocks, 0);
    await mount.disturb({ stalled: false });
    await directory.close();
  },
  undefined,
  { nested: true },
);

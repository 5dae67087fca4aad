import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFile,
  chmod,
  chown,
  link,
  lstat,
  lutimes,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  rmdir,
  stat,
  statfs,
  symlink,
  truncate,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { isLong } from '../long.ts';
import { noMount, overTransports, TestMount } from './mounted.ts';

const run = promisify(execFile);

/** How long the kernel caches attributes of an open file, in milliseconds. */
const KERNEL_CACHE_MS = 1100;
/** Many times more than one reply lists. */
const NAMES = isLong ? 3_000 : 1_000;
/** Runs programs over the transport `kernel`, on a cluster. */
const EVERYDAY = 'test/programs/everyday.test.ts';

function code(expected: string): (error: unknown) => boolean {
  return (error) => {
    assert.equal((error as NodeJS.ErrnoException).code, expected);
    return true;
  };
}

overTransports('files, directories and links behave as on a local disk', async (start, t) => {
  const mount = await start();
  const at = (...names: string[]) => mount.path(...names);

  await t.test('write, read, stat', async () => {
    await writeFile(at('a'), 'hello');
    assert.equal(await readFile(at('a'), 'utf8'), 'hello');
    const stats = await stat(at('a'));
    assert.equal(stats.size, 5);
    assert.ok(stats.isFile());
    assert.equal(stats.mode & 0o777, 0o644);
    await writeFile(at('empty'), '');
    assert.equal((await stat(at('empty'))).size, 0);
    await writeFile(at('a'), 'hi');
    assert.equal(await readFile(at('a'), 'utf8'), 'hi');
  });

  await t.test('names that are missing, taken, too long or invalid', async () => {
    await assert.rejects(readFile(at('nowhere')), code('ENOENT'));
    await assert.rejects(readFile(at('a', 'b')), code('ENOTDIR'));
    await assert.rejects(writeFile(at('x'.repeat(256)), ''), code('ENAMETOOLONG'));
    await assert.rejects(open(at('a'), 'wx'), code('EEXIST'));
    const { code: exit } = await mount.shell(`touch "$(printf 'a\\377b')" 2>/dev/null`);
    assert.notEqual(exit, 0);
    for (const name of ['with space', '#hash', '100%', 'ünï-日本', "quo'te", 'x'.repeat(255)]) {
      await writeFile(at(name), name);
      assert.equal(await readFile(at(name), 'utf8'), name);
      await unlink(at(name));
    }
  });

  await t.test('directories', async () => {
    await mkdir(at('d', 'e', 'f'), { recursive: true });
    await writeFile(at('d', 'e', 'g'), '');
    assert.deepEqual((await readdir(at('d', 'e'))).sort(), ['f', 'g']);
    await assert.rejects(rmdir(at('d', 'e')), code('ENOTEMPTY'));
    await assert.rejects(mkdir(at('d')), code('EEXIST'));
    await assert.rejects(unlink(at('d')), code('EISDIR'));
    await rm(at('d'), { recursive: true });
    await assert.rejects(stat(at('d')), code('ENOENT'));
  });

  await t.test(`a directory of ${NAMES} names is listed completely`, async () => {
    await mkdir(at('many'));
    await mount.shell(`cd many && seq -f "n%05g" ${NAMES} | xargs touch`);
    assert.equal((await readdir(at('many'))).length, NAMES);
    assert.equal((await mount.shell('rm -r many')).code, 0);
  });

  // Few enough that a slow machine reads all of them before the cached listing expires.
  await t.test('attributes come with the list', async () => {
    await mkdir(at('some'));
    await mount.shell('cd some && seq -f "n%05g" 200 | xargs touch');
    await delay(KERNEL_CACHE_MS);
    const before = (await mount.report()).calls;
    const { stdout } = await mount.shell('ls -l some | wc -l');
    assert.equal(Number(stdout), 201);
    const asked = ((await mount.report()).calls.lookup ?? 0) - (before.lookup ?? 0);
    assert.ok(asked < 100, `${asked} lookups for 200 files`);
    assert.equal((await mount.shell('rm -r some')).code, 0);
  });

  await t.test('appends go to the end of the file, from several programs', async () => {
    await writeFile(at('log'), 'one\n');
    await appendFile(at('log'), 'two\n');
    await mount.shell('for i in 1 2 3; do (for j in $(seq 20); do echo "$i-$j" >> log; done) & done; wait');
    const lines = (await readFile(at('log'), 'utf8')).split('\n');
    assert.equal(lines.length, 63);
    assert.equal(new Set(lines).size, 63);
  });

  await t.test('truncate, and holes that read as zeros', async () => {
    await writeFile(at('t'), 'abcdefgh');
    await truncate(at('t'), 3);
    assert.equal(await readFile(at('t'), 'utf8'), 'abc');
    await truncate(at('t'), 6);
    assert.deepEqual(await readFile(at('t')), Buffer.from('abc\0\0\0'));
    const file = await open(at('sparse'), 'w+');
    await file.write('end', 5_000_000_000);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(8), 0, 8, 4_999_999_998);
    assert.equal(bytesRead, 5);
    assert.deepEqual(buffer.subarray(0, 5), Buffer.from('\0\0end'));
    assert.equal((await file.stat()).size, 5_000_000_003);
    await file.truncate(10);
    assert.equal((await file.stat()).size, 10);
    await file.close();
    assert.equal((await mount.shell('fallocate -l 4096 t && stat -c %s t')).stdout, '4096\n');
  });

  await t.test('symbolic links', async () => {
    await symlink('a', at('s'));
    assert.equal(await readlink(at('s')), 'a');
    assert.equal(await readFile(at('s'), 'utf8'), 'hi');
    assert.ok((await lstat(at('s'))).isSymbolicLink());
    await symlink('loop', at('loop'));
    await assert.rejects(readFile(at('loop')), code('ELOOP'));
  });

  await t.test('hard links share their contents, also while both are open', async () => {
    await writeFile(at('h1'), 'first');
    await link(at('h1'), at('h2'));
    assert.equal((await stat(at('h2'))).nlink, 2);
    const [one, two] = [await open(at('h1'), 'r+'), await open(at('h2'), 'r+')];
    await one.write('FIRST', 0);
    await one.sync();
    assert.equal((await two.read(Buffer.alloc(5), 0, 5, 0)).buffer.toString(), 'FIRST');
    await Promise.all([one.close(), two.close()]);
    await unlink(at('h1'));
    assert.equal((await stat(at('h2'))).nlink, 1);
    assert.equal(await readFile(at('h2'), 'utf8'), 'FIRST');
  });

  await t.test('rename replaces, also a file that is open; flags are honoured', async () => {
    await writeFile(at('old'), 'old');
    await writeFile(at('new'), 'new');
    const reader = await open(at('old'), 'r');
    await rename(at('new'), at('old'));
    assert.equal(await readFile(at('old'), 'utf8'), 'new');
    assert.equal(await reader.readFile('utf8'), 'old');
    await reader.close();
    await assert.rejects(stat(at('new')), code('ENOENT'));
    await mkdir(at('dir'));
    await rename(at('old'), at('dir', 'moved'));
    assert.equal(await readFile(at('dir', 'moved'), 'utf8'), 'new');
    await writeFile(at('x1'), '1');
    await writeFile(at('x2'), '2');
    await mount.shell('mv -n x1 x2');
    assert.equal(await readFile(at('x2'), 'utf8'), '2');
  });

  await t.test('an unlinked file stays usable while it is open, and leaves no name', async () => {
    await mkdir(at('gone'));
    const file = await open(at('gone', 'f'), 'w+');
    await file.write('still here', 0);
    await unlink(at('gone', 'f'));
    assert.deepEqual(await readdir(at('gone')), []);
    await file.write('STILL', 0);
    assert.equal((await file.read(Buffer.alloc(10), 0, 10, 0)).buffer.toString(), 'STILL here');
    assert.equal((await file.stat()).nlink, 0);
    await file.truncate(5);
    await file.chmod(0o600);
    assert.equal((await file.stat()).size, 5);
    await rmdir(at('gone'));
    await file.close();
  });

  await t.test('permissions, owners and times', async () => {
    await writeFile(at('p'), 'x');
    await chmod(at('p'), 0o640);
    await chown(at('p'), 12, 34);
    const stats = await stat(at('p'));
    assert.equal(stats.mode & 0o7777, 0o640);
    assert.deepEqual([stats.uid, stats.gid], [12, 34]);
    await chmod(at('p'), 0o6755);
    await chown(at('p'), 13, 35);
    assert.equal((await stat(at('p'))).mode & 0o7777, 0o755);
    await mount.shell('touch -m -d "2001-02-03 04:05:06.123456789 UTC" p');
    const times = await stat(at('p'), { bigint: true });
    assert.equal(times.mtimeNs, 981_173_106_123_456_789n);
    assert.ok(times.atimeNs > 1_500_000_000_000_000_000n, 'The access time stays the same');
    await mount.shell('touch -d @-5.5 p');
    assert.equal((await stat(at('p'), { bigint: true })).mtimeNs, -5_500_000_000n);
    await symlink('nowhere', at('ps'));
    await lutimes(at('ps'), 1, 2);
    assert.equal((await lstat(at('ps'))).mtimeMs, 2000);
    await mount.shell('mkfifo fifo && mknod node c 1 3');
    assert.ok((await lstat(at('fifo'))).isFIFO());
    assert.ok((await lstat(at('node'))).isCharacterDevice());
    assert.equal((await lstat(at('node'))).rdev, 0x103);
  });

  await t.test('a time that is set while the file is open stays after its close', async () => {
    const file = await open(at('timed'), 'w');
    await file.write('contents');
    await file.utimes(1000, 2000);
    assert.equal((await file.stat()).mtimeMs, 2_000_000);
    await file.close();
    assert.equal((await stat(at('timed'))).mtimeMs, 2_000_000);
    await appendFile(at('timed'), 'more');
    assert.notEqual((await stat(at('timed'))).mtimeMs, 2_000_000);
  });

  await t.test('extended attributes', async (t) => {
    const script = `
      import os, sys
      p = sys.argv[1]
      os.setxattr(p, "user.a", b"one"); os.setxattr(p, "user.b", b"")
      assert os.getxattr(p, "user.a") == b"one" and os.getxattr(p, "user.b") == b""
      assert sorted(os.listxattr(p)) == ["user.a", "user.b"]
      os.removexattr(p, "user.b")
      for name, errno in (("user.b", 61), ("security.selinux", 95)):
        try: os.getxattr(p, name); sys.exit("found")
        except OSError as e: assert e.errno == errno, e
      try: os.setxattr(p, "user.a", b"", os.XATTR_CREATE); sys.exit("created")
      except OSError as e: assert e.errno == 17, e`.replaceAll(/^ {6}/gm, '');
    if ((await mount.shell('python3 -c ""')).code !== 0) return t.skip('python3 is not installed');
    const before = (await mount.report()).calls;
    const { code: exit, stderr } = await mount.shell(`python3 -c '${script}' a`);
    assert.equal(exit, 0, stderr);
    const after = (await mount.report()).calls;
    assert.equal(
      (after.xattr ?? 0) - (before.xattr ?? 0),
      3,
      'Capabilities are answered without the cluster',
    );
  });

  await t.test('the size of the volume', async () => {
    const { blocks, bsize, bavail } = await statfs(mount.directory);
    assert.equal(blocks * bsize, 1 << 30);
    assert.equal(bavail * bsize, 1 << 29);
  });

  await t.test('a new file belongs to the user who creates it', async () => {
    await mkdir(at('shared'));
    await chmod(at('shared'), 0o2777);
    await chown(at('shared'), 0, 77);
    const { code: exit, stderr } = await mount.shell(
      'cd shared && setpriv --reuid 1234 --regid 1234 --clear-groups sh -c "echo mine > f; mkdir d"',
    );
    assert.equal(exit, 0, stderr);
    const [file, directory] = [await stat(at('shared', 'f')), await stat(at('shared', 'd'))];
    assert.deepEqual([file.uid, file.gid], [1234, 77]);
    assert.equal(directory.mode & 0o2000, 0o2000);
    await chmod(at('shared', 'f'), 0o4766);
    await mount.shell('setpriv --reuid 99 --regid 99 --clear-groups sh -c "echo more >> shared/f"');
    assert.equal(
      (await stat(at('shared', 'f'))).mode & 0o7777,
      0o766,
      'A write by another user clears the set-user-id bit',
    );
  });
});

overTransports('a name that another mount replaces never vanishes', async (start) => {
  const mount = await start();
  const at = (...parts: string[]) => mount.path(...parts);
  await mount.shell('mkdir d; echo contents > d/file; ln -s file d/link; umask 0; chmod 0777 d/file');
  for (const [name, work] of [
    ['file', () => stat(at('d', 'file'))],
    ['file', () => readFile(at('d', 'file'))],
    ['file', () => chmod(at('d', 'file'), 0o600)],
    ['link', () => readlink(at('d', 'link'))],
    ['file', () => stat(at('d', 'link'))],
  ] as const) {
    await mount.disturb({ replaced: name });
    await assert.doesNotReject(work(), `${work}`);
  }
  await mount.disturb({ replaced: null });
  assert.equal(await readFile(at('d', 'link'), 'utf8'), 'contents\n');
});

overTransports('a file that another mount has changed is read again', async (start) => {
  const mount = await start();
  await writeFile(mount.path('r'), 'a');
  for (const text of ['longer than before', 'short', 'x'.repeat(300_000)]) {
    await mount.writeFromElsewhere('r', text);
    assert.ok((await readFile(mount.path('r'), 'utf8')) === text, 'The first change is seen');
    await mount.shell('ls -l >/dev/null');
    await mount.writeFromElsewhere('r', `${text}, twice`);
    assert.ok((await readFile(mount.path('r'), 'utf8')) === `${text}, twice`, 'The second change is seen');
  }
  const file = await open(mount.path('r'), 'r');
  assert.equal((await file.read(Buffer.alloc(6), 0, 6, 0)).buffer.toString(), 'xxxxxx');
  await mount.writeFromElsewhere('r', 'opened before');
  await delay(KERNEL_CACHE_MS);
  assert.equal((await file.read(Buffer.alloc(13), 0, 13, 0)).buffer.toString(), 'opened before');
  await file.close();
});

overTransports(
  'programs work: cp, cmp, dd, tar, git',
  async (start, t) => {
    const mount = await start();
    const {
      stdout,
      stderr,
      code: exit,
    } = await mount.shell(`
    set -e
    head -c 16777216 /dev/urandom > "$0.reference"
    trap 'rm -f "$0.reference"' EXIT
    cp "$0.reference" big; cmp "$0.reference" big
    dd if=big of=copy bs=64k conv=fsync 2>/dev/null; cmp big copy; rm copy
    dd if=/dev/zero of=big bs=1k count=3 seek=1000 conv=notrunc 2>/dev/null
    dd if=/dev/zero of="$0.reference" bs=1k count=3 seek=1000 conv=notrunc 2>/dev/null
    cmp "$0.reference" big; rm big
    mkdir tree; for i in $(seq 10); do mkdir tree/$i; echo $i > tree/$i/f; ln -s f tree/$i/s; done
    touch -d 2011-01-01 tree/7/f
    tar cf t.tar tree; mkdir out; tar xf t.tar -C out; diff -r --no-dereference tree out/tree
    test "$(stat -c %Y tree/7/f)" = "$(stat -c %Y out/tree/7/f)"
    cp -a tree tree2; test "$(stat -c %Y tree/7/f)" = "$(stat -c %Y tree2/7/f)"
    if command -v git >/dev/null; then
      git init -q repo; cd repo; git config user.email a@b; git config user.name n
      cp -r ../tree .; git add .; git commit -qm one; git fsck --strict; git status --porcelain
      git clone -q --no-hardlinks . ../clone; cd ../clone; git fsck
    fi
    echo done`);
    assert.equal(exit, 0, stderr);
    assert.match(stdout, /done$/m);
    const { residentBytes } = await mount.report();
    t.diagnostic(`resident: ${Math.round(residentBytes / 1e6)} MB, including the volume in memory`);
  },
  EVERYDAY,
);

overTransports(
  'databases work with a rollback journal',
  async (start) => {
    const mount = await start();
    const { default: Database } = await import('better-sqlite3');
    // Calls of the database are synchronous; they block this process only, and not that of the mount.
    const database = new Database(mount.path('db'));
    database.pragma('journal_mode = DELETE');
    database.exec('create table t (a integer primary key, b text)');
    const insert = database.prepare('insert into t (b) values (?)');
    for (let round = 0; round < 10; round++) {
      database.transaction(() => {
        for (let row = 0; row < 50; row++) insert.run('x'.repeat(200));
      })();
    }
    database.close();
    const again = new Database(mount.path('db'));
    assert.deepEqual(again.prepare('select count(*) as n from t').get(), { n: 500 });
    assert.deepEqual(again.pragma('integrity_check'), [{ integrity_check: 'ok' }]);
    again.close();
  },
  EVERYDAY,
);

overTransports(
  'a cluster that does not answer is an error within the time limit, never a hang',
  async (start) => {
    const limitMs = 1000;
    const mount = await start(limitMs);
    await writeFile(mount.path('f'), 'x'.repeat(100_000));
    await statfs(mount.directory);
    await mkdir(mount.path('d'));
    const file = await open(mount.path('f'), 'r+');
    const directory = await open(mount.path('d'));
    // Until then the kernel answers from its cache.
    await delay(KERNEL_CACHE_MS);
    await mount.disturb({ stalled: true });
    const within = async (
      what: string,
      limits: number,
      call: Promise<unknown>,
      errno?: string,
    ): Promise<void> => {
      const startMs = performance.now();
      // On a machine that is stopped meanwhile this timer fires late, too.
      const due = delay(limits * limitMs, undefined, { ref: false }).then(() => performance.now());
      if (errno === undefined) await call;
      else await assert.rejects(call, code(errno), what);
      const endMs = performance.now();
      if (endMs - startMs < limits * limitMs) return;
      const lateMs = Math.round(endMs - (await due));
      assert.ok(lateMs < 0.9 * limitMs, `${what} ended ${lateMs} ms after its limit`);
    };
    await within('stat', 1, stat(mount.path('f')), 'ETIMEDOUT');
    await within('open', 1, readFile(mount.path('f')), 'ETIMEDOUT');
    await within('create', 1, writeFile(mount.path('g'), ''), 'ETIMEDOUT');
    await within('mkdir', 1, mkdir(mount.path('h')), 'ETIMEDOUT');
    await within('list', 1, readdir(mount.directory), 'ETIMEDOUT');
    await within('df', 1, statfs(mount.directory));
    await within('df of an open directory', 1, statfs(`/proc/self/fd/${directory.fd}`));
    await within('read', 1, file.read(Buffer.alloc(10), 0, 10, 50_000), 'ETIMEDOUT');
    await within('ls', 4, mount.shell('ls -l .; ls -l ..'));
    await file.write('lost?', 0);
    await within('fsync', 1, file.sync(), 'ETIMEDOUT');
    await mount.disturb({ stalled: false });
    await file.close();
    await directory.close();
    // After a timeout the same call fails at once for a moment, which keeps a call of a program within one limit.
    const again = async (): Promise<string> => {
      await writeFile(mount.path('g'), 'again');
      return readFile(mount.path('g'), 'utf8');
    };
    let read: string | null = null;
    while (read === null) {
      read = await again().catch((error: NodeJS.ErrnoException) => {
        assert.equal(error.code, 'ETIMEDOUT');
        return null;
      });
    }
    assert.equal(read, 'again');
  },
);

overTransports('a write that fails is reported by fsync, by close and by the next write', async (start) => {
  const mount = await start();
  await mount.disturb({ writesFail: 'no-space' });
  const synced = await open(mount.path('synced'), 'w');
  await synced.write('lost');
  await assert.rejects(synced.sync(), code('ENOSPC'));
  await synced.close();
  // From then on each write is sent by itself, and returns its own error.
  const other = await start();
  await other.disturb({ writesFail: 'no-space' });
  const closed = await open(other.path('closed'), 'w');
  await closed.write('lost');
  await assert.rejects(closed.close(), code('ENOSPC'));
  const { code: exit, stderr } = await mount.shell('dd if=/dev/zero of=dd bs=1M count=300');
  assert.notEqual(exit, 0);
  assert.match(stderr, /No space left/);
  await mount.disturb({ writesFail: null });
  await writeFile(mount.path('synced'), 'found');
  assert.equal(await readFile(mount.path('synced'), 'utf8'), 'found');
});

overTransports('a write with O_SYNC or O_DSYNC returns its length, whatever its size', async (start) => {
  const mount = await start();
  const { code: exit, stderr } = await mount.shell(`
    for bytes in 1 20000 1M; do
      for flag in sync dsync; do dd if=/dev/zero of=$flag.$bytes bs=$bytes count=3 oflag=$flag || exit 1; done
    done`);
  assert.equal(exit, 0, stderr);
  assert.equal((await stat(mount.path('sync.20000'))).size, 60_000);
});

overTransports(
  'bytes arrive in the order of the writes, although several requests are sent at a time',
  async (start) => {
    const mount = await start();
    await mount.disturb({ delayMs: 3 });
    const file = await open(mount.path('f'), 'w+');
    const reference = Buffer.alloc(3_000_000);
    let seed = 7;
    const random = (below: number): number => {
      seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7fff_ffff;
      return seed % below;
    };
    for (let step = 0; step < 400; step++) {
      const offset = random(reference.length - 200_000);
      const bytes = Buffer.alloc(1 + random(step % 10 === 0 ? 200_000 : 5000), step);
      await file.write(bytes, 0, bytes.length, offset);
      bytes.copy(reference, offset);
      if (step % 50 === 0) {
        const { buffer, bytesRead } = await file.read(Buffer.alloc(1000), 0, 1000, offset);
        assert.deepEqual(buffer.subarray(0, bytesRead), reference.subarray(offset, offset + bytesRead));
      }
    }
    const { size } = await file.stat();
    await file.close();
    const read = await readFile(mount.path('f'));
    assert.equal(read.length, size);
    assert.equal(hash(read), hash(reference.subarray(0, size)));
  },
);

function hash(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

overTransports('a signal has unsent bytes written, and unmounts', async (start) => {
  const mount = await start();
  await mount.disturb({ delayMs: 200 });
  const writing = mount.shell('exec 3>f; printf 0123456789 >&3; echo written >&2; exec sleep 3');
  const last = mount.lastReport();
  await delay(1000);
  mount.signal('SIGTERM');
  assert.equal((await last).sizes.f, 10);
  assert.equal(await mount.exited(), 0);
  assert.equal(await mount.isMounted(), false);
  await writing;
});

overTransports('the mount’s process ends when the mount is unmounted from outside', async (start) => {
  const mount = await start();
  await writeFile(mount.path('f'), 'x');
  const { code: exit } = await mount.shell('cd / && fusermount3 -u "$0"');
  assert.equal(exit, 0);
  assert.equal(await mount.exited(), 0);
});

async function goesAway(mount: TestMount): Promise<void> {
  for (let attempt = 0; (await mount.isMounted()) && attempt < 200; attempt++) await delay(50);
  assert.equal(await mount.isMounted(), false);
}

overTransports('a killed process leaves no mount', async (start) => {
  const mount = await start();
  mount.signal('SIGKILL');
  await mount.exited();
  await goesAway(mount);
});

test('a killed process leaves no mount, also if libfuse’s helper that unmounts has ended', {
  skip: noMount,
}, async (context) => {
  const mount = await TestMount.start(context, undefined, 'native');
  const { stdout } = await run('pgrep', ['-f', `auto_unmount.* ${mount.directory}$`]);
  process.kill(Number(stdout), 'SIGKILL');
  mount.signal('SIGKILL');
  await mount.exited();
  await goesAway(mount);
});

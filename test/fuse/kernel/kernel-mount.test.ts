import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import { link, mkdir, open, readdir, readFile, rename, stat, unlink, writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { isLinuxSince, kernelTransportObstacle } from '../../../fuse/kernel/kernel-mount.ts';
import { TestMount } from '../mounted.ts';

const run = promisify(execFile);
const options = { skip: kernelTransportObstacle() ?? false, timeout: 60_000 };
const LIMIT_MS = 20_000;

/**
 * Starts a program that makes calls in the mount. @returns its process, and what it printed with its exit code or
 * signal
 */
function program(mount: TestMount, script: string): { child: ChildProcess; ended: Promise<string> } {
  const child = spawn('python3', ['-c', script], {
    cwd: '/',
    env: { ...process.env, MOUNT: mount.directory },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let said = '';
  child.stdout.on('data', (chunk: Buffer) => {
    said += chunk.toString();
  });
  const ended = once(child, 'close').then(([code, signal]) => `${said.trim()} ${signal ?? code}`.trim());
  return { child, ended };
}

async function waitsInMount(pid: number): Promise<void> {
  for (;;) {
    const stack = await readFile(`/proc/${pid}/stack`, 'latin1');
    if (stack.includes('request_wait_answer') || stack.includes('fuse')) return;
    await delay(20);
  }
}

test('isLinuxSince compares kernel versions by number', () => {
  const since = (text: string): boolean => isLinuxSince(text, [5, 17]);
  assert.deepEqual(['5.10.0-30-amd64', '5.16.20', '4.19', 'x'].map(since), [false, false, false, false]);
  assert.deepEqual(['5.17.0', '5.17', '6.1.0-13-amd64', '10.0'].map(since), [true, true, true, true]);
});

test('requests of each size arrive, in order', options, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
  // Small ones by the ring; larger ones by a copy, by the memory into which they were read, or by several of these.
  const sizes = [4_096, 65_536, 131_072, 131_072, 300_001, 700_000, 1_048_576, 1_048_576, 5_000_000, 100_000];
  const file = await open(mount.path('file'), 'w');
  const written: Buffer[] = [];
  for (const [at, size] of sizes.entries()) {
    const bytes = Buffer.alloc(size, `${at} of ${size}, `);
    await file.writeFile(bytes);
    written.push(bytes);
  }
  await file.sync();
  await file.close();
  const expected = Buffer.concat(written);
  assert.ok(expected.equals(await readFile(mount.path('file'))));
  const reader = await open(mount.path('file'), constants.O_RDONLY | constants.O_DIRECT);
  for (const size of [1_048_576, 131_072]) {
    const { buffer, bytesRead } = await reader.read(Buffer.alloc(size), 0, size, 2_097_152);
    assert.ok(expected.subarray(2_097_152, 2_097_152 + size).equals(buffer.subarray(0, bytesRead)));
  }
  await reader.close();
});

test('hard links are one inode for programs', options, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
  await writeFile(mount.path('a'), 'one');
  await link(mount.path('a'), mount.path('b'));
  const [a, b] = [await stat(mount.path('a')), await stat(mount.path('b'))];
  assert.equal(a.ino, b.ino);
  assert.equal(b.nlink, 2);
  const reader = await open(mount.path('b'), 'r');
  const writer = await open(mount.path('a'), 'r+');
  await writer.write('TWO', 0);
  assert.equal((await reader.read(Buffer.alloc(3), 0, 3, 0)).buffer.toString(), 'TWO');
  await Promise.all([reader.close(), writer.close()]);
  const { stdout } = await mount.shell(
    'mkdir copy && cp -a a b copy/ && stat -c %h copy/a && du -l . >/dev/null',
  );
  assert.equal(stdout, '2\n', 'A copy of the tree has the link, too');
});

test(
  'a rename over an open file leaves no moment without a name, and a removed file has no name',
  options,
  async (t) => {
    const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
    await writeFile(mount.path('target'), '0');
    const reader = await open(mount.path('target'), 'r');
    for (let round = 0; round < 50; round++) {
      await writeFile(mount.path('next'), String(round));
      await Promise.all([rename(mount.path('next'), mount.path('target')), stat(mount.path('target'))]);
    }
    assert.equal(await reader.readFile('utf8'), '0');
    await unlink(mount.path('target'));
    assert.deepEqual(await readdir(mount.directory), []);
    await reader.close();
  },
);

test('a call of a killed program ends at once', options, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
  await writeFile(mount.path('f'), 'x');
  await mount.disturb({ stalled: true });
  for (const call of ['os.stat(p + "/n")', 'os.listdir(p)', 'os.mkdir(p + "/d")', 'open(p + "/g", "w")']) {
    const { child, ended } = program(mount, `import os; p = os.environ["MOUNT"]; ${call}`);
    assert.ok(child.pid !== undefined);
    await waitsInMount(child.pid);
    const startMs = performance.now();
    child.kill('SIGKILL');
    assert.equal(await ended, 'SIGKILL');
    assert.ok(performance.now() - startMs < LIMIT_MS / 2, `${call} ended before its time limit`);
  }
  await mount.disturb({ stalled: false });
  assert.equal(await readFile(mount.path('f'), 'utf8'), 'x');
});

test('a lock call of a killed program ends at once', options, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
  await writeFile(mount.path('f'), 'x');
  const script = `
import fcntl, os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
handle = os.open(os.environ["MOUNT"] + "/f", os.O_RDWR)
print("opened", flush=True)
signal.sigwait([signal.SIGUSR1])
fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)`;
  const { child, ended } = program(mount, script);
  await once(child.stdout as NonNullable<ChildProcess['stdout']>, 'data');
  await mount.disturb({ stalled: true });
  child.kill('SIGUSR1');
  await waitsInMount(child.pid as number);
  const startMs = performance.now();
  child.kill('SIGKILL');
  assert.equal(await ended, 'opened SIGKILL');
  assert.ok(performance.now() - startMs < LIMIT_MS / 2);
  await mount.disturb({ stalled: false });
});

test('a lock is free once the killed program that held it has ended', options, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
  await writeFile(mount.path('f'), 'x');
  const script = `
import fcntl, os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
def opened(): return os.open(os.environ["MOUNT"] + "/f", os.O_RDWR)
def lock(handle): fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
said, say = os.pipe()
child = os.fork()
if child == 0:
    lock(opened())
    os.write(say, b"locked")
    time.sleep(60)
handle = opened()
os.read(said, 6)
print("held", flush=True)
signal.sigwait([signal.SIGUSR1])
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
lock(handle)
print("locked", flush=True)
os._exit(0)`;
  const { child, ended } = program(mount, script);
  await once(child.stdout as NonNullable<ChildProcess['stdout']>, 'data');
  await mount.disturb({ delayMs: 300 });
  child.kill('SIGUSR1');
  assert.equal(await ended, 'held\nlocked 0');
});

test('a call gets EINTR by SIGTERM, and continues after a timer signal', options, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
  await writeFile(mount.path('f'), 'x');
  // The call is made by libc directly, as Python repeats calls after EINTR.
  const script = (signals: string): string => `
import ctypes, os, signal
${signals}
libc = ctypes.CDLL(None, use_errno=True)
handle = libc.open((os.environ["MOUNT"] + "/f").encode(), os.O_RDONLY)
print("opened" if handle >= 0 else ctypes.get_errno(), flush=True)
os._exit(0)`;
  await mount.disturb({ stalled: true });
  const stopping = program(mount, script('signal.signal(signal.SIGINT, lambda *_: None)'));
  await waitsInMount(stopping.child.pid as number);
  stopping.child.kill('SIGINT');
  assert.equal(await stopping.ended, '4 0');
  const ringing = program(
    mount,
    script('signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)'),
  );
  await waitsInMount(ringing.child.pid as number);
  await delay(500);
  await mount.disturb({ stalled: false });
  assert.equal(await ringing.ended, 'opened 0');
});

test('calls in a mount whose process is killed fail, and none waits for ever', options, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
  for (const name of ['f', 'g']) await writeFile(mount.path(name), 'x');
  const held = await open(mount.path('f'), 'r+');
  await mount.disturb({ stalled: true });
  // None of them waits in the kernel for another of them.
  const callers = ['os.chmod(p + "/g", 0o600)', 'os.mkdir(p + "/d")', 'os.truncate(p + "/f", 1)'].map(
    (call) =>
      program(
        mount,
        `import os; p = os.environ["MOUNT"]
try: ${call}
except OSError as e: print(e.errno)`,
      ),
  );
  for (const { child } of callers) await waitsInMount(child.pid as number);
  mount.signal('SIGKILL');
  for (const { ended } of callers) assert.match(await ended, /^(?:103|107) 0$/);
  await assert.rejects(held.read(Buffer.alloc(1), 0, 1, 0));
  await held.close().catch(() => undefined);
  // The guard process unmounts the directory.
  while (await mount.isMounted()) await delay(20);
});

test('a mount with open files ends by SIGTERM, and their users get errors', options, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
  await writeFile(mount.path('f'), 'x');
  const { child, ended } = program(
    mount,
    `import os, sys
os.chdir(os.environ["MOUNT"]); f = open("f", "r+"); print("open", flush=True)
import time
while True:
    time.sleep(0.05)
    try: os.stat("f")
    except OSError as e: print(e.errno); break`,
  );
  await once(child.stdout as NonNullable<ChildProcess['stdout']>, 'data');
  mount.signal('SIGTERM');
  assert.equal(await mount.exited(), 0);
  assert.equal(await mount.isMounted(), false);
  assert.match(await ended, /^open\s+(?:103|107) 0$/);
});

test('a mount that is unmounted lazily ends with the last close', options, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
  await writeFile(mount.path('f'), 'x');
  const held = await open(mount.path('f'), 'r+');
  await run('umount', ['-l', mount.directory]);
  assert.equal(await mount.isMounted(), false);
  await held.write('still', 0);
  await held.sync();
  const last = mount.lastReport();
  await held.close();
  assert.equal((await last).sizes.f, 5);
  assert.equal(await mount.exited(), 0);
});

test(
  'a process whose mount was unmounted lazily ends by SIGTERM, also with open files',
  options,
  async (t) => {
    const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
    await writeFile(mount.path('f'), 'x');
    const held = await open(mount.path('f'), 'r+');
    await run('umount', ['-l', mount.directory]);
    mount.signal('SIGTERM');
    assert.equal(await mount.exited(), 0);
    await assert.rejects(held.stat());
    await held.close().catch(() => undefined);
  },
);

test('calls fail if the mount’s process ends by an error of its own', options, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
  await mount.disturb({ stalled: true });
  const { child, ended } = program(
    mount,
    `import os
try: os.mkdir(os.environ["MOUNT"] + "/d")
except OSError as e: print(e.errno)`,
  );
  await waitsInMount(child.pid as number);
  mount.crash(7);
  assert.match(await ended, /^(?:103|107) 0$/);
  assert.equal(await mount.exited(), 7);
});

test('a directory whose mount died can be mounted again', options, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
  // Without its guard process, as after a crash of both. The oldest process: one that the guard is about to start has
  // its name for a moment.
  const { stdout } = await run('pgrep', ['-o', '-f', `leasehold-mount-guard .* ${mount.directory}$`]);
  process.kill(Number(stdout), 'SIGKILL');
  mount.signal('SIGKILL');
  await mount.exited();
  await assert.rejects(stat(mount.directory), { code: 'ENOTCONN' });
  await mount.restart(LIMIT_MS, 'kernel');
  await mkdir(mount.path('d'));
  assert.deepEqual(await readdir(mount.directory), ['d']);
});

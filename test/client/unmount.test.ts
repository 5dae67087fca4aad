/**
 * Goal: `leasehold umount` says what could not be stored while the user can still act, which processes use a mount, and
 * why it stays; and it ends in bounded time.
 * Method: real mounts of a volume in memory, whose cluster fails as the test says.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { promisify } from 'node:util';
import { mountAt } from '../../client/mounts/mount-table.ts';
import { type UnmountOptions, unmountDirectory } from '../../client/mounts/unmount.ts';
import { noMount, TestMount } from '../fuse/mounted.ts';

const skip = noMount;
const isRoot = process.getuid?.() === 0;
const LIMIT_MS = 20_000;
const SHORT_MS = 300;
const LONG_MS = 5_000;

const run = promisify(execFile);

interface Refusal {
  readonly exit: number;
  readonly message: string;
  readonly hint: string;
}

/** @returns what it prints */
async function refused(directory: string, options?: UnmountOptions): Promise<Refusal> {
  let refusal: Refusal | undefined;
  await assert.rejects(unmountDirectory(directory, options), (error: unknown) => {
    refusal = error as Refusal;
    return true;
  });
  assert.ok(refusal !== undefined);
  return refusal;
}

/**
 * A program that reports when it has executed the first part of its instructions, and ends with the test, or with its
 * input.
 */
async function program(t: TestContext, file: string, ...argv: string[]) {
  const child = spawn(file, ['-c', ...argv], { stdio: ['pipe', 'pipe', 'inherit'], cwd: '/' });
  t.after(() => child.kill('SIGKILL'));
  await once(child.stdout, 'data');
  return child;
}

/** A process in its own mount namespace, with a copy of every present mount. */
async function namespaceCopy(t: TestContext): Promise<ChildProcess> {
  const child = spawn('unshare', ['-m', 'sh', '-c', 'echo there; exec sleep 300'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => child.kill('SIGKILL'));
  await once(child.stdout, 'data');
  return child;
}

/** Here a close waits for nothing, and what was written to `lost` has not arrived. */
async function withLoss(t: TestContext): Promise<TestMount> {
  const mount = await TestMount.start(t, LIMIT_MS, 'auto', { flushBehind: true });
  await mount.disturb({ writesFail: 'internal' });
  await writeFile(mount.path('lost'), 'lost');
  return mount;
}

test('unstored changes are reported before the unmount, and the next attempt unmounts', {
  skip,
}, async (t) => {
  const mount = await withLoss(t);
  const { exit, message, hint } = await refused(mount.directory);
  assert.equal(exit, 5);
  assert.match(message, /stays mounted: some written data could not be stored: Input\/output error$/);
  assert.match(hint, /--lazy discards what cannot be stored/);
  await mount.disturb({ writesFail: null });
  await writeFile(mount.path('kept'), 'kept');
  const last = mount.lastReport();
  assert.equal(await unmountDirectory(mount.directory), null);
  assert.equal(await mountAt(mount.directory), null);
  assert.equal((await last).sizes.kept, 4);
  assert.equal(await mount.exited(), 0);
});

test('--lazy drops unstored changes, and reports them', { skip }, async (t) => {
  const mount = await withLoss(t);
  const { exit, message } = await refused(mount.directory, { lazy: true });
  assert.equal(exit, 5);
  assert.match(message, /^Unmounted ".*", but some written data could not be stored: Input\/output error$/);
  assert.equal(await mountAt(mount.directory), null);
  assert.equal(await mount.exited(), 0);
});

test('a process that holds a detached mount reads and writes on, and its writes are stored', {
  skip,
}, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS);
  await writeFile(mount.path('held'), 'before');
  const inside = await program(t, 'sh', 'cd "$0" && echo in && read go && cat held', mount.directory);
  const holder = await program(
    t,
    'sh',
    'exec 3>>"$0"; echo open; read go; echo after >&3',
    mount.path('held'),
  );
  const last = mount.lastReport();
  // How long it waits for them, and what it reports, is tested elsewhere.
  const unmounting = unmountDirectory(mount.directory, { lazy: true, timeoutMs: SHORT_MS }).then(
    () => undefined,
    ({ exit, message }: Refusal) => {
      assert.equal(exit, 5);
      assert.match(message, new RegExp(`process ${inside.pid} \\(.*\\): its working directory is `));
      assert.match(message, new RegExp(`process ${holder.pid} \\(.*\\): .*/held is open`));
    },
  );
  await unmounting;
  assert.equal(await mountAt(mount.directory), null);
  const ended = once(holder, 'exit');
  holder.stdin.end('go\n');
  assert.deepEqual(await ended, [0, null]);
  const said: Buffer[] = [];
  inside.stdout.on('data', (bytes: Buffer) => said.push(bytes));
  const closed = once(inside, 'close');
  inside.stdin.end('go\n');
  assert.deepEqual(await closed, [0, null]);
  assert.equal(Buffer.concat(said).toString(), 'beforeafter\n');
  assert.equal((await last).sizes.held, 12);
  assert.equal(await mount.exited(), 0);
});

for (const [where, keep] of [
  [
    'in another mount namespace',
    async (t: TestContext) => `process ${(await namespaceCopy(t)).pid} \\(.*in another mount namespace`,
  ],
  [
    'on another directory',
    async (t: TestContext, { directory }: TestMount) => {
      const other = mkdtempSync(join(tmpdir(), 'leasehold-bound-'));
      await run('mount', ['--bind', directory, other]);
      t.after(async () => {
        await run('umount', ['-l', other]).catch(() => undefined);
        rmSync(other, { recursive: true });
      });
      return `also mounted here on ${other}`;
    },
  ],
] as const) {
  test(`if a mount is kept ${where}, stored and lost changes and its users are reported`, {
    skip: skip || (!isRoot && 'not root'),
  }, async (t) => {
    const mount = await TestMount.start(t, LIMIT_MS, 'auto', { flushBehind: true });
    const kept = await keep(t, mount);
    await writeFile(mount.path('kept'), 'kept');
    const said = await unmountDirectory(mount.directory);
    const goesOn = `process ${mount.daemonPid} keeps running, because the file system is also mounted elsewhere:\n {2}${kept}`;
    assert.match(
      said ?? '',
      new RegExp(`^Unmounted ".*" here, and all that was written is stored; ${goesOn}`),
    );
    assert.equal((await mount.report()).sizes.kept, 4);

    const losing = await withLoss(t);
    const keptToo = await keep(t, losing);
    const { exit, message } = await refused(losing.directory, { lazy: true });
    assert.equal(exit, 5);
    assert.match(
      message,
      new RegExp(
        `some written data could not be stored: Input/output error\n {2}process ${losing.daemonPid} keeps running`,
      ),
    );
    assert.match(message, new RegExp(keptToo));
  });
}

test('processes that use a mount are named: by open or mapped files, a directory, or a mount inside', {
  skip,
}, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS);
  await mount.shell('mkdir inside && cp /bin/sh shell');
  // Also one whose command line has more than one line.
  const mapping = await program(t, mount.path('shell'), 'echo mapped\nread go');
  const expected = [`process ${mapping.pid} \\(.*/shell -c echo [^)\\n]*\\): .*/shell is mapped`];
  if (isRoot) {
    const script = 'import os, sys; os.chroot(sys.argv[1]); print("there", flush=True); sys.stdin.read()';
    const root = await program(t, 'python3', script, mount.path('inside'));
    await run('mount', ['-t', 'tmpfs', 'none', mount.path('inside')]);
    t.after(() => run('umount', ['-l', mount.path('inside')]).catch(() => undefined));
    expected.push(`process ${root.pid} \\(.*python3.*\\): its root directory is .*/inside`);
    expected.push('a file system of type tmpfs is mounted on .*/inside');
  }
  const { exit, message, hint } = await refused(mount.directory);
  assert.equal(exit, 4);
  for (const line of expected)
    assert.ok(
      new RegExp(`^ {2}${line}$`, 'm').test(message),
      `Not all are named, each on its own line:\n${message}`,
    );
  assert.match(hint, /--lazy/);
  assert.ok((await mountAt(mount.directory)) !== null);
});

test('a process that does not answer is waited for only so long, and left to store its changes', {
  skip,
}, async (t) => {
  /** @returns how long it took, in milliseconds */
  const unmountStopped = async (timeoutMs: number): Promise<number> => {
    const mount = await TestMount.start(t, LIMIT_MS);
    await writeFile(mount.path('a'), 'text');
    mount.signal('SIGSTOP');
    const beganMs = performance.now();
    const { exit, message, hint } = await refused(mount.directory, { timeoutMs });
    const tookMs = performance.now() - beganMs;
    assert.equal(exit, 5, message);
    assert.match(
      message,
      new RegExp(`process ${mount.daemonPid} is stopped, and may not have stored everything$`),
    );
    assert.match(hint, /kill -CONT/);
    const last = mount.lastReport();
    mount.signal('SIGCONT');
    assert.equal((await last).sizes.a, 4);
    assert.equal(await mount.exited(), 0);
    return tookMs;
  };
  const shortMs = await unmountStopped(SHORT_MS);
  const longMs = await unmountStopped(LONG_MS);
  // The storing and the end of the process: one time limit for both.
  t.diagnostic(`It took ${longMs} ms of ${LONG_MS}, and ${shortMs} ms of ${SHORT_MS}`);
  assert.ok(longMs - shortMs < 1.5 * LONG_MS, 'Each step had its own time limit');
});

test('a directory that is no mount of a volume is not unmounted', { skip }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-unmount-'));
  t.after(() => rmSync(folder, { recursive: true }));
  assert.match(
    (await refused('/proc')).message,
    /a file system of type proc is mounted there, not a volume$/,
  );
  assert.match((await refused(folder)).message, /nothing is mounted there$/);
  assert.equal((await refused(join(folder, 'no', 'directory'))).exit, 3);
  assert.ok((await readFile('/proc/self/mountinfo', 'utf8')).includes(' /proc '));
});

/** Has a file open while it is passed through a socket, where no process shows it, until its input ends or says so. */
const UNSEEN = `
import os, socket, sys
one, other = socket.socketpair()
file = os.open(sys.argv[1], os.O_RDONLY)
socket.send_fds(one, [b'x'], [file])
os.close(file)
print('unseen', flush=True)
sys.stdin.readline()
`;

test('an invisible and brief user of the mount, such as a query of free space, is waited for', {
  skip,
}, async (t) => {
  const mount = await TestMount.start(t, LIMIT_MS);
  await writeFile(mount.path('held'), 'before');
  const holder = await program(t, 'python3', UNSEEN, mount.path('held'));
  const { message } = await refused(mount.directory);
  assert.match(message, /it is in use\n {2}no process that this user can see/);
  setTimeout(() => holder.stdin.end('\n'), SHORT_MS);
  assert.equal(await unmountDirectory(mount.directory), null);
  assert.equal(await mountAt(mount.directory), null);
});

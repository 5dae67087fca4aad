import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, statfsSync, statSync, writeFileSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, type TestContext, test } from 'node:test';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { mountAt } from '../../client/mounts/mount-table.ts';
import { isLong } from '../long.ts';
import { ClusterMount, command, commandOk, run, runOk } from './cluster-mount.ts';
import { LAUNCHER, RealCluster, until } from './real-cluster.ts';

/** Goal: how a mount begins, what it shows, and how it ends, as users meet it: options, mount(8), signals, crashes. */

const LEASE_MS = 2_000;
const MOUNT_PROCESS = join(import.meta.dirname, '../../fuse/main.ts');
const HELPERS = ['/sbin/mount.leasehold', '/sbin/mount.fuse.leasehold'];

const obstacle = await mountObstacle();
const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;
const isRoot = process.getuid?.() === 0;
/** The list of attributes does not depend on the transport to the kernel. */
const TRANSPORTS = !isRoot ? ['native'] : isLong ? ['kernel', 'native'] : ['kernel'];

if (skip === false) await define();
else test('the lifecycle of a mount', { skip }, () => undefined);

function leasehold(...argv: string[]) {
  return command(argv);
}

/** A directory for a mount that is removed with the test, whatever is left there. */
function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-life-'));
  t.after(async () => {
    await run('fusermount3', ['-uz', folder]);
    rmSync(folder, { recursive: true });
  });
  return folder;
}

async function gone(pid: number): Promise<void> {
  await until(`process ${pid} has ended`, async () => !existsSync(`/proc/${pid}`));
}

/** A program whose working directory is in the mount until it is killed. */
async function sleeperIn(t: TestContext, directory: string): Promise<ChildProcess> {
  const child = spawn('sleep', ['300'], { cwd: directory, stdio: 'ignore' });
  t.after(() => child.kill('SIGKILL'));
  await once(child, 'spawn');
  return child;
}

/** A process in its own mount namespace, with a copy of every present mount. */
async function namespaceCopy(t: TestContext): Promise<ChildProcess> {
  const child = spawn('unshare', ['-m', 'sh', '-c', 'echo there; exec sleep 300'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => child.kill('SIGKILL'));
  assert.ok(child.stdout !== null);
  await once(child.stdout, 'data');
  return child;
}

async function define(): Promise<void> {
  const cluster = await RealCluster.start({ lease: `${LEASE_MS}ms` });
  after(() => cluster.stop());
  await cluster.createVolume('main');
  const mount = await ClusterMount.start(cluster, 'main');
  after(() => mount.stop());
  await runOk('sh', ['-c', 'mkdir -p "$0/sub/deep" && echo text > "$0/sub/file"', mount.directory]);
  const servers = `servers=${cluster.urls.join(';')}`;

  test('ro: the kernel refuses changes, and the mount also does, whatever options the kernel has', async (t) => {
    const other = await ClusterMount.start(cluster, 'main', '-o', 'ro');
    t.after(() => other.stop());
    const refused = async (script: string) => {
      const { code, text } = await run('sh', ['-c', script, other.directory]);
      assert.notEqual(code, 0, script);
      assert.match(text, /Read-only file system/, script);
    };
    await refused('touch "$0/new"');
    await refused('echo x > "$0/sub/file"');
    if (isRoot) {
      await runOk('mount', ['-i', '-o', 'remount,rw', other.directory]);
      for (const script of [
        'mkdir "$0/new"',
        'echo x > "$0/sub/file"',
        'rm "$0/sub/file"',
        'chmod 700 "$0/sub"',
      ]) {
        await refused(script);
      }
    }
    assert.equal((await runOk('cat', [other.path('sub', 'file')])).text, 'text\n');
  });

  test('owner and permissions are shown as the options say, and stored unchanged', async (t) => {
    const other = await ClusterMount.start(cluster, 'main', '-o', 'uid=12345,gid=54321,fmask=0133,dmask=027');
    t.after(() => other.stop());
    const stat = async (path: string) => (await runOk('stat', ['-c', '%u %g %a', path])).text.trim();
    assert.equal(await stat(other.path('sub', 'file')), '12345 54321 644');
    assert.equal(await stat(other.path('sub')), '12345 54321 750');
    const owner = `${process.getuid?.()} ${process.getgid?.()}`;
    assert.equal((await stat(mount.path('sub', 'file'))).split(' ').slice(0, 2).join(' '), owner);
  });

  test('a directory of a volume can be mounted', async (t) => {
    const folder = folderFor(t);
    const made = await leasehold('mount', 'main:/sub', folder, '-o', servers, '--json');
    assert.equal(made.code, 0, made.text);
    assert.deepEqual((await runOk('ls', [folder])).text.trim().split('\n'), ['deep', 'file']);
    await runOk('sh', ['-c', 'cd "$0/deep/../.." && test ! -e sub', folder]);
    await runOk('sh', ['-c', 'echo there > "$0/deep/new"', folder]);
    assert.equal((await runOk('cat', [mount.path('sub', 'deep', 'new')])).text, 'there\n');
    assert.equal((await leasehold('umount', folder)).code, 0);

    const file = await leasehold('mount', 'main:/sub/file', folder, '-o', servers);
    assert.equal(file.code, 4);
    assert.match(file.text, /it is not a directory/);
    assert.equal((await leasehold('mount', 'main:/nowhere', folder, '-o', servers)).code, 3);
  });

  test('a second mount on a directory and an unknown option are refused', async () => {
    const second = await leasehold('mount', 'main', mount.directory, '-o', servers);
    assert.equal(second.code, 4);
    assert.match(second.text, /leasehold:main is mounted there already/);
    const unknown = await leasehold('mount', 'main', mount.directory, '-o', 'srevers=a');
    assert.equal(unknown.code, 2);
    assert.match(unknown.text, /"srevers": there is no such option\n.*"servers"/);
  });

  test('mount(8) and fstab mount a volume, and umount(8) removes it', {
    skip: !isRoot && 'not root',
  }, async (t) => {
    const folder = folderFor(t);
    const tools = folderFor(t);
    assert.equal((await leasehold('mount', '--install-helper', tools)).code, 0);
    assert.ok(existsSync(join(tools, 'mount.leasehold')), 'a link to an existing directory');
    const missing = HELPERS.filter((helper) => !existsSync(helper));
    if (missing.length > 0) {
      assert.equal((await leasehold('mount', '--install-helper')).code, 0);
      t.after(() => {
        for (const helper of missing) rmSync(helper);
      });
    }
    const escaped = cluster.urls.join(';').replaceAll(':', '\\:');
    await runOk('mount', ['-t', 'leasehold', 'main:/sub', folder, '-o', `servers=${escaped},noexec,_netdev`]);
    assert.equal((await mountAt(folder))?.source, 'main:/sub');
    assert.equal((await runOk('cat', [join(folder, 'file')])).text, 'text\n');
    const changed = await run('mount', ['-o', 'remount,ro', folder]);
    assert.equal(changed.code, 1, changed.text);
    assert.match(changed.text, /"remount": mount\(8\) cannot change this mount\n.*unmount/);
    await runOk('umount', [folder]);
    assert.equal(await mountAt(folder), null);

    const table = join(tools, 'fstab');
    writeFileSync(table, `main ${folder} leasehold ${servers},_netdev,nofail,allow_other,x-test 0 0\n`);
    await runOk('mount', ['--fstab', table, '-a']);
    assert.equal((await mountAt(folder))?.source, 'main');
    await runOk('mount', ['--fstab', table, '-a']);
    await runOk('umount', [folder]);
    assert.equal(await mountAt(folder), null, 'It was mounted once');

    const wrong = await run('mount', ['-t', 'leasehold', 'main:/', folder, '-o', `${servers},nonsense`]);
    assert.equal(wrong.code, 1);
    assert.match(wrong.text, /"nonsense": there is no such option/);
    assert.equal((await run('mount', ['-t', 'leasehold', 'none:/', folder, '-o', servers])).code, 32);
  });

  test('a busy mount is kept, and umount names the processes that use it; --lazy detaches it', async (t) => {
    const other = await ClusterMount.start(cluster, 'main');
    t.after(() => other.stop());
    const sleeper = await sleeperIn(t, other.path('sub'));
    const reader = spawn('sh', ['-c', 'exec 3< "$0"; echo open; exec sleep 300', other.path('sub', 'file')]);
    t.after(() => reader.kill('SIGKILL'));
    await once(reader.stdout, 'data');
    const refused = await leasehold('umount', other.directory);
    assert.equal(refused.code, 4);
    assert.match(
      refused.text,
      new RegExp(`process ${sleeper.pid} \\(sleep 300\\): its working directory is .*/sub`),
    );
    assert.match(refused.text, new RegExp(`process ${reader.pid} \\(s[^)]*\\): .*/sub/file is open`));
    assert.ok((await mountAt(other.directory)) !== null);
    sleeper.kill();
    const lazy = await leasehold('umount', '--lazy', other.directory);
    assert.equal(lazy.code, 0, lazy.text);
    assert.match(
      lazy.text,
      new RegExp(
        `all that was written so far is stored; process ${other.pid} keeps running until these have closed their files`,
      ),
    );
    assert.match(lazy.text, new RegExp(`process ${reader.pid} \\(s[^)]*\\): .*/sub/file is open`));
    assert.equal(await mountAt(other.directory), null);
    assert.ok(existsSync(`/proc/${other.pid}`));
    reader.kill();
    await gone(other.pid);
  });

  test('umount --lazy of a busy mount that does not answer says what is unknown', async (t) => {
    const silent = await ClusterMount.start(cluster, 'main');
    t.after(() => silent.stop());
    const sleeper = await sleeperIn(t, silent.path('sub'));
    process.kill(silent.pid, 'SIGSTOP');
    const { code, text } = await leasehold('umount', '--lazy', '--wait', '500ms', silent.directory);
    process.kill(silent.pid, 'SIGCONT');
    assert.equal(code, 5, text);
    assert.match(text, /some written data may not be stored: it took longer than \d+ ms/);
    assert.match(
      text,
      new RegExp(`; process ${silent.pid} is stopped: continue it with "kill -CONT ${silent.pid}"`),
    );
    assert.match(text, new RegExp(`process ${sleeper.pid} `));
    sleeper.kill();
    await gone(silent.pid);
  });

  test('umount of a mount whose process is stopped says so', async (t) => {
    const silent = await ClusterMount.start(cluster, 'main');
    t.after(() => silent.stop());
    process.kill(silent.pid, 'SIGSTOP');
    const { code, text } = await leasehold('umount', '--wait', '4s', silent.directory);
    const left = await mountAt(silent.directory);
    process.kill(silent.pid, 'SIGCONT');
    assert.equal(code, 5, text);
    assert.equal(left, null, 'as the documents say');
    assert.match(
      text,
      new RegExp(
        `process ${silent.pid} is stopped, and may not have stored everything\\n.*kill -CONT ${silent.pid}`,
      ),
    );
    await gone(silent.pid);
  });

  test('umount stores everything also if another namespace keeps the mount, and names that process', {
    skip: !isRoot && 'not root',
  }, async (t) => {
    const other = await ClusterMount.start(cluster, 'main', '-o', 'flush_behind');
    t.after(() => other.stop());
    const copy = await namespaceCopy(t);
    await runOk('sh', ['-c', 'echo kept > "$0"', other.path('behind')]);
    const { code, text } = await leasehold('umount', other.directory);
    assert.equal(code, 0, text);
    assert.match(
      text,
      /^leasehold: Unmounted ".*" here, and all that was written is stored; process \d+ keeps running/,
    );
    assert.match(
      text,
      new RegExp(`process ${copy.pid} \\(s[^)]*\\): on ${other.directory} in another mount namespace`),
    );
    assert.equal((await runOk('cat', [mount.path('behind')])).text, 'kept\n');
    const silent = await ClusterMount.start(cluster, 'main');
    t.after(() => silent.stop());
    const second = await namespaceCopy(t);
    process.kill(silent.pid, 'SIGSTOP');
    const unknown = await leasehold('umount', '--wait', '500ms', silent.directory);
    process.kill(silent.pid, 'SIGCONT');
    assert.equal(unknown.code, 5, unknown.text);
    assert.match(unknown.text, /some written data may not be stored: it took longer than \d+ ms/);
    assert.match(unknown.text, new RegExp(`process ${second.pid} `));
    for (const child of [copy, second]) child.kill('SIGKILL');
    await Promise.all([gone(other.pid), gone(silent.pid)]);
  });

  test('SIGTERM stores and unmounts, also a busy mount', async (t) => {
    const other = await ClusterMount.start(cluster, 'main');
    t.after(() => other.stop());
    await sleeperIn(t, other.directory);
    const writer = spawn('sh', [
      '-c',
      'exec 3> "$0"; echo kept >&3; echo open; exec sleep 300',
      other.path('by-signal'),
    ]);
    t.after(() => writer.kill('SIGKILL'));
    await once(writer.stdout, 'data');
    process.kill(other.pid, 'SIGTERM');
    await gone(other.pid);
    assert.equal(await mountAt(other.directory), null);
    assert.equal((await runOk('cat', [mount.path('by-signal')])).text, 'kept\n');
  });

  test('its log is in its own folder, readable by its user alone, and is removed with it', async (t) => {
    const folder = folderFor(t);
    const { text } = await commandOk(['mount', 'main', folder, '-o', servers, '--json']);
    const { log, pid } = JSON.parse(text) as { readonly log: string; readonly pid: number };
    assert.equal(statSync(log).mode & 0o777, 0o600);
    assert.equal(statSync(dirname(log)).mode & 0o022, 0, 'only its user can change the folder');
    assert.equal(basename(log), `mount-${basename(folder)}-${pid}.log`);
    await commandOk(['umount', folder]);
    await gone(pid);
    assert.ok(!existsSync(log));
  });

  test('in the foreground it runs until the mount ends, and forwards a signal', async (t) => {
    const folder = folderFor(t);
    const child = spawn(
      process.execPath,
      [LAUNCHER, 'mount', 'main', folder, '-o', servers, '--foreground', '--json'],
      {
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    t.after(() => child.kill('SIGKILL'));
    const [line] = (await once(child.stdout, 'data')) as [Buffer];
    const said = JSON.parse(line.toString()) as { pid: number; log: string | null };
    assert.equal(said.log, null);
    assert.equal((await runOk('cat', [join(folder, 'sub', 'file')])).text, 'text\n');
    child.kill('SIGTERM');
    assert.deepEqual(await once(child, 'exit'), [0, null]);
    assert.equal(await mountAt(folder), null);
    assert.ok(!existsSync(`/proc/${said.pid}`));
  });

  test('a process killed with -9 blocks no caller, and the next mount heals the dead one', async (t) => {
    const other = await ClusterMount.start(cluster, 'main');
    t.after(() => other.stop());
    // A stopped process does not answer: its callers wait in the kernel.
    process.kill(other.pid, 'SIGSTOP');
    const waiting = ['cat', 'ls', 'stat'].map((program) =>
      spawn(program, [other.path('sub', program === 'ls' ? '' : 'file')], { stdio: 'ignore' }),
    );
    for (const { pid, spawnfile } of waiting) {
      await until('it waits for the mount', async () => {
        const status = readFileSync(`/proc/${pid}/status`, 'utf8');
        return status.startsWith(`Name:\t${spawnfile}\n`) && /^State:\t[SD]/m.test(status);
      });
    }
    const ended = waiting.map((child) => once(child, 'exit'));
    process.kill(other.pid, 'SIGKILL');
    for (const [code] of await Promise.all(ended)) assert.notEqual(code, 0);
    await gone(other.pid);
    const again = await leasehold('mount', 'main', other.directory, '-o', servers);
    assert.equal(again.code, 0, again.text);
    assert.equal((await runOk('cat', [other.path('sub', 'file')])).text, 'text\n');
    assert.equal((await leasehold('umount', other.directory)).code, 0);
  });

  test('leasehold.* attributes show which server is primary of a file; no program can set them', async () => {
    const { text } = await runOk('getfattr', [
      '--absolute-names',
      '-d',
      '-m',
      'leasehold.',
      mount.path('sub', 'file'),
    ]);
    const info = await cluster.info('s1', 'main/sub/file');
    const facts = Object.fromEntries(
      [...text.matchAll(/^leasehold\.(\w+)="(.*)"$/gm)].map(([, name, value]) => [name, value]),
    );
    assert.deepEqual(facts, {
      volume: 'main',
      inode: String(info.file),
      replicas: info.view.members.join(','),
      policy: 'quorum',
      primary: info.primary,
      epoch: String(info.epoch),
      version: `${info.attributes.contents.epoch}.${info.attributes.contents.seq}`,
      sealed: 'no',
    });
    const directory = await runOk('getfattr', [
      '--absolute-names',
      '-d',
      '-m',
      'leasehold.',
      mount.path('sub'),
    ]);
    assert.match(directory.text, /leasehold\.volume="main"/);
    assert.match(directory.text, /leasehold\.copies="3"/);
    for (const argv of [
      ['-n', 'leasehold.primary', '-v', 's1'],
      ['-x', 'leasehold.primary'],
    ]) {
      const set = await run('setfattr', [...argv, mount.path('sub', 'file')]);
      assert.notEqual(set.code, 0);
      assert.match(set.text, /not supported/);
    }
  });

  test('leasehold.* attributes are listed only for the program that shows them, unless an option says otherwise', async (t) => {
    const show = (at: ClusterMount, ...argv: string[]) =>
      runOk('getfattr', ['--absolute-names', ...argv, at.path('sub', 'file')]);
    // A program that copies all listed attributes would fail at a target that does not take them.
    const list = (at: ClusterMount) =>
      runOk('python3', ['-c', 'import os,sys; print(os.listxattr(sys.argv[1]))', at.path('sub', 'file')]);
    const [primary, own] = [/leasehold\.primary/, /user\.own/];
    await runOk('setfattr', ['-n', 'user.own', '-v', 'x', mount.path('sub', 'file')]);
    for (const transport of TRANSPORTS) {
      const by = async (facts: string): Promise<ClusterMount> => {
        const other = await ClusterMount.start(cluster, 'main', '-o', `transport=${transport}${facts}`);
        t.after(() => other.stop());
        return other;
      };
      const usual = await by('');
      assert.match((await show(usual, '-d', '-m', '-')).text, primary);
      const listed = (await list(usual)).text;
      assert.doesNotMatch(listed, primary);
      assert.match(listed, own);
      const hidden = await by(',virtual_xattrs=hidden');
      const shown = (await show(hidden, '-d', '-m', '-')).text;
      assert.doesNotMatch(shown, primary);
      assert.match(shown, own);
      assert.match((await show(hidden, '-n', 'leasehold.primary')).text, /leasehold\.primary="s[123]"/);
      assert.match((await list(await by(',facts=listed'))).text, primary);
    }
  });

  test('a transport that needs root is refused to other users with a remedy', async (t) => {
    const user = isRoot ? ['setpriv', '--reuid=1234', '--regid=1234', '--clear-groups', '--'] : ['env'];
    const [program = '', ...argv] = [...user, process.execPath, LAUNCHER];
    if ((await run(program, [...argv, '--version'])).code !== 0) return t.skip('others cannot read it');
    const folder = folderFor(t);
    const asked = await run(program, [...argv, 'mount', 'main', folder, '-o', `${servers},transport=kernel`]);
    assert.equal(asked.code, 1, asked.text);
    assert.match(asked.text, /the transport "kernel" cannot be used here: only root can/);
    assert.match(asked.text, /run it as root, or use --transport native/);
  });

  test('the time limit of calls follows from the lease of the cluster', async (t) => {
    const folder = folderFor(t);
    const log = join(cluster.folder, 'limit.log');
    const made = await leasehold('mount', 'main', folder, '-o', servers, '--log', log);
    assert.equal(made.code, 0, made.text);
    assert.ok(made.text.includes(`its log is ${log}`), made.text);
    const mounted = readFileSync(log, 'utf8')
      .split('\n')
      .find((line) => line.includes('"mounted"'));
    assert.equal((JSON.parse(mounted ?? '{}') as { limitMs?: number }).limitMs, LEASE_MS + 5_000);
    assert.equal((await leasehold('umount', folder)).code, 0);
  });

  test('the log reports the mount before its caller is notified', async (t) => {
    const folder = folderFor(t);
    const argv = [process.execPath, MOUNT_PROCESS, 'main', folder, '-o', servers];
    // One pipe for its log and for its caller shows the order.
    const child = spawn('sh', ['-c', 'exec "$@" 2>&1 3>&1', 'sh', ...argv], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = once(child, 'exit');
    const heard: string[] = [];
    for await (const line of createInterface({ input: child.stdout })) {
      heard.push(line);
      if (line.includes('"ready":true')) break;
    }
    assert.match(heard.at(-2) ?? '', /"mounted"/, heard.join('\n'));
    child.kill('SIGTERM');
    await ended;
  });

  test('the doctor finds the mount, the servers, and a port that another program uses', async () => {
    const argv = ['doctor', '--json', '--servers', cluster.urls.join(','), '--data', cluster.data('s1')];
    const { text } = await leasehold(...argv);
    const { findings } = JSON.parse(text) as {
      findings: { name: string; state: string; found: string; fix: string }[];
    };
    const by = (name: string) => findings.filter((finding) => finding.name === name);
    assert.deepEqual(
      by(`mount ${mount.directory}`).map(({ state }) => state),
      ['ok'],
    );
    for (const id of cluster.ids) {
      assert.match(by(`server ${id}`)[0]?.found ?? '', /^serving at .*, version \d/);
      assert.equal(by(`port ${cluster.port(id)}`)[0]?.state, 'ok');
      assert.equal(by(`clock ${id}`).length, 1);
    }
    assert.ok(by(`data ${cluster.data('s1')}`).some(({ found }) => /belongs to server s1/.test(found)));
    assert.deepEqual(
      findings.filter(({ state, fix }) => state !== 'ok' && fix === ''),
      [],
      'A problem is reported with a remedy',
    );
    const { port } = new URL(cluster.url('s1'));
    const other = await leasehold(
      'doctor',
      '--servers',
      'http://127.0.0.1:1',
      '--listen',
      `127.0.0.1:${port}`,
    );
    assert.equal(other.code, 1);
    assert.match(other.text, /failed {3}server http:\/\/127\.0\.0\.1:1: it does not answer/);
  });

  test('df counts the free space of a disk that all servers share once', async () => {
    const { text } = await runOk('df', ['--output=size', '--block-size=1', mount.directory]);
    const { blocks, bsize } = statfsSync(cluster.folder);
    const share = (Number(text.trim().split('\n').at(-1)) * 3) / (blocks * bsize);
    assert.ok(Math.abs(share - 1) < 0.01, `Three replicas take ${share} of the disk`);
  });

  test('without a majority the space is shown, and a new mount fails with a message', async (t) => {
    const folder = folderFor(t);
    // `df` also opens the directory, whose attributes may have to be requested.
    const space = () => runOk('stat', ['-f', '-c', '%b', mount.directory]);
    const before = await space();
    const killed = ['s2', 's3'];
    for (const id of killed) await cluster.kill(id);
    t.after(async () => {
      for (const id of killed) cluster.spawn(id);
      await cluster.ready();
    });
    assert.equal((await space()).text, before.text);
    const inCatalog = ['stat', 'main:/', '--servers', cluster.urls.join(','), '--timeout', '1s'];
    await until('the lease of the catalog is over', async () => (await leasehold(...inCatalog)).code === 5);
    const refused = await leasehold('mount', 'main', folder, '-o', servers, '--timeout', '3s');
    assert.equal(refused.code, 5, refused.text);
    assert.equal(await mountAt(folder), null);
    const doctor = await leasehold('doctor', '--servers', cluster.urls.join(','));
    assert.equal(doctor.code, 1);
    assert.match(doctor.text, /failed {3}cluster: /);
  });

  test('without a majority a signal ends the mount in bounded time, a second one at once', async (t) => {
    const mounts: { child: ChildProcess; pid: number; folder: string; writeMore: () => void }[] = [];
    for (const name of ['patient', 'hasty']) {
      const folder = folderFor(t);
      const argv = ['mount', 'main', folder, '-o', servers, '--foreground', '--json', '--op-timeout', '5s'];
      const child = spawn(process.execPath, [LAUNCHER, ...argv], { stdio: ['ignore', 'pipe', 'ignore'] });
      t.after(() => child.kill('SIGKILL'));
      const [line] = (await once(child.stdout, 'data')) as [Buffer];
      const { pid } = JSON.parse(line.toString()) as { pid: number };
      const script = 'exec 3> "$0"; echo open; read go; echo more >&3; exec sleep 300';
      const writer = spawn('sh', ['-c', script, join(folder, name)], { stdio: ['pipe', 'pipe', 'ignore'] });
      t.after(() => writer.kill('SIGKILL'));
      await once(writer.stdout, 'data');
      mounts.push({ child, pid, folder, writeMore: () => writer.stdin.end('go\n') });
    }
    for (const id of ['s2', 's3']) await cluster.kill(id);
    const [patient, hasty] = mounts;
    assert.ok(patient !== undefined && hasty !== undefined);
    for (const { writeMore } of mounts) writeMore();
    const ended = mounts.map(({ child }) => once(child, 'exit') as Promise<[number | null]>);
    patient.child.kill('SIGTERM');
    hasty.child.kill('SIGTERM');
    // The first is on its way to the process; the second must not overtake it.
    await until('the first signal is taken', async () => !catches(hasty.pid, 'SIGTERM'));
    hasty.child.kill('SIGTERM');
    const [[code], [hastyCode]] = (await Promise.all(ended)) as [[number | null], [number | null]];
    assert.ok(code !== null);
    assert.equal(hastyCode, 1, 'It was ended, and what was written is lost');
    for (const { pid, folder } of mounts) {
      await gone(pid);
      await until('it is unmounted', async () => (await mountAt(folder)) === null);
    }
    for (const id of ['s2', 's3']) cluster.spawn(id);
    await cluster.ready();
  });
}

/** @returns whether the process handles the signal, and does not just end */
function catches(pid: number, signal: NodeJS.Signals): boolean {
  if (!existsSync(`/proc/${pid}`)) return false;
  const mask = /^SigCgt:\s+([0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '0';
  return (BigInt(`0x${mask}`) >> BigInt(constants.signals[signal] - 1)) % 2n === 1n;
}

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { after, test } from 'node:test';
import { controlSocketOf } from '../../client/mounts/mount-control.ts';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { isLong } from '../long.ts';
import { ClusterMount, command, commandOk, run, runOk } from './cluster-mount.ts';
import { RealCluster } from './real-cluster.ts';

/** Goal: `leasehold remount` changes what a running mount allows, loses nothing, and explains a refusal. */

const obstacle = await mountObstacle();
const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;
const isRoot = process.getuid?.() === 0;
/** The native transport has no code of its own for this. */
const TRANSPORTS = !isRoot ? ['native'] : isLong ? ['kernel', 'native'] : ['kernel'];

if (skip === false) await define();
else test('a mount is remounted', { skip }, () => undefined);

/** @returns `ro` or `rw`, as the kernel shows the file system of a directory */
function modeInTable(directory: string): string {
  const line = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .findLast((one) => one.split(' ')[4] === directory);
  return line?.split(' - ')[1]?.split(' ')[2]?.split(',')[0] ?? 'nothing';
}

async function define(): Promise<void> {
  const cluster = await RealCluster.start();
  after(() => cluster.stop());
  await cluster.createVolume('main');

  for (const transport of TRANSPORTS) {
    test(`a mount is made read-only and read-write again (${transport})`, async (t) => {
      const mount = await ClusterMount.start(cluster, 'main', '-o', `transport=${transport},flush_behind`);
      t.after(() => mount.stop());
      const other = await ClusterMount.start(cluster, 'main', '-o', 'cache=strict');
      t.after(() => other.stop());
      const { directory } = mount;
      await runOk('sh', ['-c', 'mkdir -p "$0/d" && echo before > "$0/d/file"', directory]);
      await runOk('sh', [
        '-c',
        'for i in $(seq 40); do echo $i > "$0/d/f$i"; done; rm "$0"/d/f2?',
        directory,
      ]);
      await commandOk(['remount', 'ro', directory]);
      const { text } = await runOk('sh', ['-c', 'ls "$0/d" | wc -l; cat "$0/d/f7"', other.directory]);
      assert.deepEqual(
        text.trim().split(/\s+/),
        ['31', '7'],
        'Writes that were answered before have arrived',
      );
      if (isRoot) assert.equal(modeInTable(directory), 'ro');
      const changes = [
        'touch "$0/new"',
        'echo x > "$0/d/file"',
        'echo x >> "$0/d/file"',
        'truncate -s 1 "$0/d/file"',
        'rm "$0/d/file"',
        'mkdir "$0/e"',
        'mv "$0/d" "$0/e"',
        'ln "$0/d/file" "$0/l"',
        'ln -s x "$0/l"',
        'chmod 600 "$0/d/file"',
        'setfattr -n user.a -v b "$0/d/file"',
      ];
      const refused = async () => {
        for (const script of changes) {
          const result = await run('sh', ['-c', script, directory]);
          assert.notEqual(result.code, 0, script);
          assert.match(result.text, /Read-only file system/, script);
        }
      };
      await refused();
      // The mount's process refuses them also if the kernel would let them pass.
      if (isRoot) {
        await runOk('mount', ['-i', '-o', 'remount,rw', directory]);
        assert.equal(modeInTable(directory), 'rw');
        await refused();
      }
      assert.equal((await runOk('cat', [mount.path('d/file')])).text, 'before\n');
      await commandOk(['remount', 'ro', directory]);
      await commandOk(['remount', 'rw', directory]);
      assert.equal(modeInTable(directory), 'rw');
      await runOk('sh', ['-c', 'echo after > "$0/d/file" && mkdir "$0/e"', directory]);
      await commandOk(['umount', directory]);
      assert.equal((await runOk('cat', [other.path('d/file')])).text, 'after\n');
      await runOk('sh', ['-c', 'rm -r "$0"/*', other.directory]);
    });

    test(`files that are open for writing keep a mount read-write, unless it is forced (${transport})`, async (t) => {
      const mount = await ClusterMount.start(cluster, 'main', '-o', `transport=${transport}`);
      t.after(() => mount.stop());
      const file = await open(mount.path('held'), 'w');
      t.after(() => file.close().catch(() => undefined));
      await file.write('taken before');
      const busy = await command(['remount', 'ro', mount.directory]);
      assert.equal(busy.code, 4, busy.text);
      assert.match(
        busy.text,
        new RegExp(`1 file is open for writing\n.*process ${process.pid} .*/held is open`),
      );
      await file.write(', and after a refusal');
      const forced = await command(['remount', 'ro', mount.directory, '--force']);
      assert.equal(forced.code, 0, forced.text);
      await assert.rejects(file.write('never'), { code: 'EROFS' });
      await assert.rejects(open(mount.path('new'), 'w'), { code: 'EROFS' });
      const held = await run('cat', [mount.path('held')]);
      assert.equal(held.text, 'taken before, and after a refusal');
      await file.close();
      await commandOk(['remount', 'rw', mount.directory]);
      await runOk('rm', [mount.path('held')]);
    });
  }

  test('a mount whose unsent writes cannot be stored stays read-write', async (t) => {
    const mount = await ClusterMount.start(cluster, 'main', '-o', 'flush_behind', '--op-timeout', '3s');
    t.after(() => mount.stop());
    const [first, second] = cluster.ids as [string, string];
    const file = await open(mount.path('late'), 'w');
    await file.sync();
    await Promise.all([cluster.kill(first), cluster.kill(second)]);
    await file.write('late');
    await file.close();
    const refused = await command(['remount', 'ro', mount.directory]);
    await Promise.all([cluster.restart(first), cluster.restart(second)]);
    assert.equal(refused.code, 5, refused.text);
    assert.match(refused.text, /some written data could not be stored/);
    assert.equal(modeInTable(mount.directory), 'rw');
    await cluster.ready();
    await runOk('sh', ['-c', 'echo more > "$0"', mount.path('more')]);
  });

  test('mount(8) makes the kernel refuse changes, and mounts that were made read-only stay so', async (t) => {
    const mount = await ClusterMount.start(cluster, 'main');
    t.after(() => mount.stop());
    if (isRoot) {
      await runOk('mount', ['-i', '-o', 'remount,ro', mount.directory]);
      assert.match((await run('touch', [mount.path('new')])).text, /Read-only file system/);
      await commandOk(['remount', 'rw', mount.directory]);
      await runOk('touch', [mount.path('new')]);
    }
    const readOnly = await ClusterMount.start(cluster, 'main', '-o', 'ro');
    t.after(() => readOnly.stop());
    await commandOk(['remount', 'ro', readOnly.directory]);
    const refused = await command(['remount', 'rw', readOnly.directory]);
    assert.equal(refused.code, 4);
    assert.match(refused.text, /it was mounted with "ro"/);
    const socket = await controlSocketOf(mount.pid);
    await mount.unmount();
    assert.ok(socket !== null);
    assert.match((await run('ls', [socket])).text, /No such file/, 'The socket is removed with the mount');
    const nothing = await command(['remount', 'ro', mount.directory]);
    assert.match(nothing.text, /nothing is mounted there/);
  });
}

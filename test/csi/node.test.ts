/**
 * Goal: volumes are mounted for pods as the CSI specification says, their mounts outlive the plugin where that is
 * promised, and a mount whose process dies is replaced under the pods that use it.
 * Method: a client of our own plays the kubelet, with real mounts of a cluster of three servers. The plugin runs in a
 * pid namespace of its own, as in a container: all its processes die with it. Mount namespaces stand for containers.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { delimiter, join } from 'node:path';
import { after, before, test } from 'node:test';
import { LauncherMounter, SystemdMounter, unitOf } from '../../client/csi/mounter.ts';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { isMountDaemon, mountAt, parseMounts, processes } from '../../client/mounts/mount-table.ts';
import { printedBy, runCli } from '../client/run-cli.ts';
import { run } from '../cluster/cluster-mount.ts';
import { RealCluster, until } from '../cluster/real-cluster.ts';
import { LAUNCHER } from '../launcher.ts';
import { ended, mounted, Plugin, PluginFolder, startLauncherProcess } from './plugin.ts';

/** All processes of the plugin end with its first one, as those of a container. */
const CONTAINER = ['unshare', '--pid', '--fork', '--kill-child'];
const MIB = 1024 * 1024;

const skip = (await mountObstacle()) ?? (process.getuid?.() === 0 ? noNamespaces() : 'only root mounts');
const folder = new PluginFolder();
let cluster: RealCluster;
let launcher: ChildProcess;
let plugin: Plugin;

function noNamespaces(): string | false {
  try {
    execFileSync('unshare', [...CONTAINER.slice(1), '--mount', 'true'], { stdio: 'pipe' });
    return false;
  } catch (error) {
    return `Namespaces cannot be made here: ${error instanceof Error ? error.message : String(error)}`;
  }
}

function start(...argv: readonly string[]): Promise<Plugin> {
  const servers = [
    '--servers',
    cluster.urls.join(','),
    '--node-id',
    'node-1',
    '--zone',
    'east',
    '--topology',
  ];
  const mounter = ['--mounter', 'launcher', '--launcher', folder.endpoint('launcher.sock')];
  const options = ['--check-interval', '200ms', ...mounter, ...argv];
  return Plugin.start(folder, [...servers, ...options], { wrapper: CONTAINER });
}

before(async () => {
  if (skip !== false) return;
  // As the kubelet's folder: what is mounted below reaches other mount namespaces.
  execFileSync('mount', ['--bind', folder.folder, folder.folder]);
  execFileSync('mount', ['--make-shared', folder.folder]);
  cluster = await RealCluster.start();
  launcher = await startLauncherProcess(folder);
  plugin = await start();
});

after(async () => {
  if (skip !== false) return;
  await plugin?.kill();
  if (launcher !== undefined) await ended(launcher, 'SIGTERM');
  for (;;) {
    const table = parseMounts(readFileSync('/proc/self/mountinfo', 'utf8'));
    const mount = table.findLast(({ directory }) => directory.startsWith(folder.folder));
    if (mount === undefined) break;
    execFileSync('umount', ['-l', mount.directory]);
  }
  await cluster?.stop();
  folder.remove();
});

const staging = (name: string): string => folder.path('kubelet', name, 'globalmount');
const target = (name: string): string => folder.path('kubelet', 'pods', name, 'mount');

async function create(name: string): Promise<void> {
  await plugin.call('CreateVolume', {
    name,
    volumeCapabilities: [mounted()],
    capacityRange: { requiredBytes: 10 * MIB },
    parameters: { quotaFiles: '100' },
  });
}

function stageRequest(volumeId: string, more: object = {}): object {
  return { volumeId, stagingTargetPath: staging(volumeId), volumeCapability: mounted(), ...more };
}

function publishRequest(volumeId: string, pod: string, more: object = {}): object {
  return { ...stageRequest(volumeId), targetPath: target(pod), ...more };
}

/** Each call may be repeated. */
async function twice(method: Parameters<Plugin['call']>[0], request: object): Promise<void> {
  await plugin.call(method, request);
  await plugin.call(method, request);
}

async function remove(volumeId: string, ...pods: string[]): Promise<void> {
  for (const pod of pods) {
    await twice('NodeUnpublishVolume', { volumeId, targetPath: target(pod) });
    assert.equal(existsSync(target(pod)), false);
  }
  await twice('NodeUnstageVolume', { volumeId, stagingTargetPath: staging(volumeId) });
  // Its process may be kept by mount namespaces of other programs on this machine.
  assert.equal(await mountAt(staging(volumeId)), null);
}

async function daemons(directory: string): Promise<number[]> {
  return (await processes()).filter((one) => isMountDaemon(one, directory)).map(({ pid }) => pid);
}

/** Kills the process of a mount, which then answers ENOTCONN. */
async function killMount(directory: string): Promise<void> {
  const [pid] = await daemons(directory);
  assert.ok(pid !== undefined);
  process.kill(pid, 'SIGKILL');
}

/** A process that sees mounts as a container: with `slave` those made later, too. */
class Container {
  readonly #child: ChildProcess;

  constructor(propagation: 'slave' | 'private') {
    this.#child = spawn('unshare', ['--mount', '--propagation', propagation, 'sleep', '1000'], {
      stdio: 'ignore',
    });
  }

  async ready(): Promise<void> {
    await until('it has its namespace', async () => {
      const { code } = await this.run('true');
      const own = readFileSync(`/proc/${this.#child.pid}/comm`, 'utf8').trim();
      return code === 0 && own === 'sleep';
    });
  }

  run(...argv: readonly string[]) {
    return run('nsenter', ['--target', `${this.#child.pid}`, '--mount', '--', ...argv]);
  }

  stop(): Promise<void> {
    return ended(this.#child, 'SIGKILL');
  }
}

test('a volume is staged, published to pods, measured, and removed; each call may be repeated', {
  skip,
}, async () => {
  await create('life');
  const absent = stageRequest('absent');
  assert.equal(await plugin.codeOf('NodeStageVolume', absent), 'NOT_FOUND');
  assert.equal(
    await plugin.codeOf('NodePublishVolume', publishRequest('life', 'early')),
    'FAILED_PRECONDITION',
  );
  await twice('NodeStageVolume', stageRequest('life'));
  const others = stageRequest('life', { volumeCapability: mounted('MULTI_NODE_MULTI_WRITER', 'noatime') });
  assert.equal(await plugin.codeOf('NodeStageVolume', others), 'ALREADY_EXISTS');
  await twice('NodePublishVolume', publishRequest('life', 'writer'));
  await twice('NodePublishVolume', publishRequest('life', 'reader', { readonly: true }));
  assert.equal(await plugin.codeOf('NodePublishVolume', publishRequest('life', 'reader')), 'ALREADY_EXISTS');
  writeFileSync(`${target('writer')}/file`, 'contents');
  assert.equal(readFileSync(`${target('reader')}/file`, 'utf8'), 'contents');
  assert.throws(() => writeFileSync(`${target('reader')}/file`, 'x'), { code: 'EROFS' });

  const { usage, volumeCondition } = await plugin.call<{
    usage: { unit: string; total: string; used: string; available: string }[];
    volumeCondition: { abnormal: boolean };
  }>('NodeGetVolumeStats', { volumeId: 'life', volumePath: target('writer') });
  assert.equal(volumeCondition.abnormal, false);
  const [bytes, inodes] = usage;
  assert.deepEqual([bytes?.unit, bytes?.total], ['BYTES', String(10 * MIB)]);
  assert.deepEqual([inodes?.unit, inodes?.total], ['INODES', '100']);
  const nowhere = { volumeId: 'life', volumePath: target('nowhere') };
  assert.equal(await plugin.codeOf('NodeGetVolumeStats', nowhere), 'NOT_FOUND');
  await remove('life', 'writer', 'reader');
  await plugin.call('DeleteVolume', { volumeId: 'life' });
});

test('modes, flags, directories and snapshots are as asked', { skip }, async () => {
  await create('modes');
  const one = { volumeCapability: mounted('SINGLE_NODE_SINGLE_WRITER', 'cache=strict', 'noexec') };
  await twice('NodeStageVolume', stageRequest('modes', one));
  await twice('NodePublishVolume', publishRequest('modes', 'single', one));
  assert.equal(
    await plugin.codeOf('NodePublishVolume', publishRequest('modes', 'second', one)),
    'FAILED_PRECONDITION',
  );
  assert.match(execFileSync('findmnt', ['-no', 'OPTIONS', staging('modes')], { encoding: 'utf8' }), /noexec/);
  writeFileSync(`${target('single')}/file`, 'snapshot');
  const { snapshot } = await plugin.call<{ snapshot: { snapshotId: string } }>('CreateSnapshot', {
    ...{ sourceVolumeId: 'modes', name: 'of-modes' },
  });
  await remove('modes', 'single');

  // Persistent volumes of an administrator: each has an id of its own, and names what is mounted.
  const inside = { volumeContext: { volume: 'modes', subdir: 'made/here' } };
  await twice('NodeStageVolume', stageRequest('part-of-modes', inside));
  await twice('NodePublishVolume', publishRequest('part-of-modes', 'part', inside));
  writeFileSync(`${target('part')}/below`, 'below');
  await remove('part-of-modes', 'part');
  const servers = ['--servers', cluster.urls.join(',')];
  assert.match(await printedBy(['ls', 'modes:/made/here', ...servers]), /below/);

  const image = { volumeContext: { volume: snapshot.snapshotId } };
  await twice('NodeStageVolume', stageRequest('image', image));
  await twice('NodePublishVolume', publishRequest('image', 'image', image));
  assert.deepEqual(readdirSync(target('image')), ['file']);
  assert.throws(() => writeFileSync(`${target('image')}/file`, 'x'), { code: 'EROFS' });
  await remove('image', 'image');
  for (const subdir of ['..', 'a/../../b'])
    assert.equal(
      await plugin.codeOf(
        'NodeStageVolume',
        stageRequest('x', { volumeContext: { volume: 'modes', subdir } }),
      ),
      'INVALID_ARGUMENT',
    );
  // A link that a pod has made leads to a place in the volume, not on the node.
  await plugin.call('NodeStageVolume', stageRequest('modes'));
  symlinkSync('/etc', `${staging('modes')}/link`);
  await remove('modes');
  const link = { volumeContext: { volume: 'modes', subdir: 'link' } };
  assert.equal(await plugin.codeOf('NodeStageVolume', stageRequest('linked', link)), 'NOT_FOUND');
  await plugin.call('DeleteSnapshot', snapshot);
  await plugin.call('DeleteVolume', { volumeId: 'modes' });
});

test('an inline volume is made for its pod, and deleted with it', { skip }, async () => {
  const volumeId = `csi-${'0123456789abcdef'.repeat(4)}`;
  const request = {
    volumeId,
    targetPath: target('inline'),
    volumeCapability: mounted('SINGLE_NODE_WRITER'),
    volumeContext: { 'csi.storage.k8s.io/ephemeral': 'true', size: '1Mi', mode: '0777' },
  };
  await twice('NodePublishVolume', request);
  writeFileSync(`${target('inline')}/file`, 'contents');
  assert.throws(() => writeFileSync(`${target('inline')}/large`, Buffer.alloc(3 * MIB)), { errno: -122 });
  // A restarted plugin knows that it is to be deleted.
  await plugin.kill();
  plugin = await start();
  await twice('NodeUnpublishVolume', { volumeId, targetPath: target('inline') });
  assert.equal(existsSync(target('inline')), false);
  const servers = ['--servers', cluster.urls.join(',')];
  assert.doesNotMatch(await printedBy(['volume', 'ls', ...servers]), /csi-[0-9a-f]{40}/);
  const wrong = { ...request, volumeContext: { ...request.volumeContext, servers: 'http://elsewhere' } };
  assert.equal(await plugin.codeOf('NodePublishVolume', wrong), 'INVALID_ARGUMENT');
});

test('a mount by the launcher outlives the plugin, which finds it again', { skip }, async () => {
  await create('lasting');
  await plugin.call('NodeStageVolume', stageRequest('lasting'));
  await plugin.call('NodePublishVolume', publishRequest('lasting', 'first'));
  const before = await daemons(staging('lasting'));
  await plugin.kill();
  writeFileSync(`${target('first')}/file`, 'while no plugin runs');
  plugin = await start();
  await twice('NodeStageVolume', stageRequest('lasting'));
  await twice('NodePublishVolume', publishRequest('lasting', 'second'));
  assert.equal(readFileSync(`${target('second')}/file`, 'utf8'), 'while no plugin runs');
  assert.deepEqual(await daemons(staging('lasting')), before, 'It is the same mount');
  await remove('lasting', 'first', 'second');
  await plugin.call('DeleteVolume', { volumeId: 'lasting' });
});

test('a dead mount is replaced under pods: those to which mounts propagate continue', { skip }, async () => {
  await create('killed');
  await plugin.call('NodeStageVolume', stageRequest('killed'));
  await plugin.call('NodePublishVolume', publishRequest('killed', 'pod'));
  await plugin.call('NodePublishVolume', publishRequest('killed', 'reading', { readonly: true }));
  writeFileSync(`${target('pod')}/file`, 'kept');
  execFileSync('sync', [`${target('pod')}/file`]);
  const [propagated, isolated] = [new Container('slave'), new Container('private')];
  try {
    await Promise.all([propagated.ready(), isolated.ready()]);
    for (const round of [1, 2]) {
      await killMount(staging('killed'));
      await until(`it is replaced, round ${round}`, async () => {
        const { code, text } = await run('cat', [`${target('pod')}/file`]);
        return code === 0 && text === 'kept';
      });
      await until('its container has it', async () => {
        const { code, text } = await propagated.run('cat', `${target('pod')}/file`);
        return code === 0 && text === 'kept';
      });
      await until(
        'the other one, too',
        async () => (await run('cat', [`${target('reading')}/file`])).code === 0,
      );
      assert.throws(() => writeFileSync(`${target('reading')}/file`, 'x'), { code: 'EROFS' });
      writeFileSync(`${target('pod')}/round-${round}`, 'each has its mode');
    }
    while ((await mountAt(target('reading'))) !== null) execFileSync('umount', ['-l', target('reading')]);
    await until('it is published again', async () => (await mountAt(target('reading'))) !== null);
    assert.throws(() => writeFileSync(`${target('reading')}/file`, 'x'), { code: 'EROFS' });
    const { code, text } = await isolated.run('cat', `${target('pod')}/file`);
    assert.notEqual(code, 0, 'A container without propagation has the dead mount until it restarts');
    assert.match(text, /not connected|connection abort/);
  } finally {
    await Promise.all([propagated.stop(), isolated.stop()]);
  }
  await remove('killed', 'pod', 'reading');
  await plugin.call('DeleteVolume', { volumeId: 'killed' });
});

test('mounts of a plugin that starts them itself die with its container, and are replaced', {
  skip,
}, async () => {
  await plugin.kill();
  plugin = await start('--mounter', 'process');
  await create('child');
  await plugin.call('NodeStageVolume', stageRequest('child'));
  await plugin.call('NodePublishVolume', publishRequest('child', 'child'));
  writeFileSync(`${target('child')}/file`, 'kept');
  execFileSync('sync', [`${target('child')}/file`]);
  await plugin.kill();
  await until('it is dead', async () => (await run('cat', [`${target('child')}/file`])).code !== 0);
  plugin = await start();
  await until('it is replaced', async () => (await run('cat', [`${target('child')}/file`])).text === 'kept');
  await remove('child', 'child');
  await plugin.call('DeleteVolume', { volumeId: 'child' });
});

test('what a killed plugin left of a mount at a pod is removed with it', { skip }, async () => {
  await create('left');
  await plugin.call('NodeStageVolume', stageRequest('left'));
  await plugin.call('NodePublishVolume', publishRequest('left', 'left'));
  await plugin.kill();
  const name = createHash('sha256')
    .update(`for ${target('left')}`)
    .digest('hex');
  const via = folder.path('state', 'mounts', name);
  mkdirSync(via, { recursive: true });
  execFileSync('mount', ['--make-private', '-o', 'bind', staging('left'), via]);
  plugin = await start();
  await remove('left', 'left');
  assert.equal(await mountAt(via), null);
  await plugin.call('DeleteVolume', { volumeId: 'left' });
});

test('one pod keeps no other from repair', { skip }, async () => {
  await create('two');
  await plugin.call('NodeStageVolume', stageRequest('two'));
  const pods = ['two-a', 'two-b'] as const;
  for (const pod of pods) await plugin.call('NodePublishVolume', publishRequest('two', pod));
  for (const [bad, good] of [pods, pods.toReversed()] as [string, string][]) {
    execFileSync('mount', ['-t', 'tmpfs', 'other', target(bad)]);
    execFileSync('umount', [target(good)]);
    await until(`${good} is mounted again`, async () => (await mountAt(target(good))) !== null);
    execFileSync('umount', [target(bad)]);
  }
  await remove('two', ...pods);
  await plugin.call('DeleteVolume', { volumeId: 'two' });
});

test('a volume is not mounted again once its removal from a pod has begun', { skip }, async () => {
  await create('stray');
  await plugin.call('NodeStageVolume', stageRequest('stray'));
  mkdirSync(target('stray'), { recursive: true });
  writeFileSync(`${target('stray')}/file`, 'of a moment without the mount');
  await plugin.call('NodePublishVolume', publishRequest('stray', 'stray'));
  const removal = { volumeId: 'stray', targetPath: target('stray') };
  assert.equal(await plugin.codeOf('NodeUnpublishVolume', removal), 'INTERNAL');
  // A repair has looked at all volumes.
  await create('beside');
  await plugin.call('NodeStageVolume', stageRequest('beside'));
  for (let round = 0; round < 2; round++) {
    const [killed] = await daemons(staging('beside'));
    await killMount(staging('beside'));
    await until('it is replaced', async () => {
      const [daemon] = await daemons(staging('beside'));
      return daemon !== undefined && daemon !== killed && (await mountAt(staging('beside'))) !== null;
    });
  }
  assert.equal(await mountAt(target('stray')), null);
  rmSync(`${target('stray')}/file`);
  await remove('stray', 'stray');
  await remove('beside');
  for (const volumeId of ['stray', 'beside']) await plugin.call('DeleteVolume', { volumeId });
});

test('a removal while the launcher is away is complete, and a mount fails as temporary', {
  skip,
}, async () => {
  await create('away');
  await plugin.call('NodeStageVolume', stageRequest('away'));
  await ended(launcher, 'SIGKILL');
  assert.equal(await plugin.codeOf('NodeStageVolume', stageRequest('away')), 'OK', 'Its mount is alive');
  await remove('away');
  assert.equal(await plugin.codeOf('NodeStageVolume', stageRequest('away')), 'UNAVAILABLE');
  launcher = await startLauncherProcess(folder);
  await twice('NodeStageVolume', stageRequest('away'));
  await remove('away');
  await plugin.call('DeleteVolume', { volumeId: 'away' });
});

test('calls at the same time, and wrong paths, leave nothing behind', { skip }, async () => {
  await create('busy');
  const stages = Array.from({ length: 6 }, () => plugin.codeOf('NodeStageVolume', stageRequest('busy')));
  const codes = new Set(await Promise.all(stages));
  codes.delete('ABORTED');
  assert.deepEqual([...codes], ['OK']);
  assert.equal((await daemons(staging('busy'))).length, 1);
  for (const targetPath of ['', 'relative', '/a/../b']) {
    const request = { ...publishRequest('busy', 'x'), targetPath };
    assert.equal(await plugin.codeOf('NodePublishVolume', request), 'INVALID_ARGUMENT');
    const removal = { volumeId: 'busy', targetPath };
    assert.equal(await plugin.codeOf('NodeUnpublishVolume', removal), 'INVALID_ARGUMENT');
  }
  // What is no mount is never removed.
  mkdirSync(target('full'), { recursive: true });
  writeFileSync(`${target('full')}/precious`, 'x');
  const removal = { volumeId: 'busy', targetPath: target('full') };
  assert.equal(await plugin.codeOf('NodeUnpublishVolume', removal), 'INTERNAL');
  assert.equal(readFileSync(`${target('full')}/precious`, 'utf8'), 'x');
  await remove('busy');
  await plugin.call('DeleteVolume', { volumeId: 'busy' });
});

test('a token of a volume is in one file that only root can read, as long as the volume is staged', {
  skip,
}, async () => {
  await create('secret');
  const token = 'token-of-the-volume-0123456789';
  await twice('NodeStageVolume', stageRequest('secret', { secrets: { token } }));
  const tokens = folder.path('state', 'tokens');
  const [file = '', ...others] = readdirSync(tokens);
  assert.deepEqual(others, []);
  assert.equal(readFileSync(join(tokens, file), 'utf8'), token);
  assert.equal(statSync(join(tokens, file)).mode & 0o777, 0o600);
  for (const socket of ['csi.sock', 'launcher.sock'])
    assert.equal(statSync(folder.path(socket)).mode & 0o777, 0o600);
  const [pid] = await daemons(staging('secret'));
  assert.doesNotMatch(readFileSync(`/proc/${pid}/cmdline`, 'utf8'), /token-of-the-volume/);
  assert.doesNotMatch(plugin.log, /token-of-the-volume/);
  await remove('secret');
  assert.deepEqual(readdirSync(tokens), []);
  await plugin.call('DeleteVolume', { volumeId: 'secret' });
});

test('a container of mounts that is ended stores first what was written', { skip }, async () => {
  await create('stored');
  const own = new PluginFolder();
  // It is the first process of its namespace, as in a container; unshare passes the signal on when it is killed.
  const container = [
    'unshare',
    '--pid',
    '--fork',
    '--mount-proc',
    '--propagation',
    'shared',
    '--kill-child=SIGTERM',
  ];
  const first = await startLauncherProcess(own, container);
  try {
    const order = {
      servers: cluster.urls,
      tree: 'stored',
      path: '/',
      directory: staging('stored'),
      options: [],
    };
    mkdirSync(staging('stored'), { recursive: true });
    await new LauncherMounter(own.path('launcher.sock')).mount({ ...order, access: {} });
    const file = openSync(`${staging('stored')}/file`, 'w');
    writeSync(file, 'written, and not closed');
    await ended(first, 'SIGKILL');
    const servers = ['--servers', cluster.urls.join(',')];
    await until('it is stored', async () => {
      const { stdout } = await runCli(['get', 'stored:/file', '-', ...servers]);
      return stdout === 'written, and not closed';
    });
    try {
      closeSync(file);
    } catch (error) {
      assert.ok(error instanceof Error, 'Its mount has ended');
    }
  } finally {
    await ended(first, 'SIGKILL');
    if ((await mountAt(staging('stored'))) !== null) execFileSync('umount', ['-l', staging('stored')]);
    own.remove();
  }
  await plugin.call('DeleteVolume', { volumeId: 'stored' });
});

/** Does for a unit what systemd does: a process apart from the caller's, ready when the mount is. */
const SYSTEMD_RUN = `#!/bin/sh
while [ "$1" != -- ]; do echo "$1" >> "$0.options"; shift; done
shift
setsid "$@" > /dev/null 2>&1 < /dev/null &
pid=$!
until grep -q " $5 fuse.leasehold " /proc/self/mounts; do
  case $(cut -d' ' -f3 /proc/$pid/stat 2>/dev/null) in ''|Z) exit 1;; esac
done
`;

test('a mount by systemd is a unit of the host', { skip }, async () => {
  await create('unit');
  const program = folder.path('systemd-run');
  writeFileSync(program, SYSTEMD_RUN);
  chmodSync(program, 0o755);
  const options = { program: [process.execPath, LAUNCHER], hostPid: null, logs: folder.folder };
  const order = {
    servers: cluster.urls,
    tree: 'unit',
    path: '/',
    directory: staging('unit'),
    options: [],
    access: {},
  };
  mkdirSync(staging('unit'), { recursive: true });
  const { PATH = '' } = process.env;
  process.env.PATH = `${folder.folder}${delimiter}${PATH}`;
  try {
    await new SystemdMounter(options).mount(order);
    const nowhere = { ...order, tree: 'absent', directory: target('nowhere') };
    await assert.rejects(new SystemdMounter(options).mount(nowhere), /by systemd/);
  } finally {
    process.env.PATH = PATH;
  }
  const given = readFileSync(`${program}.options`, 'utf8')
    .split('\n')
    .filter((line) => line !== '');
  assert.ok(given.includes(`--unit=${unitOf(staging('unit'))}`));
  const [word = ''] = given;
  const { text } = await run('systemd-run', [
    ...new Set(given.slice(0, given.lastIndexOf(word))),
    '--',
    'true',
  ]);
  assert.doesNotMatch(text, /option|argument|property/i, 'The real program knows the options');
  // The plugin takes over what it finds there.
  await twice('NodeStageVolume', stageRequest('unit'));
  await remove('unit');
  await plugin.call('DeleteVolume', { volumeId: 'unit' });
});

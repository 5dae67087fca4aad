import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { after, test } from 'node:test';
import { kernelObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { printedBy } from '../client/run-cli.ts';
import { ClusterMount } from './cluster-mount.ts';
import { RealCluster } from './real-cluster.ts';

/**
 * Goal: a program on a mount is told EPERM for what flags forbid that the command line has set, also by a file that it opened before.
 * Method: a program of system calls, which makes its files, waits for the flags, and then tries every change.
 */
const PROGRAM = `
import errno, os, sys
folder = sys.argv[1]
def at(name): return os.path.join(folder, name)
def outcome(name, call):
    try: print(name, call() or 'ok')
    except OSError as error: print(name, errno.errorcode.get(error.errno))
def written(name, flags, text):
    fd = os.open(at(name), flags, 0o644)
    try:
        os.write(fd, text)
        os.fsync(fd)
    finally: os.close(fd)
def contents(name):
    with open(at(name)) as file: return file.read()
for name in ('kept', 'log'): written(name, os.O_CREAT | os.O_WRONLY, b'one')
os.mkdir(at('closed'))
written('closed/x', os.O_CREAT | os.O_WRONLY, b'x')
before = os.open(at('kept'), os.O_RDWR)
print('made', flush=True)
sys.stdin.readline()
outcome('write', lambda: written('kept', os.O_WRONLY, b'x'))
outcome('write-before', lambda: (os.pwrite(before, b'x', 0), os.fsync(before)) and None)
outcome('truncate', lambda: os.truncate(at('kept'), 1))
outcome('chmod', lambda: os.chmod(at('kept'), 0o600))
outcome('utime', lambda: os.utime(at('kept')))
outcome('setxattr', lambda: os.setxattr(at('kept'), 'user.a', b'1'))
outcome('link', lambda: os.link(at('kept'), at('other')))
outcome('rename', lambda: os.rename(at('kept'), at('other')))
outcome('replace', lambda: os.rename(at('log'), at('kept')))
outcome('unlink', lambda: os.unlink(at('kept')))
outcome('read', lambda: contents('kept'))
outcome('append', lambda: written('log', os.O_WRONLY | os.O_APPEND, b',two'))
outcome('overwrite', lambda: written('log', os.O_WRONLY, b'x'))
outcome('read-log', lambda: contents('log'))
outcome('create-in', lambda: written('closed/y', os.O_CREAT | os.O_WRONLY, b'y'))
outcome('unlink-in', lambda: os.unlink(at('closed/x')))
outcome('list', lambda: ','.join(os.listdir(at('closed'))))
`;

const OUTCOMES = {
  ...{ write: 'EPERM', 'write-before': 'EPERM', truncate: 'EPERM', chmod: 'EPERM', utime: 'EPERM' },
  ...{ setxattr: 'EPERM', link: 'EPERM', rename: 'EPERM', replace: 'EPERM', unlink: 'EPERM', read: 'one' },
  ...{ append: 'ok', overwrite: 'EPERM', 'read-log': 'one,two' },
  ...{ 'create-in': 'EPERM', 'unlink-in': 'EPERM', list: 'x' },
};

const obstacle = kernelObstacle();
const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;
const cluster = skip === false ? await RealCluster.start() : null;
after(() => cluster?.stop());

test('programs are told EPERM for what flags forbid', { skip }, async (t) => {
  assert.ok(cluster !== null);
  await cluster.createVolume('main');
  const mount = await ClusterMount.start(cluster, 'main', '--transport', 'kernel');
  t.after(() => mount.stop());
  const servers = ['--servers', cluster.urls.join(',')];
  const set = (flag: string, path: string) => printedBy(['flags', '--set', flag, `main:${path}`, ...servers]);
  const child = spawn('python3', ['-c', PROGRAM, mount.directory], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout });
  const told: string[] = [];
  for await (const line of lines) {
    if (line !== 'made') {
      told.push(line);
      continue;
    }
    await set('immutable', '/kept');
    await set('append-only', '/log');
    await set('immutable', '/closed');
    child.stdin.end('\n');
  }
  assert.deepEqual(Object.fromEntries(told.map((line) => line.split(' '))), OUTCOMES);
});

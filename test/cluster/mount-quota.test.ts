import assert from 'node:assert/strict';
import { readFile, stat, unlink } from 'node:fs/promises';
import { after, test } from 'node:test';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { onlyLong, SERVERS_OF_FORM } from '../long.ts';
import { ClusterMount, commandOk, run } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: a program on a mount receives EDQUOT from the call concerned: write; fsync or close after asynchronous writes;
 * truncate; fallocate. Earlier contents stay, and freed space can be used at once.
 * Method: a program of system calls on a volume of one mebibyte, over each transport.
 */
const MIB = 1024 * 1024;

const PROGRAM = `
import errno, os, sys, time
folder, MIB = sys.argv[1], 1024 * 1024
def name_of(error): return errno.errorcode.get(error.errno, str(error.errno))
def outcome(call):
    try:
        call()
        return 'ok'
    except OSError as error:
        return name_of(error)
def at(name): return os.path.join(folder, name)
def written(name, size, end):
    """The first failure of the writes, and then of their end."""
    fd = os.open(at(name), os.O_CREAT | os.O_WRONLY, 0o644)
    failure = 'ok'
    for piece in range(size // 65536):
        failure = outcome(lambda: os.write(fd, b'x' * 65536))
        if failure != 'ok': break
    ended = outcome(lambda: os.fsync(fd)) if end == 'fsync' else 'ok'
    closed = outcome(lambda: os.close(fd))
    return [each for each in (failure, ended, closed) if each != 'ok'][:1] or ['ok']
print('fits', *written('small', MIB // 2, 'fsync'))
print('fsync', *written('large', 2 * MIB, 'fsync'))
print('close', *written('closed', 2 * MIB, 'close'))
for name in ('large', 'closed'):
    os.unlink(at(name))
fd = os.open(at('small'), os.O_RDWR)
print('fallocate', outcome(lambda: os.posix_fallocate(fd, 0, 2 * MIB)))
print('truncate', outcome(lambda: os.ftruncate(fd, 2 * MIB)))
print('in-place', outcome(lambda: (os.pwrite(fd, b'y' * 4096, 0), os.fsync(fd))))
print('shrink', outcome(lambda: os.ftruncate(fd, 4096)))
os.close(fd)
# A file's allowed size counts until the catalog has processed its close, a moment later.
for turn in range(200):
    again = written('again', MIB // 2, 'fsync')
    if again == ['ok']: break
    time.sleep(0.1)
print('again', *again)
for count in range(9):
    made = outcome(lambda: os.close(os.open(at('n%d' % count), os.O_CREAT | os.O_EXCL | os.O_WRONLY)))
    if made != 'ok': break
print('names', made, outcome(lambda: os.mkdir(at('directory'))))
`;

/** Twice the free space: the first refused file may be refused at its close. */
const SCRIPT = `
text=$(head -c 60000 /dev/zero | tr '\\0' x)
for number in $(seq 1 40); do
  echo "$text" > "$0/$number" || exit 7
done`;

const TRANSPORTS = [
  { transport: 'native', obstacle: await mountObstacle() },
  { transport: 'kernel', obstacle: kernelTransportObstacle() },
] as const;

const usable = TRANSPORTS.filter(({ obstacle }) => obstacle === null);
const cluster = usable.length === 0 ? null : await RealCluster.start({ servers: SERVERS_OF_FORM });
after(() => cluster?.stop());

for (const { transport, obstacle } of TRANSPORTS) {
  const skip =
    obstacle === null
      ? transport === 'native' && onlyLong('the test over kernel')
      : `Nothing can be mounted: ${obstacle}`;
  test(`programs receive EDQUOT when a quota is used up (${transport})`, { skip }, async (t) => {
    assert.ok(cluster !== null);
    const replicas = ['--replicas', `${cluster.ids.length}`];
    const argv = ['volume', 'create', transport, ...replicas, '--quota', '1MiB', '--quota-files', '6'];
    const servers = ['--servers', cluster.urls.join(',')];
    await commandOk([...argv, ...servers]);
    const mount = await ClusterMount.start(cluster, transport, '--transport', transport);
    t.after(() => mount.stop());
    const { code, text } = await run('python3', ['-c', PROGRAM, mount.directory]);
    assert.equal(code, 0, text);
    const told = Object.fromEntries(
      text
        .trim()
        .split('\n')
        .map((line) => [line.split(' ')[0], line.slice(line.indexOf(' ') + 1)]),
    );
    assert.deepEqual(told, {
      fits: 'ok',
      fsync: 'EDQUOT',
      close: 'EDQUOT',
      fallocate: 'EDQUOT',
      truncate: 'EDQUOT',
      'in-place': 'ok',
      shrink: 'ok',
      again: 'ok',
      names: 'EDQUOT EDQUOT',
    });
    assert.equal((await stat(mount.path('again'))).size, MIB / 2);
    assert.equal((await readFile(mount.path('small'), 'utf8')).slice(0, 4), 'yyyy');
    // Freed space is used at once.
    await unlink(mount.path('again'));
    await until('there is free space', async () => {
      const copied = await run('sh', ['-c', 'head -c 400000 /dev/zero > "$0"', mount.path('again')]);
      return copied.code === 0;
    });
  });

  test(`a shell program that ignores errors of close reports that the quota is used up (${transport})`, {
    skip,
  }, async (t) => {
    assert.ok(cluster !== null);
    const quotas = { bytes: ['--quota', '1MiB'], files: ['--quota-files', '5'] };
    for (const [kind, quota] of Object.entries(quotas)) {
      const volume = `${transport}-${kind}`;
      const replicas = ['--replicas', `${cluster.ids.length}`];
      const argv = ['volume', 'create', volume, ...replicas, ...quota, '--servers', cluster.urls.join(',')];
      await commandOk(argv);
      const mount = await ClusterMount.start(cluster, volume, '--transport', transport);
      t.after(() => mount.stop());
      const { code, text } = await run('sh', ['-c', SCRIPT, mount.directory]);
      assert.equal(code, 7, `${kind}: ${text}`);
    }
  });
}

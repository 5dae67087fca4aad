import assert from 'node:assert/strict';
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { after, test } from 'node:test';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { runCli } from '../client/run-cli.ts';
import { ask } from '../http/ask.ts';
import { SERVERS_OF_FORM } from '../long.ts';
import { ClusterMount, commandOk, run, runOk } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: a directory with a quota is to programs on a mount as a file system of that size: they receive EDQUOT beyond
 * it, `df` shows it, and `mv` copies across its border. REST refuses with the name of the directory.
 * Method: a directory of one mebibyte with one of half of it inside, by the command line; system calls and mv(1).
 */
const KIB = 1024;
const MIB = KIB * KIB;

const PROGRAM = `
import errno, os, sys
folder = sys.argv[1]
def outcome(call):
    try:
        call()
        return 'ok'
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
def at(*names): return os.path.join(folder, *names)
def write(path, size):
    with open(path, 'wb', 0) as file:
        for piece in range(size // 65536): file.write(b'x' * 65536)
        os.fsync(file.fileno())
def size(path):
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize // 1024
print('sizes', size(at('team')), size(at('team', 'inner')), size(folder) > 10 * 1024)
print('inner', outcome(lambda: write(at('team', 'inner', 'large'), 640 * 1024)))
os.unlink(at('team', 'inner', 'large'))
write(at('team', 'inner', 'f'), 384 * 1024)
print('team', outcome(lambda: write(at('team', 'large'), 768 * 1024)))
os.unlink(at('team', 'large'))
new = os.open(at('team', 'new'), os.O_CREAT | os.O_WRONLY, 0o644)
print('fallocate', outcome(lambda: os.posix_fallocate(new, 0, 2 * 1024 * 1024)))
os.close(new)
os.unlink(at('team', 'new'))
os.mkdir(at('team', 'd'))
write(at('team', 'd', 'f'), 64 * 1024)
write(at('outside'), 64 * 1024)
print('directory', outcome(lambda: os.rename(at('team', 'd'), at('d'))))
print('link', outcome(lambda: os.link(at('outside'), at('team', 'link'))))
print('file', outcome(lambda: os.rename(at('outside'), at('team', 'inside'))))
print('back', outcome(lambda: os.rename(at('team', 'inside'), at('outside'))))
print('whole', outcome(lambda: os.rename(at('team', 'inner'), at('moved'))))
print('whole-back', outcome(lambda: os.rename(at('moved'), at('team', 'inner'))))
`;

const obstacle = kernelTransportObstacle();
const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;
const cluster = skip === false ? await RealCluster.start({ servers: SERVERS_OF_FORM }) : null;
after(() => cluster?.stop());

interface Listed {
  readonly quotas: readonly { path: string; quotaBytes: number; namedBytes: number; namedInodes: number }[];
}

test('a directory with a quota is as a file system of its size', { skip }, async (t) => {
  assert.ok(cluster !== null);
  const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
  const cli = (...argv: readonly string[]) => runCli(argv, { env });
  const cliOk = async (...argv: readonly string[]) => (await commandOk(argv, { env })).text;
  await cliOk('volume', 'create', 'v', '--replicas', `${cluster.ids.length}`);
  const mount = await ClusterMount.start(cluster, 'v', '--transport', 'kernel');
  t.after(() => mount.stop());
  await mkdir(mount.path('team'));
  await cliOk('quota', 'set', 'v:/team', '--bytes', '1MiB', '--files', '8');
  await mkdir(mount.path('team', 'inner'));
  const shown = await cliOk('quota', 'set', 'v:/team/inner', '--bytes', '512KiB');
  assert.match(shown, /v:\/team\/inner +0 B of 512\.0 KiB +1\n.*v:\/team +0 B of 1\.0 MiB +2 of 8\n/);

  const { code, text } = await run('python3', ['-c', PROGRAM, mount.directory]);
  assert.equal(code, 0, text);
  const lines = text.trim().split('\n');
  assert.deepEqual(Object.fromEntries(lines.map((line) => line.split(/ (.*)/).slice(0, 2))), {
    ...{
      sizes: '1024 512 True',
      inner: 'EDQUOT',
      team: 'EDQUOT',
      fallocate: 'EDQUOT',
      directory: 'EXDEV',
      link: 'EXDEV',
    },
    ...{ file: 'ok', back: 'ok', whole: 'ok', 'whole-back': 'ok' },
  });

  await mkdir(mount.path('tree'));
  await writeFile(mount.path('tree', 'f'), 'of a tree');
  await runOk('mv', [mount.path('tree'), mount.path('team', 'tree')]);
  assert.equal(await readFile(mount.path('team', 'tree', 'f'), 'utf8'), 'of a tree');
  await assert.rejects(stat(mount.path('tree')), { code: 'ENOENT' });
  const tooMany = await run('mkdir', [mount.path('team', 'a'), mount.path('team', 'b')]);
  assert.match(tooMany.text, /Disk quota exceeded/);

  // Files settle a moment after their close.
  await until('all counts are exact', async () => {
    const { quotas } = JSON.parse(await cliOk('quota', 'ls', '--json')) as Listed;
    const used = quotas.map((one) => [one.path, one.quotaBytes, one.namedBytes, one.namedInodes].join());
    const expected = [`/team,${MIB},${448 * KIB + 9},8`, `/team/inner,${512 * KIB},${384 * KIB},2`];
    return used.join(' ') === expected.join(' ');
  });

  const url = `${cluster.url('s1')}/v1/files/v/team`;
  const put = await fetch(`${url}/inner/put`, { method: 'PUT', body: Buffer.alloc(200 * KIB) });
  assert.equal(put.status, 507);
  assert.match(((await put.json()) as { detail: string }).detail, /^Directory "v:\/team/);
  const moved = await ask(cluster.url('s1'), 'POST', '/v1/files/v/team/d/?move-to=/d');
  assert.equal(moved.status, 409, moved.text);

  const counted = await cliOk('quota', 'set', 'v:/team/d', '--bytes', '1GiB');
  assert.match(counted, /v:\/team\/d +64\.0 KiB of 1\.0 GiB +2\n/);
  await cliOk('quota', 'clear', 'v:/team/d');
  assert.equal((await cli('quota', 'clear', 'v:/team/d')).code, 3);
  assert.equal((await cli('quota', 'set', 'v:/', '--bytes', '1GiB')).code, 2);
  assert.equal((await cli('quota', 'set', 'v:/team')).code, 2);
  await cliOk('quota', 'set', 'v:/team', '--bytes', 'none', '--files', 'none');
  await writeFile(mount.path('team', 'more'), Buffer.alloc(2 * MIB));
  await cliOk('rm', '-r', 'v:/team/inner');
  // What is written without a quota counts once it is settled.
  await until('it is counted', async () =>
    /v:\/team +2\.1 MiB +7\n/.test(await cliOk('quota', 'get', 'v:/team/d/f')),
  );
});

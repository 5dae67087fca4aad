import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createInterface } from 'node:readline';
import { after, test } from 'node:test';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { printedBy } from '../client/run-cli.ts';
import { ClusterMount, run } from './cluster-mount.ts';
import { RealCluster } from './real-cluster.ts';

/**
 * Goal: a program on a mount receives EPERM for changes that flags set by the command line forbid, also on a file that
 * it opened before.
 * Method: a program of system calls, which creates its files, waits for the flags, and then tries every change.
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

const obstacle = kernelTransportObstacle();
const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;
const cluster = skip === false ? await RealCluster.start() : null;
after(() => cluster?.stop());

test('programs receive EPERM for what flags forbid', { skip }, async (t) => {
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

/** Flags set with `chattr`, changes by shell programs. `refused`: with EPERM. */
const SCRIPT = `
cd "$1"
refused() {
  if said=$(LC_ALL=C "$@" 2>&1); then echo "not refused: $*"; exit 1; fi
  case "$said" in *"Operation not permitted"*) ;; *) echo "$*: $said"; exit 1;; esac
}
put() { sh -c 'printf %s "$1" > "$2"' put "$@"; }
append() { sh -c 'printf %s "$1" >> "$2"' append "$@"; }
is() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'"; exit 1; }; }
flags() { lsattr -d "$1" | cut -d ' ' -f 1 | tr -d -; }
set -e
put kept f
chattr +i f
is "$(flags f)" i
is "$(cat f)" kept
refused put x f
refused append x f
refused truncate -s 1 f
refused chmod 600 f
refused mv f g
refused ln f g
refused rm -f f
chattr -i f
is "$(flags f)" ''
put new f
append er f
truncate -s 4 f
chmod 600 f
ln f h
mv f g
rm g
is "$(cat h)" newe
exec 3> open
printf held >&3
chattr +i open
is "$(cat open)" held
exec 3>&-
is "$(cat open)" held
chattr -i open
rm open
put one log
chattr +a log
is "$(flags log)" a
append ,two log
refused put x log
refused truncate -s 1 log
refused rm -f log
touch log
is "$(cat log)" one,two
chattr -a log
rm log
mkdir d
put x d/before
chattr +i d
is "$(flags d)" i
refused put y d/y
refused rm -f d/before
refused mkdir d/e
is "$(ls d)" before
chattr -i d
put y d/y
chattr +a d
put z d/z
refused rm -f d/before
chattr -a d
rm -r d
if said=$(LC_ALL=C chattr +c h 2>&1); then echo 'compressed'; exit 1; fi
case "$said" in *"not supported"*) ;; *) echo "$said"; exit 1;; esac
rm h
put held shown
chattr +i shown
put other hidden
`;

const hasChattr = ['chattr', 'lsattr'].every(
  (name) => spawnSync('sh', ['-c', `command -v ${name}`]).status === 0,
);
const skipChattr = skip !== false ? skip : hasChattr ? false : 'There is no chattr here (e2fsprogs)';

test('chattr and lsattr on a mount', { skip: skipChattr }, async (t) => {
  assert.ok(cluster !== null);
  await cluster.createVolume('attr');
  const servers = ['--servers', cluster.urls.join(',')];
  for (const cache of ['auto', 'ttl:1s', 'strict']) {
    const mount = await ClusterMount.start(cluster, 'attr', '--transport', 'kernel', '-o', `cache=${cache}`);
    t.after(() => mount.stop());
    const script = ['-c', SCRIPT, 'script', mount.directory];
    const { text, code } = await run('sh', script, { timeoutMs: 120_000 });
    assert.equal(code, 0, `${cache}: ${text}`);
    assert.match(await printedBy(['flags', 'attr:/shown', ...servers]), /immutable/);
    await printedBy(['flags', '--clear', 'immutable', 'attr:/shown', ...servers]);
    await printedBy(['flags', '--set', 'append-only', 'attr:/hidden', ...servers]);
    const shown = async (name: string) =>
      (await run('lsattr', [`${mount.directory}/${name}`])).text.split(' ')[0]?.replaceAll('-', '');
    const endMs = performance.now() + 10_000;
    for (const [name, flag] of [
      ['shown', ''],
      ['hidden', 'a'],
    ] as const)
      while ((await shown(name)) !== flag)
        assert.ok(cache === 'ttl:1s' && performance.now() < endMs, `${name} is cached for too long`);
    await printedBy(['flags', '--clear', 'append-only', 'attr:/hidden', ...servers]);
    const again = await ClusterMount.start(cluster, 'attr', '--transport', 'kernel', '-o', 'ro');
    t.after(() => again.stop());
    const { text: said } = await run('chattr', ['+i', `${again.directory}/shown`], { env: { LC_ALL: 'C' } });
    assert.match(said, /Read-only file system/);
  }
});

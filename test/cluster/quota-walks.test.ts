import assert from 'node:assert/strict';
import { link, mkdir, rm } from 'node:fs/promises';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { runCli } from '../client/run-cli.ts';
import { isLong } from '../long.ts';
import { ClusterMount, commandOk, run, runOk } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: a directory that programs use gets a quota, also if the catalog's primary is killed meanwhile, and the quota
 * counts exactly what find(1) finds in it.
 * Method: a program on a mount creates, renames, links and removes files in a tree, also across its border, before and
 * while it is counted. Then the quota is refused for a hard link, and ended.
 */
const FILES = isLong ? 20_000 : 900;

/** Creates files in directories; then changes the tree until its input ends. */
const PROGRAM = `
import errno, os, random, sys, threading
folder, count = sys.argv[1], int(sys.argv[2])
tree, other = os.path.join(folder, 'tree'), os.path.join(folder, 'other')
places = [os.path.join(tree, 'd%d' % place) for place in range(30)]
places += [os.path.join(place, 'e') for place in places[:15]]
for place in places + [other]: os.makedirs(place, exist_ok=True)
def write(path, size):
    with open(path, 'wb') as file: file.write(b'x' * size)
for index in range(count): write(os.path.join(places[index % len(places)], 'f%d' % index), index % 50)
for index in range(0, count, 100):
    os.link(os.path.join(places[index % len(places)], 'f%d' % index), os.path.join(tree, 'd3', 'l%d' % index))
print('created', flush=True)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
rng, made, done, refused = random.Random(7), [], 0, {}
while not ended.is_set():
    place = rng.choice(places)
    try:
        action = rng.randrange(10)
        if action < 4 or not made:
            made.append(os.path.join(place, 'n%d' % done))
            write(made[-1], rng.randrange(100))
        elif action < 6:
            spot = rng.randrange(len(made))
            target = os.path.join(rng.choice(places + [other]), 'm%d' % done)
            os.rename(made[spot], target)
            made[spot] = target
        elif action < 7:
            os.rename(os.path.join(tree, 'd20'), os.path.join(tree, 'd1', 'moved'))
            os.rename(os.path.join(tree, 'd1', 'moved'), os.path.join(tree, 'd20'))
        elif action < 8:
            os.link(made[-1], os.path.join(os.path.dirname(made[-1]), 'k%d' % done))
        elif action < 9:
            os.unlink(made.pop(rng.randrange(len(made))))
        else:
            os.rename(os.path.join(places[done % 30], 'f%d' % rng.randrange(count)), os.path.join(place, 'g%d' % done))
        done += 1
    except OSError as error:
        refused[errno.errorcode[error.errno]] = refused.get(errno.errorcode[error.errno], 0) + 1
print(done, refused, flush=True)
`;

const obstacle = kernelTransportObstacle();
const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;
const cluster = skip === false ? await RealCluster.start() : null;
after(() => cluster?.stop());

interface Listed {
  readonly quotas: readonly { path: string; namedBytes: number; namedInodes: number }[];
}

test('a directory in use is counted for its first quota while the catalog fails over', {
  skip,
}, async (t) => {
  assert.ok(cluster !== null);
  const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
  const cli = (...argv: readonly string[]) => runCli([...argv, '--timeout', '120s'], { env });
  const cliOk = async (...argv: readonly string[]) =>
    (await commandOk([...argv, '--timeout', '120s'], { env })).text;
  await cliOk('volume', 'create', 'v');
  const mount = await ClusterMount.start(cluster, 'v', '--transport', 'kernel');
  t.after(() => mount.stop());

  const input = new TransformStream<Uint8Array, Uint8Array>();
  const program = run('python3', ['-c', PROGRAM, mount.directory, `${FILES}`], {
    timeoutMs: 600_000,
    input: input.readable,
  });
  const find = async (...what: readonly string[]) =>
    (await runOk('find', [mount.path('tree'), ...what], { timeoutMs: 120_000 })).text.trim().split('\n');
  await Promise.race([
    until(
      'the program changes what it has created',
      async () => (await find('-name', 'n*'))[0] !== '',
      300_000,
    ),
    program.then(({ text }) => assert.fail(text)),
  ]);

  const victim = (await cluster.status('s1')).catalog.primary ?? '';
  const beganMs = performance.now();
  await cliOk('quota', 'set', 'v:/tree', '--files', `${FILES * 10}`, '--no-wait');
  // The next primary counts, or continues.
  await cluster.kill(victim);
  const waited = await cliOk('quota', 'set', 'v:/tree', '--bytes', '1GiB');
  assert.match(waited, /v:\/tree .* of 1\.0 GiB +\d+ of \d+\n/);
  t.diagnostic(`${FILES} files and a failover: ${Math.round(performance.now() - beganMs)} ms`);
  await cluster.restart(victim);
  await delay(500);
  await input.writable.close();
  const { code, text } = await program;
  assert.equal(code, 0, text);
  t.diagnostic(text.trim());

  const lines = [...new Set(await find('-printf', '%i %y %s\n'))].map((line) => line.split(' '));
  const bytes = lines.reduce((sum, [, kind, size]) => sum + (kind === 'f' ? Number(size) : 0), 0);
  let last = '';
  await until('it counts what find finds', async () => {
    last = await cliOk('quota', 'get', 'v:/tree', '--json');
    const [quota] = (JSON.parse(last) as Listed).quotas;
    if (quota?.namedInodes === lines.length && quota.namedBytes === bytes) return true;
    throw new Error(`${lines.length} inodes, ${bytes} bytes; ${last}`);
  });

  await cliOk('quota', 'clear', 'v:/tree');
  await mkdir(mount.path('outside'));
  const shared = (await find('-name', 'f*', '-links', '1'))[0] ?? '';
  await link(shared, mount.path('outside', 'link'));
  const refused = await cli('quota', 'set', 'v:/tree', '--bytes', '1GiB');
  assert.equal(refused.code, 4, refused.stderr);
  assert.ok(refused.stderr.includes(`"v:${shared.slice(mount.directory.length)}"`), refused.stderr);
  assert.equal(await cliOk('quota', 'ls'), 'No quota of a directory\n');
  await rm(mount.path('outside', 'link'));
  await cliOk('quota', 'set', 'v:/tree', '--bytes', '1GiB');
});

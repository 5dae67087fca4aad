import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { ask } from '../http/ask.ts';
import { ClusterMount, run } from './cluster-mount.ts';
import { RealCluster } from './real-cluster.ts';

const obstacle = await mountObstacle();
const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;
const STEPS = process.env.LONG === '1' ? 1_500 : 150;
const SEED = process.env.SEED ?? '1';

/**
 * Writes, truncates, punches, zeroes and copies at random, in two files on a mount and in two byte arrays, and
 * compares. Then queries all data and all holes: every byte that is not zero has to be in data.
 */
const EXERCISER = `
import ctypes, os, random, sys
directory, steps, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
libc = ctypes.CDLL(None, use_errno=True)
LIMIT = 3 << 20
names = ["one", "two"]
fds = [os.open(os.path.join(directory, name), os.O_RDWR | os.O_CREAT | os.O_TRUNC) for name in names]
models = [bytearray(), bytearray()]

def grow(model, size):
    if size > len(model): model.extend(bytes(size - len(model)))

def allocate(fd, mode, at, length):
    if libc.fallocate(fd, mode, ctypes.c_long(at), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate %d %d %d" % (mode, at, length))

def check(which, step):
    fd, model = fds[which], models[which]
    assert os.fstat(fd).st_size == len(model), (step, os.fstat(fd).st_size, len(model))
    seen = os.pread(fd, LIMIT * 2, 0)
    if seen != model:
        at = next(i for i in range(len(model)) if seen[i] != model[i])
        raise SystemExit("step %d: %s differs at %d" % (step, names[which], at))

def walk(which):
    fd, model, at = fds[which], models[which], 0
    while at < len(model):
        try: data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            assert error.errno == 6, error
            data = len(model)
        assert not any(model[at:data]), "data in a hole from %d to %d" % (at, data)
        at = os.lseek(fd, data, os.SEEK_HOLE) if data < len(model) else data
        assert at > data or at == len(model)

for step in range(steps):
    which = random.randrange(2)
    fd, model = fds[which], models[which]
    at, length = random.randrange(LIMIT), random.choice([1, 17, 4096, 70000, 400000])
    kind = random.choice(["write", "write", "write", "truncate", "punch", "punch", "zero", "extend", "copy", "copy", "sync", "walk"])
    if kind == "write":
        data = bytes([random.randrange(1, 256)]) * length
        os.pwrite(fd, data, at); grow(model, at); model[at:at + length] = data
    elif kind == "truncate":
        os.ftruncate(fd, at); del model[at:]; grow(model, at)
    elif kind == "punch":
        allocate(fd, 3, at, length)
        end = min(at + length, len(model))
        if end > at: model[at:end] = bytes(end - at)
    elif kind == "zero":
        allocate(fd, 16, at, length); grow(model, at + length); model[at:at + length] = bytes(length)
    elif kind == "extend":
        allocate(fd, 0, at, length); grow(model, at + length)
    elif kind == "copy":
        source = random.randrange(2)
        begin = random.randrange(LIMIT)
        if source == which and abs(begin - at) < length: continue
        wanted = models[source][begin:begin + length]
        done = 0
        while done < length:
            copied = os.copy_file_range(fds[source], fd, length - done, begin + done, at + done)
            if copied == 0: break
            done += copied
        assert done == len(wanted), (step, done, len(wanted))
        if done > 0: grow(model, at); model[at:at + done] = wanted
    elif kind == "sync": os.fsync(fd)
    else: walk(which)
    if step % 10 == 9: check(which, step)
for which in range(2): walk(which); check(which, steps); os.close(fds[which])
for name, model in zip(names, models):
    with open(sys.argv[4] + "/" + name, "wb") as expected: expected.write(model)
print("steps", steps)
`;

test('files with holes on two mounts of a real cluster', { skip, timeout: 300_000 }, async (t) => {
  const cluster = await RealCluster.start();
  after(() => cluster.stop());
  await cluster.createVolume('main');
  const mount = await ClusterMount.start(cluster, 'main');
  after(() => mount.stop());
  const other = await ClusterMount.start(cluster, 'main');
  after(() => other.stop());

  await t.test(`any order of writes, truncates, punches and copies (SEED=${SEED})`, async () => {
    const argv = ['-c', EXERCISER, mount.directory, String(STEPS), SEED, cluster.folder];
    const { code, text } = await run('python3', argv, { timeoutMs: 200_000 });
    assert.equal(code, 0, text);
    for (const name of ['one', 'two']) {
      const compared = await run('cmp', [other.path(name), `${cluster.folder}/${name}`]);
      assert.equal(compared.code, 0, compared.text);
    }
  });

  await t.test(
    'a copy of a file with a large hole keeps the hole and is not sent through the mount',
    async () => {
      const script = `
      truncate -s 3G big && printf begin | dd of=big conv=notrunc 2>/dev/null &&
      printf end | dd of=big bs=1 seek=3000000000 conv=notrunc 2>/dev/null &&
      cp --sparse=auto big copy && stat -c %s copy`;
      const { code, text } = await run('sh', ['-c', script], { cwd: mount.directory, timeoutMs: 60_000 });
      assert.equal(code, 0, text);
      assert.equal(text.trim(), String(3 * 1024 ** 3));
      const read = await run('dd', [
        `if=${other.path('copy')}`,
        'bs=1',
        'skip=2999999998',
        'count=6',
        'status=none',
      ]);
      assert.equal(read.text, '\0\0end\0');
    },
  );

  await t.test(
    'block counts reflect holes on both mounts and over HTTP, before and after the last close',
    async () => {
      const script = `
      fallocate -l 4M blocks && exec 3<> blocks && truncate -s 1G blocks && stat -c %b blocks &&
      printf data | dd of=blocks bs=1 seek=900000000 conv=notrunc 2>/dev/null && stat -c %b blocks && stat -c %b ${other.path('blocks')} &&
      exec 3>&- && sync blocks && head -c 1000000 /dev/urandom > dense && stat -c %b dense && du -k blocks | cut -f1`;
      const { code, text } = await run('sh', ['-c', script], { cwd: mount.directory, timeoutMs: 60_000 });
      assert.equal(code, 0, text);
      // One object, as far as it was written.
      const dataBytes = (900_000_000 % 131_072) + 4;
      const sectors = Math.ceil(dataBytes / 512);
      assert.deepEqual(text.trim().split('\n').map(Number), [
        ...[0, sectors, sectors, Math.ceil(1_000_000 / 512), Math.ceil(sectors / 2)],
      ]);
      const { attributes } = await cluster.info('s1', 'main/blocks');
      assert.equal(attributes.holeBytes, 1024 ** 3 - dataBytes);
      const archived = await run('sh', ['-c', 'tar -cSf - blocks | wc -c'], { cwd: mount.directory });
      assert.ok(Number(archived.text) < 200_000, archived.text);
    },
  );

  await t.test('a small new file has a hole where a whole object was not written', async () => {
    const script = `
import os
os.mkdir("small")
for count in range(6):
    os.close(os.open("small/warm%d" % count, os.O_WRONLY | os.O_CREAT))
for flags in 0, os.O_EXCL:
    name = "small/%d" % flags
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | flags)
    os.pwrite(fd, b"data", 200000)
    os.close(fd)
    fd = os.open(name, os.O_RDONLY)
    print(os.lseek(fd, 0, os.SEEK_HOLE), os.lseek(fd, 0, os.SEEK_DATA), os.fstat(fd).st_size)`;
    const { code, text } = await run('python3', ['-c', script], { cwd: mount.directory });
    assert.equal(code, 0, text);
    assert.deepEqual(text.trim().split('\n'), ['0 131072 200004', '0 131072 200004']);
  });

  await t.test('a copy continues when the primary of its destination dies', async () => {
    const data = join(cluster.folder, 'data');
    writeFileSync(data, randomBytes(48 * 1024 * 1024));
    assert.equal((await run('cp', [data, mount.path('data')])).code, 0);
    writeFileSync(mount.path('half'), 'x');
    const killed = cluster
      .primaryOf('main/half')
      .then((primary) => cluster.kill(primary).then(() => primary));
    const [copied, primary] = await Promise.all([
      run('cp', [mount.path('data'), mount.path('half')]),
      killed,
    ]);
    assert.equal(copied.code, 0, copied.text);
    assert.equal((await run('cmp', [other.path('half'), data])).code, 0);
    await cluster.restart(primary);
    await cluster.ready();
  });

  await t.test('servers report the same extents as the mount', async () => {
    const script =
      'import os; fd = os.open("big", os.O_RDONLY); print(os.fstat(fd).st_ino, os.lseek(fd, 1 << 25, os.SEEK_DATA))';
    const { text } = await run('python3', ['-c', script], { cwd: mount.directory });
    const [inode, found] = text.trim().split(' ').map(Number);
    for (const url of cluster.urls) {
      const answer = await ask(url, 'GET', `/v1/data/${inode}/extents?offset=${2 ** 25}&whence=data`);
      assert.equal(answer.status, 200, answer.text);
      assert.equal((JSON.parse(answer.text) as { found: number }).found, found);
    }
  });
});

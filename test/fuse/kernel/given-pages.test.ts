import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { kernelTransportObstacle } from '../../../fuse/kernel/kernel-mount.ts';
import { TestMount } from '../mounted.ts';

const run = promisify(execFile);
const options = { skip: kernelTransportObstacle() ?? false, timeout: 120_000 };
const LIMIT_MS = 20_000;

async function python(mount: TestMount, script: string): Promise<string> {
  const { stdout } = await run('python3', ['-c', script], {
    cwd: '/',
    env: { ...process.env, MOUNT: mount.directory },
  });
  return stdout.trim();
}

test(
  'scattered reads are answered from pages that the mount has stored in the kernel’s cache',
  options,
  async (t) => {
    const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
    const script = `
import os, random
path, page, pages = os.environ["MOUNT"] + "/f", 4096, 1024
with open(path, "wb") as file:
    for number in range(pages): file.write(number.to_bytes(4, "little") * (page // 4))
handle = os.open(path, os.O_RDONLY)
os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
order = list(range(pages))
random.Random(1).shuffle(order)
for number in order:
    assert os.pread(handle, page, number * page) == number.to_bytes(4, "little") * (page // 4), number
print("read")`;
    assert.equal(await python(mount, script), 'read');
    const reads = (await mount.report()).calls.read ?? 0;
    // How many it takes until a block is fetched is measured, and bounded.
    assert.ok(reads < 512, `${reads} reads of 1,024 pages`);
  },
);

test(
  'pages that were fetched before a write never replace what a program has written',
  options,
  async (t) => {
    const mount = await TestMount.start(t, LIMIT_MS, 'kernel');
    const script = `
import os, random, threading
path, page, pages = os.environ["MOUNT"] + "/f", 4096, 512
with open(path, "wb") as file: file.write(bytes(page * pages))
ended, failed = threading.Event(), []
def look(seed):
    draw = random.Random(seed)
    while not ended.is_set():
        handle = os.open(path, os.O_RDONLY)
        for count in range(40):
            os.pread(handle, page, draw.randrange(pages) * page)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
lookers = [threading.Thread(target=look, args=(seed,)) for seed in range(4)]
for looker in lookers: looker.start()
draw, written = random.Random(9), {}
handle = os.open(path, os.O_RDONLY)
for turn in range(1, 400):
    if turn % 20 == 0:
        os.truncate(path, page * pages // 2)
        os.truncate(path, page * pages)
        written = {number: stamp for number, stamp in written.items() if number < pages // 2}
    number = draw.randrange(pages)
    writer = os.open(path, os.O_WRONLY)
    os.pwrite(writer, turn.to_bytes(4, "little") * (page // 4), number * page)
    os.close(writer)
    written[number] = turn
    for number in [number, *draw.sample(sorted(written), min(4, len(written)))]:
        found = os.pread(handle, page, number * page)
        if found != written[number].to_bytes(4, "little") * (page // 4): failed.append((turn, number))
ended.set()
for looker in lookers: looker.join()
os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
for number in range(pages):
    if os.pread(handle, page, number * page) != written.get(number, 0).to_bytes(4, "little") * (page // 4): failed.append(("end", number))
print(failed)`;
    await mount.disturb({ delayMs: 2 });
    assert.equal(await python(mount, script), '[]');
  },
);

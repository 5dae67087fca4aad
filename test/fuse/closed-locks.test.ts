/**
 * Goal: after the close of the last descriptor of an open file, its locks of `flock` and F_OFD_SETLK conflict with no
 * other lock, although the kernel reports the release of the file only later. The close of a copied descriptor ends no
 * lock.
 * Method: the calls of the kernel, over a cluster that executes unlocks when the test lets it.
 */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { LOCK_END } from '../../base/lock-end.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import type { LockRequest } from '../../fuse/transport.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';
import { overTransports } from './mounted.ts';

const ROOT = 1;
const USER = { uid: 1000, gid: 1000 };
const EXCLUSIVE = { type: 'exclusive', start: 0n, end: LOCK_END, pid: 1 } as const;
/** The owner of the locks of an open file description; a program's own locks have another. */
const OFD = 7n;
const PROGRAM = 8n;
/** More than a refused lock waits for the kernel's report of the last close. */
const LONG_MS = 300;

/** A cluster that executes an unlock only after `allowed` resolves. */
class SlowUnlocks extends MemoryBackend {
  allowed: Promise<void> = Promise.resolve();

  override openFile(inode: number) {
    const file = super.openFile(inode);
    return {
      ...file,
      openLocks: (lost: Parameters<typeof file.openLocks>[0]) => {
        const locks = file.openLocks(lost);
        return {
          ...locks,
          unlock: async (range: Parameters<typeof locks.unlock>[0]) => {
            await this.allowed;
            await locks.unlock(range);
          },
        };
      },
    };
  }
}

/** Two handles of one file; the first has a lock. */
async function started(t: TestContext, kind: LockRequest['kind']) {
  const backend = new SlowUnlocks();
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, 5_000, () => undefined);
  const unlocks = Promise.withResolvers<void>();
  t.after(async () => {
    unlocks.resolve();
    await fileSystem.stop();
  });
  const { attributes, handle: first } = await fileSystem.create(ROOT, 'f', 0o600, constants.O_RDWR, USER);
  const { handle: second } = await fileSystem.open(attributes.inode, constants.O_RDWR, USER);
  const { signal } = new AbortController();
  const lock = (handle: number, owner: bigint): Promise<void> =>
    fileSystem.lock(handle, { ...EXCLUSIVE, kind, owner }, false, signal);
  await lock(first, OFD);
  return { backend, fileSystem, unlocks, first, second, lock };
}

for (const kind of ['flock', 'posix'] as const) {
  test(`a ${kind} lock of a closed file conflicts with no other lock, however long its unlock takes`, async (t) => {
    const { backend, fileSystem, unlocks, first, second, lock } = await started(t, kind);
    await fileSystem.flush(first, PROGRAM);
    backend.allowed = unlocks.promise;
    const asked = lock(second, OFD + 1n);
    const found = fileSystem.lockHolder(second, { ...EXCLUSIVE, kind, owner: OFD + 2n });
    // The lock was refused, and the query found a holder: both wait for the kernel's report.
    while ((backend.calls.lock ?? 0) < 2 || (backend.calls.holder ?? 0) < 1) await delay(1);
    const released = fileSystem.release(first);
    assert.equal(await Promise.race([asked, found, delay(LONG_MS, 'waiting')]), 'waiting');
    unlocks.resolve();
    await Promise.all([asked, released]);
    const held = await found;
    assert.ok(held === null || held.pid === EXCLUSIVE.pid, 'No holder, or the second handle');
  });
}

test('the close of a copied descriptor ends no lock, and a conflicting lock is soon refused', async (t) => {
  const { fileSystem, first, second, lock } = await started(t, 'flock');
  await fileSystem.flush(first, PROGRAM);
  await assert.rejects(lock(second, PROGRAM), { code: 'locked' });
  await lock(first, OFD);
  await assert.rejects(lock(second, PROGRAM), { code: 'locked' });
});

test('a lock through a handle after a close shows that it is still open: a conflicting lock is refused without a wait', async (t) => {
  const { backend, fileSystem, first, second, lock } = await started(t, 'flock');
  await fileSystem.flush(first, PROGRAM);
  await lock(first, OFD);
  const { lock: before = 0 } = backend.calls;
  await assert.rejects(lock(second, PROGRAM), { code: 'locked' });
  assert.equal(backend.calls.lock, before + 1, 'One request');
});

const SCRIPT = `
import fcntl, os, struct
path = os.environ["DIRECTORY"] + "/f"
F_OFD_SETLK = 37
def opened(): return os.open(path, os.O_RDWR | os.O_CREAT)
def flock(fd): fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
def ofd(fd): fcntl.fcntl(fd, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
refused = 0
last = opened()
for take in [flock, ofd]:
    take(last)
    for _ in range(30):
        following = opened()
        os.close(last)
        try: take(following)
        except BlockingIOError: refused += 1
        last = following
    os.close(last)
    last = opened()
copy = os.dup(last)
flock(last)
os.close(copy)
try: flock(opened())
except BlockingIOError: print("refused for a copy")
print(refused)
`;

overTransports('a lock of an open file is free when its last close returns', async (start) => {
  const mount = await start();
  await mount.disturb({ delayMs: 1 });
  const { stdout, stderr } = await mount.shell(`DIRECTORY=$0 python3 -c '${SCRIPT}'`);
  assert.equal(stdout, 'refused for a copy\n0\n', stderr);
});

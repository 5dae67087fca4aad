import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { type FileHandle, mkdtemp, open, rmdir, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import type { Attributes } from '../../../fuse/backend.ts';
import { ErrnoError } from '../../../fuse/errno.ts';
import { kernelTransportObstacle, mountWithKernel } from '../../../fuse/kernel/kernel-mount.ts';
import { UPTAKE_SLACK_MS } from '../../../fuse/kernel-view/in-flight.ts';
import type { FileSystemCalls } from '../../../fuse/transport.ts';
import { systemWorld } from '../../../world/system-world.ts';

const run = promisify(execFile);
const ROOT = 42;
const FILE = 43;
const BELOW = 44;
const LONG_MS = 3_600_000;

/** A directory with one file, which the kernel may cache for an hour unless it is invalidated. */
class OneFile {
  contents = 'old';
  readonly name = 'file';
  readonly asked: Record<string, number> = { lookup: 0, attributes: 0, read: 0 };

  attributes(inode: number): Attributes {
    return {
      ...{ inode, uid: 0, gid: 0, links: 1, target: '', device: 0, replicas: [], live: false },
      ...{ accessedNs: '1', modifiedNs: '1', changedNs: '1', contents: { epoch: 1, seq: 1 } },
      kind: inode === FILE ? 'file' : 'directory',
      mode: inode === FILE ? 0o644 : 0o755,
      sizeBytes: inode === FILE ? this.contents.length : 0,
    };
  }

  calls(): Partial<FileSystemCalls> {
    const count = (call: string): void => {
      this.asked[call] = (this.asked[call] ?? 0) + 1;
    };
    return {
      root: ROOT,
      lookup: async (_parent, name) => {
        if (name === this.name) count('lookup');
        if (name === 'below') return this.attributes(BELOW);
        if (name !== this.name) throw new ErrnoError('ENOENT', 'No such name');
        return this.attributes(FILE);
      },
      attributes: async (inode) => {
        // Attributes of the root are not counted: other programs query all mounts of a machine at any time.
        if (inode === FILE) count('attributes');
        return this.attributes(inode);
      },
      open: async () => ({ handle: 1, directIo: false, linked: false, version: 'same' }),
      read: async (_handle, offset, length) => {
        count('read');
        return Buffer.from(this.contents).subarray(offset, offset + length);
      },
      taken: () => undefined,
      keptPages: () => undefined,
      flush: async () => undefined,
      release: async () => undefined,
      // Those programs query this, too.
      space: async () => ({ totalBytes: 4096, freeBytes: 0, inodes: 2 }),
    };
  }
}

test('the kernel queries an inode once, and again after it is invalidated', {
  skip: kernelTransportObstacle() ?? false,
}, async (t) => {
  const file = new OneFile();
  const directory = await mkdtemp(join(tmpdir(), 'leasehold-invalidation-'));
  // Answers that take long to send are dropped from the kernel again, which on a busy machine are any.
  let [nowMs, sendingMs] = [1_000, 0];
  const nextMs = (): number => {
    nowMs += sendingMs;
    return nowMs;
  };
  const mounted = await mountWithKernel(directory, file.calls() as FileSystemCalls, {
    world: { ...systemWorld, nowMs: nextMs },
    ...{ source: 'test', kernelOptions: ['nosuid'], present: (same: Attributes) => same, limitMs: 10_000 },
    ...{
      xattrs: false,
      acls: false,
      creationTimes: false,
      deviceNumber: null,
      log: (level: string, message: string) => assert.notEqual(level, 'error', message),
    },
    cache: { attributesMs: 0, validMs: () => LONG_MS, nameValidMs: null, isGranted: null },
  });
  t.after(async () => {
    await mounted.unmount();
    await rmdir(directory);
  });
  const path = join(directory, 'file');
  await t.test('attributes are cached, and names are looked up each time', async () => {
    const asked = await opened(path, async (handle) => {
      assert.equal((await handle.stat()).size, 3);
      const before = { ...file.asked };
      for (let round = 0; round < 20; round++) assert.equal((await handle.stat()).size, 3);
      assert.deepEqual(file.asked, before);
      return before;
    });
    assert.equal((await stat(path)).size, 3);
    assert.deepEqual(file.asked, { ...asked, lookup: (asked.lookup ?? 0) + 1 });
  });
  await t.test('attributes that were sent late are not cached', async () => {
    await opened(path, async (handle) => {
      sendingMs = UPTAKE_SLACK_MS + 1;
      await mounted.invalidateInode(FILE);
      const before = file.asked.attributes ?? 0;
      // The notice that drops an answer follows it.
      do await handle.stat();
      while ((file.asked.attributes ?? 0) < before + 3);
      sendingMs = 0;
      // Such notices take effect in their order: none is left for the next test.
      await mounted.invalidateInode(FILE, false);
    });
  });
  await t.test('an open file shows new contents after it is invalidated', async () => {
    await opened(path, async (handle) => {
      const read = async (): Promise<string> => {
        const { buffer, bytesRead } = await handle.read(Buffer.alloc(100), 0, 100, 0);
        return buffer.toString('utf8', 0, bytesRead);
      };
      assert.equal(await read(), 'old');
      file.contents = 'new and longer';
      assert.equal(await read(), 'old', 'The kernel does not ask');
      await mounted.invalidateInode(FILE);
      assert.equal(await read(), 'new and longer');
    });
  });
  await t.test('a file system mounted below stays mounted', async () => {
    const below = join(directory, 'below');
    assert.ok((await stat(below)).isDirectory());
    const mountedAt = async (): Promise<number> => (await stat(below)).dev;
    await run('mount', ['-t', 'tmpfs', 'none', below]);
    const device = await mountedAt();
    try {
      await mounted.invalidateInode(ROOT);
      await mounted.invalidateInode(BELOW);
      assert.equal(await mountedAt(), device);
    } finally {
      await run('umount', [below]);
    }
    assert.notEqual(await mountedAt(), device);
  });
  await t.test('invalidating an inode that the kernel does not know returns at once', async () => {
    await mounted.invalidateInode(4711);
  });
});

test('the kernel looks up a granted name once, and again after its recall', {
  skip: kernelTransportObstacle() ?? false,
}, async (t) => {
  const file = new OneFile();
  const directory = await mkdtemp(join(tmpdir(), 'leasehold-granted-'));
  const mounted = await mountWithKernel(directory, file.calls() as FileSystemCalls, {
    world: systemWorld,
    ...{ source: 'test', kernelOptions: ['nosuid'], present: (same: Attributes) => same, limitMs: 10_000 },
    ...{ xattrs: false, acls: false, creationTimes: false, deviceNumber: null, log: () => undefined },
    cache: {
      ...{ attributesMs: 0, validMs: () => LONG_MS, nameValidMs: () => LONG_MS },
      isGranted: () => true,
    },
  });
  t.after(async () => {
    await mounted.unmount();
    await rmdir(directory);
  });
  const path = join(directory, 'file');
  const below = join(directory, 'below');
  const lookups = async (): Promise<number> => {
    const before = file.asked.lookup ?? 0;
    await stat(path);
    return (file.asked.lookup ?? 0) - before;
  };
  // On a busy machine the grant of the name may end between two calls.
  const counted: number[] = [];
  while (counted.at(-1) !== 0 && counted.length < 20) counted.push(await lookups());
  assert.equal(counted.at(-1), 0, 'The kernel caches the name');
  assert.ok((await stat(below)).isDirectory());
  await run('mount', ['-t', 'tmpfs', 'none', below]);
  try {
    const { dev: device } = await stat(below);
    await mounted.expireNames([ROOT]);
    assert.equal(await lookups(), 1);
    assert.equal(await lookups(), 1, 'Other clients change the directory');
    assert.equal((await stat(below)).dev, device, 'The file system mounted below stays');
  } finally {
    await run('umount', [below]);
  }
});

/** Closes the file also if `use` throws: the mount could not end otherwise. */
async function opened<Result>(path: string, use: (handle: FileHandle) => Promise<Result>): Promise<Result> {
  const handle = await open(path, 'r');
  return use(handle).finally(() => handle.close());
}

import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { BackendFile } from '../../fuse/backend.ts';
import { BLOCK_BYTES } from '../../fuse/contents/read-ahead.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { MetadataCache } from '../../fuse/metadata/cache.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';

/**
 * The kernel trusts the pages that a mount stores in its cache: they replace what a program has written, and what the
 * kernel has dropped after a change. So these tests hold a fetch, or the kernel itself, at the worst moment.
 */

const ROOT = 1;
const USER = { uid: 0, gid: 0 };
const PAGE = 4096;
/** Ticks of the event loop after which all that can happen has happened. */
const TURNS = 200;
/** More reads than are needed until a block is fetched, whatever times were measured. */
const MISSES_MAX = 500;

/** Holds its callers while it is closed. */
class Gate {
  #open: PromiseWithResolvers<void> | null = null;
  /** The number of callers that wait. */
  waiting = 0;

  close(): void {
    this.#open ??= Promise.withResolvers();
  }

  open(): void {
    this.#open?.resolve();
    this.#open = null;
  }

  async pass(): Promise<void> {
    this.waiting++;
    await this.#open?.promise;
    this.waiting--;
  }
}

/**
 * A cluster whose answers to reads of whole blocks can be held; an answer has the bytes of the time of the request.
 */
class GatedBackend extends MemoryBackend {
  readonly blocks = new Gate();
  /** Holds the read at `singleAt`. */
  readonly single = new Gate();
  singleAt = -1;

  override openFile(inode: number): BackendFile {
    const file = super.openFile(inode);
    return {
      ...file,
      read: async (offset, length) => {
        const bytes = await file.read(offset, length);
        if (length >= BLOCK_BYTES) await this.blocks.pass();
        else if (offset === this.singleAt) await this.single.pass();
        return bytes;
      },
    };
  }
}

/** A mount with a file that is open for reading, and a kernel that stores pages while its gate is open. */
async function setUp(t: TestContext, sizeBytes = 2 * BLOCK_BYTES, ageMaxMs?: number) {
  const backend = new GatedBackend();
  await backend.start();
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, 5_000, () => undefined, {
    cache: new MetadataCache(systemWorld, ageMaxMs),
  });
  t.after(() => fileSystem.stop());
  const given: { offset: number; bytes: Buffer }[] = [];
  const kernel = new Gate();
  fileSystem.mounted({
    // The kernel does not ask before reads: otherwise the mount would never fetch blocks of its own files.
    checksAttributesBeforeReads: false,
    invalidateInode: async () => undefined,
    dropAttributes: async () => undefined,
    storePages: async (_inode, offset, bytes, isCurrent) => {
      if (!isCurrent()) return false;
      await kernel.pass();
      given.push({ offset, bytes: Buffer.from(bytes) });
      return true;
    },
  });
  const { attributes } = await backend.createFile(ROOT, 'f', 0o644, USER, true);
  const { inode } = attributes;
  await backend.openFile(inode).write(0, [Buffer.alloc(sizeBytes, 'a')]);
  const { handle } = await fileSystem.open(inode, constants.O_RDONLY, USER);
  let count = 0;
  /** Reads pages of the first block in a scattered order, as a search does, until `isEnough`. */
  const readAround = async (isEnough: () => boolean): Promise<void> => {
    for (const countMax = count + MISSES_MAX; !isEnough(); count++) {
      assert.ok(count < countMax, 'The reads had the effect in time');
      const reading = fileSystem.read(handle, ((count * 7) % 31) * 2 * PAGE, PAGE);
      // A read that is held ends after its gate is opened.
      while (!isEnough() && !(await settled(reading))) await turn();
    }
  };
  const isGiven = (): boolean => given.length > 0;
  return { backend, fileSystem, inode, handle, given, kernel, readAround, isGiven };
}

async function until(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) await turn();
}

/** @returns whether the promise settles within the ticks in which all that can happen happens */
async function settled(promise: Promise<unknown>): Promise<boolean> {
  let isSettled = false;
  promise.then(
    () => {
      isSettled = true;
    },
    () => {
      isSettled = true;
    },
  );
  for (let count = 0; count < TURNS && !isSettled; count++) await turn();
  return isSettled;
}

test('scattered reads have the whole block stored in the kernel’s cache', async (t) => {
  const { given, readAround, isGiven } = await setUp(t);
  await readAround(isGiven);
  assert.deepEqual(
    given.map(({ offset, bytes }) => [offset, bytes.length]),
    [[0, BLOCK_BYTES]],
  );
});

test('the kernel stores whole pages only, none beyond the file size that it knows', async (t) => {
  const { given, readAround, isGiven } = await setUp(t, BLOCK_BYTES / 2 + 1_000);
  await readAround(isGiven);
  assert.equal(given[0]?.bytes.length, BLOCK_BYTES / 2);
});

test('no pages are stored while a program may write the file', async (t) => {
  const { given, readAround, isGiven, fileSystem, inode } = await setUp(t);
  const writer = await fileSystem.open(inode, constants.O_RDWR, USER);
  let left = 200;
  await readAround(() => left-- === 0);
  assert.equal(given.length, 0);
  await fileSystem.release(writer.handle);
  await readAround(isGiven);
});

test('pages that were fetched before a write are not stored after it', async (t) => {
  const { backend, given, readAround, isGiven, fileSystem, inode } = await setUp(t);
  backend.blocks.close();
  await readAround(() => backend.blocks.waiting > 0);
  const writer = await fileSystem.open(inode, constants.O_RDWR, USER);
  await fileSystem.write(writer.handle, 0, Buffer.alloc(PAGE, 'b'), USER);
  await fileSystem.flush(writer.handle);
  await fileSystem.release(writer.handle);
  backend.blocks.open();
  await readAround(isGiven);
  assert.ok(
    given.every(({ bytes }) => bytes[0] === 'b'.charCodeAt(0)),
    'Only pages that were fetched after the write are stored',
  );
});

test('an open for writing and a truncate wait until pages on their way to the kernel are stored', async (t) => {
  const { kernel, given, readAround, fileSystem, inode } = await setUp(t);
  kernel.close();
  await readAround(() => kernel.waiting > 0);
  const opening = fileSystem.open(inode, constants.O_RDWR, USER);
  const second = fileSystem.open(inode, constants.O_WRONLY, USER);
  const truncating = fileSystem.truncate(inode, PAGE, USER);
  assert.deepEqual(await Promise.all([opening, second, truncating].map(settled)), [false, false, false]);
  kernel.open();
  await Promise.all([opening, second, truncating]);
  assert.equal(given.length, 1);
});

test('a block is not stored if a read meanwhile was answered by the cluster, perhaps with newer bytes', async (t) => {
  const { backend, given, readAround, fileSystem, inode } = await setUp(t);
  const { handle } = await fileSystem.open(inode, constants.O_RDONLY, USER);
  backend.singleAt = 99 * PAGE;
  backend.single.close();
  backend.blocks.close();
  const past = fileSystem.read(handle, backend.singleAt, PAGE);
  await until(() => backend.single.waiting > 0);
  await readAround(() => backend.blocks.waiting > 0);
  backend.single.open();
  await past;
  backend.blocks.open();
  await until(() => backend.blocks.waiting === 0);
  for (let count = 0; count < TURNS; count++) await turn();
  assert.equal(given.length, 0);
});

test('pages that were fetched before a truncate are not stored after it', async (t) => {
  const { backend, given, readAround, isGiven, fileSystem, inode } = await setUp(t);
  backend.blocks.close();
  await readAround(() => backend.blocks.waiting > 0);
  await fileSystem.truncate(inode, PAGE, USER);
  await fileSystem.truncate(inode, 2 * BLOCK_BYTES, USER);
  backend.blocks.open();
  await readAround(isGiven);
  assert.ok(
    given.every(({ bytes }) => bytes[PAGE] === 0),
    'Bytes beyond the cut are zeros',
  );
});

test('a recall during a fetch prevents that its pages are stored, and a recall during a store waits for it', async (t) => {
  const { backend, kernel, given, readAround, fileSystem, inode } = await setUp(t);
  backend.blocks.close();
  await readAround(() => backend.blocks.waiting > 0);
  await fileSystem.forget(inode);
  backend.blocks.open();
  await until(() => backend.blocks.waiting === 0);
  for (let count = 0; count < TURNS; count++) await turn();
  assert.equal(given.length, 0);
  kernel.close();
  await readAround(() => kernel.waiting > 0);
  const recalled = fileSystem.forget(inode);
  assert.equal(await settled(recalled), false);
  kernel.open();
  await recalled;
});

test('the kernel learns of a change by another client after pages that were fetched before it', async (t) => {
  // Attributes are not cached.
  const { backend, kernel, given, readAround, fileSystem, inode } = await setUp(t, undefined, 0);
  kernel.close();
  await readAround(() => kernel.waiting > 0);
  backend.writeFromElsewhere('f', 'new');
  const attributes = fileSystem.attributes(inode);
  assert.equal(await settled(attributes), false);
  const opened = fileSystem.open(inode, constants.O_RDONLY, USER);
  assert.equal(await settled(opened), false, 'The open depends on what the other call has found');
  kernel.open();
  assert.equal((await attributes).sizeBytes, 3);
  await opened;
  assert.equal(given.length, 1);
});

test('the last close of a file waits for pages on their way to the kernel', async (t) => {
  const { backend, kernel, given, readAround, fileSystem, inode, handle } = await setUp(t);
  // The close of another descriptor has no effect.
  backend.blocks.close();
  await readAround(() => backend.blocks.waiting > 0);
  const other = await fileSystem.open(inode, constants.O_RDONLY, USER);
  await fileSystem.release(other.handle);
  backend.blocks.open();
  kernel.close();
  await until(() => kernel.waiting > 0);
  const released = fileSystem.release(handle);
  assert.equal(await settled(released), false);
  kernel.open();
  await released;
  assert.equal(given.length, 1);
});

test('a fetch that ends after the last close stores no pages', async (t) => {
  const { backend, given, readAround, fileSystem, inode, handle } = await setUp(t);
  backend.blocks.close();
  await readAround(() => backend.blocks.waiting > 0);
  await fileSystem.release(handle);
  const writer = await fileSystem.open(inode, constants.O_RDWR, USER);
  backend.blocks.open();
  await until(() => backend.blocks.waiting === 0);
  for (let count = 0; count < TURNS; count++) await turn();
  assert.equal(given.length, 0);
  await fileSystem.release(writer.handle);
});

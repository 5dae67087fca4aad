/**
 * Goal: a walk through a directory queries few pages instead of each name, random look-ups query few pages in vain,
 * and no answer is older than the chosen time.
 * Method: look-ups over a cluster in memory that counts its requests.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { MetadataCache } from '../../fuse/metadata/cache.ts';
import { LookAhead } from '../../fuse/metadata/look-ahead.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';

const OWNER = { uid: 0, gid: 0 };
const AGE_MS = 1_000;

const time = { nowMs: 0 };
const WORLD = { ...systemWorld, nowMs: () => time.nowMs };

/** A directory with links that another mount has created. */
async function directoryOf(t: TestContext, names: readonly string[], heardMs = AGE_MS) {
  const backend = new MemoryBackend();
  const fileSystem = fileSystemOf(WORLD, backend, 1, 5_000, () => undefined, {
    cache: new MetadataCache(WORLD, heardMs),
  });
  t.after(() => fileSystem.stop());
  const { inode } = await backend.makeDirectory(1, 'd', 0o755, OWNER);
  for (const name of names) await backend.symlink(inode, name, 'target', OWNER);
  const isThere = async (name: string): Promise<boolean> => {
    try {
      return (await fileSystem.lookup(inode, name)).kind === 'symlink';
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'not-found') return false;
      throw error;
    }
  };
  const asked = (): number => (backend.calls.lookup ?? 0) + (backend.calls.list ?? 0);
  return { backend, fileSystem, inode, isThere, asked };
}

const numbered = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => `f${String(index).padStart(5, '0')}`);

const orders: readonly [string, (names: string[]) => string[]][] = [
  ['in order', (names) => names],
  ['backwards', (names) => names.toReversed()],
  ['as they were numbered without zeros', (names) => names.map((name) => `f${Number(name.slice(1))}`)],
];
for (const [title, order] of orders) {
  test(`names that are looked up ${title} are queried in pages`, async (t) => {
    const names = order(numbered(500));
    const { isThere, asked } = await directoryOf(t, names);
    for (const name of names) assert.equal(await isThere(name), true, name);
    assert.ok(asked() < 60, `${asked()} requests`);
  });
}

test('names of a directory that is too large for one page are queried in pages', async (t) => {
  const names = numbered(5_000);
  const { isThere, asked } = await directoryOf(t, names);
  for (const name of names.slice(1_000, 3_000)) assert.equal(await isThere(name), true, name);
  assert.ok(asked() < 30, `${asked()} requests`);
});

test('absent names are queried each time, and no page is queried for them', async (t) => {
  const { isThere, backend } = await directoryOf(t, numbered(100));
  for (let round = 0; round < 50; round++) assert.equal(await isThere(`new-${round}`), false);
  assert.deepEqual([backend.calls.lookup, backend.calls.list ?? 0], [50, 0]);
});

test('random look-ups query each name, and few pages', async (t) => {
  const names = Array.from({ length: 200 }, (_, index) => String.fromCodePoint(0x4e00 + index).repeat(3));
  const crowd = names.flatMap((name) => numbered(40).map((other) => name.slice(0, 2) + other));
  const { isThere, backend } = await directoryOf(t, [...names, ...crowd]);
  for (const name of names) assert.equal(await isThere(name), true);
  assert.ok((backend.calls.list ?? 0) < 12, `${backend.calls.list} pages`);
});

test('look-ups far apart in time, and mounts without caching, query each name', async (t) => {
  const names = numbered(50);
  const slow = await directoryOf(t, names);
  for (const name of names) {
    time.nowMs += AGE_MS + 1;
    await slow.isThere(name);
  }
  const strict = await directoryOf(t, names, 0);
  for (const name of names) await strict.isThere(name);
  assert.deepEqual([slow.backend.calls.list ?? 0, strict.backend.calls.list ?? 0], [0, 0]);
});

test('several look-ups that wait for the same page query it once', async () => {
  const pages: PromiseWithResolvers<{ count: number; more: boolean }>[] = [];
  const ahead = new LookAhead(
    systemWorld,
    () => {
      const page = Promise.withResolvers<{ count: number; more: boolean }>();
      pages.push(page);
      return page.promise;
    },
    AGE_MS,
  );
  for (const name of ['a', 'b', 'c']) {
    assert.equal(await ahead.prefetch(1, name), false);
    ahead.found(1, name);
  }
  const reached = ['d', 'e', 'f'].map((name) => ahead.prefetch(1, name));
  assert.equal(await ahead.prefetch(2, 'other'), false, 'Another directory');
  assert.equal(pages.length, 1);
  pages[0]?.reject(new Error('The cluster is away'));
  assert.deepEqual(await Promise.all(reached), [true, true, true], 'Each queries its name then');
});

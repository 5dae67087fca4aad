import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../fuse/backend.ts';
import { UnlinkedFiles } from '../../fuse/contents/unlinked-files.ts';
import { systemWorld } from '../../world/system-world.ts';

test('an open file that another mount has unlinked is kept', async (t) => {
  const links = new Map([
    [1, 1],
    [2, 0],
    [3, 2],
  ]);
  const open = new Set([1, 2, 3, 4]);
  const kept: number[] = [];
  const told: string[] = [];
  const backend = {
    async attributes(inode: number): Promise<Attributes> {
      const count = links.get(inode);
      if (count === undefined) throw new ServiceError('not-found', `There is no inode ${inode}`);
      return { inode, links: count } as Attributes;
    },
    async keepOrphan(inode: number): Promise<void> {
      kept.push(inode);
    },
  };
  const orphans = new UnlinkedFiles(
    systemWorld,
    backend,
    () => open,
    (_level, message) => told.push(message),
  );
  t.after(() => orphans.stop());

  await orphans.keep();
  assert.deepEqual(kept, []);
  await orphans.findUnlinked();
  await orphans.keep();
  assert.deepEqual(kept, [2]);
  assert.deepEqual(told, ['an unlinked open file was removed']);

  await t.test('an unlinked file is not kept after its close', async () => {
    open.delete(2);
    orphans.delete(2);
    await orphans.keep();
    assert.deepEqual(kept, [2]);
  });

  await t.test('an open file that this mount unlinks is kept at once', async () => {
    orphans.add(3);
    await orphans.keep();
    assert.deepEqual(kept, [2, 3]);
  });
});

test('an open file without a name is kept until it gets one', async (t) => {
  const kept: number[] = [];
  const backend = {
    attributes: (inode: number) =>
      Promise.reject(new ServiceError('not-found', `There is no inode ${inode}`)),
    async keepOrphan(inode: number): Promise<void> {
      kept.push(inode);
    },
  };
  const orphans = new UnlinkedFiles(
    systemWorld,
    backend,
    () => [4],
    () => undefined,
  );
  t.after(() => orphans.stop());
  orphans.add(3);
  orphans.addUnnamed(4);
  assert.deepEqual(
    [3, 4].map((inode) => orphans.isUnnamed(inode)),
    [false, true],
  );
  await orphans.keep();
  assert.deepEqual(kept, [3, 4]);
  orphans.delete(4);
  assert.equal(orphans.isUnnamed(4), false);
  await orphans.keep();
  assert.deepEqual(kept, [3, 4, 3]);
});

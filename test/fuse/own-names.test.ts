/**
 * Goal: attributes and names that a mount has changed itself are answered as the cluster has them, and without a
 * request.
 * Method: the mount's calls over a cluster in memory. A seed draws changes; after each the test queries some names and
 * attributes through the mount, and compares them.
 */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { Prng } from '../../base/prng.ts';
import type { Attributes, FileSystemBackend } from '../../fuse/backend.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { withPendingNames } from '../../fuse/pending/pending-names.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';
import { MemoryBirths } from './memory-births.ts';

const ROOT = 1;
const LIMIT_MS = 5_000;
const USER = { uid: 7, gid: 8 };
const FLAGS = constants.O_RDWR | constants.O_CREAT;
const NAMES = ['a', 'b', 'c', 'd', 'e'];
const STEPS = 1_500;
const AGE_MS = 600_000;
const EXCHANGE = 2;

/** @param isDelegated whether directories are delegated to the mount, so that it creates files with contents */
function started(t: TestContext, isDelegated: boolean) {
  const memory = new MemoryBackend();
  const births = new MemoryBirths(memory);
  const state = births.state(systemWorld, AGE_MS);
  const backend: FileSystemBackend = isDelegated
    ? withPendingNames(systemWorld, births.backend, births, state, () => undefined)
    : memory;
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, LIMIT_MS, () => undefined, state);
  t.after(async () => {
    await fileSystem.stop();
    await backend.stop();
  });
  const file = async (parent: number, name: string, flags = FLAGS | constants.O_EXCL): Promise<void> => {
    const { handle } = await fileSystem.create(parent, name, 0o640, flags, USER);
    await fileSystem.write(handle, 0, Buffer.from(name), USER);
    await fileSystem.flush(handle);
    await fileSystem.release(handle);
  };
  const arrived = (): Promise<void> => state.pending.flush({ kind: 'all' }, ['create', 'unlink']);
  return { memory, births, fileSystem, file, arrived };
}

/** What programs see of an inode. */
function seen({ inode, kind, mode, links, sizeBytes, modifiedNs, changedNs }: Attributes) {
  return { inode, kind, mode, links, sizeBytes, modifiedNs, changedNs };
}

async function nullIfGone<Value>(answer: Promise<Value>): Promise<Value | null> {
  return answer.catch((error: { code?: string }) => {
    if (error.code === 'not-found' || error.code === 'ESTALE') return null;
    throw error;
  });
}

for (const seed of [1, 2, 3, 4, 5, 6]) {
  const isDelegated = seed % 2 === 0;
  test(`answers equal the cluster’s state (SEED=${seed}${isDelegated ? ', delegated' : ''})`, async (t) => {
    const { memory, fileSystem, file, arrived } = started(t, isDelegated);
    const prng = new Prng(seed);
    const directories = [ROOT];
    const place = () => ({ parent: prng.pick(directories), name: prng.pick(NAMES) });
    const at = async ({ parent, name }: ReturnType<typeof place>) =>
      (await nullIfGone(fileSystem.lookup(parent, name)))?.inode;
    const isDirectory = async ({ parent, name }: ReturnType<typeof place>) =>
      (await nullIfGone(memory.lookup(parent, name)))?.kind === 'directory';
    const changes = [
      async () => {
        const { parent, name } = place();
        await file(parent, name);
      },
      async () => {
        const { parent, name } = place();
        if (directories.length < 6)
          directories.push((await fileSystem.makeDirectory(parent, name, 0o755, USER)).inode);
      },
      async () => {
        const { parent, name } = place();
        const { inode } = await fileSystem.lookup(parent, name);
        await fileSystem.removeDirectory(parent, name);
        directories.splice(directories.indexOf(inode), 1);
      },
      async () => {
        const [from, to] = [place(), place()];
        const flags = prng.chance(0.1) ? EXCHANGE : 0;
        // A directory would be below itself, which the kernel refuses.
        const isFree = flags === 0 && !(await isDirectory(from));
        const target = isFree ? to : { ...to, parent: prng.pick([from.parent, ROOT]) };
        // The kernel looks them up before.
        for (const name of [from, target]) await at(name);
        await fileSystem.rename(from, target, flags);
      },
      async () => {
        const [of, { parent, name }] = [place(), place()];
        const inode = await at(of);
        if (inode !== undefined && !(await isDirectory(of))) await fileSystem.link(inode, parent, name);
      },
      async () => {
        const { parent, name } = place();
        await fileSystem.unlink(parent, name);
      },
      async () => {
        const inode = await at(place());
        if (inode !== undefined) await fileSystem.setAttributes(inode, { mode: prng.integer(0o600, 0o777) });
      },
    ];
    let changed = 0;
    for (let step = 0; step < STEPS; step++) {
      const change = prng.pick(changes);
      // A refused change changes nothing, and cached answers stay right.
      await change().then(
        () => changed++,
        (error: { code?: string }) => {
          if (typeof error.code !== 'string') throw error;
        },
      );
      await arrived();
      for (const directory of directories) {
        if (prng.chance(0.5)) continue;
        const now = await memory.attributes(directory);
        assert.deepEqual(seen(await fileSystem.attributes(directory)), seen(now), `step ${step}`);
        const name = prng.pick(NAMES);
        const [told, there] = [
          await nullIfGone(fileSystem.lookup(directory, name)),
          await nullIfGone(memory.lookup(directory, name)),
        ];
        assert.deepEqual(told && seen(told), there && seen(there), `step ${step}: ${name} in ${directory}`);
      }
    }
    assert.ok(changed > STEPS / 4, `${changed} changes`);
  });
}

test('after renames, creations and removals in a delegated directory look-ups need no request', async (t) => {
  const { memory, births, fileSystem, file } = started(t, true);
  const { inode: directory } = await fileSystem.makeDirectory(ROOT, 'd', 0o755, USER);
  await file(directory, 'first');
  await fileSystem.attributes(directory);
  const asked = () => {
    const { lookup = 0, attributes = 0, list = 0, bear = 0 } = memory.calls;
    // Each creation with contents at the cluster in memory counts a query of attributes.
    return { lookup, attributes: attributes - bear, list, delegated: births.asked.count };
  };
  const before = { ...asked(), created: memory.calls.bear ?? 0 };
  for (let round = 0; round < 3; round++) {
    await assert.rejects(fileSystem.lookup(directory, 'lock'), { code: 'not-found' });
    await file(directory, 'lock', FLAGS);
    await fileSystem.rename({ parent: directory, name: 'lock' }, { parent: directory, name: 'config' }, 0);
    await fileSystem.lookup(directory, 'config');
    await fileSystem.makeDirectory(directory, `sub${round}`, 0o755, USER);
    await fileSystem.attributes(directory);
    await fileSystem.removeDirectory(directory, `sub${round}`);
    const { links } = await fileSystem.attributes(directory);
    assert.equal(links, 2);
  }
  assert.deepEqual({ ...asked(), created: (memory.calls.bear ?? 0) - 3 }, before);
});

test('a rename of a directory moves its link from the old to the new parent', async (t) => {
  const { fileSystem } = started(t, false);
  const { inode: directory } = await fileSystem.makeDirectory(ROOT, 'd', 0o755, USER);
  await fileSystem.makeDirectory(directory, 'sub', 0o755, USER);
  const links = async () =>
    Promise.all([ROOT, directory].map(async (inode) => (await fileSystem.attributes(inode)).links));
  assert.deepEqual(await links(), [3, 3]);
  await fileSystem.lookup(directory, 'sub');
  await fileSystem.rename({ parent: directory, name: 'sub' }, { parent: ROOT, name: 'sub' }, 0);
  assert.deepEqual(await links(), [4, 2]);
});

test('a rename between two names of one file does not mark the old name as free', async (t) => {
  const { fileSystem, file } = started(t, true);
  const { inode: directory } = await fileSystem.makeDirectory(ROOT, 'd', 0o755, USER);
  await file(directory, 'first');
  await file(directory, 'one');
  const { inode } = await fileSystem.lookup(directory, 'one');
  await fileSystem.link(inode, directory, 'other');
  await fileSystem.rename({ parent: directory, name: 'one' }, { parent: directory, name: 'other' }, 0);
  assert.equal((await fileSystem.lookup(directory, 'one')).inode, inode);
  await assert.rejects(fileSystem.create(directory, 'one', 0o640, FLAGS | constants.O_EXCL, USER), {
    code: 'exists',
  });
});

test('after a rename or an unlink with an unknown outcome the attributes are queried', async (t) => {
  const { memory, fileSystem, file } = started(t, false);
  const at = (name: string) => ({ parent: ROOT, name });
  for (const name of ['moved', 'linked']) await file(ROOT, name);
  const { inode } = await fileSystem.lookup(ROOT, 'linked');
  await fileSystem.link(inode, ROOT, 'other');
  await fileSystem.lookup(ROOT, 'other');
  const lost = new ServiceError('unknown', 'Lost by intent');
  const { rename, unlink } = memory;
  const moved = (await fileSystem.lookup(ROOT, 'moved')).inode;
  memory.rename = async (...names) => {
    await rename.apply(memory, names);
    throw lost;
  };
  memory.unlink = async (...name) => {
    await unlink.apply(memory, name);
    throw lost;
  };
  await assert.rejects(fileSystem.rename(at('moved'), at('new'), 0), lost);
  await assert.rejects(fileSystem.unlink(ROOT, 'other'), lost);
  for (const changed of [moved, inode])
    assert.deepEqual(seen(await fileSystem.attributes(changed)), seen(await memory.attributes(changed)));
});

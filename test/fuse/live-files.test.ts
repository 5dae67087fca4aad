import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { type Answered, contentsName } from '../../fuse/answered.ts';
import type { Attributes } from '../../fuse/backend.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { MetadataCache } from '../../fuse/metadata/cache.ts';
import type { FileSystem } from '../../fuse/volume.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';

/**
 * The catalog has an outdated size and outdated times of a file that is being written, or was closed a moment ago. No
 * call may answer the kernel with these: programs would read only up to the outdated size while the kernel caches it.
 */

const ROOT = 1;
const LIMIT_MS = 5_000;
const ROOT_USER = { uid: 0, gid: 0 };
const TEXT = 'more than the catalog knows of';

/** A file that another mount has written and not settled. */
async function liveFile(t: TestContext, backend = new MemoryBackend()) {
  await backend.start();
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, LIMIT_MS, () => undefined);
  t.after(() => fileSystem.stop());
  const { attributes } = await backend.createFile(ROOT, 'f', 0o644, ROOT_USER, true);
  backend.writeFromElsewhere('f', TEXT);
  return { backend, fileSystem, inode: attributes.inode };
}

/** Each call that answers attributes of an existing file. */
const CALLS: Record<string, (fileSystem: FileSystem, inode: number) => Promise<Answered>> = {
  lookup: (fileSystem) => fileSystem.lookup(ROOT, 'f'),
  getattr: (fileSystem, inode) => fileSystem.attributes(inode),
  chmod: (fileSystem, inode) => fileSystem.setAttributes(inode, { mode: 0o600 }),
  chown: (fileSystem, inode) => fileSystem.setAttributes(inode, { uid: 5, gid: 6 }),
  'touch -a': (fileSystem, inode) => fileSystem.setAttributes(inode, { accessed: { kind: 'time', ns: 7n } }),
  'touch -m': (fileSystem, inode) => fileSystem.setAttributes(inode, { modified: { kind: 'time', ns: 7n } }),
  link: (fileSystem, inode) => fileSystem.link(inode, ROOT, 'other'),
  'open with O_CREAT': (fileSystem) =>
    fileSystem
      .create(ROOT, 'f', 0o644, constants.O_RDWR | constants.O_CREAT, ROOT_USER)
      .then(({ attributes }) => attributes),
};

for (const [name, call] of Object.entries(CALLS)) {
  for (const isOpen of [false, true]) {
    test(`${name} answers the current size of a live file${isOpen ? ' that is open' : ''}`, async (t) => {
      const { backend, fileSystem, inode } = await liveFile(t);
      if (isOpen) await fileSystem.open(inode, constants.O_RDONLY, ROOT_USER);
      const { validity: _, ...answered } = await call(fileSystem, inode);
      assert.deepEqual(answered, await backend.attributes(inode));
      assert.equal(answered.sizeBytes, TEXT.length);
    });
  }
}

test('setting a time of an open file keeps the size that this mount has written', async (t) => {
  const { fileSystem, inode } = await liveFile(t);
  const { handle } = await fileSystem.open(inode, constants.O_RDWR, ROOT_USER);
  await fileSystem.write(handle, TEXT.length, Buffer.from(' and more'), ROOT_USER);
  const sizes = [];
  for (const ns of [7n, 8n]) {
    const answered = await fileSystem.setAttributes(inode, { modified: { kind: 'time', ns } });
    sizes.push([answered.sizeBytes, answered.modifiedNs]);
  }
  const sizeBytes = TEXT.length + 9;
  assert.deepEqual(sizes, [
    [sizeBytes, '7'],
    [sizeBytes, '8'],
  ]);
  await fileSystem.release(handle);
  assert.equal((await fileSystem.attributes(inode)).sizeBytes, sizeBytes);
});

test('a file is sealed at its last close, also if a time was set before', async (t) => {
  const backend = new MemoryBackend();
  backend.policy = 'read-only';
  const { fileSystem, inode } = await liveFile(t, backend);
  const { handle } = await fileSystem.open(inode, constants.O_RDWR, ROOT_USER);
  await fileSystem.write(handle, 0, Buffer.from('kept'), ROOT_USER);
  await fileSystem.setAttributes(inode, { modified: { kind: 'time', ns: 7n } });
  await fileSystem.release(handle);
  await fileSystem.stop();
  assert.equal(backend.calls.seal, 1);
});

test('a listing without answers of primaries does not set the cached size of live files', async (t) => {
  const backend = new MemoryBackend();
  const { fileSystem, inode } = await liveFile(t, backend);
  const list = backend.list.bind(backend);
  backend.list = async (...argv) => {
    const { entries, more } = await list(...argv);
    const asTheCatalogKnows = ({ attributes }: { readonly attributes: Attributes }): Attributes =>
      attributes.kind === 'file' ? { ...attributes, sizeBytes: 0 } : attributes;
    return {
      entries: entries.map((entry) => ({ name: entry.name, attributes: asTheCatalogKnows(entry) })),
      more,
    };
  };
  const directory = await fileSystem.openDirectory(ROOT);
  await fileSystem.readDirectory(directory, 0, 100);
  assert.equal((await fileSystem.attributes(inode)).sizeBytes, TEXT.length);
  await fileSystem.readDirectory(directory, 0, 100);
  assert.equal((await fileSystem.lookup(ROOT, 'f')).sizeBytes, TEXT.length);
});

test('attributes are answered from the cache until this mount changes the file', async (t) => {
  const { backend, fileSystem, inode } = await liveFile(t);
  const { handle } = await fileSystem.open(inode, constants.O_RDWR, ROOT_USER);
  const asked = backend.calls.attributes ?? 0;
  // After each read the kernel queries them, for the access time.
  await fileSystem.read(handle, 0, 1);
  assert.equal((await fileSystem.attributes(inode)).sizeBytes, TEXT.length);
  assert.equal(backend.calls.attributes, asked);
  await fileSystem.setAttributes(inode, { mode: 0o600 });
  assert.equal((await fileSystem.attributes(inode)).mode & 0o777, 0o600);
  await fileSystem.write(handle, TEXT.length, Buffer.from('!'), ROOT_USER);
  assert.equal((await fileSystem.attributes(inode)).sizeBytes, TEXT.length + 1);
  await fileSystem.release(handle);
  backend.writeFromElsewhere('f', '');
  const again = await fileSystem.open(inode, constants.O_RDONLY, ROOT_USER);
  assert.equal((await fileSystem.attributes(inode)).sizeBytes, 0, 'An open queries the cluster');
  await fileSystem.release(again.handle);
});

test('attributes of a closed file are answered from the cache, with the writes of this mount', async (t) => {
  const { backend, fileSystem, inode } = await liveFile(t);
  const write = async (text: string): Promise<void> => {
    const { handle } = await fileSystem.open(inode, constants.O_RDWR, ROOT_USER);
    await fileSystem.write(handle, 0, Buffer.from(text), ROOT_USER);
    try {
      await fileSystem.flush(handle);
    } finally {
      await fileSystem.release(handle);
    }
  };
  await fileSystem.lookup(ROOT, 'f');
  await write(`${TEXT}, and more`);
  const asked = { ...backend.calls };
  const told = await fileSystem.attributes(inode);
  assert.deepEqual(await fileSystem.lookup(ROOT, 'f'), told);
  assert.deepEqual([backend.calls.attributes, backend.calls.lookup], [asked.attributes, asked.lookup]);
  const { sizeBytes, modifiedNs, changedNs, contents, mode } = await backend.attributes(inode);
  assert.equal(sizeBytes, TEXT.length + 10);
  assert.deepEqual(
    [told.sizeBytes, told.modifiedNs, told.changedNs, told.contents, told.mode],
    [sizeBytes, modifiedNs, changedNs, contents, mode],
  );
  backend.writeFromElsewhere('f', TEXT);
  const { handle, version } = await fileSystem.open(inode, constants.O_RDONLY, ROOT_USER);
  assert.notEqual(version, contentsName(inode, contents), 'An open queries the cluster');
  assert.equal((await fileSystem.attributes(inode)).sizeBytes, TEXT.length);
  await fileSystem.release(handle);
  const { sizeBytes: cut } = await fileSystem.truncate(inode, 3, ROOT_USER);
  assert.equal(cut, 3);
  backend.disturb({ writesFail: 'internal' });
  await assert.rejects(write('lost, and longer than it is'));
  backend.disturb({ writesFail: null });
  const before = backend.calls.attributes ?? 0;
  assert.equal((await fileSystem.attributes(inode)).sizeBytes, 3);
  assert.ok((backend.calls.attributes ?? 0) > before, 'After a failed write the attributes are queried');
});

test('attributes that this mount has changed are answered from the cache, and never an earlier answer', async (t) => {
  const { backend, fileSystem, inode } = await liveFile(t);
  const modes = async (): Promise<number> => (await fileSystem.attributes(inode)).mode & 0o777;
  const questions = (): number => backend.calls.attributes ?? 0;
  await fileSystem.setAttributes(inode, { mode: 0o604 });
  let asked = questions();
  assert.equal(await modes(), 0o604);
  assert.equal(questions(), asked + 1, 'Of a live file the catalog does not know all attributes');
  await backend.openFile(inode).settle();
  await fileSystem.setAttributes(inode, { mode: 0o640 });
  asked = questions();
  assert.equal(await modes(), 0o640);
  assert.equal(questions(), asked);
  // Two changes whose answers arrive in the opposite order.
  const change = backend.setAttributes.bind(backend);
  const held = Promise.withResolvers<void>();
  backend.setAttributes = async (...argv) => {
    const answer = await change(...argv);
    await held.promise;
    return answer;
  };
  const first = fileSystem.setAttributes(inode, { mode: 0o600 });
  await new Promise((resolve) => setImmediate(resolve));
  backend.setAttributes = change;
  await fileSystem.setAttributes(inode, { mode: 0o660 });
  held.resolve();
  await first;
  assert.equal(await modes(), 0o660);
});

test('without caching an open queries the cluster also after a change', async (t) => {
  const { backend, inode } = await liveFile(t);
  await backend.openFile(inode).settle();
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, LIMIT_MS, () => undefined, {
    cache: new MetadataCache(systemWorld, 0),
  });
  t.after(() => fileSystem.stop());
  await fileSystem.setAttributes(inode, { mode: 0o640 });
  const asked = backend.calls.attributes ?? 0;
  const { handle } = await fileSystem.open(inode, constants.O_RDONLY, ROOT_USER);
  assert.equal(backend.calls.attributes, asked + 1, 'An open queries the cluster');
  await fileSystem.release(handle);
});

test('a late answer does not replace the attributes of a newer one', async (t) => {
  const { backend, fileSystem, inode } = await liveFile(t);
  await fileSystem.open(inode, constants.O_RDONLY, ROOT_USER);
  const ask = backend.attributes.bind(backend);
  const held = Promise.withResolvers<void>();
  backend.attributes = async (asked) => {
    const answer = await ask(asked);
    await held.promise;
    return answer;
  };
  const overtaken = fileSystem.attributes(inode);
  await new Promise((resolve) => setImmediate(resolve));
  backend.attributes = ask;
  backend.writeFromElsewhere('f', `${TEXT}, twice`);
  const newer = await fileSystem.attributes(inode);
  held.resolve();
  assert.equal((await overtaken).sizeBytes, newer.sizeBytes);
});

test('a listing that began before a write does not set the size of the file after its close', async (t) => {
  const backend = new MemoryBackend();
  await backend.start();
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, LIMIT_MS, () => undefined);
  t.after(() => fileSystem.stop());
  const { attributes } = await backend.createFile(ROOT, 'f', 0o644, ROOT_USER, true);
  const { inode } = attributes;
  await backend.openFile(inode).settle();
  const list = backend.list.bind(backend);
  // The second listing begins when the mount has the kernel's bytes, and the servers have not.
  const [before, during] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const holds = [before, during];
  backend.list = async (...argv) => {
    const answer = await list(...argv);
    await holds.shift()?.promise;
    return answer;
  };
  const listAll = async () => fileSystem.readDirectory(await fileSystem.openDirectory(ROOT), 0, 100);
  const first = listAll();
  const { handle } = await fileSystem.open(inode, constants.O_RDWR, ROOT_USER);
  await fileSystem.write(handle, 0, Buffer.from(TEXT), ROOT_USER);
  const second = listAll();
  await new Promise((resolve) => setImmediate(resolve));
  await fileSystem.release(handle);
  for (const { resolve } of [before, during]) resolve();
  await Promise.all([first, second]);
  assert.equal((await fileSystem.lookup(ROOT, 'f')).sizeBytes, TEXT.length);
});

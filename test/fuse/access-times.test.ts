/**
 * Goal: a read sets the access time that the mount's rule demands. This mount shows it at once; the cluster has it
 * some seconds later. No call waits for the request, and none fails if the request fails.
 * Method: the mount's calls over a cluster in memory, with a clock that the test moves.
 */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { Attributes, RecordedAccess } from '../../fuse/backend.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { type AccessRule, AccessTimes } from '../../fuse/pending/access-times.ts';
import { withPendingNames } from '../../fuse/pending/pending-names.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';
import { MemoryBirths } from './memory-births.ts';

const ROOT = 1;
const USER = { uid: 7, gid: 8 };
const START_MS = 1_700_000_000_000;
const GATHER_MS = 5_000;
const DAY_MS = 86_400_000;
/** Its monotonic clock follows the mocked wall clock. */
const WORLD = { ...systemWorld, nowMs: () => Date.now() - START_MS + 1_000 };
const RELATIME: AccessRule = { times: 'relatime', directories: true };

/** Moves both clocks, and runs the timers that are due and what follows from them. */
function clockOf(t: TestContext) {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'], now: START_MS });
  const turns = async (): Promise<void> => {
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  };
  return {
    nowNs: () => String(BigInt(Date.now()) * 1_000_000n),
    turns,
    pass: async (ms: number): Promise<void> => {
      t.mock.timers.tick(ms);
      await turns();
    },
  };
}

/** A mount with a file and a directory, both changed and not read since. */
async function started(t: TestContext, rule = RELATIME, ageMaxMs = 1_000) {
  const clock = clockOf(t);
  const memory = new MemoryBackend();
  const births = new MemoryBirths(memory);
  /** Requests of access times wait for this before the cluster executes them. */
  const way = { open: Promise.resolve() };
  const state = births.state(WORLD, ageMaxMs);
  const backend = {
    ...withPendingNames(WORLD, births.backend, births, state, () => undefined),
    recordAccesses: async (noted: readonly RecordedAccess[]) => {
      await way.open;
      await memory.recordAccesses(noted);
    },
  };
  const fileSystem = fileSystemOf(WORLD, backend, ROOT, 5_000, () => undefined, {
    ...state,
    accessRule: rule,
  });
  t.after(async () => {
    await fileSystem.stop();
    await backend.stop();
  });
  const open = async (inode: number, flags = constants.O_RDONLY) =>
    (await fileSystem.open(inode, flags, USER)).handle;
  const close = async (handle: number) => {
    await fileSystem.flush(handle);
    await fileSystem.release(handle);
  };
  const write = async (inode: number, text: string) => {
    const handle = await open(inode, constants.O_WRONLY);
    await fileSystem.write(handle, 0, Buffer.from(text), USER);
    await close(handle);
  };
  const read = async (inode: number, flags = constants.O_RDONLY) => {
    const handle = await open(inode, flags);
    await fileSystem.read(handle, 0, 100);
    await close(handle);
  };
  const list = async (inode: number) => {
    const handle = await fileSystem.openDirectory(inode);
    await fileSystem.readDirectory(handle, 0, 100);
    await fileSystem.releaseDirectory(handle);
  };
  const accessed = async (inode: number) => (await fileSystem.attributes(inode)).accessedNs;
  const stored = async (inode: number) => (await memory.attributes(inode)).accessedNs;
  const { attributes, handle } = await fileSystem.create(ROOT, 'f', 0o644, constants.O_WRONLY, USER);
  await fileSystem.write(handle, 0, Buffer.from('contents'), USER);
  await close(handle);
  const { inode: directory } = await fileSystem.makeDirectory(ROOT, 'd', 0o755, USER);
  await clock.pass(2_000);
  const file = attributes.inode;
  const calls = { open, close, write, read, list, accessed, stored };
  return { clock, memory, way, fileSystem, file, directory, ...calls };
}

test('a read sets the access time at once on this mount, and some seconds later at the cluster', async (t) => {
  const { clock, memory, file, read, accessed, stored } = await started(t);
  const before = await stored(file);
  const readNs = clock.nowNs();
  await read(file);
  assert.equal(await accessed(file), readNs);
  await clock.pass(GATHER_MS - 1);
  assert.equal(await stored(file), before);
  assert.equal(await accessed(file), readNs);
  await clock.pass(1);
  assert.equal(await stored(file), readNs);
  assert.equal(await accessed(file), readNs, 'also if the cached attributes are older');
  assert.equal(memory.calls.noteAccesses, 1);
});

test('with relatime a read sets the access time only after a change, or a day after the last one', async (t) => {
  const { clock, file, read, write, accessed, fileSystem } = await started(t);
  await read(file);
  const first = await accessed(file);
  await clock.pass(1_000);
  await read(file);
  assert.equal(await accessed(file), first, 'The file was read since its last change');
  await write(file, 'others');
  await clock.pass(1_000);
  await read(file);
  assert.equal(await accessed(file), clock.nowNs(), 'after a write');
  await clock.pass(1_000);
  await fileSystem.setAttributes(file, { mode: 0o600 });
  await clock.pass(1_000);
  await read(file);
  assert.equal(await accessed(file), clock.nowNs(), 'after a change of its mode');
  const last = await accessed(file);
  await clock.pass(DAY_MS - 1);
  await read(file);
  assert.equal(await accessed(file), last, 'Less than a day after the last access');
  await clock.pass(1);
  await read(file);
  assert.equal(await accessed(file), clock.nowNs(), 'a day after the last access');
});

test('with strictatime each read sets the access time, with noatime none does', async (t) => {
  const strict = await started(t, { times: 'strictatime', directories: true });
  for (let turn = 0; turn < 3; turn++) {
    await strict.clock.pass(1_000);
    await strict.read(strict.file);
    assert.equal(await strict.accessed(strict.file), strict.clock.nowNs());
  }
  t.mock.timers.reset();
  t.mock.restoreAll();
  const never = await started(t, { times: 'noatime', directories: true });
  const before = await never.accessed(never.file);
  await never.read(never.file);
  await never.list(never.directory);
  await never.clock.pass(GATHER_MS);
  assert.equal(await never.accessed(never.file), before);
  assert.equal(never.memory.calls.noteAccesses, undefined);
});

test('listing a directory and reading a symbolic link set the access time, a look-up does not', async (t) => {
  const { clock, directory, fileSystem, list, accessed } = await started(t);
  const { inode: link } = await fileSystem.symlink(ROOT, 's', 'f', USER);
  await clock.pass(1_000);
  const [before, linkBefore] = [await accessed(directory), await accessed(link)];
  await fileSystem.lookup(directory, 'x').catch(() => undefined);
  await fileSystem.attributes(link);
  assert.deepEqual([await accessed(directory), await accessed(link)], [before, linkBefore]);
  await list(directory);
  await fileSystem.readLink(link);
  assert.deepEqual([await accessed(directory), await accessed(link)], [clock.nowNs(), clock.nowNs()]);
});

test('with nodiratime reads set no access time of directories', async (t) => {
  const { clock, directory, file, list, read, accessed } = await started(t, {
    ...RELATIME,
    directories: false,
  });
  const before = await accessed(directory);
  await list(directory);
  await read(file);
  assert.deepEqual([await accessed(directory), await accessed(file)], [before, clock.nowNs()]);
});

test('an open with O_NOATIME, a write, and an open without a read set no access time', async (t) => {
  const { clock, memory, directory, file, fileSystem, read, write, open, close, accessed } = await started(t);
  const [before, listed] = [await accessed(file), await accessed(directory)];
  await read(file, constants.O_RDONLY | constants.O_NOATIME);
  await write(file, 'written');
  await close(await open(file));
  const handle = await fileSystem.openDirectory(directory, constants.O_NOATIME);
  await fileSystem.readDirectory(handle, 0, 100);
  await fileSystem.releaseDirectory(handle);
  await clock.pass(GATHER_MS);
  assert.deepEqual([await accessed(file), await accessed(directory)], [before, listed]);
  assert.equal(memory.calls.noteAccesses, undefined);
});

test('if the kernel keeps the pages of a file, the close of a read-only open counts as a read', async (t) => {
  const { clock, file, fileSystem, open, close, accessed } = await started(t);
  const dropped: number[] = [];
  fileSystem.mounted({
    checksAttributesBeforeReads: true,
    invalidateInode: async () => undefined,
    dropAttributes: async (inode) => void dropped.push(inode),
  });
  const before = await accessed(file);
  for (const flags of [constants.O_RDONLY | constants.O_NOATIME, constants.O_RDWR]) {
    const handle = await open(file, flags);
    fileSystem.keptPages(handle);
    await close(handle);
  }
  assert.deepEqual([await accessed(file), dropped], [before, []]);
  const handle = await open(file);
  fileSystem.keptPages(handle);
  assert.equal(await accessed(file), before, 'Its program may still read');
  await close(handle);
  assert.deepEqual([await accessed(file), dropped], [clock.nowNs(), [file]]);
});

test('many reads are one request, without files that were removed since', async (t) => {
  const { clock, memory, directory, fileSystem, close, read } = await started(t);
  const files: number[] = [];
  for (let count = 0; count < 20; count++) {
    const made = await fileSystem.create(directory, `f${count}`, 0o644, constants.O_RDWR, USER);
    await fileSystem.write(made.handle, 0, Buffer.from('x'), USER);
    await close(made.handle);
    files.push(made.attributes.inode);
  }
  await clock.pass(GATHER_MS);
  assert.equal(memory.calls.noteAccesses, undefined, 'A file that was only created has not been read');
  for (const file of files) await read(file);
  for (let count = 0; count < 10; count++) await fileSystem.unlink(directory, `f${count}`);
  await clock.pass(GATHER_MS);
  assert.equal(memory.calls.noteAccesses, 1);
  assert.deepEqual(
    memory.noted[0]?.map(({ inode }) => inode),
    files.slice(10),
  );
});

test('a file that is created, read and removed before the next request costs no request', async (t) => {
  const { clock, memory, directory, fileSystem, close, read } = await started(t);
  const made = await fileSystem.create(directory, 'g', 0o644, constants.O_RDWR, USER);
  await fileSystem.write(made.handle, 0, Buffer.from('x'), USER);
  await close(made.handle);
  const held = await fileSystem.open(made.attributes.inode, constants.O_RDONLY, USER);
  await read(made.attributes.inode);
  await fileSystem.unlink(directory, 'g');
  await fileSystem.read(held.handle, 0, 1);
  await close(held.handle);
  await clock.pass(2 * GATHER_MS);
  assert.equal(memory.calls.noteAccesses, undefined);
});

test('an access time that a program sets stays, also if reads before it are sent later', async (t) => {
  const { clock, way, file, fileSystem, read, accessed, stored } = await started(t);
  await read(file);
  await fileSystem.setAttributes(file, { accessed: { kind: 'time', ns: 5n } });
  assert.equal(await accessed(file), '5');
  await clock.pass(GATHER_MS);
  assert.deepEqual([await accessed(file), await stored(file)], ['5', '5']);
  // Also if the program sets the time from before its own read, as backup programs do.
  await read(file);
  const request = Promise.withResolvers<void>();
  way.open = request.promise;
  const flushed = fileSystem.persistDirectory(ROOT);
  await clock.turns();
  const set = fileSystem.setAttributes(file, { accessed: { kind: 'time', ns: 5n } });
  await clock.turns();
  request.resolve();
  await Promise.all([flushed, set]);
  assert.deepEqual([await accessed(file), await stored(file)], ['5', '5']);
});

test('an access time that another mount sets is shown, and stays', async (t) => {
  const { clock, memory, file, read, accessed, stored } = await started(t);
  await read(file);
  await memory.setAttributes(file, { accessedNs: '5' });
  await clock.pass(1_500);
  assert.equal(await accessed(file), '5');
  await clock.pass(GATHER_MS);
  assert.deepEqual([await accessed(file), await stored(file)], ['5', '5']);
});

test('other changes of a file keep the access time of the read', async (t) => {
  const { clock, file, fileSystem, read, accessed, stored } = await started(t);
  await read(file);
  const readNs = await accessed(file);
  await clock.pass(1_000);
  const changed = await fileSystem.setAttributes(file, { mode: 0o600 });
  assert.equal(changed.accessedNs, readNs);
  await fileSystem.setAttributes(file, { modified: { kind: 'time', ns: 9n } });
  await clock.pass(GATHER_MS);
  assert.deepEqual([await accessed(file), await stored(file)], [readNs, readNs]);
});

test('a listing with attributes shows access times of reads on this mount', async (t) => {
  const { clock, file, fileSystem, list, read } = await started(t);
  await read(file);
  await list(ROOT);
  assert.equal(fileSystem.listed(ROOT, 'f')?.accessedNs, clock.nowNs());
  const shown = fileSystem.listed(ROOT, 'f');
  assert.ok(shown !== undefined && fileSystem.ttlPolicy.validMs(shown) > 0, 'and the kernel may cache it');
});

test('fsync of the root and the end of the mount send access times at once', async (t) => {
  const { clock, file, directory, fileSystem, read, list, accessed, stored } = await started(t);
  await read(file);
  await fileSystem.persistDirectory(directory);
  assert.notEqual(await stored(file), await accessed(file));
  await fileSystem.persistDirectory(ROOT);
  assert.equal(await stored(file), await accessed(file));
  await list(directory);
  await fileSystem.stop();
  assert.equal(await stored(directory), clock.nowNs());
});

/** The class alone, over a cluster whose answers the test sets. */
function alone(t: TestContext) {
  const clock = clockOf(t);
  const asked: (readonly RecordedAccess[])[] = [];
  const answers: (() => Promise<void>)[] = [];
  const logged: string[] = [];
  const noteAccesses = async (noted: readonly RecordedAccess[]) => {
    asked.push(noted);
    await answers.shift()?.();
  };
  const log = (level: string, message: string) => void logged.push(`${level}: ${message}`);
  const times = new AccessTimes(WORLD, { recordAccesses: noteAccesses }, RELATIME, log, () => undefined);
  t.after(() => times.stop());
  return { clock, asked, answers, logged, times };
}

function attributesOf(inode: number, ns = '5'): Attributes {
  return {
    ...{ inode, kind: 'file', mode: 0o644, uid: 1, gid: 1, links: 1, sizeBytes: 1, target: '', device: 0 },
    ...{ accessedNs: ns, modifiedNs: ns, changedNs: ns, replicas: [], live: false },
    contents: { epoch: 1, seq: 1 },
  };
}

test('a cluster that does not know access times gets one request, and the next one ten minutes later', async (t) => {
  const { clock, asked, answers, logged, times } = alone(t);
  answers.push(async () => {
    throw new ServiceError('bad-request', 'There is no such command');
  });
  assert.equal(times.recordRead(attributesOf(1)), true);
  await clock.pass(GATHER_MS);
  assert.equal(asked.length, 1);
  assert.deepEqual(logged, ['warn: the cluster refuses access times: none are recorded for now']);
  assert.equal(
    times.withReads(attributesOf(1)).accessedNs,
    '5',
    'An access time that will not be stored is not shown',
  );
  assert.equal(times.recordRead(attributesOf(2)), false);
  await clock.pass(10 * 60_000);
  assert.equal(asked.length, 1);
  assert.equal(times.recordRead(attributesOf(2)), true);
  await clock.pass(GATHER_MS);
  assert.equal(asked.length, 2);
});

test('access times whose request failed are shown, and sent again later', async (t) => {
  const { clock, asked, answers, logged, times } = alone(t);
  answers.push(async () => {
    throw new ServiceError('no-majority', 'Not now');
  });
  times.recordRead(attributesOf(1));
  const readNs = clock.nowNs();
  await clock.pass(GATHER_MS);
  assert.deepEqual(logged, ['debug: access times are not sent']);
  assert.equal(times.withReads(attributesOf(1)).accessedNs, readNs);
  times.recordRead(attributesOf(2));
  await clock.pass(2 * GATHER_MS);
  assert.equal(asked.length, 1, 'Reads meanwhile cause no request');
  await clock.pass(60_000);
  assert.deepEqual(asked[1]?.map(({ inode }) => inode).sort(), [1, 2]);
  assert.ok(asked[1]?.some((noted) => noted.accessedNs === readNs));
  assert.equal(times.count, 0);
});

test('a flush during a request that fails sends no further request', async (t) => {
  const { clock, asked, answers, times } = alone(t);
  const { promise: inVain, reject: giveUp } = Promise.withResolvers<void>();
  answers.push(() => inVain);
  times.recordRead(attributesOf(1));
  await clock.pass(GATHER_MS);
  times.recordRead(attributesOf(2));
  const synced = times.flush({ kind: 'all' });
  giveUp(new ServiceError('no-majority', 'Nobody answers'));
  await synced;
  assert.equal(asked.length, 1);
  await times.flush({ kind: 'all' });
  assert.equal(asked.length, 2, 'A later flush sends one');
  assert.equal(times.count, 0);
});

test('a read of the same file during a request is sent by the next one', async (t) => {
  const { clock, asked, answers, times } = alone(t);
  const request = Promise.withResolvers<void>();
  answers.push(() => request.promise);
  times.recordRead(attributesOf(1));
  const firstNs = clock.nowNs();
  await clock.pass(GATHER_MS);
  const written = { ...attributesOf(1), modifiedNs: clock.nowNs(), changedNs: clock.nowNs() };
  await clock.pass(1_000);
  times.recordRead(written);
  request.resolve();
  await clock.turns();
  await clock.pass(GATHER_MS);
  assert.deepEqual(
    asked.map(([noted]) => noted?.seen.accessedNs),
    ['5', firstNs],
  );
});

test('if the mount’s clock is behind, a read gets a time after the change of the file', async (t) => {
  const { clock, times } = alone(t);
  const ahead = String(BigInt(clock.nowNs()) + 3_000_000_000n);
  assert.equal(times.recordRead(attributesOf(1, ahead)), true);
  assert.equal(times.withReads(attributesOf(1, ahead)).accessedNs, String(BigInt(ahead) + 1n));
  assert.equal(times.recordRead(attributesOf(1, ahead)), false, 'The file was read since its last change');
});

test('many read files are sent before the time, in requests of at most 500, and reads beyond 20,000 files are not recorded', async (t) => {
  const { clock, asked, answers, times } = alone(t);
  const request = Promise.withResolvers<void>();
  answers.push(() => request.promise);
  for (let inode = 1; inode <= 30_000; inode++) times.recordRead(attributesOf(inode));
  assert.equal(times.count, 20_000);
  await clock.pass(0);
  assert.equal(asked.length, 1, 'Many files make a request due at once');
  for (let turn = 0; turn < 10; turn++) {
    times.recordRead(attributesOf(30_001 + turn));
    await clock.pass(10);
  }
  assert.equal(asked.length, 1, 'One request at a time');
  request.resolve();
  await clock.turns();
  await times.flush({ kind: 'all' });
  assert.equal(times.count, 0);
  assert.ok(asked.every((noted) => noted.length <= 500));
  assert.equal(asked.flat().length, 20_010);
});

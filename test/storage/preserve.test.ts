/**
 * Goal: contents that a replica preserves as another file's never change, whatever happens to the file, to other
 * preserved contents, and to the process or the machine.
 * Method: operations, preservations and removals in a random order, against a model of bytes; the disk with many small
 * objects, so that slots are used again all the time.
 */
import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import fs from 'node:fs';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { FileId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { Slices } from '../../server/storage/slices.ts';
import type { FileStore } from '../../server/storage/store.ts';
import type { FileOperation } from '../../wire/file-operation.ts';
import { describeFile } from '../conformance/description.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern } from '../conformance/store.ts';
import { lookInto, withLossyStore } from './lossy-store.ts';
import { MemoryStore } from './memory-store.ts';
import { mounted } from './mounts.ts';
import { DiskFixture, temporaryFolder } from './stores.ts';

const FILE = fileId(1);
const OBJECT_BYTES = 16;
const LARGEST = 12 * OBJECT_BYTES;
/** Less space than the rows of thousands of lent objects need. */
const LENT_ROOM_BYTES = 128 * 1024;

class Model {
  bytes = Buffer.alloc(0);

  apply(operation: FileOperation): void {
    if (operation.kind === 'write') {
      const grown = Buffer.alloc(Math.max(this.bytes.length, operation.offset + operation.bytes.length));
      this.bytes.copy(grown);
      grown.set(operation.bytes, operation.offset);
      this.bytes = grown;
    } else if (operation.kind === 'truncate') {
      const cut = Buffer.alloc(operation.sizeBytes);
      this.bytes.copy(cut);
      this.bytes = cut;
    } else if (operation.kind === 'punch') {
      const holed = Buffer.from(this.bytes);
      holed.fill(0, Math.min(operation.from, holed.length), Math.min(operation.to, holed.length));
      this.bytes = holed;
    }
  }
}

function drawn(random: Prng, model: Model, seq: number): FileOperation {
  const at = random.integer(0, LARGEST - 1);
  const bytes = pattern(1 + random.integer(0, 2 * OBJECT_BYTES - 1), seq);
  const modifiedNs = BigInt(seq);
  switch (random.integer(0, 5)) {
    case 0:
      return { kind: 'truncate', sizeBytes: at, modifiedNs };
    case 1:
      return {
        kind: 'punch',
        from: at,
        to: at + random.integer(0, 3 * OBJECT_BYTES - 1),
        grows: false,
        modifiedNs,
      };
    case 2:
    case 3:
      return { kind: 'write', offset: model.bytes.length % LARGEST, bytes, modifiedNs };
    default:
      return { kind: 'write', offset: at, bytes, modifiedNs };
  }
}

async function play(
  seed: number,
  fixture: { store: FileStore; reopen: (() => Promise<void>) | null },
): Promise<{ preserved: number; removed: number }> {
  const random = new Prng(seed);
  const model = new Model();
  const preserved = new Map<FileId, Buffer>();
  const counts = { preserved: 0, removed: 0 };
  await begin(fixture.store, FILE, OBJECT_BYTES);
  let seq = 0;
  let installed: Epoch = epoch(1);
  const apply = (operation: FileOperation): Promise<void> =>
    fixture.store.apply(FILE, installed, ++seq, operation, NO_SESSIONS);
  for (let step = 0; step < 200; step++) {
    const choice = random.integer(0, 19);
    if (choice === 0) await fixture.store.flush(FILE);
    else if (choice === 1) await fixture.reopen?.();
    else if (choice === 2) {
      installed = epoch(installed.counter + 1);
      await fixture.store.promise(FILE, installed);
      await fixture.store.install(FILE, installed, seq, NO_SESSIONS, null);
    } else if (choice === 3 || choice === 4) {
      const as = fileId(100 + step);
      const { versionEpoch, versionSeq } = fixture.store.attributes(FILE);
      await apply({ kind: 'preserve', as, contents: { epoch: versionEpoch, seq: versionSeq } });
      preserved.set(as, model.bytes);
      counts.preserved++;
    } else if (choice === 5 && preserved.size > 2) {
      const [as] = [...preserved.keys()].sort(() => (random.integer(0, 1) === 0 ? 1 : -1));
      assert.ok(as !== undefined);
      preserved.delete(as);
      await fixture.store.remove(as);
      counts.removed++;
    } else {
      const operation = drawn(random, model, seq + 1);
      model.apply(operation);
      await apply(operation);
    }
    if (step % 10 === 9)
      await check(fixture.store, [[FILE, model.bytes], ...preserved], `SEED=${seed}, step ${step}`);
  }
  await fixture.store.remove(FILE);
  await fixture.reopen?.();
  await check(fixture.store, preserved, `SEED=${seed}, without the file`);
  for (const as of preserved.keys()) await fixture.store.remove(as);
  return counts;
}

async function check(store: FileStore, wanted: Iterable<[FileId, Buffer]>, where: string): Promise<void> {
  for (const [file, bytes] of wanted) {
    const read = Buffer.from(await store.read(file, 0, 10_000));
    assert.ok(bytes.equals(read), `${where}: file ${file} is unchanged`);
    const half = Buffer.from(await store.read(file, 7, 40));
    assert.ok(bytes.subarray(7, 47).equals(half), `${where}: a part of file ${file}`);
    for (const entry of store.entries(file, 0, 100, 100)) {
      assert.ok((await store.readObject(file, entry.index, entry.versionEpoch, entry.versionSeq)) !== null);
    }
  }
}

test('preserved contents do not change, on the disk', async () => {
  let [preserved, removed] = [0, 0];
  for (let seed = 1; seed <= 5; seed++) {
    const fixture = await DiskFixture.make();
    try {
      const counts = await play(seed, fixture);
      preserved += counts.preserved;
      removed += counts.removed;
      const left = fs
        .readdirSync(path.join(fixture.path, 'objects'), { recursive: true })
        .filter((name) => String(name).endsWith('.dat'));
      assert.deepEqual(left, [], `SEED=${seed}: no container is left`);
    } finally {
      await fixture.dispose();
    }
  }
  assert.ok(preserved > 20 && removed > 3);
});

test('preserved contents do not change, in memory', async () => {
  for (let seed = 1; seed <= 4; seed++) await play(seed, { store: new MemoryStore(), reopen: null });
});

test('a file and those that borrow from it are removed at the same time', async () => {
  const fixture = await DiskFixture.make();
  try {
    for (let round = 0; round < 20; round++) {
      const [file, ...borrowers] = [1, 2, 3, 4].map((place) => fileId(round * 10 + place)) as [
        FileId,
        ...FileId[],
      ];
      await begin(fixture.store, file, OBJECT_BYTES);
      const write = { kind: 'write', offset: 0, bytes: pattern(100, round), modifiedNs: 1n } as const;
      await fixture.store.apply(file, epoch(1), 1, write, NO_SESSIONS);
      for (const [place, as] of borrowers.entries()) {
        const preserve = { kind: 'preserve', as, contents: { epoch: 1, seq: 1 } } as const;
        await fixture.store.apply(file, epoch(1), 2 + place, preserve, NO_SESSIONS);
        await fixture.store.read(as, 0, 100);
      }
      await Promise.all([file, ...borrowers].map((one) => fixture.store.remove(one)));
    }
    assert.equal(fixture.store.failure, null);
    assert.deepEqual(fixture.store.list(fileId(0), 100), []);
    await fixture.reopen();
    const left = fs.readdirSync(path.join(fixture.path, 'objects'), { recursive: true });
    assert.deepEqual(
      left.filter((name) => String(name).endsWith('.dat')),
      [],
    );
  } finally {
    await fixture.dispose();
  }
});

test('a file that is still being removed outlives the last that borrows from it, in the index too', async ({
  mock,
}) => {
  const SNAPSHOT = fileId(9);
  const COUNT = 200;
  const slices = { rowsPerSlice: 2 };
  const lender = new AsyncLocalStorage<{ slices: number }>();
  const removalBegun = Promise.withResolvers<void>();
  const snapshotRemoved = Promise.withResolvers<void>();
  const { run } = Slices.prototype;
  mock.method(Slices.prototype, 'run', async function (this: Slices, slice: () => Promise<void>) {
    const removal = lender.getStore();
    if (removal !== undefined) removalBegun.resolve();
    if (removal !== undefined && removal.slices++ > 0) await snapshotRemoved.promise;
    return run.call(this, slice);
  });
  await withLossyStore(async ({ folder, store, copyAfterKill }) => {
    const write = async (seq: number, bytes: Uint8Array): Promise<void> =>
      store.apply(FILE, epoch(1), seq, { kind: 'write', offset: 0, bytes, modifiedNs: 1n }, NO_SESSIONS);
    await begin(store, FILE, OBJECT_BYTES);
    await write(1, pattern(OBJECT_BYTES, 1));
    const preserve = { kind: 'preserve', as: SNAPSHOT, contents: { epoch: 1, seq: 1 } } as const;
    await store.apply(FILE, epoch(1), 2, preserve, NO_SESSIONS);
    await write(3, pattern(COUNT * OBJECT_BYTES, 3));
    let isOver = false;
    const removal = { slices: 0 };
    const removing = lender
      .run(removal, () => store.remove(FILE))
      .finally(() => {
        isOver = true;
      });
    await removalBegun.promise;
    const killed = await store
      .remove(SNAPSHOT)
      .then(copyAfterKill)
      .finally(() => snapshotRemoved.resolve());
    assert.ok(removal.slices > 0 && !isOver, 'Slices still delete the rows of the lender');
    await lookInto(killed, 'one', async (left, { path: copy }) => {
      assert.equal(left.record(FILE), null);
      assert.equal(fs.existsSync(path.join(copy, 'objects', '01', '1.dat')), false);
      await begin(left, FILE, OBJECT_BYTES);
      assert.deepEqual(left.entries(FILE, 0, COUNT, COUNT), [], 'A new replica has none of the old objects');
    });
    await removing;
    assert.equal(fs.existsSync(path.join(folder.path, 'objects', '01', '1.dat')), false);
    await begin(store, FILE, OBJECT_BYTES);
    assert.deepEqual(store.entries(FILE, 0, COUNT, COUNT), []);
  }, slices);
});

test('only the contents that are meant are preserved, and only once', async () => {
  const fixture = await DiskFixture.make();
  try {
    const { store } = fixture;
    await begin(store, FILE, OBJECT_BYTES);
    const write = (seq: number): Promise<void> =>
      store.apply(
        FILE,
        epoch(1),
        seq,
        { kind: 'write', offset: 0, bytes: pattern(40, seq), modifiedNs: 1n },
        NO_SESSIONS,
      );
    const preserve = (seq: number, contentsSeq: number): Promise<void> =>
      store.apply(
        FILE,
        epoch(1),
        seq,
        { kind: 'preserve', as: fileId(9), contents: { epoch: 1, seq: contentsSeq } },
        NO_SESSIONS,
      );
    await write(1);
    await preserve(2, 0);
    assert.equal(store.record(fileId(9)), null);
    await preserve(3, 1);
    const { record, attributes } = describeFile(store, fileId(9));
    assert.equal(attributes.seal, 'final');
    assert.deepEqual([record.installed.counter, record.seq, record.promised.counter], [2, 1, 2]);
    await write(4);
    await preserve(5, 4);
    assert.ok(Buffer.from(pattern(40, 1)).equals(await store.read(fileId(9), 0, 100)));
    assert.ok(Buffer.from(pattern(40, 4)).equals(await store.read(FILE, 0, 100)));
  } finally {
    await fixture.dispose();
  }
});

test('preserved contents are whole after a loss of power, whatever of the file is lost', async () => {
  let rolledBack = 0;
  for (let seed = 1; seed <= 10; seed++) {
    await withLossyStore(async ({ store, copyAfterLoss }) => {
      await begin(store, FILE, OBJECT_BYTES);
      const write = (seq: number): Promise<void> =>
        store.apply(
          FILE,
          epoch(1),
          seq,
          { kind: 'write', offset: 0, bytes: pattern(100, seq), modifiedNs: 1n },
          NO_SESSIONS,
        );
      await write(1);
      await store.apply(
        FILE,
        epoch(1),
        2,
        { kind: 'preserve', as: fileId(9), contents: { epoch: 1, seq: 1 } },
        NO_SESSIONS,
      );
      if (seed % 2 === 0) await store.flush(FILE);
      await write(3);
      await write(4);
      // Another file's promise syncs the index, but not these contents.
      if (seed % 3 === 0) await begin(store, fileId(2), OBJECT_BYTES);
      await lookInto(copyAfterLoss(new Prng(seed)), 'two', async (left) => {
        if ((left.record(FILE)?.seq ?? 0) < 4) rolledBack++;
        assert.ok(
          left.record(fileId(9)) !== null,
          `SEED=${seed}: a replica that reported the contents has them`,
        );
        assert.ok(Buffer.from(pattern(100, 1)).equals(await left.read(fileId(9), 0, 200)), `SEED=${seed}`);
      });
    });
  }
  assert.ok(rolledBack > 0, 'some of the file was lost');
});

test('a start after an end in the middle of preserving many objects finds all of them, or nothing', async () => {
  const COUNT = 5_000;
  const found = { whole: 0, nothing: 0 };
  await withLossyStore(async ({ store, copyAfterKill }) => {
    await begin(store, FILE, OBJECT_BYTES);
    const bytes = pattern(COUNT * OBJECT_BYTES, 1);
    await store.apply(FILE, epoch(1), 1, { kind: 'write', offset: 0, bytes, modifiedNs: 1n }, NO_SESSIONS);
    const operation = { kind: 'preserve', as: fileId(9), contents: { epoch: 1, seq: 1 } } as const;
    let isOver = false;
    const applied = store.apply(FILE, epoch(1), 2, operation, NO_SESSIONS).finally(() => {
      isOver = true;
    });
    const copies: string[] = [];
    for (let last = false; !last; ) {
      last = isOver;
      copies.push(copyAfterKill());
      await new Promise((resolve) => setImmediate(resolve));
    }
    await applied;
    for (const copy of copies) {
      await lookInto(copy, 'one', async (left) => {
        if (left.record(fileId(9)) === null) {
          found.nothing++;
          await begin(left, fileId(9), OBJECT_BYTES);
          assert.deepEqual(left.entries(fileId(9), 0, COUNT, 1), []);
        } else {
          found.whole++;
          assert.ok(Buffer.from(bytes).equals(await left.read(fileId(9), 0, COUNT * OBJECT_BYTES)));
        }
      });
    }
  });
  assert.ok(found.whole > 0 && found.nothing > 1, JSON.stringify(found));
});

/** A store on a disk of 8 MiB, until the test ends; the test is skipped if that cannot be mounted. */
async function onSmallDisk(t: TestContext): Promise<DiskFixture | null> {
  const folder = temporaryFolder();
  const mount = process.getuid?.() === 0 ? mounted(folder, ['-t', 'tmpfs', '-o', 'size=8m', 'tmpfs']) : null;
  if (mount === null) {
    fs.rmdirSync(folder);
    t.skip('needs root to mount a small tmpfs');
    return null;
  }
  const fixture = await DiskFixture.make({}, folder);
  t.after(async () => {
    await fixture.close();
    mount.unmount();
    fs.rmdirSync(folder);
  });
  return fixture;
}

test('contents that are not preserved for lack of free space use no space: their slots are used again', async (t) => {
  const COUNT = 8_000;
  const small = await onSmallDisk(t);
  if (small === null) return;
  const { store, path: folder } = small;
  let seq = 0;
  const apply = (operation: FileOperation): Promise<void> =>
    store.apply(FILE, epoch(1), seq + 1, operation, NO_SESSIONS).then(() => void seq++);
  const write = async (): Promise<number> => {
    const bytes = pattern(COUNT * OBJECT_BYTES, seq);
    await apply({ kind: 'write', offset: 0, bytes, modifiedNs: 1n });
    await store.flush(FILE);
    return fs.statSync(path.join(folder, 'objects', '01', '1.dat')).size;
  };
  await begin(store, FILE, OBJECT_BYTES);
  await write();
  // Free space for a part of the rows of lent objects, and not for all.
  const ballast = path.join(folder, 'ballast');
  const { bavail, bsize } = fs.statfsSync(folder);
  fs.writeFileSync(ballast, Buffer.alloc(bavail * bsize - LENT_ROOM_BYTES));
  const as = fileId(9);
  await assert.rejects(apply({ kind: 'preserve', as, contents: { epoch: 1, seq } }), { code: 'no-space' });
  assert.equal(store.record(as), null);
  fs.rmSync(ballast);
  const sizeBytes = await write();
  assert.equal(await write(), sizeBytes, 'The slots of the first contents were free');
});

test('contents that were not preserved for lack of free space, and could not be taken back, are preserved again with free space', async (t) => {
  const small = await onSmallDisk(t);
  if (small === null) return;
  const { store, path: folder } = small;
  const preserve = (as: FileId): Promise<void> =>
    store.apply(FILE, epoch(1), 2, { kind: 'preserve', as, contents: { epoch: 1, seq: 1 } }, NO_SESSIONS);
  await begin(store, FILE, OBJECT_BYTES);
  const bytes = pattern(20_000 * OBJECT_BYTES, 1);
  await store.apply(FILE, epoch(1), 1, { kind: 'write', offset: 0, bytes, modifiedNs: 1n }, NO_SESSIONS);
  const ballast = path.join(folder, 'ballast');
  const as = fileId(9);
  const { bavail: freeBefore } = fs.statfsSync(folder);
  const preserved = assert.rejects(preserve(as), { code: 'no-space' });
  // The disk is full from the moment when the index lists the first lent objects.
  for (;;) {
    const { bavail, bsize } = fs.statfsSync(folder);
    if (bavail < freeBefore) {
      fs.writeFileSync(ballast, Buffer.alloc(bavail * bsize));
      break;
    }
    await turn();
  }
  await preserved;
  const { view } = store.record(FILE) ?? assert.fail('The file is here');
  const create = (): void => store.create(as, view, OBJECT_BYTES);
  assert.throws(create, { code: 'busy' }, 'The rows of its objects are still in the index');
  fs.rmSync(ballast);
  assert.throws(create, { code: 'busy' });
  // Ticks of the event loop; one commit is all that has to be waited for.
  for (let turns = 0; turns < 100; turns++) await turn();
  create();
  await store.promise(as, epoch(1));
  assert.equal(store.attributes(as).sizeBytes, 0);
  // The operation is applied again, for it and for another file.
  await preserve(fileId(10));
  assert.deepEqual(Buffer.from(await store.read(fileId(10), 0, bytes.length)), Buffer.from(bytes));
});

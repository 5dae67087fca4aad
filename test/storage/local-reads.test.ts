/**
 * Goal: a client that reads a store's disk at the locations that the store returned gets the bytes that the store would
 * have read at that moment, or none.
 * Method: real folders and the client's own reader; the disk with many small objects, so that slots are used again all
 * the time.
 */
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Prng } from '../../base/prng.ts';
import { LocalDisk } from '../../client/local-reads/local-disk.ts';
import { LocalProof } from '../../server/storage/local-proof.ts';
import type { FileOperation } from '../../wire/file-operation.ts';
import { containerName, EXTENT_BYTES, type FileLocations, LOCAL_PROOF_FILE } from '../../wire/locations.ts';
import { systemWorld } from '../../world/system-world.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern } from '../conformance/store.ts';
import { DiskFixture, temporaryFolder } from './stores.ts';

const FILE = fileId(300);
const OBJECT_BYTES = 4096;
const LARGEST = 24 * OBJECT_BYTES;
/** Longer than any test. */
const LONG_MS = 600_000;

async function setUp(t: TestContext) {
  const fixture = await DiskFixture.make();
  t.after(() => fixture.dispose());
  LocalProof.create(systemWorld, fixture.path);
  const disk = await LocalDisk.open(systemWorld, fixture.path);
  assert.ok(disk !== null);
  t.after(() => disk.close());
  await begin(fixture.store, FILE, OBJECT_BYTES);
  let seq = 0;
  const apply = (operation: FileOperation): Promise<void> =>
    fixture.store.apply(FILE, epoch(1), ++seq, operation, NO_SESSIONS);
  return {
    fixture,
    store: fixture.store,
    disk,
    apply,
    write: (offset: number, bytes: Uint8Array) =>
      apply({ kind: 'write', offset, bytes, modifiedNs: BigInt(seq + 1) }),
    container: path.join(fixture.path, 'objects', containerName(FILE)),
  };
}

function drawn(random: Prng, seed: number): FileOperation {
  const modifiedNs = BigInt(seed);
  const from = random.integer(0, LARGEST - 1);
  const length = 1 + random.integer(0, 3 * OBJECT_BYTES - 1);
  switch (random.integer(0, 6)) {
    case 0:
      return { kind: 'truncate', sizeBytes: from, modifiedNs };
    case 1:
      return { kind: 'punch', from, to: from + length, grows: true, modifiedNs };
    default:
      return { kind: 'write', offset: from, bytes: pattern(length, seed), modifiedNs };
  }
}

test('the bytes at a returned location are those of a read, for as long as the location is valid', async (t) => {
  const { store, disk, apply } = await setUp(t);
  const random = new Prng(Number(process.env.SEED ?? 1));
  const told: { locations: FileLocations; offset: number; bytes: Uint8Array }[] = [];
  let holes = 0;
  let parts = 0;
  for (let step = 1; step <= 120; step++) {
    await apply(drawn(random, step));
    if (step % 4 !== 0) continue;
    const offset = random.integer(0, LARGEST - 1);
    const length = 1 + random.integer(0, LARGEST);
    // In one tick, and so of one state.
    const locations = store.locate(FILE, offset, length, LONG_MS);
    const bytes = await store.read(FILE, offset, length);
    assert.equal(Math.max(0, locations.end - offset), bytes.length);
    assert.equal(locations.sizeBytes, store.attributes(FILE).sizeBytes);
    told.push({ locations, offset, bytes });
    for (const one of told) {
      if (one.bytes.length === 0) continue;
      const read = await disk.read(one.locations, one.offset, one.locations.end);
      assert.ok(read !== null, `Returned at step ${step} or before, it is still there`);
      assert.deepEqual(Buffer.from(read), Buffer.from(one.bytes));
      // A piece of it, which cuts objects.
      const from = random.integer(one.offset, one.locations.end - 1);
      const to = random.integer(from + 1, one.locations.end);
      const piece = await disk.read(one.locations, from, to);
      assert.deepEqual(piece, Buffer.from(one.bytes.subarray(from - one.offset, to - one.offset)));
      parts++;
      const held = one.locations.extents.reduce((sum, extent) => sum + extent.length, 0);
      if (held < one.bytes.length) holes++;
    }
  }
  assert.ok(holes > 0 && parts > 50, 'There were holes, and parts of objects');
});

test('bytes at an expired location may be gone, and are never others', async (t) => {
  const { store, disk, write } = await setUp(t);
  await write(0, pattern(4 * OBJECT_BYTES, 1));
  await store.flush(FILE);
  const bytes = Buffer.from(await store.read(FILE, 0, 4 * OBJECT_BYTES));
  const locations = store.locate(FILE, 0, 4 * OBJECT_BYTES, 1);
  let misses = 0;
  for (let step = 2; misses === 0; step++) {
    assert.ok(step < 2_000, 'Slots are used again');
    await write(0, pattern(4 * OBJECT_BYTES, step));
    await store.flush(FILE);
    const read = await disk.read(locations, 0, 4 * OBJECT_BYTES);
    if (read === null) misses++;
    else assert.deepEqual(Buffer.from(read), bytes);
  }
});

test('adjacent objects are returned as one location, within each mebibyte', async (t) => {
  const { store, disk, write } = await setUp(t);
  const bytes = pattern(EXTENT_BYTES + 3 * OBJECT_BYTES, 5);
  await write(0, bytes);
  const { extents, end } = store.locate(FILE, 0, 2 * EXTENT_BYTES, LONG_MS);
  assert.deepEqual(
    extents.map(({ begin: at, length }) => [at, length]),
    [
      [0, EXTENT_BYTES],
      [EXTENT_BYTES, 3 * OBJECT_BYTES],
    ],
  );
  assert.equal(end, bytes.length);
  // Locations of no more than so many objects at a time.
  await write(4 * EXTENT_BYTES, bytes);
  const many = store.locate(FILE, 0, 5 * EXTENT_BYTES, LONG_MS);
  assert.equal(many.end, 512 * OBJECT_BYTES);
  assert.ok((await disk.read(many, 0, many.end)) !== null);
});

test('a container that was truncated, damaged, replaced or removed has no bytes', async (t) => {
  const { store, disk, write, container } = await setUp(t);
  const bytes = pattern(3 * OBJECT_BYTES, 9);
  await write(0, bytes);
  const locations = store.locate(FILE, 0, bytes.length, LONG_MS);
  const whole = fs.readFileSync(container);
  const read = (): Promise<Buffer | null> => disk.read(locations, 0, bytes.length);
  assert.deepEqual(await read(), Buffer.from(bytes));
  fs.truncateSync(container, OBJECT_BYTES + 1);
  assert.equal(await read(), null);
  const flipped = Buffer.from(whole);
  flipped[OBJECT_BYTES] = (flipped[OBJECT_BYTES] as number) ^ 1;
  fs.writeFileSync(container, flipped);
  assert.equal(await read(), null);
  fs.rmSync(container);
  assert.equal(await read(), null);
  // Another one of the name is opened, and only what is right in it is used.
  fs.writeFileSync(container, whole);
  assert.deepEqual(await read(), Buffer.from(bytes));
  fs.rmSync(container);
  fs.symlinkSync('/etc/passwd', container);
  const other = await LocalDisk.open(systemWorld, path.dirname(path.dirname(path.dirname(container))));
  assert.equal(await other?.read(locations, 0, bytes.length), null, 'a link leads nowhere');
  other?.close();
  fs.rmSync(container);
  fs.writeFileSync(container, whole);
});

test("closing a store waits for no reader of its disk; a removed replica's readers do not delay it either", async (t) => {
  const { fixture, store, write } = await setUp(t);
  await write(0, pattern(OBJECT_BYTES, 1));
  store.locate(FILE, 0, OBJECT_BYTES, 20);
  await store.remove(FILE);
  assert.equal(store.record(FILE), null);
  const other = fileId(301);
  await begin(store, other, OBJECT_BYTES);
  const operation = { kind: 'write', offset: 0, bytes: pattern(10, 1), modifiedNs: 1n } as const;
  await store.apply(other, epoch(1), 1, operation, NO_SESSIONS);
  store.locate(other, 0, 10, LONG_MS);
  await fixture.reopen();
  assert.equal((await fixture.store.read(other, 0, 10)).length, 10);
});

test('only a process that can read the secret of this start can prove it', async (t) => {
  const folder = temporaryFolder();
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  const name = path.join(folder, LOCAL_PROOF_FILE);
  assert.equal(await LocalDisk.open(systemWorld, folder), null, 'there is none');
  const first = LocalProof.create(systemWorld, folder);
  assert.equal(fs.statSync(name).mode & 0o777, 0o600);
  const disk = await LocalDisk.open(systemWorld, folder);
  assert.ok(disk !== null && first.isValid(disk.proof));
  assert.ok(!disk.proof.includes(fs.readFileSync(name, 'latin1')), 'the secret itself is sent to no client');
  const second = LocalProof.create(systemWorld, folder);
  assert.ok(!second.isValid(disk.proof), 'another start has another');
  for (const shown of [undefined, '', 'x', ['a'], '0'.repeat(64), disk.proof.slice(1)])
    assert.ok(!second.isValid(shown));
  disk.close();
  // A file that is no secret of a server is revealed to none, whichever folder it names.
  for (const contents of ['root:x:0:0\n', 'a'.repeat(63), 'g'.repeat(64), 'a'.repeat(65)]) {
    fs.writeFileSync(name, contents);
    assert.equal(await LocalDisk.open(systemWorld, folder), null);
  }
  const elsewhere = path.join(folder, 'elsewhere');
  fs.writeFileSync(elsewhere, 'a'.repeat(64));
  fs.rmSync(name);
  fs.symlinkSync(elsewhere, name);
  assert.equal(await LocalDisk.open(systemWorld, folder), null, 'a link is not followed');
});

test('containers of others are refused', { skip: process.getuid?.() !== 0 }, async (t) => {
  const { store, disk, write, container } = await setUp(t);
  await write(0, pattern(OBJECT_BYTES, 1));
  const locations = store.locate(FILE, 0, OBJECT_BYTES, LONG_MS);
  fs.chownSync(container, 12_345, 12_345);
  assert.equal(await disk.read(locations, 0, OBJECT_BYTES), null);
});

test('few containers are open at a time, and none for long', async (t) => {
  const { store, disk } = await setUp(t);
  const all: FileLocations[] = [];
  for (let number = 400; number < 440; number++) {
    const file = fileId(number);
    await begin(store, file, OBJECT_BYTES);
    const operation = { kind: 'write', offset: 0, bytes: pattern(100, number), modifiedNs: 1n } as const;
    await store.apply(file, epoch(1), 1, operation, NO_SESSIONS);
    all.push(store.locate(file, 0, 100, LONG_MS));
  }
  const read = await Promise.all(all.map((locations) => disk.read(locations, 0, 100)));
  for (const [place, bytes] of read.entries())
    assert.deepEqual(bytes, Buffer.from(pattern(100, 400 + place)));
  for (const locations of all) assert.ok((await disk.read(locations, 0, 100)) !== null);
  assert.ok(disk.openCount > 0 && disk.openCount <= 32, `${disk.openCount} are open`);
  while (disk.openCount > 0) await delay(20);
  assert.ok((await disk.read(all[0] as FileLocations, 0, 100)) !== null, 'they are opened again');
});

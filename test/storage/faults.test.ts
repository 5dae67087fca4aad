import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import Database from 'better-sqlite3';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import { errorCode, storageError } from '../../server/storage/failures.ts';
import { diskFileOps, type FileOps } from '../../server/storage/file-ops.ts';
import { ROWS_PER_SLICE } from '../../server/storage/slices.ts';
import { describeFile, differenceTo } from '../conformance/description.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern, storeConformance, VIEW } from '../conformance/store.ts';
import { flipByte } from './damage.ts';
import { mounted } from './mounts.ts';
import { DiskFixture, temporaryFolder } from './stores.ts';

const OBJECT_BYTES = 256;
const file = fileId(1);

/** A disk that fails as the test says. */
class FaultyDisk implements FileOps {
  /** Fails the next call of the kind, on a path with this end, with the code. */
  fault: {
    readonly call: keyof FileOps;
    readonly suffix: string;
    readonly code: string;
    /** Fails all calls, not only the next one. */
    readonly lasting?: true;
  } | null = null;
  /** Writes and reads stop short after this many bytes. */
  shortBytes = Number.POSITIVE_INFINITY;
  /** Reads wait for this before they begin. */
  readGate: Promise<void> | null = null;
  readonly #paths = new Map<number, string>();

  async open(path: string, flags: number): Promise<number> {
    this.#strike('open', path);
    const fd = await diskFileOps.open(path, flags);
    this.#paths.set(fd, path);
    return fd;
  }

  close(fd: number): Promise<void> {
    return diskFileOps.close(fd);
  }

  async write(fd: number, buffers: readonly Uint8Array[], position: number): Promise<number> {
    this.#strike('write', this.#paths.get(fd));
    const first = buffers[0] as Uint8Array;
    if (first.length <= this.shortBytes) return diskFileOps.write(fd, buffers, position);
    return diskFileOps.write(fd, [first.subarray(0, this.shortBytes)], position);
  }

  writeNow(path: string, buffers: readonly Uint8Array[], position: number): void {
    this.#strike('writeNow', path);
    diskFileOps.writeNow(path, buffers, position);
  }

  async read(fd: number, buffer: Uint8Array, position: number): Promise<number> {
    this.#strike('read', this.#paths.get(fd));
    await this.readGate;
    return diskFileOps.read(fd, buffer.subarray(0, Math.min(buffer.length, this.shortBytes)), position);
  }

  async datasync(fd: number): Promise<void> {
    this.#strike('datasync', this.#paths.get(fd));
    await diskFileOps.datasync(fd);
  }

  truncate(fd: number, sizeBytes: number): Promise<void> {
    return diskFileOps.truncate(fd, sizeBytes);
  }

  unlink(path: string): Promise<void> {
    return diskFileOps.unlink(path);
  }

  flushDirectory(path: string): Promise<void> {
    return diskFileOps.flushDirectory(path);
  }

  #strike(call: keyof FileOps, path: string | undefined): void {
    const { fault } = this;
    if (fault === null || fault.call !== call || path?.endsWith(fault.suffix) !== true) return;
    if (fault.lasting !== true) this.fault = null;
    throw Object.assign(new Error(`${fault.code}: injected`), { code: fault.code });
  }
}

function withCode(code: ErrorCode, message = /./) {
  return (error: unknown) => {
    assert.ok(error instanceof ServiceError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, message);
    return true;
  };
}

storeConformance(
  'disk store whose reads and writes stop short',
  () => {
    const disk = new FaultyDisk();
    disk.shortBytes = 7;
    return DiskFixture.make({ fileOps: disk });
  },
  10,
);

describe('disk store with a failing disk', () => {
  let disk: FaultyDisk;
  let fixture: DiskFixture;

  beforeEach(async () => {
    disk = new FaultyDisk();
    fixture = await DiskFixture.make({ fileOps: disk });
    await begin(fixture.store, file, OBJECT_BYTES);
  });
  afterEach(() => fixture.dispose());

  const write = (seq: number, offset: number, bytes: Uint8Array) =>
    fixture.store.apply(file, epoch(1), seq, { kind: 'write', offset, bytes, modifiedNs: 1n }, NO_SESSIONS);
  const container = () => path.join(fixture.path, 'objects', '01', '1.dat');

  test('a file whose contents the disk refuses is not created, leaves nothing, and can be created with contents later', async () => {
    const other = fileId(2);
    const operations = [
      { kind: 'write', offset: 0, bytes: pattern(40, 1), modifiedNs: 1n },
      { kind: 'settling' },
    ] as const;
    const bear = () =>
      fixture.store.createWithContents([{ file: other, operations }], epoch(1), VIEW, OBJECT_BYTES);
    disk.fault = { call: 'writeNow', suffix: '.dat', code: 'ENOSPC' };
    const [refused] = await bear();
    assert.ok(refused instanceof ServiceError && refused.code === 'no-space', String(refused));
    assert.equal(fixture.store.record(other), null);
    assert.deepEqual(await bear(), [null]);
    assert.deepEqual(Buffer.from(await fixture.store.read(other, 0, 99)), Buffer.from(pattern(40, 1)));
  });

  test('a full disk refuses the write and what follows it, and nothing torn is seen', async () => {
    await write(1, 0, pattern(1000, 1));
    disk.fault = { call: 'write', suffix: '.dat', code: 'ENOSPC' };
    const outcomes = await Promise.allSettled([
      write(2, 0, pattern(1000, 2)),
      write(3, 900, pattern(300, 3)),
      fixture.store.promise(file, epoch(5)),
    ]);
    for (const outcome of outcomes) {
      assert.equal(outcome.status, 'rejected');
      withCode('no-space')(outcome.reason);
    }
    assert.equal(fixture.store.record(file)?.seq, 1);
    assert.deepEqual(Buffer.from(await fixture.store.read(file, 0, 2000)), Buffer.from(pattern(1000, 1)));
    // With free space again, it continues.
    await write(2, 0, pattern(500, 4));
    await fixture.reopen();
    assert.deepEqual(Buffer.from(await fixture.store.read(file, 0, 500)), Buffer.from(pattern(500, 4)));
  });

  test('the slices of a removal that were refused with a write continue after the next request', async () => {
    const sizeBytes = 3 * ROWS_PER_SLICE * OBJECT_BYTES;
    await write(1, 0, pattern(sizeBytes, 1));
    const truncate = { kind: 'truncate', sizeBytes: 0, modifiedNs: 2n } as const;
    await fixture.store.apply(file, epoch(1), 2, truncate, NO_SESSIONS);
    disk.fault = { call: 'write', suffix: '.dat', code: 'ENOSPC' };
    await assert.rejects(write(3, sizeBytes, pattern(1000, 2)), withCode('no-space'));
    assert.equal(fixture.store.removalsPending, 1);
    await fixture.store.flush(file);
    for (let turn = 0; turn < 10_000 && fixture.store.removalsPending > 0; turn++)
      await new Promise((resolve) => setImmediate(resolve));
    assert.equal(fixture.store.removalsPending, 0);
  });

  test('what follows a write without enough free space is refused with it', async (context) => {
    await write(1, 0, pattern(1000, 1));
    const refused = context.mock.method(fixture.store.reserve, 'assertFor', () => {
      throw new ServiceError(
        'no-space',
        'The disk is full; only the reserve for names and promises is left: delete files or add space',
      );
    });
    const outcomes = await Promise.allSettled([
      write(2, 0, pattern(1000, 2)),
      fixture.store.apply(
        file,
        epoch(1),
        3,
        { kind: 'truncate', sizeBytes: 10, modifiedNs: 3n },
        new Uint8Array(0),
      ),
    ]);
    for (const outcome of outcomes) {
      assert.equal(outcome.status, 'rejected');
      withCode('no-space')(outcome.reason);
    }
    assert.equal(fixture.store.record(file)?.seq, 1);
    refused.mock.restore();
    await write(2, 0, pattern(500, 4));
  });

  test('a failed append leaves the object as it was', async () => {
    await write(1, 0, pattern(100, 1));
    disk.fault = { call: 'write', suffix: '.dat', code: 'EIO' };
    await assert.rejects(write(2, 100, pattern(50, 2)), withCode('storage'));
    await write(2, 100, pattern(20, 3));
    assert.deepEqual(
      Buffer.from(await fixture.store.read(file, 0, 500)),
      Buffer.concat([pattern(100, 1), pattern(20, 3)]),
    );
  });

  test('a read error is reported and not taken for data', async () => {
    await write(1, 0, pattern(100, 1));
    disk.fault = { call: 'read', suffix: '.dat', code: 'EIO', lasting: true };
    await assert.rejects(fixture.store.read(file, 0, 100), withCode('storage'));
    // Another replica has what the disk cannot read any more.
    fixture.mender = async () => pattern(100, 1);
    assert.equal((await fixture.store.read(file, 0, 100)).length, 100);
    disk.fault = null;
    fixture.mender = async () => null;
    assert.equal((await fixture.store.read(file, 0, 100)).length, 100);
  });

  for (const [what, suffix] of [
    ['contents', '.dat'],
    ['index', '-wal'],
  ] as const) {
    test(`a failed sync of the ${what} is never retried: the store has failed until a restart`, async () => {
      await write(1, 0, pattern(100, 1));
      disk.fault = { call: 'datasync', suffix, code: 'EIO' };
      await assert.rejects(fixture.store.flush(file), withCode('storage'));
      await assert.rejects(write(2, 0, pattern(10, 2)), withCode('storage', /restart/));
      await assert.rejects(fixture.store.flush(file), withCode('storage', /restart/));
      assert.throws(() => fixture.store.record(file), withCode('storage', /restart/));
      await fixture.close();
      await fixture.open();
      assert.equal(fixture.folder.lostPower, true, 'the kernel may have dropped what was not synced');
      assert.equal(fixture.store.trust(file), 'suspect');
    });
  }

  test('a promise whose sync failed is not given', async () => {
    disk.fault = { call: 'datasync', suffix: '-wal', code: 'EIO' };
    await assert.rejects(fixture.store.promise(file, epoch(2)), withCode('storage'));
    await assert.rejects(fixture.store.promise(file, epoch(2)), withCode('storage'));
  });

  test('a flipped bit is an integrity error that names the object, and is never returned', async () => {
    await write(1, 0, pattern(1000, 1));
    await fixture.store.flush(file);
    flipByte(container(), 2 * OBJECT_BYTES + 17);
    await assert.rejects(fixture.store.read(file, 0, 1000), withCode('integrity', /object 2 of file 1/));
    await assert.rejects(fixture.store.read(file, 520, 1), withCode('integrity', /object 2 of file 1/));
    await assert.rejects(fixture.store.readObject(file, 2, 1, 1), withCode('integrity'));
    assert.deepEqual(
      Buffer.from(await fixture.store.read(file, 0, 512)),
      Buffer.from(pattern(1000, 1).subarray(0, 512)),
    );
    // A part of it cannot be overwritten either: the damaged rest would get a valid checksum.
    await assert.rejects(write(2, 530, pattern(4, 2)), withCode('integrity', /object 2/));
    assert.equal(fixture.store.record(file)?.seq, 1, 'the position stays');
    // As a whole it can.
    await write(2, 512, pattern(256, 3));
    assert.deepEqual(Buffer.from(await fixture.store.read(file, 512, 256)), Buffer.from(pattern(256, 3)));
  });

  test('a container that is truncated or missing is an integrity error', async () => {
    await write(1, 0, pattern(1000, 1));
    await fixture.store.flush(file);
    fs.truncateSync(container(), 700);
    await assert.rejects(fixture.store.read(file, 0, 1000), withCode('integrity', /object 2 of file 1/));
    await fixture.close();
    fs.rmSync(container());
    await fixture.open();
    await assert.rejects(fixture.store.read(file, 0, 10), withCode('integrity', /missing/));
    await assert.rejects(fixture.store.readObject(file, 0, 1, 1), withCode('integrity', /missing/));
  });

  test('a slow read sees what it pinned, while its slots are overwritten and released', async () => {
    await write(1, 0, pattern(4 * OBJECT_BYTES, 1));
    const gate = Promise.withResolvers<void>();
    disk.readGate = gate.promise;
    const read = fixture.store.read(file, 0, 4 * OBJECT_BYTES);
    const object = fixture.store.readObject(file, 1, 1, 1);
    for (let seq = 2; seq < 8; seq++) await write(seq, 0, pattern(4 * OBJECT_BYTES, seq));
    await fixture.store.flush(file);
    for (let seq = 8; seq < 14; seq++) await write(seq, 0, pattern(4 * OBJECT_BYTES, seq));
    disk.readGate = null;
    gate.resolve();
    assert.deepEqual(Buffer.from(await read), Buffer.from(pattern(4 * OBJECT_BYTES, 1)));
    assert.deepEqual(
      Buffer.from((await object) ?? []),
      Buffer.from(pattern(4 * OBJECT_BYTES, 1).subarray(OBJECT_BYTES, 2 * OBJECT_BYTES)),
    );
    await write(14, 0, pattern(9, 3));
  });

  test('a damaged object is repaired by staging the same version', async () => {
    await write(1, 0, pattern(1000, 1));
    const described = describeFile(fixture.store, file);
    flipByte(container(), 3);
    await assert.rejects(fixture.store.read(file, 0, 10), withCode('integrity'));
    const entry = described.objects[0];
    assert.ok(entry);
    await fixture.store.stage(file, { entry, bytes: pattern(1000, 1).subarray(0, OBJECT_BYTES) });
    await fixture.store.install(file, epoch(1), 1, NO_SESSIONS, differenceTo(fixture.store, file, described));
    assert.deepEqual(Buffer.from(await fixture.store.read(file, 0, 1000)), Buffer.from(pattern(1000, 1)));
  });

  test('a removed or shortened file frees its space', async () => {
    await write(1, 0, pattern(200 * OBJECT_BYTES, 1));
    assert.equal(fs.statSync(container()).size, 200 * OBJECT_BYTES);
    await fixture.store.apply(
      file,
      epoch(1),
      2,
      { kind: 'truncate', sizeBytes: 0, modifiedNs: 1n },
      NO_SESSIONS,
    );
    await fixture.store.flush(file);
    await fixture.store.close();
    assert.equal(fs.statSync(container()).size, 0);
    fixture.folder.close();
    await fixture.open();
    await fixture.store.remove(file);
    assert.equal(fs.existsSync(container()), false);
  });

  test('overwriting again and again without a sync does not fill the disk', async () => {
    await write(1, 0, pattern(8 * OBJECT_BYTES, 1));
    await fixture.store.flush(file);
    for (let seq = 2; seq < 200; seq++) await write(seq, 10, pattern(7 * OBJECT_BYTES, seq));
    // The synced version, the present one, and the one being written.
    assert.ok(fs.statSync(container()).size <= 3 * 8 * OBJECT_BYTES, `${fs.statSync(container()).size}`);
  });
});

/** Pages of a log that the first block of its index names, by the format of SQLite. */
const INDEX_PAGES = 4_062;

test('a full disk on which only the index of a log has no space is not a failed one', async (t) => {
  const folder = temporaryFolder();
  const mount = process.getuid?.() === 0 ? mounted(folder, ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs']) : null;
  if (mount === null) {
    fs.rmdirSync(folder);
    return t.skip('needs root to mount a small tmpfs');
  }
  const fill = path.join(folder, 'fill');
  const opened = (name: string): Database.Database => {
    const database = new Database(path.join(folder, name));
    database.pragma('journal_mode = WAL');
    database.pragma('synchronous = NORMAL');
    database.pragma('wal_autocheckpoint = 0');
    return database;
  };
  const put = (database: Database.Database, count: number): void => {
    const insert = database.prepare('INSERT OR REPLACE INTO rows VALUES (?, ?)');
    for (let at = 0; at < count; at++) insert.run(at % 10, Buffer.alloc(3_000));
  };
  try {
    const before = opened('before');
    before.exec('CREATE TABLE rows (id INTEGER PRIMARY KEY, bytes BLOB)');
    put(before, INDEX_PAGES + 100);
    // From here on the log is written over. A process that is killed leaves it as long as it was, and the next one
    // makes another index.
    before.pragma('wal_checkpoint(RESTART)');
    put(before, 1);
    for (const end of ['', '-wal'])
      fs.copyFileSync(path.join(folder, `before${end}`), path.join(folder, `after${end}`));
    before.close();
    const after = opened('after');
    put(after, 1);
    const block = Buffer.alloc(4_096);
    assert.throws(
      () => {
        for (;;) fs.appendFileSync(fill, block);
      },
      { code: 'ENOSPC' },
    );
    let refused: unknown = null;
    try {
      put(after, 2 * INDEX_PAGES);
    } catch (error) {
      refused = error;
    }
    assert.equal(errorCode(refused), 'SQLITE_IOERR_SHMSIZE');
    assert.ok(withCode('no-space')(storageError('Cannot apply batch 7', refused)));
    fs.rmSync(fill);
    put(after, 1);
    after.close();
  } finally {
    mount.unmount();
    fs.rmdirSync(folder);
  }
});

test('a disk that is really full', async (t) => {
  const folder = temporaryFolder();
  const mount = process.getuid?.() === 0 ? mounted(folder, ['-t', 'tmpfs', '-o', 'size=3m', 'tmpfs']) : null;
  if (mount === null) {
    fs.rmdirSync(folder);
    return t.skip('needs root to mount a small tmpfs');
  }
  try {
    const fixture = await DiskFixture.make({}, folder);
    await begin(fixture.store, file, 65_536);
    let seq = 0;
    const next = () =>
      fixture.store.apply(
        file,
        epoch(1),
        seq + 1,
        { kind: 'write', offset: seq * 65_536, bytes: pattern(65_536, seq), modifiedNs: 1n },
        NO_SESSIONS,
      );
    await assert.rejects(async () => {
      for (; seq < 100; seq++) await next();
    }, withCode('no-space'));
    assert.ok(seq > 5);
    await assert.rejects(next(), withCode('no-space'), 'still full, and still in order');
    for (let at = 0; at < seq; at++) {
      assert.deepEqual(
        Buffer.from(await fixture.store.read(file, at * 65_536, 65_536)),
        Buffer.from(pattern(65_536, at)),
      );
    }
    assert.equal(fixture.store.attributes(file).sizeBytes, seq * 65_536);
    await fixture.close();
  } finally {
    mount.unmount();
    fs.rmdirSync(folder);
  }
});

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { CatalogStore } from '../../server/storage/catalog-store.ts';
import { diskFileOps, type FileOps } from '../../server/storage/file-ops.ts';
import { systemWorld } from '../../world/system-world.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern, VIEW } from '../conformance/store.ts';
import { DiskFixture, temporaryFolder } from './stores.ts';

/** Counts the syncs of contents and of the index, and makes them overlap. */
class CountingDisk implements FileOps {
  contents = 0;
  index = 0;
  /** Syncs under way wait for this. */
  gate: Promise<void> = Promise.resolve();
  readonly #paths = new Map<number, string>();
  readonly close = diskFileOps.close;
  readonly write = diskFileOps.write;
  readonly writeNow = diskFileOps.writeNow;
  readonly read = diskFileOps.read;
  readonly truncate = diskFileOps.truncate;
  readonly unlink = diskFileOps.unlink;
  readonly flushDirectory = diskFileOps.flushDirectory;

  async open(path: string, flags: number): Promise<number> {
    const fd = await diskFileOps.open(path, flags);
    this.#paths.set(fd, path);
    return fd;
  }

  async datasync(fd: number): Promise<void> {
    const path = this.#paths.get(fd) ?? '';
    if (path.endsWith('.dat')) this.contents++;
    else if (path.endsWith('-wal')) this.index++;
    await this.gate;
    await diskFileOps.datasync(fd);
  }
}

/**
 * Goal: callers that want something synced at the same time share one sync, of the contents of a file and of the index
 * of all files; a caller during a sync is served by the next one, never by the one under way.
 */
describe('group commit', () => {
  const WAITERS = 64;
  let disk: CountingDisk;
  let fixture: DiskFixture;

  beforeEach(async () => {
    disk = new CountingDisk();
    fixture = await DiskFixture.make({ fileOps: disk });
  });
  afterEach(() => fixture.dispose());

  const apply = (file: number, seq: number) =>
    fixture.store.apply(
      fileId(file),
      epoch(1),
      seq,
      { kind: 'write', offset: seq * 10, bytes: pattern(10, seq), modifiedNs: 1n },
      NO_SESSIONS,
    );

  test(`${WAITERS} flushes of one file, each after its own write, share syncs`, async (t) => {
    await begin(fixture.store, fileId(1), 4096);
    disk.contents = 0;
    disk.index = 0;
    const works: Promise<void>[] = [];
    for (let seq = 1; seq <= WAITERS; seq++) works.push(apply(1, seq), fixture.store.flush(fileId(1)));
    await Promise.all(works);
    t.diagnostic(
      `${WAITERS} writes and flushes: ${disk.contents} syncs of contents, ${disk.index} of the index`,
    );
    // Every flush here follows its own write, so each may find another state; they still share.
    assert.ok(disk.contents >= 1 && disk.contents < WAITERS, `${disk.contents}`);
    assert.ok(disk.index >= 1 && disk.index < WAITERS, `${disk.index}`);
  });

  test(`${WAITERS} flushes of one file at once are at most two syncs of it, and three of the index`, async () => {
    await begin(fixture.store, fileId(1), 4096);
    // One write: the store syncs by itself before it uses the place of what was overwritten.
    await apply(1, 1);
    disk.contents = 0;
    disk.index = 0;
    await Promise.all(Array.from({ length: WAITERS }, () => fixture.store.flush(fileId(1))));
    // Those that shared the second sync of the contents reach the index one after another. If that of the first has
    // already ended, the next of them begins one, and the others share the one after it.
    assert.ok(disk.contents <= 2 && disk.index <= 3, `${disk.contents} and ${disk.index}`);
  });

  test(`flushes of ${WAITERS} files share the syncs of the index`, async (t) => {
    for (let file = 1; file <= WAITERS; file++) await begin(fixture.store, fileId(file), 4096);
    disk.contents = 0;
    disk.index = 0;
    await Promise.all(Array.from({ length: WAITERS }, (_, at) => apply(at + 1, 1)));
    await Promise.all(Array.from({ length: WAITERS }, (_, at) => fixture.store.flush(fileId(at + 1))));
    t.diagnostic(`${WAITERS} files: ${disk.contents} syncs of contents, ${disk.index} of the index`);
    assert.equal(disk.contents, WAITERS, 'each file has its own contents');
    assert.ok(disk.index < WAITERS / 2, `${disk.index}`);
  });

  test('a caller during a sync waits for the next one', async () => {
    await begin(fixture.store, fileId(1), 4096);
    await apply(1, 1);
    disk.contents = 0;
    const gate = Promise.withResolvers<void>();
    disk.gate = gate.promise;
    const first = fixture.store.flush(fileId(1));
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(disk.contents, 1);
    await apply(1, 2);
    let done = 0;
    const later = Array.from({ length: WAITERS }, async () => {
      await fixture.store.flush(fileId(1));
      done++;
    });
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(done, 0, 'the sync under way may have begun before the write');
    assert.equal(disk.contents, 1);
    gate.resolve();
    await Promise.all([first, ...later]);
    assert.equal(disk.contents, 2);
  });

  test('promises of many files share syncs, and so do flushes of the catalog', async (t) => {
    for (let file = 1; file <= WAITERS; file++) fixture.store.create(fileId(file), VIEW, 4096);
    disk.index = 0;
    const promises = Array.from({ length: WAITERS }, (_, at) =>
      fixture.store.promise(fileId(at + 1), epoch(1)),
    );
    await Promise.all(promises);
    assert.ok(disk.index <= 4, `${disk.index}`);
    t.diagnostic(`${WAITERS} promises: ${disk.index} syncs of the index`);

    const folder = temporaryFolder();
    const catalog = await CatalogStore.open({ world: systemWorld, folder, view: VIEW });
    try {
      await catalog.promise(epoch(1));
      let syncs = 0;
      const original = diskFileOps.datasync;
      diskFileOps.datasync = (fd) => {
        syncs++;
        return original(fd);
      };
      try {
        await Promise.all(Array.from({ length: WAITERS }, () => catalog.flush()));
      } finally {
        diskFileOps.datasync = original;
      }
      assert.ok(syncs <= 2, `${syncs}`);
    } finally {
      await catalog.close();
      fs.rmSync(folder, { recursive: true });
    }
  });
});

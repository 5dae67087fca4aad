import assert from 'node:assert/strict';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import { ensureSchema, SCHEMA_VERSION } from '../../catalog/schema.ts';
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import { asVersion2 } from './earlier-schema.ts';
import { Catalog, main } from './fixture.ts';

const MIB = 1024 * 1024;

function limited(quotas: { readonly quotaBytes?: number; readonly quotaInodes?: number }): Catalog {
  const catalog = new Catalog();
  catalog.run({ kind: 'volume-set', name: 'main', ...quotas });
  return catalog;
}

function volumeOf(catalog: Catalog): VolumeInfo {
  return catalog.query({ kind: 'volume', name: 'main' }).volume;
}

function orphan(catalog: Catalog, sizeBytes: number, seq = 1): number {
  const { inode } = catalog.run({
    kind: 'create-orphan',
    volume: 'main',
    mode: 0o644,
    uid: 0,
    gid: 0,
  }).attributes;
  settle(catalog, inode, sizeBytes, seq);
  return inode;
}

function settle(catalog: Catalog, inode: number, sizeBytes: number, seq: number): void {
  catalog.run({
    kind: 'settle',
    files: [{ inode, sizeBytes, modifiedNs: '7', contents: { epoch: 1, seq } }],
  });
}

const ANYTHING = { kind: 'anything' } as const;

test('an upload counts, and is refused, when it gets its name', () => {
  const catalog = limited({ quotaBytes: 1000 });
  const [first, second, smaller] = [orphan(catalog, 600), orphan(catalog, 500), orphan(catalog, 400)];
  assert.equal(volumeOf(catalog).namedBytes, 0);
  catalog.run({ kind: 'replace', place: main('/a'), inode: first, expect: ANYTHING });
  assert.equal(volumeOf(catalog).namedBytes, 600);
  catalog.refuse('quota-exceeded', { kind: 'replace', place: main('/b'), inode: second, expect: ANYTHING });
  catalog.run({ kind: 'replace', place: main('/b'), inode: smaller, expect: ANYTHING });
  assert.equal(volumeOf(catalog).namedBytes, 1000);
  // In place of the larger file there is enough free space for it.
  catalog.run({ kind: 'replace', place: main('/a'), inode: second, expect: ANYTHING });
  assert.equal(volumeOf(catalog).namedBytes, 900);
  catalog.run({ kind: 'unlink', place: main('/a') });
  assert.equal(volumeOf(catalog).namedBytes, 400, 'A removed file no longer counts, collected or not');
});

test('a volume above its quota accepts changes that free space, and no others', () => {
  const catalog = limited({});
  catalog.run({ kind: 'replace', place: main('/a'), inode: orphan(catalog, 5000), expect: ANYTHING });
  catalog.run({ kind: 'volume-set', name: 'main', quotaBytes: 1000 });
  const larger = orphan(catalog, 5001);
  catalog.refuse('quota-exceeded', { kind: 'replace', place: main('/a'), inode: larger, expect: ANYTHING });
  catalog.refuse('quota-exceeded', {
    kind: 'replace',
    place: main('/b'),
    inode: orphan(catalog, 1),
    expect: ANYTHING,
  });
  catalog.run({ kind: 'replace', place: main('/a'), inode: orphan(catalog, 4999), expect: ANYTHING });
  catalog.run({ kind: 'volume-set', name: 'main', quotaBytes: 0 });
  catalog.run({ kind: 'replace', place: main('/a'), inode: larger, expect: ANYTHING });
});

test('files that grow at the same time do not exceed the quota together', () => {
  const quotaBytes = 8 * MIB;
  const catalog = limited({ quotaBytes });
  const files = Array.from({ length: 5 }, (_, place) => catalog.file(`/f${place}`).inode);
  const sizes = new Map(files.map((inode) => [inode, 0]));
  let refused = 0;
  for (let round = 0; round < 40; round++) {
    for (const inode of files) {
      const growTo = (sizes.get(inode) ?? 0) + 100_000;
      const allowed = catalog.inode(inode).allowedBytes ?? 0;
      if (growTo > allowed) {
        try {
          catalog.run({ kind: 'open-for-write', inode, growTo });
        } catch {
          refused += 1;
          continue;
        }
      }
      sizes.set(inode, growTo);
    }
    const sum = [...sizes.values()].reduce((total, size) => total + size, 0);
    assert.ok(sum <= quotaBytes, `${sum} bytes`);
    assert.ok(volumeOf(catalog).namedBytes <= quotaBytes);
  }
  assert.ok(refused > 0, 'Some writes reached the quota');
  const written = [...sizes.values()].reduce((total, size) => total + size, 0);
  for (const [seq, inode] of files.entries()) settle(catalog, inode, sizes.get(inode) ?? 0, seq + 1);
  assert.equal(volumeOf(catalog).namedBytes, written, 'Unused bytes are returned');
  assert.ok(written > quotaBytes * 0.9, 'Little is left unused');
});

test("a file's allowed size ends with its mark, and the next mark returns it again", () => {
  const catalog = limited({ quotaBytes: 100 * MIB });
  const { inode, allowedBytes } = catalog.file('/a');
  assert.equal(allowedBytes, MIB, 'A new file need not ask for its first mebibyte');
  assert.equal(volumeOf(catalog).namedBytes, MIB);
  const grown = catalog.run({ kind: 'open-for-write', inode, growTo: 5 * MIB }).attributes;
  assert.equal(grown.allowedBytes, 6 * MIB);
  settle(catalog, inode, 4 * MIB, 1);
  assert.deepEqual([catalog.inode(inode).allowedBytes, volumeOf(catalog).namedBytes], [4 * MIB, 4 * MIB]);
  assert.equal(catalog.run({ kind: 'open-for-write', inode }).attributes.allowedBytes, 5 * MIB);
  catalog.refuse('quota-exceeded', { kind: 'open-for-write', inode, growTo: 101 * MIB });
  assert.equal(
    catalog.run({ kind: 'open-for-write', inode, growTo: 100 * MIB }).attributes.allowedBytes,
    100 * MIB,
  );
  catalog.run({ kind: 'volume-set', name: 'main', quotaBytes: 0 });
  assert.equal(
    catalog.run({ kind: 'open-for-write', inode, growTo: 200 * MIB }).attributes.allowedBytes,
    undefined,
  );
  assert.equal(volumeOf(catalog).namedBytes, 4 * MIB, 'Without a quota only sizes count');
});

test('entries of every kind are counted, and do not exceed the quota', () => {
  const catalog = limited({ quotaInodes: 4 });
  catalog.file('/a');
  catalog.symlink('/l', 'a');
  const directory = { kind: 'make-directory', place: main('/d'), mode: 0o755, uid: 0, gid: 0 } as const;
  catalog.run(directory);
  assert.equal(volumeOf(catalog).namedInodes, 4, 'With the root');
  catalog.refuse('quota-exceeded', { ...directory, place: main('/e') });
  catalog.refuse('quota-exceeded', {
    kind: 'replace',
    place: main('/e'),
    inode: orphan(catalog, 1),
    expect: ANYTHING,
  });
  // A second name adds no file, and neither does a file in place of another.
  catalog.run({
    kind: 'link',
    inode: catalog.at('/a').inode,
    place: main('/a2'),
  });
  catalog.run({ kind: 'replace', place: main('/a'), inode: orphan(catalog, 1), expect: ANYTHING });
  assert.equal(volumeOf(catalog).namedInodes, 5, 'The replaced file has its other name');
  catalog.run({ kind: 'unlink', place: main('/a2') });
  catalog.run({ kind: 'remove-directory', place: main('/d') });
  assert.equal(volumeOf(catalog).namedInodes, 3);
  catalog.run({ ...directory, place: main('/e') });
});

test('opening a catalog of version 2 counts its files', () => {
  const db = new Database(':memory:');
  ensureSchema(db);
  asVersion2(db);
  db.exec(
    `INSERT INTO volumes (id, name, root, replicas, object_bytes, inodes, used_bytes) VALUES (1, 'main', 1, 3, 4096, 4, 70)`,
  );
  const inode = db.prepare(
    `INSERT INTO inodes (id, volume, kind, mode, uid, gid, links, size, accessed_ns, modified_ns, changed_ns, target, device,
       replicas, view, object_bytes, contents_epoch, contents_seq, modified_epoch, modified_seq, live, mark_epoch, mark_turn,
       parent, orphaned_ns) VALUES (?, 1, ?, 420, 0, 0, 1, ?, 0, 0, 0, '', 0, '', 1, 4096, 0, 0, 0, 0, 0, 0, 0, 1, ?)`,
  );
  inode.run(1, 2, 0, null);
  inode.run(2, 1, 30, null);
  inode.run(3, 1, 40, 5);
  inode.run(4, 3, 9, null);
  ensureSchema(db);
  assert.equal(db.pragma('user_version', { simple: true }), SCHEMA_VERSION);
  assert.deepEqual(db.prepare('SELECT named_inodes, named_bytes, quota_bytes FROM volumes').get(), {
    named_inodes: 3,
    named_bytes: 30,
    quota_bytes: 0,
  });
});

/**
 * Goal: a read updates the file's access time, and changes nothing else: a time that a client set stays, and so does
 * what a snapshot shows.
 * Method: reads are reported late, after arbitrary other changes.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Attributes } from '../../wire/catalog-api.ts';
import { Catalog, main } from './fixture.ts';

/**
 * A catalog with a file, and a function that reports a read, by default at the catalog's present time and of its
 * present version.
 */
function started() {
  const catalog = new Catalog();
  const file = catalog.file('/f');
  const now = () => catalog.inode(file.inode);
  const note = (accessedNs: string, seen: Attributes = now()) =>
    catalog.run({ kind: 'note-accesses', volume: 'main', accesses: [accessOf(accessedNs, seen)] }).noted;
  return { catalog, file, now, note };
}

function accessOf(accessedNs: string, { inode, ...attributes }: Attributes) {
  const seen = { accessedNs: attributes.accessedNs, changedNs: attributes.changedNs };
  return { inode, accessedNs, seen };
}

test('a read advances the access time, and changes nothing else of the inode', () => {
  const { catalog, file, now, note } = started();
  const readNs = String(catalog.timeNs + 100n);
  catalog.timeNs += 1_000n;
  const state = catalog.state();
  assert.equal(note(readNs), 1);
  assert.deepEqual(now(), { ...file, accessedNs: readNs });
  const changed = catalog.state().filter((line, place) => line !== state[place]);
  assert.equal(changed.length, 1, changed.join('\n'));
});

test('a read never moves the access time back, nor beyond the present', () => {
  const { catalog, file, now, note } = started();
  catalog.timeNs += 1_000n;
  assert.equal(note(file.accessedNs), 0);
  assert.equal(note(String(BigInt(file.accessedNs) - 5n)), 0);
  assert.equal(note('9000000000000000000'), 1);
  assert.equal(
    now().accessedNs,
    String(catalog.timeNs),
    'A clock that is ahead, or a client that reports a wrong time',
  );
  assert.equal(note(String(BigInt(file.accessedNs) + 1n)), 0, 'An earlier read, reported later');
});

test('an earlier read does not count after a client set the access time to any value', () => {
  const { catalog, file, now, note } = started();
  const seen = now();
  const readNs = String(catalog.timeNs + 100n);
  for (const accessedNs of ['5', String(catalog.timeNs + 50n)]) {
    catalog.timeNs += 1_000n;
    catalog.run({ kind: 'set-attributes', inode: file.inode, accessedNs });
    assert.equal(note(readNs, seen), 0);
    assert.equal(now().accessedNs, accessedNs);
  }
  catalog.timeNs += 1_000n;
  const nextNs = String(catalog.timeNs);
  assert.equal(note(nextNs), 1, 'A read after it counts');
  assert.equal(now().accessedNs, nextNs);
});

test('an earlier read does not count after a client set the access time to its present value', () => {
  const { catalog, file, now } = started();
  const access = accessOf(String(catalog.timeNs + 100n), now());
  const note = () =>
    catalog.run({ kind: 'note-accesses', volume: 'main', unset: true, accesses: [access] }).noted;
  catalog.timeNs += 1_000n;
  catalog.run({ kind: 'set-attributes', inode: file.inode, accessedNs: file.accessedNs });
  assert.equal(note(), 0);
  assert.equal(now().accessedNs, file.accessedNs);
});

test('an earlier read counts after a write', () => {
  const { catalog, file, now } = started();
  const access = accessOf(String(catalog.timeNs + 100n), now());
  catalog.timeNs += 1_000n;
  const modifiedNs = String(catalog.timeNs);
  const settled = { inode: file.inode, sizeBytes: 1, modifiedNs, contents: { epoch: 1, seq: 1 } };
  catalog.run({ kind: 'settle', files: [settled] });
  assert.equal(now().changedNs, modifiedNs);
  const accesses = [access];
  assert.equal(catalog.run({ kind: 'note-accesses', volume: 'main', unset: true, accesses }).noted, 1);
});

test('after other changes, or a read of the same time, an earlier read still counts', () => {
  const { catalog, file, now, note } = started();
  const seen = now();
  const readNs = catalog.timeNs + 100n;
  catalog.timeNs += 1_000n;
  catalog.run({ kind: 'set-attributes', inode: file.inode, mode: 0o600 });
  catalog.run({ kind: 'link', inode: file.inode, place: main('/g') });
  assert.equal(note(String(readNs), seen), 1);
  const linked = now();
  assert.equal(note(String(readNs + 1n), { ...linked, accessedNs: seen.accessedNs }), 1);
  assert.equal(now().accessedNs, String(readNs + 1n));
  assert.equal(now().changedNs, linked.changedNs);
});

test("reads of removed inodes, and of another volume's, are ignored", () => {
  const { catalog, file, now } = started();
  catalog.run({ kind: 'volume-create', name: 'other', replicas: 1, objectBytes: 4096 });
  const gone = catalog.file('/gone');
  catalog.run({ kind: 'unlink', place: main('/gone') });
  catalog.run({ kind: 'collect', beforeNs: '9000000000000000000', countMax: 10 });
  catalog.timeNs += 1_000n;
  const readNs = String(catalog.timeNs);
  const accesses = [gone, file].map((attributes) => accessOf(readNs, attributes));
  assert.equal(catalog.run({ kind: 'note-accesses', volume: 'other', accesses }).noted, 0);
  assert.equal(catalog.run({ kind: 'note-accesses', volume: 'main', accesses }).noted, 1);
  assert.equal(now().accessedNs, readNs);
  catalog.refuse('not-found', { kind: 'note-accesses', volume: 'none', accesses });
  const [access] = accesses;
  assert.ok(access !== undefined);
  const malformed = { ...access, accessedNs: 'soon', inode: file.inode };
  catalog.refuse('bad-request', { kind: 'note-accesses', volume: 'main', accesses: [access, malformed] });
});

test('a snapshot shows the access times at its creation, each stored once', () => {
  const { catalog, file, now, note } = started();
  const contents = { epoch: 1, seq: 1 };
  catalog.run({
    kind: 'settle',
    files: [{ inode: file.inode, sizeBytes: 1, modifiedNs: '1', contents }],
  });
  const { snapshot } = catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'one' });
  const before = now();
  const kept = () => catalog.db.prepare('SELECT COUNT(*) FROM past_inodes').pluck().get();
  assert.equal(note(String(BigInt(before.accessedNs) - 1n)), 0);
  assert.equal(kept(), 0, 'A read that changes nothing stores nothing');
  for (let read = 0; read < 3; read++) {
    catalog.timeNs += 1_000n;
    assert.equal(note(String(catalog.timeNs)), 1);
  }
  assert.equal(kept(), 1);
  const shown = catalog.query({
    kind: 'attributes',
    inode: file.inode,
    snapshot: snapshot.serial,
  }).attributes;
  assert.equal(shown.accessedNs, before.accessedNs);
  assert.equal(shown.source, undefined, 'The file itself still has its contents');
});

/**
 * Goal: each inode has the time of its creation, the same on all members of the catalog.
 * Method: commands, and batches as members of two releases execute them.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ensureSchema } from '../../catalog/schema.ts';
import { CREATIONS_VERSION, SESSIONS_VERSION } from '../../catalog/versions.ts';
import { asVersion7 } from './earlier-schema.ts';
import { Catalog, main } from './fixture.ts';
import { makeDirectory, Pair } from './pair.ts';

test('no change of an inode changes its time of creation', () => {
  const catalog = new Catalog();
  const made = [catalog.directory('/d'), catalog.file('/f'), catalog.symlink('/l', 'x'), catalog.orphan()];
  for (const { createdNs, changedNs } of made) assert.equal(createdNs, changedNs);
  const { inode, createdNs } = catalog.file('/g');
  catalog.run({ kind: 'set-attributes', inode, mode: 0o600, modifiedNs: '5', accessedNs: '6' });
  const settled = { sizeBytes: 0, modifiedNs: '5', contents: { epoch: 1, seq: 1 } };
  catalog.run({
    kind: 'settle',
    files: [made[1]?.inode ?? 0, inode].map((one) => ({ inode: one, ...settled })),
  });
  catalog.run({ kind: 'snapshot-create', volume: 'main', name: 'then' });
  catalog.run({ kind: 'rename', from: main('/g'), to: main('/d/h'), mode: 'replace' });
  catalog.run({ kind: 'link', inode, place: main('/i') });
  assert.equal(catalog.inode(inode).createdNs, createdNs);
  const { attributes } = catalog.query({ kind: 'resolve', volume: 'main@then', path: '/g', follow: true });
  assert.equal(attributes.createdNs, createdNs);
});

test('files with contents were created when they got their names', () => {
  const catalog = new Catalog();
  const members = [['s1', 's2', 's3']];
  const { first } = catalog.run({ kind: 'reserve-inodes', owner: 7, count: 1, members });
  const file = { parent: catalog.root, name: 'b', inode: first, sizeBytes: 1, mode: 0o600, uid: 1, gid: 1 };
  const { atNs } = catalog.run({
    ...{ kind: 'bear', owner: 7, replicas: ['s1', 's2', 's3'], objectBytes: 131_072 },
    files: [{ ...file, contents: { epoch: 1, seq: 1 }, modifiedNs: '9' }],
  });
  assert.equal(catalog.inode(first).createdNs, atNs);
});

test('creation times are stored once all members of the catalog store them', () => {
  const pair = new Pair(SESSIONS_VERSION);
  pair.run(makeDirectory('/before'));
  // This member is upgraded: what an earlier release executed has no time.
  asVersion7(pair.backup);
  ensureSchema(pair.backup);
  pair.membersVersion = CREATIONS_VERSION;
  pair.run(makeDirectory('/then'));
  const thenNs = pair.nowNs;
  pair.membersVersion = SESSIONS_VERSION;
  pair.run(makeDirectory('/after'));
  assert.deepEqual(pair.versions, [5, 5, 8, 8]);
  const created = pair.backup.prepare('SELECT created_ns FROM inodes ORDER BY id').pluck().safeIntegers();
  assert.deepEqual(created.all(), [null, null, thenNs, thenNs + 1n]);
  pair.equal();
});

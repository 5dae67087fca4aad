/**
 * Goal: each inode has the time at which it was created, the same on all members of the catalog.
 * Method: commands, and batches as members of two releases execute them.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import { decodeBatch, encodeBatch, executeBatch, executeRequests } from '../../catalog/batch.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { asVersion7 } from './earlier-schema.ts';
import { Catalog, main, SERVERS } from './fixture.ts';

test('whatever changes of an inode, it was created when it was', () => {
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

test('files that come with contents were created when they were named', () => {
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

test('times of creation are kept once all members of the catalog keep them, and from then on', () => {
  const primary = new Database(':memory:');
  const backup = new Database(':memory:');
  for (const db of [primary, backup]) ensureSchema(db);
  let seq = 0;
  const versions: number[] = [];
  const run = (command: Command, datesCreations: boolean): void => {
    seq++;
    primary.exec('BEGIN');
    const requests = [{ session: 1, number: seq, command }];
    const context = { nowNs: BigInt(seq), placement: () => SERVERS, datesCreations };
    const { batch } = executeRequests(primary, seq, requests, context);
    primary.exec('COMMIT');
    const body = encodeBatch(batch);
    versions.push((JSON.parse(Buffer.from(body).toString()) as { version: number }).version);
    backup.exec('BEGIN');
    executeBatch(backup, seq, decodeBatch(body));
    backup.exec('COMMIT');
  };
  const make = (path: string): Command => {
    return { kind: 'make-directory', place: { volume: 'main', path }, mode: 0o755, uid: 0, gid: 0 };
  };
  run({ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 }, false);
  run(make('/before'), false);
  // This member is upgraded: what an earlier release executed has no time.
  asVersion7(backup);
  ensureSchema(backup);
  run(make('/then'), true);
  run(make('/after'), false);
  assert.deepEqual(versions, [5, 5, 8, 8]);
  const created = backup.prepare('SELECT created_ns FROM inodes ORDER BY id').pluck().all();
  assert.deepEqual(created, [null, null, 3, 4]);
  assert.deepEqual([...dumpCatalog(backup)], [...dumpCatalog(primary)]);
});

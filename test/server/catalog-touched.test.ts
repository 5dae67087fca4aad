/**
 * Goal: the catalog's primary knows exactly what a command changes, so that no client keeps it cached.
 * Method: commands on a small catalog, and for each the inodes whose names or attributes differ afterwards.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import Database from 'better-sqlite3';
import type { ServerId } from '../../base/ids.ts';
import { executeRequests } from '../../catalog/batch.ts';
import { runQuery } from '../../catalog/queries.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import type { Command } from '../../wire/catalog-api.ts';

describe('what a command touches', () => {
  const db = new Database(':memory:');
  let number = 0;
  let root = 0;
  before(() => {
    ensureSchema(db);
    run({ kind: 'volume-create', name: 'v', replicas: 1, objectBytes: 4096 });
    root = runQuery(db, { kind: 'volume', name: 'v' }).volume.root;
  });
  after(() => db.close());

  function run(command: Command): readonly number[] {
    number++;
    db.exec('BEGIN');
    const { outcomes, touched } = executeRequests(db, number, [{ session: 1, number, command }], {
      // Every change has a time of its own.
      nowNs: BigInt(number) * 1_000n,
      placement: () => ['s1' as ServerId],
    });
    db.exec('COMMIT');
    assert.equal(outcomes[0]?.kind, 'done', JSON.stringify(outcomes));
    return touched[0] ?? [];
  }

  const place = (parent: number, name: string) => ({ parent, name });
  const found = (parent: number, name: string) =>
    runQuery(db, { kind: 'lookup', parent, name }).attributes.inode;

  function everything(): Map<number, string> {
    const all = new Map<number, string>();
    const visit = (inode: number): void => {
      if (all.has(inode)) return;
      const { attributes } = runQuery(db, { kind: 'attributes', inode });
      if (attributes.kind !== 'directory') {
        all.set(inode, JSON.stringify(attributes));
        return;
      }
      const { entries } = runQuery(db, { kind: 'list', inode, after: '', countMax: 100 });
      const names = entries.map((entry) => `${entry.name}=${entry.attributes.inode}`);
      all.set(inode, JSON.stringify({ attributes, names }));
      for (const entry of entries) visit(entry.attributes.inode);
    };
    visit(root);
    return all;
  }

  function covers(command: Command): void {
    const before = everything();
    const touched = run(command);
    const behind = everything();
    for (const [inode, text] of before) {
      if (behind.get(inode) === text) continue;
      assert.ok(touched.includes(inode), `${command.kind} changed inode ${inode} and does not report it`);
    }
  }

  test('every inode whose attributes differ afterwards', () => {
    const owner = { uid: 0, gid: 0 };
    const file = (parent: number, name: string): void =>
      covers({ kind: 'create-file', place: place(parent, name), mode: 0o644, ...owner, exclusive: true });
    covers({ kind: 'make-directory', place: place(root, 'd'), mode: 0o755, ...owner });
    covers({ kind: 'make-directory', place: place(root, 'e'), mode: 0o755, ...owner });
    const [d, e] = [found(root, 'd'), found(root, 'e')];
    for (const name of ['a', 'b', 'c']) file(d, name);
    const [a, b, c] = [found(d, 'a'), found(d, 'b'), found(d, 'c')];
    covers({ kind: 'symlink', place: place(d, 's'), target: 'a', ...owner });
    covers({ kind: 'link', inode: b, place: place(e, 'b2') });
    covers({ kind: 'link', inode: c, place: place(e, 'c2') });
    covers({ kind: 'set-attributes', inode: a, mode: 0o600 });
    covers({ kind: 'open-for-write', inode: a });
    covers({
      kind: 'settle',
      files: [{ inode: a, sizeBytes: 5, modifiedNs: '7', contents: { epoch: 1, seq: 1 } }],
    });
    covers({ kind: 'set-xattr', inode: a, name: 'user.x', value: 'AA==', mode: 'set' });
    covers({ kind: 'remove-xattr', inode: a, name: 'user.x' });
    // The file that loses its name here has another one elsewhere.
    covers({ kind: 'rename', from: place(d, 'a'), to: place(d, 'b'), mode: 'replace' });
    covers({ kind: 'rename', from: place(d, 'b'), to: place(e, 'b2'), mode: 'exchange' });
    covers({ kind: 'unlink', place: place(d, 'c') });
    const gone = { kind: 'unlink-files', files: [{ parent: e, name: 'c2', inode: c }] } as const;
    covers({ ...gone, files: [...gone.files] });
    covers({ kind: 'rename', from: place(root, 'd'), to: place(e, 'd'), mode: 'no-replace' });
    covers({ kind: 'follow-view', inode: a, view: { number: 9, members: ['s2'] } });
    covers({ kind: 'create-orphan', volume: 'v', mode: 0o600, ...owner });
    covers({ kind: 'make-directory', place: place(e, 'f'), mode: 0o755, ...owner });
    covers({ kind: 'remove-directory', place: place(e, 'f') });
  });

  test('except those of which only the access time differs: a read recalls nothing', () => {
    const { accessedNs, changedNs } = runQuery(db, { kind: 'attributes', inode: root }).attributes;
    number += 10;
    const access = { inode: root, accessedNs: String(number * 1_000), seen: { accessedNs, changedNs } };
    assert.deepEqual(run({ kind: 'note-accesses', volume: 'v', accesses: [access] }), []);
    const { attributes } = runQuery(db, { kind: 'attributes', inode: root });
    assert.deepEqual([attributes.accessedNs, attributes.changedNs], [access.accessedNs, changedNs]);
  });
});

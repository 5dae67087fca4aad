/**
 * Goal: servers of two releases never execute a command with different effects.
 * Method: batches as an earlier or a later release wrote them.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Batch, decodeBatch, encodeBatch, executeBatch } from '../../catalog/batch.ts';
import {
  COMMANDS_VERSION,
  commandVersion,
  withoutHoles,
  withoutPlacement,
  withoutVolume,
} from '../../catalog/versions.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { Catalog, main } from './fixture.ts';

const TRASH: Command = { kind: 'volume-set', name: 'main', trashMs: 1_000, quotaBytes: 5_000 };
const UNLINK: Command = { kind: 'unlink', place: main('/a'), by: 'anna' };

function batchOf(...commands: Command[]): Batch {
  return {
    version: Math.max(...commands.map(commandVersion)),
    commands: commands.map((command, place) => ({
      session: 77,
      number: place + 1,
      since: null,
      resolved: { command, atNs: '5', replicas: [] },
    })),
  };
}

/** A batch as a release without versions encoded it: it contains whatever clients sent. */
function listed(...commands: Command[]): Uint8Array {
  const rows = batchOf(...commands).commands.map(({ session, number, since, resolved }) => [
    session,
    number,
    since,
    resolved.atNs,
    resolved.replicas,
    resolved.command,
  ]);
  return Buffer.from(JSON.stringify(rows));
}

function textOf(batch: Batch): unknown {
  return JSON.parse(Buffer.from(encodeBatch(batch)).toString());
}

function settleOf(holes: { readonly holeBytes?: number }): Command {
  const file = { inode: 5, sizeBytes: 9, modifiedNs: '1', contents: { epoch: 1, seq: 1 }, ...holes };
  return { kind: 'settle', files: [file] };
}

test('batches that earlier servers understand are encoded as before, and others are not', () => {
  assert.ok(Array.isArray(textOf(batchOf(UNLINK))), 'Without a trash, the new fields mean nothing');
  const { version } = textOf(batchOf(UNLINK, TRASH)) as { version: number };
  assert.equal(version, 2);
  assert.equal(commandVersion({ kind: 'trash-empty', volume: 'main', countMax: 1 }), 2);
  const names = { from: main('/a'), to: main('/b'), mode: 'replace' } as const;
  assert.equal(commandVersion({ kind: 'rename', ...names }), 1);
  assert.equal(commandVersion({ kind: 'rename-whiteout', ...names, uid: 0, gid: 0 }), 5);
  const mark = { epoch: 1, turn: 1 };
  assert.equal(commandVersion({ kind: 'plan-members', inode: 5, view: 1, mark, members: [] }), 6);
  assert.equal(commandVersion({ kind: 'void-inodes', owner: 1, inodes: [5] }), 6);
  const reserve = { kind: 'reserve-inodes', owner: 1, count: 1, members: [['s1']] } as const;
  const forVolume: Command = { ...reserve, members: [['s1']], volume: 'main' };
  assert.equal(commandVersion(forVolume), 13);
  assert.deepEqual(withoutVolume(forVolume), reserve);
  const upload = { kind: 'create-orphan', volume: 'main', mode: 0o600, uid: 0, gid: 0 } as const;
  assert.equal(commandVersion(upload), 1);
  assert.equal(commandVersion({ ...upload, placement: 5 }), 14);
  assert.deepEqual(withoutPlacement({ ...upload, placement: 5 }), upload);
  assert.equal(commandVersion(settleOf({})), 1);
  assert.equal(commandVersion(settleOf({ holeBytes: 5 })), 7);
  assert.deepEqual(withoutHoles(settleOf({ holeBytes: 5 })), settleOf({}));
});

test('fields that an earlier server ignored are ignored here', () => {
  const catalog = new Catalog();
  catalog.db.exec('BEGIN');
  executeBatch(catalog.db, 900, decodeBatch(listed(TRASH)));
  catalog.db.exec('COMMIT');
  const { volume } = catalog.query({ kind: 'volume', name: 'main' });
  assert.deepEqual([volume.trashMs, volume.quotaBytes], [0, 5_000]);
});

test('holes in a batch of a server that ignored them are ignored here', () => {
  const [first] = decodeBatch(listed(settleOf({ holeBytes: 5 }))).commands;
  assert.deepEqual(first?.resolved.command, settleOf({}));
  const [now] = decodeBatch(encodeBatch(batchOf(settleOf({ holeBytes: 5 })))).commands;
  assert.deepEqual(now?.resolved.command, settleOf({ holeBytes: 5 }));
});

test('a batch of a later version is refused before any of it is executed, with a remedy', () => {
  const bytes = Buffer.from(
    JSON.stringify({
      version: COMMANDS_VERSION + 1,
      rows: JSON.parse(Buffer.from(listed(UNLINK)).toString()),
    }),
  );
  assert.throws(() => decodeBatch(bytes), {
    code: 'storage',
    message:
      /^Cannot execute commands of version 18: this release knows versions up to 17\. Start the newer release/,
  });
});

test('U+FFFD in a name has its own version: where an earlier server refused it, it is refused here', () => {
  const place = main('/a\ufffd');
  const make: Command = { kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 };
  const target: Command = { kind: 'symlink', place: main('/l'), target: '\ufffd', uid: 0, gid: 0 };
  assert.deepEqual([make, target, UNLINK].map(commandVersion), [5, 5, 1]);
  const xattr = { kind: 'set-xattr', inode: 1, name: 'user.\ufffd', value: '', mode: 'set' } as const;
  assert.equal(commandVersion(xattr), 1, 'Earlier servers accepted it in names of attributes');

  const catalog = new Catalog();
  catalog.db.exec('BEGIN');
  const before = executeBatch(catalog.db, 900, decodeBatch(listed(make, target)));
  catalog.db.exec('COMMIT');
  assert.deepEqual(
    before.map((outcome) => (outcome.kind === 'done' ? 'done' : outcome.message)),
    ['A name is not valid UTF-8', 'The target of a symbolic link is not valid UTF-8'],
  );
  assert.deepEqual(catalog.names('/'), []);
  catalog.db.exec('BEGIN');
  const { version, commands } = batchOf(make, target);
  const later = { version, commands: commands.map((one) => ({ ...one, session: 78 })) };
  const now = executeBatch(catalog.db, 901, decodeBatch(encodeBatch(later)));
  catalog.db.exec('COMMIT');
  assert.deepEqual(
    now.map(({ kind }) => kind),
    ['done', 'done'],
  );
  assert.deepEqual(catalog.names('/'), ['a\ufffd', 'l']);
});

test('an earlier server cannot have executed commands that it did not know', () => {
  const later = listed({ kind: 'trash-empty', volume: 'main', countMax: 1 });
  assert.throws(() => decodeBatch(later), { name: 'MalformedError' });
  const unknown = { version: COMMANDS_VERSION, rows: [[1, 1, null, '5', [], { kind: 'from-tomorrow' }]] };
  assert.throws(() => decodeBatch(Buffer.from(JSON.stringify(unknown))), { name: 'MalformedError' });
  for (const text of ['{}', '{"version":"2","rows":[]}', '{"version":2}', 'null'])
    assert.throws(() => decodeBatch(Buffer.from(text)), { name: 'MalformedError' }, text);
});

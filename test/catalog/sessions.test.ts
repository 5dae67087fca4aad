import assert from 'node:assert/strict';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import { ServiceError } from '../../base/errors.ts';
import { decodeBatch, encodeBatch, executeBatch, executeRequests } from '../../catalog/batch.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import { type Outcome, SESSIONS_MAX } from '../../catalog/sessions.ts';
import type { Command, CommandRequest } from '../../wire/catalog-api.ts';
import { SERVERS } from './fixture.ts';

/** A primary's database and a backup's, fed by the primary's batches. */
class Pair {
  readonly primary = new Database(':memory:');
  readonly backup = new Database(':memory:');
  seq = 0;

  constructor() {
    ensureSchema(this.primary);
    ensureSchema(this.backup);
    this.batch([request(1, 1, { kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 })]);
  }

  batch(requests: readonly CommandRequest[]): readonly Outcome[] {
    this.seq += 1;
    this.primary.exec('BEGIN');
    const nowNs = 1_700_000_000_000_000_000n + BigInt(this.seq);
    const placement = (count: number) => SERVERS.slice(this.seq % 3, (this.seq % 3) + count);
    const { batch, outcomes } = executeRequests(this.primary, this.seq, requests, { nowNs, placement });
    this.primary.exec('COMMIT');
    const body = encodeBatch(batch);
    assert.deepEqual(decodeBatch(body), batch, 'A batch survives its encoding');
    this.backup.exec('BEGIN');
    executeBatch(this.backup, this.seq, decodeBatch(body));
    this.backup.exec('COMMIT');
    return outcomes;
  }

  equal(): void {
    assert.deepEqual([...dumpCatalog(this.backup)], [...dumpCatalog(this.primary)]);
  }
}

function request(session: number, number: number, command: Command, since?: number): CommandRequest {
  return since === undefined ? { session, number, command } : { session, number, command, since };
}

function makeDirectory(name: string): Command {
  return { kind: 'make-directory', place: { volume: 'main', path: name }, mode: 0o755, uid: 0, gid: 0 };
}

const code = (outcome: Outcome | undefined): string | undefined =>
  outcome?.kind === 'refused' ? outcome.code : outcome?.kind;

test('a retry is answered with the outcome of the first, done or refused', () => {
  const pair = new Pair();
  const make = request(7, 1, makeDirectory('a'));
  const [first, failed] = pair.batch([make, request(7, 2, makeDirectory('a'))]);
  assert.equal(code(first), 'done');
  assert.equal(code(failed), 'exists');
  pair.batch([request(8, 1, { kind: 'remove-directory', place: { volume: 'main', path: 'a' } })]);
  assert.deepEqual(pair.batch([make]), [first], 'Not made again');
  // The name is free by now, but this request has been refused.
  assert.deepEqual(pair.batch([request(7, 2, makeDirectory('a'))]), [failed]);
  assert.deepEqual(
    pair.batch([request(7, 3, makeDirectory('b')), request(7, 3, makeDirectory('b'))]).map(code),
    ['done', 'done'],
    'Twice in one batch is once, too',
  );
  pair.equal();
});

test('the backup has the session table of the primary', () => {
  const pair = new Pair();
  const outcomes = pair.batch([request(7, 1, makeDirectory('a')), request(7, 2, makeDirectory('a'))]);
  // The backup is primary now: it answers the retries.
  pair.backup.exec('BEGIN');
  const again = executeRequests(
    pair.backup,
    9,
    [request(7, 1, makeDirectory('a')), request(7, 2, makeDirectory('a'))],
    { nowNs: 5n, placement: () => [] },
  );
  pair.backup.exec('COMMIT');
  assert.deepEqual(again.outcomes, outcomes);
  assert.deepEqual(again.batch, []);
  pair.equal();
});

test('requests may come in any order within the window, and are refused behind it', () => {
  const pair = new Pair();
  assert.equal(
    code(pair.batch([request(7, 130, makeDirectory('x'))])[0]),
    'session-expired',
    'Nobody begins there',
  );
  assert.equal(code(pair.batch([request(7, 100, makeDirectory('c'))])[0]), 'done');
  assert.equal(code(pair.batch([request(7, 3, makeDirectory('d'))])[0]), 'done');
  assert.equal(code(pair.batch([request(7, 131, makeDirectory('e'))])[0]), 'done');
  assert.equal(code(pair.batch([request(7, 3, makeDirectory('f'))])[0]), 'session-expired');
  assert.equal(code(pair.batch([request(7, 4, makeDirectory('f'))])[0]), 'done');
  assert.equal(code(pair.batch([request(7, 100, makeDirectory('c'))])[0]), 'done', 'Answered, not executed');
  const kept = pair.primary.prepare('SELECT COUNT(*) FROM requests WHERE session = 7').pluck().get();
  assert.equal(kept, 3);
  pair.equal();
});

test('a refusal before execution is not replicated and may be tried again', () => {
  const pair = new Pair();
  const create: Command = {
    kind: 'create-file',
    place: { volume: 'main', path: 'f' },
    mode: 0o644,
    uid: 0,
    gid: 0,
    exclusive: true,
  };
  pair.primary.exec('BEGIN');
  const { batch, outcomes } = executeRequests(pair.primary, 2, [request(7, 1, create)], {
    nowNs: 1n,
    placement: () => {
      throw new ServiceError('busy', 'Too few servers have room');
    },
  });
  pair.primary.exec('COMMIT');
  assert.deepEqual([batch.length, code(outcomes[0])], [0, 'busy']);
  assert.equal(code(pair.batch([request(7, 1, create)])[0]), 'done');
  pair.equal();
});

test('the sessions used last the longest ago are forgotten first', () => {
  const pair = new Pair();
  const [first] = pair.batch([request(10, 1, makeDirectory('first'), 0)]);
  assert.equal(code(first), 'done');
  const firstSeq = pair.seq;
  for (let session = 1000; session < 1000 + SESSIONS_MAX; session += 1000) {
    const remove: Command = { kind: 'keep-orphan', inode: 999 };
    pair.batch(Array.from({ length: 1000 }, (_, index) => request(session + index, 1, remove)));
  }
  const count = pair.primary.prepare('SELECT COUNT(*) FROM sessions').pluck().get() as number;
  assert(count <= SESSIONS_MAX, `${count} sessions`);
  assert.equal(pair.primary.prepare('SELECT sessions FROM counters').pluck().get(), count);
  const orphans = 'SELECT COUNT(*) FROM requests WHERE session NOT IN (SELECT id FROM sessions)';
  assert.equal(pair.primary.prepare(orphans).pluck().get(), 0);
  // The first session said when it began, so that its late retry is known to be one.
  assert.equal(
    code(pair.batch([request(10, 1, makeDirectory('first'), firstSeq - 1)])[0]),
    'session-expired',
  );
  assert.equal(code(pair.batch([request(11, 1, makeDirectory('second'), pair.seq)])[0]), 'done');
  pair.equal();
});

test('bytes that are no batch are refused', () => {
  const bad = [
    'x',
    '{}',
    '[1]',
    '[[1,2,3]]',
    '[[1,1,null,5,[],{"kind":"unlink"}]]',
    '[[1,1,null,"5",[],null]]',
  ];
  for (const text of bad)
    assert.throws(() => decodeBatch(Buffer.from(text)), { name: 'MalformedError' }, text);
});

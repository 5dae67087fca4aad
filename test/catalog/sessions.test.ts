import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { decodeBatch, executeRequests } from '../../catalog/batch.ts';
import {
  type Outcome,
  SESSIONS_MAX,
  sessionRefusal,
  TIMED_SESSION_MS,
  TIMED_SESSIONS_MAX,
} from '../../catalog/sessions.ts';
import { Tables } from '../../catalog/tables.ts';
import { SESSIONS_VERSION } from '../../catalog/versions.ts';
import type { Command, CommandRequest } from '../../wire/catalog-api.ts';
import { makeDirectory, Pair } from './pair.ts';

function request(session: number, number: number, command: Command, since?: number): CommandRequest {
  return since === undefined ? { session, number, command } : { session, number, command, since };
}

const code = (outcome: Outcome | undefined): string | undefined =>
  outcome?.kind === 'refused' ? outcome.code : outcome?.kind;

test('a retry gets the outcome of the first attempt, executed or refused', () => {
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
    'Twice in one batch is also executed once',
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
  assert.deepEqual(again.batch.commands, []);
  pair.equal();
});

test('requests may arrive in any order within the window, and are refused behind it', () => {
  const pair = new Pair();
  assert.equal(
    code(pair.batch([request(7, 130, makeDirectory('x'))])[0]),
    'session-expired',
    'No session begins there',
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
      throw new ServiceError('busy', 'Too few servers have free space');
    },
  });
  pair.primary.exec('COMMIT');
  assert.deepEqual([batch.commands.length, code(outcomes[0])], [0, 'busy']);
  assert.equal(code(pair.batch([request(7, 1, create)])[0]), 'done');
  pair.equal();
});

test('the least recently used sessions are forgotten first', () => {
  const pair = new Pair();
  const [first] = pair.batch([request(10, 1, makeDirectory('first'), 0)]);
  assert.equal(code(first), 'done');
  const firstSeq = pair.seq;
  for (let session = 1000; session < 1000 + SESSIONS_MAX; session += 1000) {
    const keep: Command = { kind: 'keep-orphan', inode: 999 };
    pair.batch(Array.from({ length: 1000 }, (_, index) => request(session + index, 1, keep, pair.seq - 1)));
  }
  const count = pair.primary.prepare('SELECT COUNT(*) FROM sessions').pluck().get() as number;
  assert(count <= SESSIONS_MAX, `${count} sessions`);
  assert.equal(pair.primary.prepare('SELECT sessions FROM counters').pluck().get(), count);
  const known = '(SELECT id FROM sessions UNION SELECT id FROM timed_sessions)';
  const orphans = `SELECT COUNT(*) FROM requests WHERE session NOT IN ${known}`;
  assert.equal(pair.primary.prepare(orphans).pluck().get(), 0);
  // The first session said when it began, so that its late retry is known as a retry.
  assert.equal(
    code(pair.batch([request(10, 1, makeDirectory('first'), firstSeq - 1)])[0]),
    'session-expired',
  );
  assert.equal(code(pair.batch([request(11, 1, makeDirectory('second'), pair.seq)])[0]), 'done');
  pair.equal();
});

/**
 * A's `unlink x` is executed, its answer is lost, and B creates x again.
 * @returns A's request, and whether x exists
 */
function lostUnlink(pair: Pair, since?: number): { readonly again: CommandRequest; isThere(): boolean } {
  const x = { volume: 'main', path: 'x' };
  const make: Command = { kind: 'create-file', place: x, mode: 0o644, uid: 0, gid: 0, exclusive: true };
  const again = request(20, 1, { kind: 'unlink', place: x }, since);
  pair.batch([request(21, 1, make)]);
  assert.deepEqual(pair.batch([again]).map(code), ['done']);
  assert.deepEqual(pair.batch([request(21, 2, make)]).map(code), ['done']);
  const names = "SELECT COUNT(*) FROM entries WHERE name = 'x'";
  return { again, isThere: () => pair.primary.prepare(names).pluck().get() === 1 };
}

/** Fills the table of sessions except for three rows. They were used later than all before them. */
function fill(pair: Pair): void {
  pair.batch([request(22, 1, makeDirectory('y'), pair.seq)]);
  const rows = `WITH RECURSIVE ids (id) AS (SELECT 100000 UNION ALL SELECT id + 1 FROM ids WHERE id < ?)
    INSERT INTO sessions SELECT id, ?, 1 FROM ids`;
  for (const db of [pair.primary, pair.backup]) {
    const left = SESSIONS_MAX - 3 - (db.prepare('SELECT sessions FROM counters').pluck().get() as number);
    db.prepare(rows).run(100_000 + left - 1, pair.seq);
    db.prepare('UPDATE counters SET sessions = sessions + ?').run(left);
  }
}

/** Others, each with its own session. */
function others(pair: Pair, since?: number): void {
  const keep: Command = { kind: 'keep-orphan', inode: 999 };
  pair.batch(Array.from({ length: 10 }, (_, index) => request(1000 + index, 1, keep, since)));
}

test('a command is not repeated after its session was forgotten', () => {
  const pair = new Pair();
  const { again, isThere } = lostUnlink(pair, 1);
  fill(pair);
  others(pair, pair.seq);
  assert.deepEqual(pair.batch([again]).map(code), ['session-expired']);
  assert.ok(isThere());
  pair.equal();
});

test('requests with an Idempotency-Key displace neither sessions nor each other', () => {
  for (const since of [1, undefined]) {
    const pair = new Pair();
    const { again, isThere } = lostUnlink(pair, since);
    fill(pair);
    others(pair);
    assert.deepEqual(pair.batch([again]).map(code), ['done'], 'Answered, not executed');
    assert.ok(isThere());
    pair.equal();
  }
});

test('a session that does not say when it began is remembered for a day after its last use', () => {
  const pair = new Pair();
  pair.batch([request(30, 1, makeDirectory('a')), request(31, 1, makeDirectory('b'))]);
  pair.nowNs += (BigInt(TIMED_SESSION_MS) - 1000n) * 1_000_000n;
  pair.batch([request(30, 2, makeDirectory('c'))]);
  pair.nowNs += 2_000_000_000n;
  assert.deepEqual(pair.batch([request(32, 1, makeDirectory('d'))]).map(code), ['done']);
  const kept = pair.primary.prepare('SELECT id FROM timed_sessions ORDER BY id').pluck().all();
  assert.deepEqual(kept, [30, 32], 'A new session has replaced 1 and 31');
  assert.equal(pair.primary.prepare('SELECT timed_sessions FROM counters').pluck().get(), 2);
  const orphans = 'SELECT COUNT(*) FROM requests WHERE session IN (1, 31)';
  assert.equal(pair.primary.prepare(orphans).pluck().get(), 0);
  assert.deepEqual(pair.batch([request(30, 1, makeDirectory('a'))]).map(code), ['done'], 'Answered');
  pair.equal();
});

test('if the table of sessions is full, a new session is refused', () => {
  const pair = new Pair();
  const tables = Tables.of(pair.primary);
  const id = (session: number) => ({ session, number: 1, since: null });
  assert.equal(sessionRefusal(tables, id(40), pair.nowNs), null);
  pair.primary.prepare('UPDATE counters SET timed_sessions = ?').run(TIMED_SESSIONS_MAX);
  const refused = pair.batch([request(40, 1, makeDirectory('a'))]);
  assert.deepEqual(refused.map(code), ['busy']);
  assert.equal(sessionRefusal(tables, id(1), pair.nowNs), null, 'It has its row');
  assert.equal(sessionRefusal(tables, { ...id(40), since: pair.seq }, pair.nowNs), null, 'It needs none');
  const later = pair.nowNs + BigInt(TIMED_SESSION_MS + 1) * 1_000_000n;
  assert.equal(sessionRefusal(tables, id(40), later), null, 'The oldest session has expired');
});

test('a session that began after its batch proves nothing', () => {
  const pair = new Pair();
  const next = pair.seq + 1;
  const made = [request(50, 1, makeDirectory('a'), next), request(50, 1, makeDirectory('a'), next - 1)];
  assert.deepEqual(pair.batch(made).map(code), ['session-expired', 'done']);
  pair.equal();
});

test('sessions are of one kind while a member has an earlier release, and of two from then on', () => {
  const pair = new Pair(1);
  const kinds = () =>
    ['sessions', 'timed_sessions'].map((name) =>
      pair.primary.prepare(`SELECT COUNT(*) FROM ${name}`).pluck().get(),
    );
  pair.batch([request(60, 1, makeDirectory('a'))]);
  assert.deepEqual(kinds(), [2, 0]);
  pair.equal();
  pair.membersVersion = SESSIONS_VERSION;
  pair.batch([request(61, 1, makeDirectory('b'))]);
  pair.membersVersion = 1;
  // 60 has its row among the earlier ones.
  pair.batch([request(60, 2, makeDirectory('c')), request(62, 1, makeDirectory('d'))]);
  assert.deepEqual(kinds(), [2, 2]);
  assert.deepEqual(pair.versions, [1, 1, 5, 5]);
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

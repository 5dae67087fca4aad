/**
 * Goal: a request is executed once, however often and wherever it is repeated, and a request that is too old to be
 * distinguished from a new one is refused.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Prng } from '../../base/prng.ts';
import { SESSION_WINDOW, SESSIONS_MAX, SessionTable } from '../../replica/sessions.ts';
import { ByteWriter, MalformedError } from '../../wire/bytes.ts';

const request = (session: number, number: number, since = 0) => ({ session, number, since });
const result = (text: string) => Buffer.from(text);

test('a request is known after it was sequenced, and only then', () => {
  const before = SessionTable.EMPTY;
  const after = before.with(request(7, 3), 1, result('three'));
  assert.deepEqual(before.find(request(7, 3)), { kind: 'fresh' });
  const found = after.find(request(7, 3));
  assert.ok(found.kind === 'known');
  assert.equal(found.seq, 1);
  assert.equal(Buffer.from(found.result).toString(), 'three');
  // Smaller numbers of the window may still arrive: a session has many requests under way.
  assert.deepEqual(after.find(request(7, 1)), { kind: 'fresh' });
  assert.deepEqual(after.find(request(8, 3)), { kind: 'fresh' });
});

test('numbers behind the window are refused', () => {
  const table = SessionTable.EMPTY.with(request(7, 1), 1, result('')).with(
    request(7, SESSION_WINDOW + 1),
    2,
    result(''),
  );
  assert.deepEqual(table.find(request(7, 1)), { kind: 'expired' });
  assert.deepEqual(table.find(request(7, 2)), { kind: 'fresh' });
});

test('an acknowledged answer is dropped, and its request refused if it arrives late', () => {
  let table = SessionTable.EMPTY;
  for (let number = 1; number <= 3; number++) table = table.with(request(7, number), number, result(''));
  const before = table.encode().length;
  table = table.with({ ...request(7, 6), answered: 2 }, 4, result(''));
  assert.ok(table.encode().length <= before, 'Two results were dropped, and one was added');
  const kinds = () => [1, 2, 3, 4, 5, 6].map((number) => table.find(request(7, number)).kind);
  assert.deepEqual(kinds(), ['expired', 'expired', 'known', 'fresh', 'fresh', 'known']);
  // An acknowledgement that was sent earlier covers less, and takes nothing back.
  table = table.with({ ...request(7, 5), answered: 1 }, 5, result(''));
  assert.deepEqual(kinds(), ['expired', 'expired', 'known', 'fresh', 'known', 'known']);
  table = SessionTable.decode(table.encode());
  assert.deepEqual(kinds(), ['expired', 'expired', 'known', 'fresh', 'known', 'known']);
  // Another session is not affected.
  assert.equal(table.find(request(8, 1)).kind, 'fresh');
});

test('a client that waits for each answer uses the same memory after a thousand requests as after two', () => {
  let table = SessionTable.EMPTY;
  const sizes = [];
  for (let number = 1; number <= 1_000; number++) {
    table = table.with({ ...request(7, number), answered: number - 1 }, number, result('result'));
    sizes.push(table.encode().length);
  }
  assert.equal(Math.max(...sizes), Math.min(...sizes));
});

test('a table without acknowledged answers, of an earlier release, is read as if none were acknowledged', () => {
  const result = Buffer.from('x');
  const writer = new ByteWriter(64).uint8(1).uint53(0).uint8(1);
  writer
    .uint53(7)
    .uint53(SESSION_WINDOW + 1)
    .uint8(1)
    .uint8(0)
    .uint53(9)
    .bytes(result);
  const table = SessionTable.decode(writer.finish());
  assert.equal(table.find(request(7, SESSION_WINDOW + 1)).kind, 'known');
  assert.equal(table.find(request(7, 2)).kind, 'fresh');
  assert.equal(table.find(request(7, 1)).kind, 'expired');
});

test('of too many sessions the least recently used is forgotten, and its requests refused', () => {
  let table = SessionTable.EMPTY;
  for (let session = 1; session <= SESSIONS_MAX; session++) {
    table = table.with(request(session, 1), session, result(''));
  }
  // Session 1 is used again, so session 2 is the oldest now.
  table = table.with(request(1, 2), 100, result(''));
  table = table.with(request(999, 1, 100), 101, result(''));
  assert.equal(table.find(request(1, 1)).kind, 'known');
  assert.deepEqual(table.find(request(2, 1, 1)), { kind: 'expired' });
  // A session that began after everything that was forgotten must be new.
  assert.deepEqual(table.find(request(1000, 1, 2)), { kind: 'fresh' });
  assert.deepEqual(table.find(request(1000, 1, 1)), { kind: 'expired' });
});

test('the result is kept, not the frame of which it was a view', () => {
  const frame = Buffer.alloc(1024 * 1024, 'x');
  const table = SessionTable.EMPTY.with(request(1, 1), 1, frame.subarray(10, 12));
  frame.fill('y');
  const found = table.find(request(1, 1));
  assert.ok(found.kind === 'known' && found.result.buffer.byteLength < 1024);
  assert.equal(Buffer.from(found.result).toString(), 'xx');
});

test('equal sequences give equal bytes, also after decoding in between', () => {
  for (let seed = 1; seed <= 30; seed++) {
    const prng = new Prng(seed);
    let straight = SessionTable.EMPTY;
    let decoded = SessionTable.EMPTY;
    const numbers = new Map<number, number>();
    for (let seq = 1; seq <= 400; seq++) {
      const session = prng.integer(1, 80);
      const number = (numbers.get(session) ?? 0) + prng.integer(1, 40);
      numbers.set(session, number);
      const since = prng.integer(0, seq);
      const answered = Math.max(0, number - prng.integer(1, 60));
      straight = straight.with({ session, number, since, answered }, seq, result(`r${seq}`));
      decoded = decoded.with({ session, number, since, answered }, seq, result(`r${seq}`));
      if (prng.chance(0.1)) decoded = SessionTable.decode(decoded.encode());
    }
    assert.deepEqual(straight.encode(), decoded.encode());
  }
});

test('bytes that are no table are refused', () => {
  const good = SessionTable.EMPTY.with(request(1, 1), 1, result('x')).encode();
  assert.doesNotThrow(() => SessionTable.decode(good));
  assert.doesNotThrow(() => SessionTable.decode(new Uint8Array()));
  for (let length = 1; length < good.length; length++) {
    assert.throws(() => SessionTable.decode(good.subarray(0, length)), MalformedError);
  }
});

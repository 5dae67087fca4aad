/**
 * Goal: the judges can tell good histories from bad ones.
 * Method: small histories made by hand, each with the reason it is good or bad; then random
 * histories of a real register, which must pass, and the same with one read made stale.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Prng } from '../../base/prng.ts';
import {
  type FileEntry,
  type RegisterOperation,
  registerViolation,
  sequenceViolation,
} from './linearizable.ts';

const write = (value: string, callMs: number, returnMs: number): RegisterOperation => ({
  kind: 'write',
  value,
  callMs,
  returnMs,
});
const read = (value: string, callMs: number, returnMs: number): RegisterOperation => ({
  kind: 'read',
  value,
  callMs,
  returnMs,
});

const GOOD: Record<string, RegisterOperation[]> = {
  'nothing happened': [],
  'the initial value is read': [read('0', 1, 2)],
  'one after the other': [write('x', 1, 2), read('x', 3, 4), write('y', 5, 6), read('y', 7, 8)],
  'a read beside a write sees the old value': [write('x', 1, 5), read('0', 2, 3)],
  'a read beside a write sees the new value': [write('x', 1, 5), read('x', 2, 3)],
  'a pending write is read': [write('x', 1, Infinity), read('x', 5, 6), read('x', 8, 9)],
  'a pending write is never seen': [write('x', 1, Infinity), read('0', 5, 6)],
  'a pending write takes effect late': [write('x', 1, Infinity), read('0', 5, 6), read('x', 8, 9)],
  'concurrent writes in either order': [write('x', 1, 5), write('y', 2, 4), read('x', 6, 7)],
  'equal times are concurrent': [write('x', 1, 2), read('0', 2, 3)],
  'a pending read says nothing': [write('x', 1, 2), read('0', 3, Infinity)],
};

const BAD: Record<string, RegisterOperation[]> = {
  'a stale read': [write('x', 1, 2), read('0', 3, 4)],
  'a value out of nowhere': [read('x', 1, 2)],
  'a read from the future': [read('x', 1, 2), write('x', 3, 4)],
  'the new value, then the old one': [write('x', 1, 9), read('x', 2, 3), read('0', 4, 5)],
  'an overwritten value comes back': [write('x', 1, 2), write('y', 3, 4), read('x', 5, 6)],
  'two readers see concurrent writes in different orders': [
    write('x', 1, 3),
    write('y', 1, 3),
    read('x', 4, 5),
    read('y', 6, 7),
    read('x', 8, 9),
  ],
  'a lost write': [write('x', 1, 2), write('y', 3, 4), read('y', 5, 6), write('z', 7, 8), read('y', 9, 10)],
};

for (const [name, history] of Object.entries(GOOD)) {
  test(`register, good: ${name}`, () => assert.equal(registerViolation(history, '0'), null));
}
for (const [name, history] of Object.entries(BAD)) {
  test(`register, bad: ${name}`, () => assert.notEqual(registerViolation(history, '0'), null));
}

test('register: random real histories pass, and fail with one stale read', () => {
  for (let seed = 1; seed <= 200; seed++) {
    const prng = new Prng(seed);
    const history: RegisterOperation[] = [];
    // Every operation takes effect at its own moment; its call and return lie around it.
    let value = '0';
    const values: { readonly value: string; readonly atMs: number }[] = [];
    for (let index = 0; index < 60; index++) {
      const atMs = index * 10;
      const callMs = atMs - prng.next() * 25;
      const returnMs = atMs + prng.next() * 25;
      if (prng.chance(0.4)) {
        value = `v${index}`;
        values.push({ value, atMs });
        history.push(write(value, callMs, index > 20 && prng.chance(0.1) ? Infinity : returnMs));
      } else {
        history.push(read(value, callMs, returnMs));
      }
    }
    assert.equal(registerViolation(history, '0'), null, `SEED=${seed}`);
    // Once a value was read, one that was overwritten before may not be.
    const old = values.at(0);
    if (old === undefined || old.atMs > 200 || values.length < 8) continue;
    history.push(read(value, 2000, 2001), read(old.value, 2002, 2003));
    assert.notEqual(registerViolation(history, '0'), null, `SEED=${seed}`);
  }
});

const change = (request: string, callMs: number, returnMs: number, seq: number | null): FileEntry => ({
  kind: 'change',
  request,
  callMs,
  returnMs,
  seq,
});
const look = (content: string, callMs: number, returnMs: number): FileEntry => ({
  kind: 'read',
  content,
  callMs,
  returnMs,
});
const SEQUENCE = ['p', 'q', 'r'];
const STATES = ['', 'p', 'pq', 'pqr'];

const GOOD_FILES: Record<string, FileEntry[]> = {
  'in order': [change('p', 1, 2, 1), look('p', 3, 4), change('q', 5, 6, 2), look('pq', 7, 8)],
  'a pending change is seen': [change('p', 1, Infinity, null), look('p', 3, 4)],
  'a pending change is not seen yet': [change('p', 1, Infinity, null), look('', 3, 4), look('p', 5, 6)],
  'concurrent changes': [change('q', 1, 4, 2), change('p', 2, 5, 1), look('pq', 6, 7)],
};
const BAD_FILES: Record<string, FileEntry[]> = {
  'a stale read': [change('p', 1, 2, 1), change('q', 3, 4, 2), look('p', 5, 6)],
  'an older state after a younger one': [
    change('p', 1, 2, 1),
    change('q', 3, 9, 2),
    look('pq', 4, 5),
    look('p', 6, 7),
  ],
  'a state that never was': [change('p', 1, 2, 1), look('q', 3, 4)],
  'against real time': [change('q', 1, 2, 2), change('p', 3, 4, 1)],
  'acknowledged elsewhere': [change('p', 1, 2, 2)],
  'a read from the future': [look('pq', 1, 2), change('p', 0, 9, 1), change('q', 5, 9, 2)],
};
for (const [name, history] of Object.entries(GOOD_FILES)) {
  test(`file, good: ${name}`, () => assert.equal(sequenceViolation(SEQUENCE, STATES, history), null));
}
for (const [name, history] of Object.entries(BAD_FILES)) {
  test(`file, bad: ${name}`, () => assert.notEqual(sequenceViolation(SEQUENCE, STATES, history), null));
}
test('file, bad: one request at two positions', () => {
  assert.notEqual(sequenceViolation(['p', 'p'], ['', 'p', 'pp'], []), null);
});

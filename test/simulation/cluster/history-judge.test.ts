/** Goal: the judge accepts what Linux itself may do between two answers of a mount, and nothing else. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Operation } from '../../history/operation.ts';
import { HistoryJudge } from './judges/history.ts';
import type { Run } from './run.ts';

const DIRECTORY = 'directory/main/d';

/** @returns whether the judge accepts the history of one directory */
function passes(cache: string, ...operations: readonly object[]): boolean {
  const violations: string[] = [];
  const history = operations.map(
    (operation) => ({ key: DIRECTORY, status: 'ok', ...operation }) as Operation,
  );
  const run = { cluster: { shape: { cache } }, history, violation: (text: string) => violations.push(text) };
  new HistoryJudge().judge(run as unknown as Run);
  return violations.length === 0;
}

function rename(client: string, call: number, end: number): object {
  const input = { from: 'a', to: 'b', noReplace: false };
  return { client, op: 'rename', input, output: true, call, return: end };
}

const CREATED = {
  ...{ client: 'c1/1', op: 'create', input: { name: 'a', value: 'u1' }, output: true },
  ...{ call: 1, return: 2 },
};

test('a rename during a rename by another client is accepted: the kernel finds one file by both names', () => {
  for (const cache of ['strict', 'leases', 'ttl'])
    assert.equal(passes(cache, CREATED, rename('m1/1', 10, 20), rename('c2/1', 18, 19)), true, cache);
});

test('a rename after a rename by another client is accepted only while old answers are allowed', () => {
  const later = [CREATED, rename('c2/1', 10, 20), rename('m1/1', 30, 40)];
  assert.deepEqual(
    ['strict', 'leases', 'ttl'].map((cache) => passes(cache, ...later)),
    [false, false, true],
  );
});

test('if two clients rename one file, one must fail', () => {
  assert.equal(passes('strict', CREATED, rename('c1/2', 10, 20), rename('c2/1', 18, 19)), false);
});

/** Goal: what Linux does between two answers of a mount is no fault of the mount, and nothing else is let pass with it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Operation } from '../../history/operation.ts';
import { HistoryJudge } from './judges/history.ts';
import type { Run } from './run.ts';

const DIRECTORY = 'directory/main/d';

/** @returns whether the history of one directory is let pass */
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

test('a mount renames what another client renames at the same time: the kernel finds one file by both names', () => {
  for (const cache of ['strict', 'leases', 'ttl'])
    assert.equal(passes(cache, CREATED, rename('m1/1', 10, 20), rename('c2/1', 18, 19)), true, cache);
});

test('it does so once the other one is over only as long as it may use old answers', () => {
  const later = [CREATED, rename('c2/1', 10, 20), rename('m1/1', 30, 40)];
  assert.deepEqual(
    ['strict', 'leases', 'ttl'].map((cache) => passes(cache, ...later)),
    [false, false, true],
  );
});

test('of two clients that rename one file one has no success', () => {
  assert.equal(passes('strict', CREATED, rename('c1/2', 10, 20), rename('c2/1', 18, 19)), false);
});

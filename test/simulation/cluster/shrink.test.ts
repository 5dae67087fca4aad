import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Operation } from '../../history/operation.ts';
import { shorterLists } from '../delta-debugging.ts';
import { derived } from './derived.ts';
import { FAULTS, faultPlan } from './faults.ts';
import { ruleOf } from './shrink.ts';
import type { SimulatedCluster } from './simulated-cluster.ts';
import { operationText, withoutZeros } from './story.ts';

/** @returns the shortest list that `fails` */
function shortest(items: readonly number[], fails: (items: readonly number[]) => boolean): readonly number[] {
  const lists = shorterLists(items, 'last-first');
  let step = lists.next();
  while (step.done !== true) step = lists.next(fails(step.value));
  return step.value;
}

test('a list is reduced to the items that are needed', () => {
  const items = Array.from({ length: 23 }, (_, index) => index);
  const needed = [3, 11, 22];
  const fails = (list: readonly number[]) => needed.every((item) => list.includes(item));
  assert.deepEqual(shortest(items, fails), needed);
  assert.deepEqual(
    shortest(items, () => true),
    [],
  );
});

test('a longer time has the same faults, and more after them', () => {
  const shape = { seed: 5, servers: 3, clients: 1, mounts: 1, cache: 'strict', volumes: 1 } as const;
  const cluster = { shape, draw: (purpose: string) => derived(5, purpose) } as SimulatedCluster;
  const [short, long] = [10_000, 30_000].map((forMs) => faultPlan(cluster, forMs, FAULTS));
  assert.ok(short !== undefined && long !== undefined && long.length > short.length && short.length > 3);
  assert.deepEqual(long.slice(0, short.length), short);
});

test('the rule of a violation has no names and numbers of one case', () => {
  const [one, other] = [
    'file/vol1/f-0007 is not linearizable: {\n "key": "file/vol1/f-0007"}',
    'file/vol2/f-000z is not linearizable: {\n "key": "file/vol2/f-000z"}',
  ];
  assert.equal(ruleOf(one), ruleOf(other));
  assert.notEqual(ruleOf(one), ruleOf('s1 ended by itself: Error'));
});

test('an operation of a story is a sentence', () => {
  const operation: Operation = {
    client: 'm1.3/2',
    op: 'pwrite',
    key: 'file/vol1/f-0007',
    input: { off: 4, data: '00a1' },
    output: null,
    call: 1e9,
    return: null,
    status: 'unknown',
  };
  assert.equal(
    operationText(operation),
    'm1.3/2 writes "00a1" at 4 (file/vol1/f-0007), and does not learn the outcome',
  );
  assert.equal(
    operationText({ ...operation, status: 'ok', return: 1.5e9 } as Operation),
    'm1.3/2 writes "00a1" at 4 (file/vol1/f-0007), until 1.500 s: done',
  );
});

test('runs of zero bytes are counted', () => {
  assert.equal(withoutZeros(JSON.stringify(`a${'\0'.repeat(9)}b\0`)), '"a{9 zeros}b\\u0000"');
});

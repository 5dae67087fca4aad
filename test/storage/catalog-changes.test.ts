import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { NameChange } from '../../catalog/change-record.ts';
import { CatalogChanges } from '../../server/storage/catalog-changes.ts';
import { systemWorld } from '../../world/system-world.ts';

const change = (name: string): NameChange => ({ kind: 'created', parent: 1, name, inode: 2 });

test('changes after an operation are returned, and unknown ones are reported as unknown', () => {
  const changes = new CatalogChanges(systemWorld, 10);
  assert.deepEqual(changes.since(10), []);
  assert.equal(changes.since(9), null, 'Before this server had the catalog');
  assert.equal(changes.since(11), null, 'No server has that yet');
  changes.append(11, [change('a')]);
  changes.append(12, []);
  changes.append(13, [change('b'), change('c')]);
  assert.deepEqual(changes.since(10), [change('a'), change('b'), change('c')]);
  assert.deepEqual(changes.since(12), [change('b'), change('c')]);
  assert.deepEqual(changes.since(13), []);
  changes.reset(20);
  assert.equal(changes.since(13), null, 'Another state took its place');
  assert.deepEqual(changes.since(20), []);
});

test('the oldest are forgotten, and a query for them says so', () => {
  const changes = new CatalogChanges(systemWorld, 0);
  const many = Array.from({ length: 5_000 }, (_, index) => change(`${index}`));
  for (let seq = 1; seq <= 6; seq++) changes.append(seq, many);
  assert.equal(changes.since(0), null);
  assert.equal(changes.since(1), null);
  assert.equal(changes.since(2)?.length, 20_000);
});

test('a waiting query is woken by the next operation, or at its time limit', async () => {
  const changes = new CatalogChanges(systemWorld, 0);
  const woken = changes.whenChanged(60_000);
  changes.append(1, [change('a')]);
  await woken;
  await changes.whenChanged(1);
});

/**
 * Goal: new files have the class of their directory from the moment at which it is set, and settings are not fetched
 * for each file.
 * Method: the part alone, with a catalog that counts the queries.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ROOT_CATALOG } from '../../base/ids.ts';
import { StorageSettings } from '../../server/file/storage-settings.ts';
import type { DirectoryClass } from '../../wire/catalog-api.ts';

const VOLUME = { name: 'v', root: 1, replicas: 3 };

test('a class is known once it is set, and fetched once a second', async () => {
  const classes: DirectoryClass[] = [];
  let [nowMs, fetched] = [0, 0];
  const settings = new StorageSettings({
    clock: { nowMs: () => nowMs },
    catalogOf: () => ROOT_CATALOG,
    query: async () => {
      fetched++;
      return { classes: [...classes] } as never;
    },
  });
  const labelsOf = async (directory: number) => (await settings.ofClass(VOLUME, directory)).labels;
  const add = (directory: number, label: string) =>
    classes.push({ directory, volume: 'v', labels: [label] } as DirectoryClass);
  add(5, 'ssd');
  for (let files = 0; files < 10; files++) assert.deepEqual(await labelsOf(5), ['ssd']);
  assert.equal(fetched, 1);
  add(6, 'hdd');
  for (let files = 0; files < 10; files++) assert.deepEqual(await labelsOf(6), ['hdd']);
  assert.equal(fetched, 2, 'The classes were fetched before this one was set');
  for (let files = 0; files < 10; files++)
    for (const directory of [7, 8]) assert.equal(await labelsOf(directory), undefined);
  assert.equal(fetched, 4, 'Directories whose class was removed again');
  assert.equal(await labelsOf(0), undefined);
  assert.deepEqual(await labelsOf(5), ['ssd']);
  assert.equal(fetched, 4);
  nowMs = 1_000;
  add(7, 'new');
  assert.deepEqual(await labelsOf(7), ['new']);
  assert.equal(fetched, 5);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpenPaths } from '../../fuse/native/open-paths.ts';

const [ONE, TWO, THREE] = [1, 3, 5];

test('several files are open by a path until only one of them is open', () => {
  const paths = new OpenPaths();
  assert.equal(paths.latest('/f'), undefined);
  paths.opened('/f', ONE, 7);
  paths.opened('/f', TWO, 7);
  assert.deepEqual([paths.latest('/f'), paths.latestOfSeveral('/f')], [7, undefined]);
  paths.opened('/f', THREE, 8);
  paths.opened('/other', 9, 6);
  assert.deepEqual([paths.latest('/f'), paths.latestOfSeveral('/f')], [8, 8]);
  paths.closed(ONE);
  assert.equal(paths.latestOfSeveral('/f'), 8);
  paths.closed(TWO);
  assert.deepEqual([paths.latest('/f'), paths.latestOfSeveral('/f')], [8, undefined]);
  paths.closed(THREE);
  paths.closed(THREE);
  assert.equal(paths.latest('/f'), undefined);
});

test('open files move with their path, and with a directory in it', () => {
  const paths = new OpenPaths();
  paths.opened('/d/f', ONE, 7);
  paths.opened('/d2/f', TWO, 8);
  paths.moved('/d', '/e');
  assert.deepEqual(
    ['/d/f', '/e/f', '/d2/f'].map((path) => paths.latest(path)),
    [undefined, 7, 8],
  );
  paths.exchanged('/e/f', '/d2/f');
  assert.deepEqual(
    ['/e/f', '/d2/f'].map((path) => paths.latest(path)),
    [8, 7],
  );
  paths.moved('/e/f', '/d2/f');
  assert.equal(paths.latestOfSeveral('/d2/f'), 8);
  paths.closed(ONE);
  paths.closed(TWO);
  assert.equal(paths.latest('/d2/f'), undefined);
});

test('that the kernel found no file by a path is noted while a file is open by it', () => {
  const paths = new OpenPaths();
  paths.lookedUp('/f', false);
  assert.equal(paths.isAbsent('/f'), false, 'No file is open by it');
  paths.opened('/f', ONE, 7);
  paths.lookedUp('/f', true);
  assert.equal(paths.isAbsent('/f'), false);
  paths.lookedUp('/f', false);
  assert.equal(paths.isAbsent('/f'), true);
  paths.lookedUp('/f', true);
  assert.equal(paths.isAbsent('/f'), false);
  paths.lookedUp('/f', false);
  paths.moved('/f', '/g');
  assert.deepEqual([paths.isAbsent('/f'), paths.isAbsent('/g')], [false, false]);
  paths.lookedUp('/g', false);
  paths.opened('/g', TWO, 8);
  assert.equal(paths.isAbsent('/g'), false);
});

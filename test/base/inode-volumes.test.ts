import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CatalogNumber } from '../../base/ids.ts';
import { InodeVolumes } from '../../base/inode-volumes.ts';

test("an inode's volume is asked again after a move, and after a while", async () => {
  let [nowMs, catalog, volume, asked] = [0, 0 as CatalogNumber, 'main', 0];
  const volumes = new InodeVolumes(
    {
      nowMs: () => nowMs,
      catalogOf: () => catalog,
      ask: async () => {
        asked++;
        return volume;
      },
    },
    100,
  );
  for (let times = 0; times < 5; times++) assert.equal(await volumes.of(7), 'main');
  assert.equal(asked, 1);
  [catalog, volume] = [3 as CatalogNumber, 'split off'];
  for (let times = 0; times < 5; times++) assert.equal(await volumes.of(7), 'split off');
  assert.equal(asked, 2);
  [nowMs, volume] = [9_999, 'joined again'];
  assert.equal(await volumes.of(7), 'split off');
  nowMs = 10_000;
  assert.equal(await volumes.of(7), 'joined again');
});

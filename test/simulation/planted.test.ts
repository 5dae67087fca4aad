/**
 * Goal: the simulations notice the bugs they are there for.
 * Method: copy the cores and the simulations, change one line of the copy, load it, and demand that
 * the named scenario or one of the named seeds reports a violation. The unchanged code must pass
 * everything that any planted bug is caught by.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { CAMPAIGN_MODULES, type PlantedLayer } from './planted.ts';
import { PLANTED, PLANTED_LEASE } from './planted-all.ts';
import { campaignLoad, pairHunt, plantedHunt } from './planted-hunt.ts';
import { documentRead, rowText } from './planted-table.ts';

const copies = mkdtempSync(join(tmpdir(), 'leasehold-planted-'));
after(() => rmSync(copies, { recursive: true, force: true }));

for (const layer of Object.keys(CAMPAIGN_MODULES) as PlantedLayer[]) {
  const bugs = PLANTED.filter((bug) => bug.layer === layer);

  test(`${layer}: the code as it is passes what catches the planted bugs`, async () => {
    const campaign = await campaignLoad(layer);
    for (const [name, scenario] of Object.entries(campaign.scenarios)) {
      assert.equal(scenario(), null, name);
    }
    const seeds = Math.max(...bugs.map((bug) => bug.caughtBy.seeds ?? 0));
    for (let seed = 1 + (campaign.seedsPlayed ?? 0); seed <= seeds; seed++) {
      assert.equal(campaign.runSeed(seed), null, `SEED=${seed}`);
    }
  });

  for (const bug of bugs) {
    test(`${layer} ${bug.row} is caught: ${bug.what}`, async (context) => {
      const { directed, seeds } = bug.caughtBy;
      assert.ok(directed !== undefined || seeds !== undefined, 'Somebody must notice');
      const { said, seed } = await plantedHunt(copies, bug);
      assert.notEqual(said, null, `"${directed}" does not notice it`);
      assert.notEqual(seed, null, `None of ${seeds} seeds notices anything`);
      if (said !== undefined) context.diagnostic(`${directed}: ${said}`);
      if (seed !== undefined) context.diagnostic(`caught by seed ${seed} of ${seeds}`);
      if (bug.paired) assert.deepEqual(await pairHunt(copies, bug), [null, null], 'Each covers the other');
    });
  }
}

test('no two bugs of a layer have one name', () => {
  const names = PLANTED.map(({ layer, row }) => `${layer} ${row}`);
  assert.equal(new Set(names).size, names.length);
});

test('docs/lease-planted.md has a row for each bug of the lease layer', () => {
  const rows = documentRead()
    .split('\n')
    .filter((line) => /^\| \S/.test(line))
    .slice(1);
  const known = PLANTED_LEASE.map((bug) => rowText(bug));
  assert.deepEqual(
    rows.map((row) => row.split(' | ').slice(0, 3).join(' | ')),
    known,
    'npm run planted -- --write makes it anew',
  );
});

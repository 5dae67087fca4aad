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
import { PLANTED } from './planted-all.ts';
import { campaignLoad, pairHunt, plantedHunt } from './planted-hunt.ts';
import { PAGES, pageRead, rowText } from './planted-table.ts';

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
      const { directed, conversation, seeds, test: tested } = bug.caughtBy;
      const name = directed ?? tested?.name;
      assert.ok(name ?? conversation ?? seeds, 'Somebody must notice');
      const { said, told, seed } = await plantedHunt(copies, bug);
      assert.notEqual(told, null, `${conversation} does not notice it`);
      assert.notEqual(said, null, `"${name}" does not notice it`);
      assert.notEqual(seed, null, `None of ${seeds} seeds notices anything`);
      if (told !== undefined) context.diagnostic(`${conversation}: ${told}`);
      if (said !== undefined) context.diagnostic(`${name}: ${said}`);
      if (seed !== undefined) context.diagnostic(`caught by seed ${seed} of ${seeds}`);
      if (bug.paired) assert.deepEqual(await pairHunt(copies, bug), [null, null], 'Each covers the other');
    });
  }
}

test('no two bugs of a layer have one name', () => {
  const names = PLANTED.map(({ layer, row }) => `${layer} ${row}`);
  assert.equal(new Set(names).size, names.length);
});

for (const page of PAGES) {
  test(`docs/${page.layer}-planted.md has a row for each bug`, () => {
    const rows = pageRead(page)
      .split('\n')
      .filter((line) => /^\| \S/.test(line))
      .slice(1);
    assert.deepEqual(
      rows.map((row) => row.split(' | ').slice(0, 3).join(' | ')),
      page.bugs.map((bug) => rowText(bug)),
      `npm run planted -- ${page.layer} --write makes it anew`,
    );
  });
}

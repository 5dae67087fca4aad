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
import { fileURLToPath, pathToFileURL } from 'node:url';
import { plant } from './plant.ts';
import { CAMPAIGN_MODULES, type Campaign, PLANTED_LEASE, type PlantedLayer } from './planted.ts';
import { PLANTED_REPLICA } from './planted-replica.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PLANTED = [...PLANTED_LEASE, ...PLANTED_REPLICA];

const copies = mkdtempSync(join(tmpdir(), 'leasehold-planted-'));
after(() => rmSync(copies, { recursive: true, force: true }));

async function campaignLoad(root: string, layer: PlantedLayer): Promise<Campaign> {
  const file = pathToFileURL(join(root, 'test/simulation', CAMPAIGN_MODULES[layer]));
  const module = (await import(file.href)) as { campaign: Campaign };
  return module.campaign;
}

function firstCatch(campaign: Campaign, seeds: number): number | null {
  for (let seed = 1; seed <= seeds; seed++) if (campaign.runSeed(seed) !== null) return seed;
  return null;
}

for (const layer of ['lease', 'replica'] as const) {
  const bugs = PLANTED.filter((bug) => bug.layer === layer);
  if (bugs.length === 0) continue;

  test(`${layer}: the code as it is passes what catches the planted bugs`, async () => {
    const campaign = await campaignLoad(ROOT, layer);
    for (const [name, scenario] of Object.entries(campaign.scenarios)) {
      assert.equal(scenario(), null, name);
    }
    const seeds = Math.max(...bugs.map((bug) => bug.caughtBy.seeds ?? 0));
    for (let seed = 1; seed <= seeds; seed++) assert.equal(campaign.runSeed(seed), null, `SEED=${seed}`);
  });

  for (const bug of bugs) {
    test(`${layer} ${bug.row} is caught: ${bug.what}`, async (context) => {
      const { directed, seeds } = bug.caughtBy;
      assert.ok(directed !== undefined || seeds !== undefined, 'Somebody must notice');
      const campaign = await campaignLoad(plant(copies, bug), layer);
      if (directed !== undefined) {
        const scenario = campaign.scenarios[directed];
        assert.ok(scenario !== undefined, `There is a scenario "${directed}"`);
        const violation = scenario();
        assert.notEqual(violation, null, `"${directed}" notices nothing`);
        context.diagnostic(`${directed}: ${violation}`);
      }
      if (seeds !== undefined) {
        const seed = firstCatch(campaign, seeds);
        assert.notEqual(seed, null, `None of ${seeds} seeds notices anything`);
        context.diagnostic(`caught by seed ${seed} of ${seeds}`);
      }
    });
  }
}

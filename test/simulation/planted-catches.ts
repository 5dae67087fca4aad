/** What the tests of planted bugs have in common, by layer; see `planted.ts`. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Planted, PlantedLayer } from './planted.ts';
import { PLANTED } from './planted-all.ts';
import { campaignLoad, pairHunt, plantedHunt } from './planted-hunt.ts';

/** Bugs that tests notice, in processes of their own, at a time: such a test waits more than it computes. */
const AT_A_TIME = 2;

/** Demands that each bug of the layer is noticed, and that the code as it is passes what notices them. */
export function demandCatches(layer: PlantedLayer): void {
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

  const hasProcess = ({ caughtBy: { test: tested, schedule } }: Planted): boolean =>
    (tested ?? schedule) !== undefined;
  for (const bug of bugs) if (!hasProcess(bug)) demandCatch(layer, bug);
  const tested = bugs.filter(hasProcess);
  if (tested.length === 0) return;
  describe(`${layer}: bugs that tests notice`, { concurrency: AT_A_TIME }, () => {
    for (const bug of tested) demandCatch(layer, bug);
  });
}

function demandCatch(layer: PlantedLayer, bug: Planted): void {
  test(`${layer} ${bug.row} is caught: ${bug.rule}`, async (context) => {
    const { directed, conversation, seeds, test: tested, schedule } = bug.caughtBy;
    const name = directed ?? tested?.name ?? schedule;
    assert.ok(name ?? conversation ?? seeds, 'Somebody must notice');
    const { said, told, seed } = await plantedHunt(bug);
    assert.notEqual(told, null, `${conversation} does not notice it`);
    assert.notEqual(said, null, `"${name}" does not notice it`);
    assert.notEqual(seed, null, `None of ${seeds} seeds notices anything`);
    if (told !== undefined) context.diagnostic(`${conversation}: ${told}`);
    if (said !== undefined) context.diagnostic(`${name}: ${said}`);
    if (seed !== undefined) context.diagnostic(`caught by seed ${seed} of ${seeds}`);
    if (bug.paired) assert.deepEqual(await pairHunt(bug), [null, null], 'Each covers the other');
  });
}

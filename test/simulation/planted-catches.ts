/** What the tests of planted bugs have in common, by layer; see `planted.ts`. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Planted, PlantedLayer } from './planted.ts';
import { campaignLoad, pairHunt, plantedHunt } from './planted-hunt.ts';
import { PLANTED } from './planted-rows.ts';

/** Bugs that tests notice, in processes of their own, at a time: such a test waits more than it computes. */
const AT_A_TIME = 2;

/** Demands that each bug of the layer is noticed, and that the code as it is passes what notices them. */
export function demandCatches(layer: PlantedLayer): void {
  const bugs = PLANTED.filter((bug) => bug.layer === layer && !isForTable(bug));

  test(`${layer}: the code as it is passes what catches the planted bugs`, async () => {
    const campaign = await campaignLoad(layer);
    for (const [name, scenario] of Object.entries(campaign.scenarios)) {
      assert.equal(scenario(), null, name);
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
    const { directed, conversation, test: tested, schedule } = bug.caughtBy;
    const name = directed ?? tested?.name ?? schedule;
    assert.ok(name ?? conversation, 'A schedule, a conversation or a test must notice');
    const { said, told } = await plantedHunt(withoutSeeds(bug));
    assert.notEqual(told, null, `${conversation} does not notice it`);
    assert.notEqual(said, null, `"${name}" does not notice it`);
    if (told !== undefined) context.diagnostic(`${conversation}: ${told}`);
    if (said !== undefined) context.diagnostic(`${name}: ${said}`);
    if (bug.paired) assert.deepEqual(await pairHunt(bug), [null, null], 'Each covers the other');
  });
}

/** Whether `npm run planted` alone tries it. */
function isForTable({ caughtBy: { run, ...others } }: Planted): boolean {
  return others.test?.isLong === true || (run !== undefined && Object.keys(others).length === 0);
}

/** Seeds cost ten times what all else does: `npm run planted` plays them. */
function withoutSeeds(bug: Planted): Planted {
  const { seeds: _, run: __, ...caughtBy } = bug.caughtBy;
  return { ...bug, caughtBy };
}

/** Plants a bug and looks who notices; what the test of the planted bugs and their table share. */
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { plant } from './plant.ts';
import {
  CAMPAIGN_MODULES,
  type Campaign,
  type Mutation,
  type Planted,
  type PlantedLayer,
} from './planted.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Who noticed a bug; null where somebody should have and did not. */
export interface Catch {
  /** What the scenario said. Absent where none is named. */
  readonly said?: string | null;
  /** The first seed that noticed. Absent where none is to be tried. */
  readonly seed?: number | null;
}

/** @returns the campaign of a layer, of the code as it is or of the copy below `root` */
export async function campaignLoad(layer: PlantedLayer, root = ROOT): Promise<Campaign> {
  const file = pathToFileURL(join(root, 'test/simulation', CAMPAIGN_MODULES[layer]));
  const module = (await import(file.href)) as { campaign: Campaign };
  return module.campaign;
}

/**
 * Plants a bug in a copy and plays what is to catch it.
 * @param copies folder for all copies
 */
export async function plantedHunt(copies: string, bug: Planted): Promise<Catch> {
  const { directed, seeds, says } = bug.caughtBy;
  const campaign = await campaignLoad(bug.layer, plant(copies, bug));
  const said = directed === undefined ? undefined : scenarioPlay(campaign, directed);
  const isRight = said === undefined || says === undefined || (said?.includes(says) ?? false);
  return {
    ...(said !== undefined && { said: isRight ? said : null }),
    ...(seeds !== undefined && { seed: firstCatch(campaign, seeds) }),
  };
}

/** Of a pair: what the scenario says of the bug without the loss of its covers, and of that loss alone. */
export async function pairHunt(copies: string, bug: Planted): Promise<readonly (string | null)[]> {
  const { directed } = bug.caughtBy;
  if (directed === undefined) throw new Error('A pair is noticed by a scenario');
  const [first, ...others] = (bug.also ?? []) as [Mutation, ...Mutation[]];
  const alone = [
    { ...bug, row: `${bug.row}-alone`, also: [] },
    { ...bug, ...first, row: `${bug.row}-covers`, also: others },
  ];
  const said: (string | null)[] = [];
  for (const half of alone) {
    said.push(scenarioPlay(await campaignLoad(bug.layer, plant(copies, half)), directed));
  }
  return said;
}

function scenarioPlay(campaign: Campaign, name: string): string | null {
  const scenario = campaign.scenarios[name];
  if (scenario === undefined) throw new Error(`There is no scenario "${name}"`);
  return scenario();
}

function firstCatch(campaign: Campaign, seeds: number): number | null {
  for (let seed = 1; seed <= seeds; seed++) if (campaign.runSeed(seed) !== null) return seed;
  return null;
}

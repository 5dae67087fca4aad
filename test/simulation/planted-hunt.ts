/** Plants a bug and looks who notices; what the test of the planted bugs and their table share. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { plant } from './plant.ts';
import {
  CAMPAIGN_MODULES,
  type Campaign,
  type CaughtBy,
  type Mutation,
  type Planted,
  type PlantedLayer,
} from './planted.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Who noticed a bug; null where somebody should have and did not. */
export interface Catch {
  /** What the scenario, or the test, said. Absent where none is named. */
  readonly said?: string | null;
  /** How the conversation went. Absent where none is named. */
  readonly told?: string | null;
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
  const { directed, conversation, seeds, says, test } = bug.caughtBy;
  const root = plant(copies, bug);
  if (test !== undefined) return { said: testRun(root, test) };
  const campaign = await campaignLoad(bug.layer, root);
  const said = directed === undefined ? undefined : scenarioPlay(campaign, directed);
  const isRight = said === undefined || says === undefined || (said?.includes(says) ?? false);
  return {
    ...(said !== undefined && { said: isRight ? said : null }),
    ...(conversation !== undefined && { told: scenarioPlay(campaign, conversation) }),
    ...(seeds !== undefined && { seed: firstCatch(campaign, seeds) }),
  };
}

/** Of a pair: what the scenario says of the bug without the loss of its covers, and of that loss alone. */
export async function pairHunt(copies: string, bug: Planted): Promise<readonly (string | null)[]> {
  const { directed, conversation } = bug.caughtBy;
  const name = directed ?? conversation;
  if (name === undefined) throw new Error('A pair is noticed by a scenario or in a conversation');
  const [first, ...others] = (bug.also ?? []) as [Mutation, ...Mutation[]];
  const alone = [
    { ...bug, row: `${bug.row}-alone`, also: [] },
    { ...bug, ...first, row: `${bug.row}-covers`, also: others },
  ];
  const said: (string | null)[] = [];
  for (const half of alone) {
    said.push(scenarioPlay(await campaignLoad(bug.layer, plant(copies, half)), name));
  }
  return said;
}

/**
 * Runs tests of a copy, in a process of their own.
 * @returns what the first that fails says, or null where all pass
 * @throws Error where there is no such test
 */
export function testRun(root: string, { file, name }: NonNullable<CaughtBy['test']>): string | null {
  const pattern = `${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}`;
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const flags = ['--test', '--test-reporter=tap', `--test-name-pattern=${pattern}`, file];
  const { status, stdout } = spawnSync(process.execPath, flags, { cwd: root, env, encoding: 'utf8' });
  if (Number(/^# tests (\d+)/m.exec(stdout)?.[1] ?? 0) === 0) throw new Error(`No test "${name}" in ${file}`);
  if (status === 0) return null;
  return /^ *error: (?:\|-\n *)?(.*)$/m.exec(stdout)?.[1]?.replace(/^['"]|['"]$/g, '') ?? 'It fails';
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

/** Plants a bug and looks who notices; what the test of the planted bugs and their table share. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { mutationsOf, plant, plantedEnv } from './plant.ts';
import {
  CAMPAIGN_MODULES,
  type Campaign,
  type CaughtBy,
  type Mutation,
  type Planted,
  type PlantedLayer,
  SCHEDULES,
} from './planted.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** A test that takes longer hangs: the longest takes a tenth of it on a machine with nothing else to do. */
const TEST_MS_MAX = 400_000;
const HANGS = 'It hangs';
const CLUSTER_MAIN = 'test/simulation/cluster/main.ts';
const SCHEDULE_MAIN = 'test/simulation/cluster/directed/main.ts';

/** A run of composed servers, clients and mounts that violated a rule. */
export interface CaughtRun {
  readonly seed: number;
  readonly violation: string;
  /** Of processor, of all seeds up to this one. */
  readonly cpuS: number;
}

/** Who noticed a bug; null where somebody should have and did not. */
export interface Catch {
  /** What the scenario, or the test, said. Absent where none is named. */
  readonly said?: string | null;
  /** How the conversation went. Absent where none is named. */
  readonly told?: string | null;
  /** The first seed that noticed. Absent where none is to be tried. */
  readonly seed?: number | null;
  /** Absent where no runs are to be tried. */
  readonly run?: CaughtRun | null;
}

interface CampaignModule {
  readonly campaign: Campaign;
}

/** @returns the campaign of a layer, of the code as it is */
export async function campaignLoad(layer: PlantedLayer): Promise<Campaign> {
  const { campaign } = (await import(`./${CAMPAIGN_MODULES[layer]}`)) as CampaignModule;
  return campaign;
}

async function campaignPlant(bug: Planted): Promise<Campaign> {
  const load = plant(bug);
  const { campaign } = (await load(`test/simulation/${CAMPAIGN_MODULES[bug.layer]}`)) as CampaignModule;
  return campaign;
}

/**
 * Plants a bug and plays what is to catch it.
 *
 * @param testMsMax how long a test may take before it is ended with all that it has started
 * @throws Error where there is no such test, or where it hangs and nothing says that it may
 */
export async function plantedHunt(bug: Planted, testMsMax: number = TEST_MS_MAX): Promise<Catch> {
  const { directed, conversation, seeds, says, test, schedule, run } = bug.caughtBy;
  const inRun = run === undefined ? {} : { run: await runsRun(bug, run, testMsMax) };
  if (test !== undefined) return { said: await testRun(bug, test, testMsMax), ...inRun };
  if (schedule !== undefined) return { said: await scheduleRun(bug, schedule, testMsMax), ...inRun };
  if (directed === undefined && conversation === undefined && seeds === undefined) return inRun;
  const campaign = await campaignPlant(bug);
  const said = directed === undefined ? undefined : scenarioPlay(campaign, directed);
  const isRight = said === undefined || says === undefined || (said?.includes(says) ?? false);
  return {
    ...(said !== undefined && { said: isRight ? said : null }),
    ...(conversation !== undefined && { told: scenarioPlay(campaign, conversation) }),
    ...(seeds !== undefined && { seed: firstCatch(campaign, seeds) }),
    ...inRun,
  };
}

/** Of a pair: what the scenario says of the bug without the loss of its covers, and of that loss alone. */
export async function pairHunt(bug: Planted): Promise<readonly (string | null)[]> {
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
    said.push(scenarioPlay(await campaignPlant(half), name));
  }
  return said;
}

/**
 * Runs tests of the code with a bug, in a process of their own.
 * @returns what the first that fails says, or null where all pass
 * @throws Error where there is no such test, or where it hangs and nothing says that it may
 */
async function testRun(
  bug: Planted,
  { file, name, hangs }: NonNullable<CaughtBy['test']>,
  msMax: number,
): Promise<string | null> {
  const pattern = name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  // A test that fails leaves timers behind, some of a minute.
  const flags = ['--test-reporter=tap', '--test-force-exit', `--test-name-pattern=${pattern}`, file];
  const { isLate, stdout, status } = await processRun(bug, flags, msMax);
  if (isLate) {
    if (hangs === true) return HANGS;
    throw new Error(
      `"${name}" has not ended after ${msMax} ms: where that is how ${bug.row} shows, say "hangs"`,
    );
  }
  if (Number(/^# tests (\d+)/m.exec(stdout)?.[1] ?? 0) === 0) throw new Error(`No test "${name}" in ${file}`);
  if (status === 0) {
    const [, obstacle] = /^ *ok .* # SKIP ?(.*)$/m.exec(stdout) ?? [];
    if (obstacle !== undefined) throw new Error(`"${name}" in ${file} was passed over: ${obstacle}`);
    return null;
  }
  return /^ *error: (?:\|-\n *)?(.*)$/m.exec(stdout)?.[1]?.replace(/^['"]|['"]$/g, '') ?? 'It fails';
}

/** Plays a directed schedule of the code with a bug. @returns the line that does not happen, or null where all do */
async function scheduleRun(bug: Planted, name: string, msMax: number): Promise<string | null> {
  const { isLate, stdout, status } = await processRun(
    bug,
    [SCHEDULE_MAIN, `${SCHEDULES}/${name}.txt`],
    msMax,
  );
  if (isLate) throw new Error(`Schedule ${name} has not ended after ${msMax} ms`);
  if (status === 0) return null;
  if (status !== 1) throw new Error(`Schedule ${name} cannot be played: ${stdout}`);
  return stdout.split('\n')[0] ?? 'It fails';
}

/** Runs seeds of composed servers, clients and mounts of the code with a bug, until one violates a rule. */
async function runsRun(
  bug: Planted,
  { args, seeds }: NonNullable<CaughtBy['run']>,
  msMax: number,
): Promise<CaughtRun | null> {
  let cpuS = 0;
  for (let seed = 1; seed <= seeds; seed++) {
    const words = [CLUSTER_MAIN, ...args.split(' '), '--end-early', '--seed', String(seed)];
    const { isLate, stdout, stderr, status } = await processRun(bug, words, msMax);
    if (isLate) throw new Error(`Seed ${seed} of ${bug.row} has not ended after ${msMax} ms`);
    cpuS += Number(/([\d.]+) CPU s;/.exec(stdout)?.[1] ?? Number.NaN);
    const [, violation] = /^seed \d+: VIOLATION (.*)$/m.exec(stdout) ?? [];
    if (violation !== undefined) return { seed, violation, cpuS };
    if (status !== 0) throw new Error(`Seed ${seed} of ${bug.row} cannot be run: ${stdout}${stderr}`);
  }
  return null;
}

/** Runs Node on the code with a bug. */
async function processRun(
  bug: Planted,
  args: readonly string[],
  msMax: number,
): Promise<{
  readonly isLate: boolean;
  readonly stdout: string;
  readonly stderr: string;
  readonly status: number | null;
}> {
  // A group of its own: servers and programs that it has started end with it.
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    env: plantedEnv(mutationsOf(bug)),
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let isLate = false;
  const limit = setTimeout(() => {
    isLate = true;
    process.kill(-(child.pid as number), 'SIGKILL');
  }, msMax);
  const [stdout, stderr, [status]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit').finally(() => clearTimeout(limit)) as Promise<[number | null]>,
  ]);
  return { isLate, stdout, stderr, status };
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

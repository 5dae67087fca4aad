/**
 * Runs random seeds of every simulation until stopped or until one fails:
 *
 *     npm run simulate -- [--seed N] [--count N] [--layer lease|replica]
 *
 * `--seed` is the first seed, at random if absent; `--count` the number of seeds, without end if absent.
 * A failing seed is printed with the command that replays it, and ends the run with code 1.
 */
import { parseArgs } from 'node:util';
import { CAMPAIGN_MODULES, type Campaign, type PlantedLayer } from './planted.ts';

const REPORT_EVERY_MS = 10_000;

const LAYERS = Object.keys(CAMPAIGN_MODULES) as PlantedLayer[];

function naturalParse(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 0)
    throw new RangeError(`--${name} takes a number, not "${text}"`);
  return value;
}

function layersParse(text: string | undefined): readonly PlantedLayer[] {
  if (text === undefined) return LAYERS;
  const layer = LAYERS.find((known) => known === text);
  if (layer === undefined) throw new RangeError(`--layer takes ${LAYERS.join(' or ')}, not "${text}"`);
  return [layer];
}

async function campaignsLoad(layers: readonly PlantedLayer[]): Promise<[PlantedLayer, Campaign][]> {
  return Promise.all(
    layers.map(async (layer): Promise<[PlantedLayer, Campaign]> => {
      const module = (await import(`./${CAMPAIGN_MODULES[layer]}`)) as { campaign: Campaign };
      return [layer, module.campaign];
    }),
  );
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { seed: { type: 'string' }, count: { type: 'string' }, layer: { type: 'string' } },
  });
  const first =
    values.seed === undefined ? Math.floor(Math.random() * 1e9) : naturalParse('seed', values.seed);
  const count = values.count === undefined ? Infinity : naturalParse('count', values.count);
  const campaigns = await campaignsLoad(layersParse(values.layer));
  console.log(`Seeds from ${first} on, for ${campaigns.map(([layer]) => layer).join(' and ')}`);

  let reportedMs = performance.now();
  let done = 0;
  for (; done < count; done++) {
    const seed = first + done;
    for (const [layer, campaign] of campaigns) {
      const violation = campaign.runSeed(seed);
      if (violation === null) continue;
      console.error(`Seed ${seed} of ${layer} fails: ${violation}`);
      console.error(`Replay it with: npm run simulate -- --layer ${layer} --seed ${seed} --count 1`);
      process.exitCode = 1;
      return;
    }
    if (performance.now() - reportedMs >= REPORT_EVERY_MS) {
      reportedMs = performance.now();
      console.log(`${done + 1} seeds passed, the last was ${seed}`);
    }
  }
  console.log(`${done} seeds passed`);
}

await main();

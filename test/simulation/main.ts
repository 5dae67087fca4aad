/** The command `npm run simulate`; `--help` describes it. */
import { wantedOrExit } from '../../bench/command-line.ts';
import { type Arguments, argumentsOf, USAGE } from './arguments.ts';
import { type Counts, countsAdd, LAYER_RUNS, type Layer } from './layer-runs.ts';
import { leaseRun } from './lease-run.ts';
import { scriptRead } from './lease-scenarios.ts';
import { scriptPlay } from './lease-script.ts';
import { coverageMissing, coverageTable } from './replica-coverage.ts';
import { ScriptError } from './script-words.ts';
import { type LayerCounts, type SeedFailure, seedsRun } from './seeds.ts';
import { simpler } from './shrink.ts';

const REPORT_EVERY_MS = 10_000;

/** Fewer runs of the replica layer may lack an event by chance. */
const COVERAGE_RUNS_MIN = 500;

/** How many lines of a failed run's trace are printed, from its end. */
const LINES_SHOWN = 60;

function count(value: number): string {
  return Math.round(value).toLocaleString('en');
}

function spanText(ms: number): string {
  const hours = ms / 3_600_000;
  return hours < 48 ? `${hours.toFixed(1)} h` : `${(hours / 24).toFixed(1)} days`;
}

function progressText(counts: LayerCounts, tookMs: number): string {
  const { runs = 0, simulatedMs = 0, rounds = 0 } = summed(counts);
  const perSecond = (value: number) => count((value * 1000) / tookMs);
  return (
    `${count(runs)} runs (${perSecond(runs)}/s), ${spanText(simulatedMs)} simulated, ` +
    `${count(rounds)} lease rounds (${perSecond(rounds)}/s)`
  );
}

/** The counts in a summary, with their text. */
const SUMMARY: readonly (readonly [name: string, words: string])[] = [
  ['crashes', 'crashes'],
  ['pauses', 'pauses'],
  ['cuts', 'cuts'],
  ['messages', 'messages'],
  ['takeovers', 'takeovers'],
  ['viewChanges', 'changes of members'],
  ['clocksBroken', 'runs with clocks out of bounds'],
  ['clock-out-of-bounds', 'peers convicted of that'],
  ['clock-fault', 'servers that found themselves wrong'],
];

function summaryText(counts: LayerCounts): string {
  const sum = summed(counts);
  return SUMMARY.map(([name, words]) => `${count(sum[name] ?? 0)} ${words}`).join(', ');
}

function summed({ lease, claim, replica }: LayerCounts): Counts {
  return [lease, claim, replica].reduce(countsAdd);
}

async function seedsPlay(args: Arguments): Promise<number> {
  const first = args.seed ?? Math.floor(Math.random() * 1e9);
  if (args.trace) return tracePlay(args, first);
  console.log(`Seeds from ${first} on, for ${args.layers.join(' and ')}`);
  const beganMs = performance.now();
  let reportedMs = beganMs;
  const { counts, failure } = await seedsRun({
    layers: args.layers,
    options: args.lease,
    firstSeed: first,
    count: args.count,
    jobs: args.jobs,
    progress: (so) => {
      if (performance.now() - reportedMs < REPORT_EVERY_MS) return;
      reportedMs = performance.now();
      console.log(progressText(so, reportedMs - beganMs));
    },
  });
  console.log(`${progressText(counts, performance.now() - beganMs)}, ${failure === null ? 0 : 1} violations`);
  console.log(summaryText(counts));
  if (failure !== null) {
    failurePrint(args, failure);
    return 1;
  }
  return args.layers.includes('replica') ? coverageJudge(counts.replica) : 0;
}

/** Many runs of the replica layer without a violation prove something only if enough happened in them. */
function coverageJudge(counts: Counts): number {
  console.log(coverageTable(counts));
  const missing = coverageMissing(counts);
  if (missing.length === 0 || (counts.runs ?? 0) < COVERAGE_RUNS_MIN) return 0;
  console.error(`Too little happened for these runs to prove anything: ${missing.join('; ')}`);
  return 1;
}

function replayCommand(layer: Layer, seed: number, texts: Arguments['given']): string {
  const options = Object.entries(texts).map(([name, text]) => `--${name} ${text}`);
  return ['npm run simulate -- --layer', layer, '--seed', seed, ...options, '--trace'].join(' ');
}

function failurePrint(args: Arguments, failure: SeedFailure): void {
  const { layer, seed, violation } = failure;
  console.error(`Seed ${seed} of ${layer} fails: ${violation}`);
  console.error(`Replay it with: ${replayCommand(layer, seed, args.given)}`);
  if (layer !== 'lease' || !args.shrink) return;
  const simple = simpler(seed, args.given, violation);
  const { world } = leaseRun(simple.seed, { ...simple.options, verbose: true }).world;
  console.error(`The simplest that fails alike: ${simple.violation}`);
  console.error(`${replayCommand(layer, simple.seed, simple.texts)}\n`);
  console.error(world.lines.slice(-LINES_SHOWN).join('\n'));
}

/** Runs one seed after the other, and prints all events. */
function tracePlay(args: Arguments, first: number): number {
  const end = first + (args.count === Infinity ? 1 : args.count);
  for (let seed = first; seed < end; seed++) {
    for (const layer of args.layers) {
      console.log(`Seed ${seed} of ${layer}: true time, whose clock, what happens`);
      const { violation, lines } = LAYER_RUNS[layer](seed, args.lease, true);
      for (const line of lines) console.log(line);
      if (violation === null) continue;
      failurePrint(args, { layer, seed, violation });
      return 1;
    }
  }
  return 0;
}

function scriptFilePlay(path: string): number {
  const { violation, world } = scriptPlay(scriptRead(path), true);
  for (const line of world.world.lines) console.log(line);
  console.log(violation ?? 'No rule is broken');
  return violation === null ? 0 : 1;
}

try {
  const wanted = wantedOrExit(argumentsOf(process.argv.slice(2)), USAGE);
  process.exitCode = wanted.script === null ? await seedsPlay(wanted) : scriptFilePlay(wanted.script);
} catch (error) {
  // A mistake in a script, which a stack trace would not explain.
  if (!(error instanceof ScriptError) && (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  process.stderr.write(`${(error as Error).message}\n\n${USAGE}`);
  process.exitCode = 2;
}

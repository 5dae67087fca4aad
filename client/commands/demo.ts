import type { Command } from 'commander';
import { systemWorld } from '../../world/system-world.ts';
import { Keys, keysText } from '../demo/keys.ts';
import { type DemoResult, runDemo } from '../demo/run-demo.ts';
import { Stage } from '../demo/stage.ts';
import { LiveScreen } from '../live/live-screen.ts';
import { watchCluster } from '../live/live-stream.ts';
import { stateLines } from '../live/live-text.ts';
import { EXIT_FAILED } from '../terminal/failure.ts';
import { printJson, printLine } from '../terminal/output.ts';
import { EndSignal } from '../terminal/signals.ts';
import { Endpoints } from '../transport/endpoints.ts';
import { durationOption, wholeNumber } from './cluster-command.ts';

const KILLS_MAX = 1_000;
const PATIENCE_MS = 60_000;
const WATCHED = `${Stage.VOLUME}:/journal`;

interface DemoCommandOptions {
  readonly auto?: true;
  readonly kills: number;
  readonly lease: number;
  readonly clockSkew: number;
  readonly dir?: string;
  readonly json?: true;
}

export function addDemoCommand(program: Command): void {
  program
    .command('demo')
    .description('kill primaries under load and compare every byte: exit code 0 only if nothing was lost')
    .option('--auto', 'do not wait for Enter before each act')
    .option('--kills <count>', 'how many primaries to kill', wholeNumber(1, KILLS_MAX), 3)
    .addOption(durationOption('--lease <duration>', 'how long a lease lasts', 2_000))
    .addOption(durationOption('--clock-skew <duration>', 'how far clocks may differ', 100))
    .option('--dir <directory>', 'new directory for data, logs and the mount (default: a temporary one)')
    .option('--json', 'print one line of JSON at the end; progress goes to standard error')
    .action(runDemoCommand);
}

async function runDemoCommand(options: DemoCommandOptions): Promise<void> {
  using end = new EndSignal();
  const startMs = systemWorld.nowMs();
  const screen = new LiveScreen(options.json ? process.stderr : process.stdout);
  const say = (text: string) =>
    screen.print(`${((systemWorld.nowMs() - startMs) / 1000).toFixed(1).padStart(6)} s  ${text}`);
  const isInteractive = !options.auto && !options.json && process.stdin.isTTY && process.stdout.isTTY;
  const ended = new AbortController();
  let stage: Stage | null = null;
  let watching: Promise<void> = Promise.resolve();
  const result = await runDemo({
    kills: options.kills,
    leaseMs: options.lease,
    clockSkewMs: options.clockSkew,
    directory: options.dir ?? null,
    say,
    opened: (opened) => {
      stage = opened;
      if (screen.isLive) watching = showLive(opened, screen, options.lease, ended.signal);
    },
    beforeAct: isInteractive
      ? async (title, next, mayDisturb) => {
          say(`Next: ${title}. ${keysText(mayDisturb)}`);
          if (stage !== null) await new Keys(stage, say, mayDisturb).wait(next, end.signal);
        }
      : null,
    signal: end.signal,
  }).finally(async () => {
    ended.abort();
    await watching;
    screen.end();
  });
  if (options.json) printJson(result);
  else printSummary(result);
  if (!result.ok) process.exitCode = EXIT_FAILED;
}

async function showLive(stage: Stage, screen: LiveScreen, leaseMs: number, over: AbortSignal): Promise<void> {
  const endpoints = new Endpoints(systemWorld, stage.cluster.urls, stage.cluster.access);
  try {
    for await (const event of watchCluster(endpoints, WATCHED, PATIENCE_MS, over)) {
      if (event.kind === 'state') screen.show(['', ...stateLines(event.state, leaseMs)]);
    }
  } catch (error) {
    // The table is no part of the proof: without an answer it is missing.
    if (!(error instanceof Error)) throw error;
  } finally {
    await endpoints.close();
  }
}

function printSummary(result: DemoResult): void {
  const { bound, noMajority, fencing } = result;
  printLine('');
  printLine(
    `${result.acknowledgedWrites} writes were acknowledged, ${result.reads} reads answered, ${result.rounds.length} primaries killed`,
  );
  printLine(`lost ${result.lost}, duplicated ${result.duplicated}, corrupt ${result.corrupt}`);
  printLine(
    `longest wait for a write ${result.maxWriteGapMs} ms; promised ${result.boundMs} ms = lease ${bound.leaseMs} + skew ${bound.clockSkewMs} + ` +
      `election ${bound.electionMs} + reset ${bound.resetMs} + retries ${bound.retryMs}`,
  );
  printLine(
    `without a majority: ${noMajority.code} after ${noMajority.refusedMs} ms; the suspended primary answered ${fencing.answer}`,
  );
  if (!result.mount) printLine('The mount was not tested: see above');
  printLine(result.ok ? 'All is well' : 'FAILED');
}

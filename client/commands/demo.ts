import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import { type DemoResult, runDemo } from '../demo/demo.ts';
import { EXIT_FAILED } from '../failure.ts';
import { printJson, printLine } from '../output.ts';
import { EndSignal } from '../signals.ts';
import { duration, wholeNumber } from './cluster-command.ts';

const KILLS_MAX = 1_000;

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
    .option('--auto', 'do not wait for Enter before each kill')
    .option('--kills <count>', 'how many primaries to kill', wholeNumber(1, KILLS_MAX), 3)
    .option('--lease <duration>', 'how long a lease lasts', duration, 2_000)
    .option('--clock-skew <duration>', 'how far clocks may differ', duration, 100)
    .option('--dir <directory>', 'new directory for data, logs and the mount (default: a temporary one)')
    .option('--json', 'print one line of JSON at the end; what goes on is told on standard error')
    .action(runDemoCommand);
}

async function runDemoCommand(options: DemoCommandOptions): Promise<void> {
  using end = new EndSignal();
  const startMs = performance.now();
  const say = (text: string) => {
    const line = `${((performance.now() - startMs) / 1000).toFixed(1).padStart(6)} s  ${text}`;
    if (options.json) process.stderr.write(`${line}\n`);
    else printLine(line);
  };
  const asks = !options.auto && process.stdin.isTTY && process.stdout.isTTY;
  const result = await runDemo({
    kills: options.kills,
    leaseMs: options.lease,
    clockSkewMs: options.clockSkew,
    directory: options.dir ?? null,
    say,
    beforeKill: (round) => (asks ? waitForEnter(round, end.signal) : Promise.resolve()),
    signal: end.signal,
  });
  if (options.json) printJson(result);
  else printSummary(result);
  if (!result.ok) process.exitCode = EXIT_FAILED;
}

async function waitForEnter(round: number, signal: AbortSignal): Promise<void> {
  const lines = createInterface({ input: process.stdin, output: process.stdout });
  // In a terminal that is being read from, Ctrl-C comes here first.
  lines.on('SIGINT', () => process.kill(process.pid, 'SIGINT'));
  try {
    await lines.question(`          Press Enter to kill a primary (round ${round}): `, { signal });
  } finally {
    lines.close();
  }
}

function printSummary(result: DemoResult): void {
  const { bound } = result;
  printLine('');
  printLine(
    `${result.acknowledgedWrites} writes were acknowledged, ${result.reads} reads answered, ${result.rounds.length} primaries killed`,
  );
  printLine(`lost ${result.lost}, duplicated ${result.duplicated}, corrupt ${result.corrupt}`);
  printLine(
    `longest wait for a write ${result.maxWriteGapMs} ms; promised ${result.boundMs} ms = lease ${bound.leaseMs} + skew ${bound.clockSkewMs} + ` +
      `election ${bound.electionMs} + reset ${bound.resetMs} + retries ${bound.retryMs}`,
  );
  if (!result.mount) printLine('The mount took no part: see above');
  printLine(result.ok ? 'All is well' : 'FAILED');
}

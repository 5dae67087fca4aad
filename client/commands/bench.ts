import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Command } from 'commander';
import { systemWorld } from '../../world/system-world.ts';
import { clusterPhases } from '../bench/cluster-phases.ts';
import { mountPhases } from '../bench/mount-phases.ts';
import { type Phase, type PhaseResult, runPhase } from '../bench/phase.ts';
import { describeFailure, EXIT_FAILED, usageFailure } from '../terminal/failure.ts';
import { printJson, printTable } from '../terminal/output.ts';
import { formatBytes } from '../terminal/quantities.ts';
import { clusterCommand, durationOption, size, wholeNumber, withClient } from './cluster-command.ts';
import { removeAt } from './tree.ts';
import { volumeName } from './volume.ts';

const FILE_BYTES_MAX = 1024 ** 3;

interface BenchOptions {
  readonly dir?: string;
  readonly duration: number;
  readonly workers: number;
  readonly size: number;
  readonly forever?: true;
  readonly json?: true;
}

export function addBenchCommand(program: Command): void {
  clusterCommand(program, 'bench')
    .description('measure a running cluster, or a mount of it: files per second, bytes per second, times')
    .argument('[volume]', 'volume in which files are made; they are removed at the end', volumeName)
    .option('--dir <dir>', 'measure this folder instead: a mount, or anything to compare it with')
    .addOption(durationOption('--duration <duration>', 'of each kind of operation', 5000))
    .option('--workers <count>', 'operations at a time', wholeNumber(1, 256), 8)
    .option('--size <size>', 'of a file', fileSize, 64 * 1024)
    .option('--forever', 'repeat until stopped')
    .option('--json', 'print one JSON value; with --forever one for each round')
    .action(async (volume: string | undefined, options: BenchOptions, command: Command) => {
      if ((volume === undefined) === (options.dir === undefined)) {
        throw usageFailure('Nothing to measure: give either a volume or --dir');
      }
      await withClient(command, async (client, { signal }) => {
        const call = { signal };
        if (options.dir !== undefined) {
          const folder = await mkdtemp(join(options.dir, '.leasehold-bench-'));
          try {
            await runRounds(mountPhases(folder, options.size), options, signal);
          } finally {
            await rm(folder, { recursive: true });
          }
          return;
        }
        const target = {
          volume: volume ?? '',
          directory: `/.leasehold-bench-${systemWorld.randomBytes(6).toString('hex')}`,
        };
        await client.useVolume(target.volume, call);
        await client.command(
          {
            kind: 'make-directory',
            place: { volume: target.volume, path: target.directory },
            mode: 0o755,
            uid: 0,
            gid: 0,
          },
          call,
        );
        try {
          const { workers, size: fileBytes } = options;
          await runRounds(clusterPhases(client, { ...target, workers, fileBytes, call }), options, signal);
        } finally {
          // Also after Ctrl-C, which has aborted all other calls.
          await removeAt(client, { volume: target.volume, path: target.directory }, { recursive: true }, {});
        }
      });
    });
}

async function runRounds(
  phases: readonly Phase[],
  options: BenchOptions,
  signal: AbortSignal,
): Promise<void> {
  do {
    const results: PhaseResult[] = [];
    // The first failure: a phase needs what the one before has left.
    let failure: unknown = null;
    for (const phase of phases) {
      const { workers, duration: durationMs } = options;
      results.push(
        await runPhase(phase, { workers, durationMs, signal, failed: (error) => (failure ??= error) }),
      );
      if (signal.aborted) return;
    }
    if (options.json) printJson({ workers: options.workers, fileBytes: options.size, phases: results });
    else printTable(results.map(rowOf), HEADER);
    if (failure === null) continue;
    for (const line of describeFailure(failure).lines) process.stderr.write(`${line}\n`);
    // A load for observation continues; a measurement with errors is no measurement.
    if (!options.forever) process.exitCode = EXIT_FAILED;
  } while (options.forever);
}

const HEADER = ['OPERATION', 'PER SECOND', 'BYTES/S', '50 %', '99 %', 'LONGEST', 'ERRORS'] as const;

function rowOf(result: PhaseResult): string[] {
  const { name, perSecond, bytesPerSecond, p50Ms, p99Ms, maxMs, errors } = result;
  const bytes = bytesPerSecond === 0 ? '–' : formatBytes(bytesPerSecond);
  return [name, `${perSecond}`, bytes, `${p50Ms} ms`, `${p99Ms} ms`, `${maxMs} ms`, `${errors}`];
}

function fileSize(text: string): number {
  const bytes = size(text);
  if (bytes < 1 || bytes > FILE_BYTES_MAX) throw usageFailure('A benchmark file must have 1 byte to 1 GiB');
  return bytes;
}

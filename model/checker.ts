import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Variant } from './variants.ts';

export interface Finding {
  readonly outcome: Outcome;
  readonly states: number;
  /** Largest distance of a state from the start, in the verifier's steps. */
  readonly depth: number;
  readonly memoryMiB: number;
  readonly elapsedMs: number;
}

export type Outcome =
  /** Every reachable state was visited, and no assertion failed. */
  | { readonly kind: 'verified' }
  /** A shortest run to a failed assertion: the lines that the model prints. */
  | { readonly kind: 'counter-example'; readonly steps: readonly string[] }
  /** A limit ended the search, so it proves nothing. */
  | { readonly kind: 'cut-short'; readonly why: string };

/** Limits of a verifier; a larger search ends as `cut-short`. */
const MEMORY_MAX_MIB = 12_000;
const TIME_MAX_MS: Record<Variant['effort'], number> = { quick: 120_000, full: 300_000, deep: 3_600_000 };

const OUTPUT_MAX_BYTES = 64 * 1024 * 1024;

export function missingTools(): string[] {
  return ['spin', 'cc'].filter((tool) => {
    const { error } = spawnSync(tool, [tool === 'spin' ? '-V' : '--version']);
    return error !== undefined;
  });
}

/** Generates, compiles and runs a verifier in a temporary folder. Breadth first: counter-examples are shortest. */
export function check(variant: Variant): Finding {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-model-'));
  const file = `${variant.model}.pml`;
  const defines = variant.defines.map((define) => `-D${define}`);
  const started = performance.now();
  try {
    cpSync(join(import.meta.dirname, file), join(folder, file));
    must(folder, 'spin', ['-a', ...defines, file]);
    // Optimising costs more than it saves in a search of a second.
    const optimise = variant.effort === 'quick' ? '-O0' : '-O2';
    const options = [optimise, '-w', '-DSAFETY', '-DNOREDUCE', '-DBFS', `-DMEMLIM=${MEMORY_MAX_MIB}`];
    must(folder, 'cc', [...options, '-o', 'pan', 'pan.c']);
    const { output, why } = run(folder, './pan', ['-E', '-n', '-m1000000'], TIME_MAX_MS[variant.effort]);
    const outcome = outcomeOf(output, why, () =>
      must(folder, 'spin', ['-t', '-k', `${file}.trail`, ...defines, file]),
    );
    return {
      outcome,
      states: figure(output, /([\d.e+]+) states, stored/),
      depth: figure(output, /depth reached (\d+)/),
      memoryMiB: figure(output, /([\d.]+)\ttotal actual memory usage/),
      elapsedMs: performance.now() - started,
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function outcomeOf(output: string, why: string | null, replay: () => string): Outcome {
  if (/errors: [1-9]/.test(output)) {
    const steps = replay()
      .split('\n')
      .flatMap((line) => /^\s*STORY (.*)$/.exec(line)?.[1] ?? []);
    return { kind: 'counter-example', steps };
  }
  const limit = /max search depth too small|out of memory|Search not completed|memory limit/i.exec(output);
  if (why !== null || limit !== null) return { kind: 'cut-short', why: why ?? limit?.[0] ?? '' };
  if (/errors: 0/.test(output)) return { kind: 'verified' };
  return { kind: 'cut-short', why: output.trim().slice(-300) };
}

function figure(output: string, pattern: RegExp): number {
  return Number(pattern.exec(output)?.[1] ?? Number.NaN);
}

function must(folder: string, program: string, args: readonly string[]): string {
  const { output, why, status } = run(folder, program, args, TIME_MAX_MS.full);
  if (status === 0) return output;
  throw new Error(`${program} ${args.join(' ')} failed${why === null ? '' : ` (${why})`}:\n${output.trim()}`);
}

function run(
  cwd: string,
  program: string,
  args: readonly string[],
  timeout: number,
): { output: string; status: number | null; why: string | null } {
  const result = spawnSync(program, args, { cwd, timeout, encoding: 'utf8', maxBuffer: OUTPUT_MAX_BYTES });
  const { error, signal, status } = result;
  const why = error?.message ?? (signal === null ? null : `ended by ${signal}`);
  return { output: `${result.stdout}${result.stderr}`, status, why };
}

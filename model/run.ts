/**
 * Checks the models of the lease protocols with spin; see `--help`. Exit codes: 0 all as expected, 1 not, 2 wrong
 * command line, 3 spin or a C compiler is missing.
 */
import { parseArgs } from 'node:util';
import { check, type Finding, missingTools } from './checker.ts';
import { Story } from './story.ts';
import { VARIANTS, type Variant } from './variants.ts';

const HELP = `npm run model -- [--quick | --deep | --variant NAME] [--trace NAME] [--list]

Explores every state of the models of Flease and PaxosLease: correct rules must verify,
and every planted bug must show in a counter-example.

  (nothing)        all but the deep ones, about five minutes
  --quick          the small ones, less than half a minute
  --deep           all of them, also those that take many minutes and gigabytes
  --variant NAME   one of them
  --trace NAME     one of them, and its counter-example told step by step
  --list           names all of them
  --help           this

Exit codes: 0 all as expected, 1 a surprise, 2 wrong command line, 3 spin or a C compiler is missing.
`;

class UsageError extends Error {
  override readonly name = 'UsageError';
}

interface Wish {
  readonly kind: 'help' | 'list' | 'check' | 'trace';
  readonly variants: readonly Variant[];
}

function wishParse(args: readonly string[]): Wish {
  const { values } = parse(args);
  if (values.help) return { kind: 'help', variants: [] };
  if (values.list) return { kind: 'list', variants: VARIANTS };
  const chosen = [values.quick, values.deep, values.variant, values.trace].filter(
    (value) => value !== undefined,
  );
  if (chosen.length > 1) throw new UsageError('--quick, --deep, --variant and --trace exclude each other');
  if (values.trace !== undefined) return { kind: 'trace', variants: [variantFind(values.trace)] };
  if (values.variant !== undefined) return { kind: 'check', variants: [variantFind(values.variant)] };
  const efforts = values.quick ? ['quick'] : values.deep ? ['quick', 'full', 'deep'] : ['quick', 'full'];
  return { kind: 'check', variants: VARIANTS.filter(({ effort }) => efforts.includes(effort)) };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        quick: { type: 'boolean' },
        deep: { type: 'boolean' },
        list: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
        variant: { type: 'string' },
        trace: { type: 'string' },
      },
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

function variantFind(name: string): Variant {
  const variant = VARIANTS.find((known) => known.name === name);
  if (variant === undefined) throw new UsageError(`There is no variant "${name}"; --list names all of them`);
  return variant;
}

function asExpected({ expectation }: Variant, { outcome }: Finding): boolean {
  return outcome.kind === (expectation === 'verified' ? 'verified' : 'counter-example');
}

function resultText(variant: Variant, finding: Finding): string {
  const { outcome } = finding;
  const surprise = asExpected(variant, finding) ? '' : ', NOT AS EXPECTED';
  switch (outcome.kind) {
    case 'verified':
      return `verified${surprise}`;
    case 'counter-example': {
      const steps = Story.tell(variant.model, outcome.steps).length;
      const what = variant.expectation === 'reached' ? 'reached in' : 'counter-example of';
      return `${what} ${steps} steps${surprise}`;
    }
    case 'cut-short':
      return `cut short: ${outcome.why}${surprise}`;
  }
}

function row(cells: readonly string[]): string {
  const widths = [11, 33, 9, 6, 7, 8];
  return cells
    .map((cell, index) => {
      const width = widths[index];
      if (width === undefined) return cell;
      return index < 2 ? cell.padEnd(width) : cell.padStart(width);
    })
    .join('  ');
}

/** @returns whether all was found as expected */
function checkAll(variants: readonly Variant[]): boolean {
  process.stdout.write(`${row(['model', 'variant', 'states', 'depth', 'MiB', 's', 'result'])}\n`);
  let good = true;
  for (const variant of variants) {
    const finding = check(variant);
    const { states, depth, memoryMiB, elapsedMs } = finding;
    const figures = [String(states), String(depth), memoryMiB.toFixed(0), (elapsedMs / 1000).toFixed(1)];
    const cells = [variant.model, variant.name, ...figures, resultText(variant, finding)];
    process.stdout.write(`${row(cells)}\n`);
    good &&= asExpected(variant, finding);
  }
  return good;
}

function trace(variant: Variant): boolean {
  const finding = check(variant);
  process.stdout.write(`${variant.name}: ${variant.about}\n${resultText(variant, finding)}\n`);
  if (finding.outcome.kind === 'counter-example') {
    Story.tell(variant.model, finding.outcome.steps).forEach((line, index) => {
      process.stdout.write(`${String(index + 1).padStart(3)}  ${line}\n`);
    });
  }
  return asExpected(variant, finding);
}

function main(args: readonly string[]): number {
  const wish = wishParse(args);
  if (wish.kind === 'help') {
    process.stdout.write(HELP);
    return 0;
  }
  if (wish.kind === 'list') {
    for (const { name, expectation, effort, about } of wish.variants)
      process.stdout.write(`${name.padEnd(30)}  ${expectation.padEnd(15)}  ${effort.padEnd(5)}  ${about}\n`);
    return 0;
  }
  const missing = missingTools();
  if (missing.length > 0) {
    const words = missing.map((tool) => (tool === 'cc' ? 'a C compiler (cc)' : tool)).join(' and ');
    process.stderr.write(
      `Cannot check the models, for want of ${words}.\n` +
        'On Debian: apt-get install -y --no-install-recommends spin gcc libc6-dev\n',
    );
    return 3;
  }
  const [first] = wish.variants;
  if (wish.kind === 'trace' && first !== undefined) return trace(first) ? 0 : 1;
  return checkAll(wish.variants) ? 0 : 1;
}

try {
  process.exitCode = main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  process.stderr.write(`${error.message}\nnpm run model -- --help says what there is.\n`);
  process.exitCode = 2;
}

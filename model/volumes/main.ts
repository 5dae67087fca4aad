/**
 * Checks the model of volumes' catalogs; see `--help`. Exit codes: 0 all as expected, 1 not, 2 wrong command line.
 */
import { parseArgs } from 'node:util';
import type { Finding } from './explorer.ts';
import { VARIANTS, type Variant } from './volume-variants.ts';

/** A larger search is cut short: some hundred bytes a state. */
const STATES_MAX = 5_000_000;

const HELP = `npm run model:volumes -- [--deep | --variant NAME] [--list]

Explores every state of the protocols between the root catalog and volumes' catalogs:
correct rules must verify, and every planted mistake must show in a counter-example.

  (nothing)        the small ones, about half a minute
  --deep           all of them, minutes and gigabytes
  --variant NAME   one of them, and its counter-example step by step
  --list           names all of them
  --help           this

Exit codes: 0 all as expected, 1 a surprise, 2 wrong command line.
`;

function isExpected({ expectation }: Variant, { outcome }: Finding): boolean {
  return outcome.kind === expectation;
}

function resultText({ outcome }: Finding): string {
  return outcome.kind === 'counter-example'
    ? `${outcome.kind} of ${outcome.steps.length} steps: ${outcome.why}`
    : outcome.kind;
}

/** @returns whether all was found as expected */
function checkAll(variants: readonly Variant[], showsSteps: boolean): boolean {
  let good = true;
  for (const variant of variants) {
    const finding = variant.explore(STATES_MAX);
    const surprise = isExpected(variant, finding) ? '' : ', NOT AS EXPECTED';
    good &&= surprise === '';
    const states = String(finding.states).padStart(8);
    process.stdout.write(`${variant.name.padEnd(34)}${states}  ${resultText(finding)}${surprise}\n`);
    if (!showsSteps || finding.outcome.kind !== 'counter-example') continue;
    for (const [index, text] of finding.outcome.steps.entries())
      process.stdout.write(`${String(index + 1).padStart(3)}  ${text}\n`);
  }
  return good;
}

function main(): number {
  const { values } = parseArgs({
    options: {
      deep: { type: 'boolean', default: false },
      variant: { type: 'string' },
      list: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(HELP);
    return 0;
  }
  if (values.list) {
    for (const { name, expectation, effort, about } of VARIANTS)
      process.stdout.write(`${name.padEnd(34)}  ${expectation.padEnd(15)}  ${effort.padEnd(5)}  ${about}\n`);
    return 0;
  }
  if (values.variant === undefined)
    return checkAll(
      VARIANTS.filter(({ effort }) => values.deep || effort === 'quick'),
      false,
    )
      ? 0
      : 1;
  const variant = VARIANTS.find(({ name }) => name === values.variant);
  if (variant === undefined) {
    process.stderr.write(`There is no variant "${values.variant}"; --list names all of them\n`);
    return 2;
  }
  return checkAll([variant], true) ? 0 : 1;
}

try {
  process.exitCode = main();
} catch (error) {
  // Of `parseArgs`.
  if (!(error instanceof TypeError)) throw error;
  process.stderr.write(`${error.message}\nnpm run model:volumes -- --help says what there is.\n`);
  process.exitCode = 2;
}

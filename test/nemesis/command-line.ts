/** What the programs of this folder do alike with their command lines. */
import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import { DURATION_FORM, durationParse } from '../../base/duration.ts';

const EXIT_USAGE = 2;

/** A mistake on a command line; the message names the option and what is possible. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Program<Options> {
  /** As `npm run` knows it. */
  readonly name: string;
  readonly help: string;
  /** @throws UsageError */
  parse(args: readonly string[]): Options;
  /** @returns the exit code */
  run(options: Options, args: readonly string[]): Promise<number>;
}

/** Runs a program, or says what is wrong with its command line. @returns the exit code */
export async function programRun<Options extends { readonly help: boolean }>(
  program: Program<Options>,
  args: readonly string[],
): Promise<number> {
  let options: Options;
  try {
    options = program.parse(args);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    const advice = `"npm run ${program.name} -- --help" says what there is`;
    process.stderr.write(`${program.name}: ${error.message}; ${advice}\n`);
    return EXIT_USAGE;
  }
  if (options.help) {
    process.stdout.write(`${program.help}\n`);
    return 0;
  }
  return program.run(options, args);
}

/**
 * Reads options that were given; words that belong to none are a mistake.
 *
 * @throws UsageError
 */
export function optionsParse<Options extends ParseArgsOptionsConfig>(
  args: readonly string[],
  options: Options,
) {
  try {
    return parseArgs({ args: [...args], options }).values;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    // Node goes on about other things that one could have meant.
    throw new UsageError(error.message.split(/\.\s/, 1)[0]);
  }
}

/** @returns milliseconds @throws UsageError */
export function durationOption(name: string, text: string): number {
  const ms = durationParse(text);
  if (ms === null || ms === 0) throw new UsageError(`--${name} is ${DURATION_FORM}, not "${text}"`);
  return ms;
}

/** @throws UsageError where it is no integer from `min` to `max` */
export function integerOption(
  name: string,
  text: string,
  min: number,
  max = Number.MAX_SAFE_INTEGER,
): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  const most = max === Number.MAX_SAFE_INTEGER ? '' : ` to ${max}`;
  throw new UsageError(`--${name} is an integer from ${min}${most}, not "${text}"`);
}

/** @param text names with commas between them @throws UsageError where one is not known */
export function listOption<Name extends string>(
  name: string,
  text: string,
  known: readonly Name[],
): readonly Name[] {
  return text.split(',').map((word) => {
    const found = known.find((one) => one === word);
    if (found === undefined) throw new UsageError(`--${name}: "${word}" is none of ${known.join(', ')}`);
    return found;
  });
}

/** What the programs of this folder share about command lines. */
import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import { DURATION_FORM, durationParse } from '../../base/duration.ts';

const EXIT_USAGE = 2;

/** A mistake on a command line; the message names the option and what is possible. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Program<Options> {
  /** The name of its npm script. */
  readonly name: string;
  readonly help: string;
  /** @throws UsageError */
  parse(args: readonly string[]): Options;
  /** @returns the exit code */
  run(options: Options, args: readonly string[]): Promise<number>;
}

/** Runs a program, or prints the mistake on its command line. @returns the exit code */
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
 * Parses options; other words are a mistake.
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
    // The rest of Node's message suggests other spellings.
    throw new UsageError(error.message.split(/\.\s/, 1)[0]);
  }
}

/** @returns milliseconds @throws UsageError */
export function durationOption(name: string, text: string): number {
  const ms = durationParse(text);
  if (ms === null || ms === 0) throw new UsageError(`--${name} is ${DURATION_FORM}, not "${text}"`);
  return ms;
}

/** @throws UsageError unless it is an integer from `min` to `max` */
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

/** @param text names with commas between them @throws UsageError if a name is unknown */
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

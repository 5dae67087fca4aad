/** What the command lines of all measurements share. */
import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';

export const EXIT_FAILURE = 1;
const EXIT_USAGE = 2;

/** The result of parsing a command line. */
export type CommandLine<Wanted> =
  | ({ readonly kind: 'run' } & Wanted)
  | { readonly kind: 'help' }
  /** The mistake in it. */
  | { readonly kind: 'fault'; readonly message: string };

/** A mistake on a command line; the message names what is wrong and what is possible. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The arguments, before their values are checked. */
interface Given {
  /** The values of options that take one. */
  readonly texts: Readonly<Record<string, string>>;
  readonly flags: ReadonlySet<string>;
  /** The words that belong to no option. */
  readonly names: readonly string[];
}

interface Options {
  /** The options that take a value. */
  readonly texts: readonly string[];
  readonly flags?: readonly string[];
  /** Other words are a mistake unless this is set. */
  readonly takesNames?: boolean;
}

/**
 * Parses the words after a program's name, with `--help` and `-h`.
 *
 * @param read converts the arguments, or throws a `UsageError`
 */
export function commandLineOf<Wanted extends object>(
  words: readonly string[],
  options: Options,
  read: (given: Given) => Wanted,
): CommandLine<Wanted> {
  try {
    const given = givenIn(words, options);
    return given.flags.has('help') ? { kind: 'help' } : { kind: 'run', ...read(given) };
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return { kind: 'fault', message: error.message };
  }
}

function givenIn(words: readonly string[], { texts, flags = [], takesNames = false }: Options): Given {
  const known: ParseArgsOptionsConfig = { help: { type: 'boolean', short: 'h' } };
  for (const name of texts) known[name] = { type: 'string' };
  for (const name of flags) known[name] = { type: 'boolean' };
  try {
    const { values, positionals } = parseArgs({
      args: [...words],
      allowPositionals: takesNames,
      options: known,
    });
    const given = Object.entries(values);
    return {
      texts: Object.fromEntries(
        given.flatMap(([name, value]) => (typeof value === 'string' ? [[name, value]] : [])),
      ),
      flags: new Set(given.flatMap(([name, value]) => (value === true ? [name] : []))),
      names: positionals,
    };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    // The rest of Node's message suggests other spellings.
    throw new UsageError(error.message.split(/\.\s/, 1)[0]);
  }
}

/** The options of each measurement with sections. */
export interface Sectioned<Name extends string> {
  readonly sections: readonly Name[];
  readonly quick: boolean;
  /** How often each measurement is repeated. */
  readonly runs: number;
  readonly json: string | null;
  readonly writeDocs: boolean;
}

interface Defaults {
  readonly runs: number;
  readonly runsQuick: number;
}

const RUNS_MAX = 100;

/**
 * Parses the command line of a measurement with sections.
 *
 * @param known the sections, in the order in which they run
 * @param own options of this measurement alone, that take a value
 * @param read converts them, or throws a `UsageError`
 */
export function sectionedCommandLineOf<Name extends string, Own extends object>(
  words: readonly string[],
  known: readonly Name[],
  { runs, runsQuick }: Defaults,
  own: readonly string[],
  read: (texts: Given['texts']) => Own,
): CommandLine<Sectioned<Name> & Own> {
  const options = { texts: ['runs', 'json', ...own], flags: ['quick', 'write-docs'], takesNames: true };
  return commandLineOf(words, options, ({ texts, flags, names }) => {
    const unknown = names.find((name) => !known.some((section) => section === name));
    if (unknown !== undefined) {
      throw new UsageError(`There is no section "${unknown}"; there are ${known.join(', ')}`);
    }
    return {
      // In the order of the list, each once, in whatever order they were given.
      sections: known.filter((name) => names.length === 0 || names.includes(name)),
      quick: flags.has('quick'),
      runs: countOption('runs', texts.runs ?? `${flags.has('quick') ? runsQuick : runs}`, RUNS_MAX),
      json: texts.json ?? null,
      writeDocs: flags.has('write-docs'),
      ...read(texts),
    };
  });
}

/** @returns an integer from `min` to `max` @throws UsageError */
export function countOption(name: string, text: string, max: number, min = 1): number {
  const value = text === '' ? Number.NaN : Number(text);
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw new UsageError(`--${name} wants a number from ${min} to ${max}, not "${text}"`);
}

/** @returns the options; for help or a mistake, prints it and ends the process */
export function wantedOrExit<Wanted>(line: CommandLine<Wanted>, usage: string): Wanted {
  switch (line.kind) {
    case 'run':
      return line;
    case 'help':
      process.stdout.write(usage);
      return process.exit();
    case 'fault':
      process.stderr.write(`${line.message}\n\n${usage}`);
      return process.exit(EXIT_USAGE);
  }
}

/**
 * Reads the planted bugs, `test/testdata/planted/*.txt`. A row is like a small diff:
 *
 *     63c  A client counts its session from when it asked.
 *       in client/cache-session.ts CacheSession.#poll
 *       - $sentMs + $answer.validMs
 *       + this.#parts.world.nowMs() + $answer.validMs
 *       test test/client/cache-session.test.ts: a session counts from when the poll was sent
 *
 * The first line has the name of the bug and the rule that holds without it. `in` has a file and, if not all of it is meant, the
 * scope (`Anchor.in`); the lines with `-` and `+` are what is there and what stands there instead, nothing without `+`.
 * Further `in`s are the covers that are taken away as well (`Planted.also`). Lines of one text are joined with a space.
 * The other words are those of `CATCHES`; `CaughtBy` says what they mean. Lines that begin with `#` are comments.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { CaughtBy, Mutation, Planted, PlantedLayer } from './planted.ts';
import { ScriptError } from './script-words.ts';

const FOLDER = fileURLToPath(new URL('../testdata/planted/', import.meta.url));

/** By file; the bugs of all others are of the layer of replicas and what stands on them. */
const LAYERS: Readonly<Record<string, PlantedLayer>> = { lease: 'lease', claim: 'claim' };

/** A row as far as it is read. */
interface Draft {
  readonly line: number;
  readonly row: string;
  readonly rule: string;
  readonly changes: (Omit<Mutation, 'find' | 'replace'> & { find: string; replace: string })[];
  readonly caughtBy: CaughtBy;
  paired: boolean;
}

const NO_TEST = 'this says something of the test, which comes before it';

/** What may notice a bug, by the word: each takes the rest of its line, and returns what it adds, or what is wrong with it. */
const CATCHES: Readonly<Record<string, (rest: string, caughtBy: CaughtBy) => CaughtBy | string>> = {
  directed: (directed) => ({ directed }),
  conversation: (conversation) => ({ conversation }),
  schedule: (schedule) => ({ schedule }),
  says: (says) => ({ says }),
  seeds: (rest) => (/^\d+$/.test(rest) ? { seeds: Number(rest) } : `seeds are a whole number, not "${rest}"`),
  test: (rest) => {
    const [, file, name] = /^(\S+): (.+)$/.exec(rest) ?? [];
    if (file === undefined || name === undefined) return `a test reads like FILE: NAME, not "${rest}"`;
    return { test: { file, name } };
  },
  run: (rest) => {
    const [, seeds, args] = /^(\d+) seeds?: (.+)$/.exec(rest) ?? [];
    if (args === undefined) return `a run reads like 4 seeds: --workload quotas, not "${rest}"`;
    return { run: { args, seeds: Number(seeds) } };
  },
  'test-hangs': (_, { test }) => (test === undefined ? NO_TEST : { test: { ...test, hangs: true } }),
  'test-is-long': (_, { test }) => (test === undefined ? NO_TEST : { test: { ...test, isLong: true } }),
};

const WORDS = ['in', '-', '+', 'paired', ...Object.keys(CATCHES)];

/**
 * @param name of the file, for errors
 * @throws ScriptError that names file and line
 */
export function plantedRead(text: string, name: string): Planted[] {
  const layer = LAYERS[name] ?? 'replica';
  const rows: Planted[] = [];
  let draft: Draft | null = null;
  for (const [index, line] of [...text.split('\n'), ''].entries()) {
    const fail = (what: string, at = index + 1): never => {
      throw new ScriptError(`${name}.txt:${at}: ${what}`);
    };
    if (line.startsWith('#')) continue;
    if (line.startsWith('  ')) {
      const wrong = draft === null ? 'this belongs to no row' : lineRead(draft, line.trim());
      if (wrong !== undefined) fail(wrong);
      continue;
    }
    if (draft !== null) rows.push(plantedOf(draft, layer, fail));
    const [, row, rule] = /^(\S+) {2}(\S.*)$/.exec(line) ?? [];
    if (row === undefined && line !== '')
      fail(`a row begins with NAME, two spaces and a rule, not "${line}"`);
    draft =
      row === undefined
        ? null
        : { line: index + 1, row, rule: rule as string, changes: [], caughtBy: {}, paired: false };
  }
  return rows;
}

/** @returns what is wrong with the line */
function lineRead(draft: Draft, line: string): string | undefined {
  const [, word, rest = ''] = /^(\S+)(?: (.*))?$/.exec(line) as unknown as [string, string, string?];
  if (word === 'in') {
    const [, file, scope] = /^(\S+)(?: (.+))?$/.exec(rest) ?? [];
    if (file === undefined) return '"in" takes a file and a scope';
    draft.changes.push({ file, ...(scope !== undefined && { in: scope }), find: '', replace: '' });
    return undefined;
  }
  if (word === '-' || word === '+') {
    const change = draft.changes.at(-1);
    if (change === undefined) return `"${word}" comes after "in"`;
    const side = word === '-' ? 'find' : 'replace';
    change[side] = change[side] === '' ? rest : `${change[side]} ${rest}`;
    return undefined;
  }
  if (word === 'paired') {
    draft.paired = true;
    return undefined;
  }
  const added = CATCHES[word]?.(rest, draft.caughtBy) ?? `"${word}" is none of ${WORDS.join(', ')}`;
  if (typeof added === 'string') return added;
  Object.assign(draft.caughtBy, added);
  return undefined;
}

function plantedOf(
  { line, row, rule, changes, caughtBy, paired }: Draft,
  layer: PlantedLayer,
  fail: (what: string, at: number) => never,
): Planted {
  const [change, ...also] = changes;
  if (change === undefined || changes.some(({ find }) => find === ''))
    return fail(`${row} does not say what it changes`, line);
  if (Object.keys(caughtBy).length === 0) return fail(`${row} does not say what notices it`, line);
  return {
    layer,
    row,
    rule,
    ...change,
    ...(also.length > 0 && { also }),
    ...(paired && { paired }),
    caughtBy,
  };
}

/** All planted bugs. */
export const PLANTED: readonly Planted[] = readdirSync(FOLDER)
  .sort()
  .flatMap((file) => plantedRead(readFileSync(join(FOLDER, file), 'utf8'), basename(file, '.txt')));

/**
 * Reads the planted bugs, `test/testdata/planted/*.txt`: known bugs, each one change of the product as it is loaded,
 * and each against one rule of a protocol. A simulation that cannot distinguish the broken protocol from the right one
 * proves nothing about either. A row is like a small diff:
 *
 *     session-from-answer  A client counts its session from when its poll was sent.
 *       in client/cluster/cache-session.ts CacheSession.#poll
 *       - $sentMs + $answer.validMs
 *       + this.#parts.world.nowMs() + $answer.validMs
 *       test test/client/cache-session.test.ts: a session counts from when its poll was sent
 *
 * The first line has the name of the bug and the rule that holds without it. `in` has a file and, unless the whole file
 * is meant, the scope (`Anchor.in`); the lines with `-` and `+` are the present code and its replacement, nothing
 * without `+`. Further `in`s are second defences that are removed with it. Lines of one text are joined with a space.
 * The other lines say what must detect the bug; their first words are those of `KINDS`. Lines that begin with `#` are
 * comments.
 */
import { globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { ScriptError } from '../simulation/script-words.ts';
import type { Mutation } from './plant.ts';
import { type Catch, KINDS } from './planted-catches.ts';

/** One bug. */
export interface Planted {
  readonly row: string;
  /** The rule that holds without the bug. */
  readonly rule: string;
  readonly mutations: readonly Mutation[];
  readonly catches: readonly Catch[];
}

/** A row as far as it is read. */
interface Draft extends Planted {
  readonly line: number;
  readonly mutations: (Omit<Mutation, 'find' | 'replace'> & { find: string; replace: string })[];
  readonly catches: Catch[];
}

/**
 * Parses a line of a row, by its first word.
 * @returns the fault of the line
 */
function lineRead({ mutations, catches }: Draft, word: string, rest: string): string | undefined {
  const change = mutations.at(-1);
  const kind = KINDS[word];
  if (word === 'in') {
    const [file = '', ...scope] = rest.split(' ');
    mutations.push({ file, ...(scope.length > 0 && { in: scope.join(' ') }), find: '', replace: '' });
  } else if (word === '-' || word === '+') {
    if (change === undefined) return `"${word}" comes after "in"`;
    const side = word === '-' ? 'find' : 'replace';
    change[side] = `${change[side]} ${rest}`.trim();
  } else if (kind === undefined) {
    return `"${word}" is none of in, -, +, ${Object.keys(KINDS).join(', ')}`;
  } else {
    if (!kind.form.test(rest)) return `"${rest}" does not read like ${kind.example}`;
    catches.push({ kind: word, text: rest });
  }
  return undefined;
}

/**
 * @param name of the file, for errors
 * @throws ScriptError that names file and line
 */
export function plantedRead(text: string, name: string): Planted[] {
  const drafts: Draft[] = [];
  const fail = (line: number, what: string): never => {
    throw new ScriptError(`${name}:${line}: ${what}`);
  };
  for (const [index, line] of text.split('\n').entries()) {
    const [, indent, word = '', rest = ''] = /^( *)(\S*) *(.*)$/.exec(line) as RegExpExecArray;
    const draft = drafts.at(-1);
    if (word === '' || word === '#') continue;
    if (indent === '') {
      if (!/^\S+ {2}\S/.test(line))
        fail(index + 1, `a row begins with NAME, two spaces and a rule, not "${line}"`);
      drafts.push({ line: index + 1, row: word, rule: rest, mutations: [], catches: [] });
    } else {
      const wrong = draft === undefined ? 'this belongs to no row' : lineRead(draft, word, rest);
      if (wrong !== undefined) fail(index + 1, wrong);
    }
  }
  return drafts.map(({ line, ...planted }) => {
    const { row, mutations, catches } = planted;
    if (mutations.length === 0 || mutations.some(({ find }) => find === ''))
      fail(line, `${row} does not say what it changes`);
    if (catches.length === 0) fail(line, `${row} does not say what notices it`);
    return planted;
  });
}

/** All planted bugs. */
export const PLANTED: readonly Planted[] = globSync(join(import.meta.dirname, '../testdata/planted/*.txt'))
  .sort()
  .flatMap((path) => plantedRead(readFileSync(path, 'utf8'), basename(path)));

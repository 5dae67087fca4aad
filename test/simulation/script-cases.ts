/**
 * Parses files of directed runs: the name of a case, and below it indented statements, divided by `;`. `#` begins a
 * comment.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { LeaseWords } from './lease-words.ts';

const FOLDER = join(import.meta.dirname, '../testdata/simulation');
export const SERVERS_MAX = 5;

/** Each returns its first violation, or null. */
export type Cases = Readonly<Record<string, () => string | null>>;

/** Executes a statement. @returns `end` if the case ends with it */
export type Step<Stage> = (stage: Stage) => unknown;
export type Statements<Meaning> = Readonly<Record<string, (words: LeaseWords) => Meaning>>;

/**
 * @param options of the cluster, which come first
 * @param directed converts steps on a cluster to a run
 * @throws ScriptError with the line
 */
export function casesRead<Options extends object, Stage>(
  file: string,
  options: Statements<Options>,
  statements: Statements<Step<Stage>>,
  directed: (options: Options, play: (stage: Stage) => void) => () => string | null,
): Cases {
  const cases = new Map<string, { options: Options; readonly steps: Step<Stage>[] }>();
  let last = { options: {} as Options, steps: [] as Step<Stage>[] };
  for (const [index, line] of readFileSync(join(FOLDER, file), 'utf8').split('\n').entries()) {
    const text = line.replace(/#.*/, '');
    if (text.trim() === '') continue;
    if (!text.startsWith(' ')) {
      last = { options: {} as Options, steps: [] };
      cases.set(text.trim(), last);
      continue;
    }
    for (const statement of text.split(';')) {
      const words = new LeaseWords(`${file}:${index + 1}: ${statement.trim()}`, statement, SERVERS_MAX, 1);
      const command = words.next('a statement');
      const option = options[command];
      const step = statements[command];
      if (option !== undefined) last.options = { ...last.options, ...option(words) };
      else if (step !== undefined) last.steps.push(step(words));
      else words.fail(`there is no statement "${command}"`);
      words.end();
    }
  }
  return Object.fromEntries(
    [...cases].map(([name, one]) => [
      name,
      directed(one.options, (stage) => void one.steps.every((step) => step(stage) !== 'end')),
    ]),
  );
}

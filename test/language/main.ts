/**
 * Checks the language of the project: `npm run lint`. Comments, titles of tests and documents use the terms of the
 * field; lines of prose have at most 120 characters; commits have short subjects with an area; the glossary has few
 * rows, each in use.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  commentLines,
  documentLines,
  glossaryFaults,
  proseFaults,
  subjectFaults,
  titleLines,
} from './prose.ts';

const ROOT = join(import.meta.dirname, '../..');
const GLOSSARY = 'docs/GLOSSARY.md';
/** Of the latest commits. */
const SUBJECTS = 20;

function git(...words: readonly string[]): string[] {
  return execFileSync('git', words, { cwd: ROOT, encoding: 'utf8' }).split('\n').filter(Boolean);
}

const texts = new Map(
  git('ls-files', '*.md', '*.ts', '*.js').map((path) => [path, readFileSync(join(ROOT, path), 'utf8')]),
);
const faults = [...texts].flatMap(([path, text]) => {
  const isCode = !path.endsWith('.md');
  const lines = isCode ? [...commentLines(text), ...titleLines(text)] : documentLines(text);
  return proseFaults(lines).map(({ line, what }) => `${path}:${line}: ${what}`);
});
const others = [...texts].filter(([path]) => path !== GLOSSARY).map(([, text]) => text);
faults.push(
  ...glossaryFaults(texts.get(GLOSSARY) ?? '', others.join('\n')).map((what) => `${GLOSSARY}: ${what}`),
);
faults.push(
  ...subjectFaults(git('log', '--no-merges', '--format=%s', `-${SUBJECTS}`)).map((what) => `commit ${what}`),
);
for (const fault of faults) process.stdout.write(`${fault}\n`);
process.exitCode = faults.length > 0 ? 1 : 0;

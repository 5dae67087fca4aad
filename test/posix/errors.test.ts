/**
 * Goal: a rule provokes each error that a page of POSIX lists for a call, and docs/posix.md counts the rules
 * correctly.
 * Method: counts lines of `rules/`; mounts nothing.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { countOf, errorRows, PAGES } from './errors.ts';
import { readRules } from './rules.ts';

const DOCUMENT = new URL('../../docs/posix.md', import.meta.url);
const rules = readRules('rules');

test('each error of each page has a rule', () => {
  for (const { page, calls, errors } of PAGES)
    for (const error of errors) assert.ok(countOf(rules, calls, error) > 0, `${page}: no rule for ${error}`);
});

test('docs/posix.md has the table of errors with their counts', () => {
  const text = readFileSync(DOCUMENT, 'utf8');
  const wanted = errorRows(rules);
  const missing = wanted.filter((row) => !text.includes(`\n${row}\n`));
  assert.deepEqual(missing, [], `These rows belong into the table of errors:\n${wanted.join('\n')}`);
});

test('docs/posix.md counts the rules of each page', () => {
  const text = readFileSync(DOCUMENT, 'utf8');
  const [, table = ''] = /\n\| calls \| rules \|.*\n\| --- .*\n((?:\|.*\n)+)/.exec(text) ?? [];
  const told = [...table.matchAll(/^\|[^|]*\| (\d+) \|/gm)].map(([, count]) => Number(count));
  const counts = (folder: 'rules' | 'coherence') =>
    Object.values(Object.groupBy(readRules(folder), ({ page }) => page)).map((of) => of?.length ?? 0);
  const order = (numbers: readonly number[]) => [...numbers].sort((a, b) => a - b);
  assert.deepEqual(order(told), order([...counts('rules'), ...counts('coherence')]));
  const all = [...rules, ...readRules('coherence')];
  const calls = all.reduce((sum, { lines }) => sum + lines.length, 0);
  assert.match(text, new RegExp(`The ${all.length} rules below are ${calls.toLocaleString('en')} calls`));
});

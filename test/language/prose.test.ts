import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  commentLines,
  documentLines,
  glossaryFaults,
  proseFaults,
  subjectFaults,
  titleLines,
} from './prose.ts';

function faultsOf(lines: ReturnType<typeof commentLines>): string[] {
  return proseFaults(lines).map(({ line, what }) => `${line}: ${what.replace(/: write.*/, '')}`);
}

test('words that are not used are found in comments, and not in code', () => {
  const code = [
    '/** Whoever is told this waits. */',
    'const whoever = "nobody";',
    '// The `nobody` user of Unix.',
    '/*',
    ' * A bearer token: whatever its outcome, the primary reports it.',
    ' * Nobody leads.',
    ' */',
    'const told = 1; // Somebody',
  ].join('\n');
  assert.deepEqual(faultsOf(commentLines(code)), [
    '1: "Whoever"',
    '1: "is told"',
    '6: "Nobody"',
    '6: "Nobody leads"',
  ]);
});

test('words that are not used are found in titles of tests, which may be long', () => {
  const long = 'word '.repeat(30);
  const calls = ["('nobody waits', () => {});", '(\n  "nobody waits",\n);'];
  const code = calls.map((call) => `await t.test${call}`).join('\n');
  assert.deepEqual(faultsOf(titleLines(code)), ['1: "nobody"', '2: "nobody"']);
  assert.deepEqual(faultsOf(titleLines(`test('${long}', () => {});`)), []);
});

test('documents are checked outside of code, links and tables', () => {
  const long = 'word '.repeat(30);
  const text = [
    '```',
    `somebody ${long}`,
    '```',
    long,
    `| ${long} |`,
    `[a link](https://host/${'x'.repeat(120)})`,
  ];
  assert.deepEqual(faultsOf(documentLines(text.join('\n'))), ['4: 150 characters: at most 120']);
  assert.deepEqual(faultsOf(documentLines('See [it](nobody.md): the room is large.')), []);
});

test('commits have short subjects that begin with an area', () => {
  assert.deepEqual(
    subjectFaults(['fuse: fence unlinks by session', 'client, server: put files into folders']),
    [],
  );
  assert.equal(subjectFaults([`fuse: ${'x'.repeat(60)}`, 'Fence unlinks']).length, 2);
});

test('the glossary has each word once, in use, and few of them', () => {
  const table =
    '| word | meaning |\n| --- | --- |\n| lease, grant | a |\n| view | b |\n| view | c |\n| sentinel | d |\n';
  assert.deepEqual(glossaryFaults(table, 'A grant in a view.'), [
    '"view" has two rows',
    '"sentinel" is not used',
  ]);
  const many = Array.from({ length: 41 }, (_, place) => `| view${place} | x |`).join('\n');
  assert.deepEqual(glossaryFaults(many, many), ['41 rows: at most 40']);
});

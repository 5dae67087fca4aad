/**
 * Goal: the protocols between the root catalog and volumes' catalogs hold their properties, and no rule is superfluous.
 * Method: all states of small clusters; each rule turned off must give a counter-example.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { VARIANTS } from '../../model/volumes/volume-variants.ts';

const FOLDER = join(import.meta.dirname, '../../model/volumes');
const STATES_MAX = 100_000;

const reached = new Set<string>();

for (const { name, about, effort, expectation, explore } of VARIANTS) {
  if (effort !== 'quick') continue;
  test(`${name}: ${about}`, () => {
    const finding = explore(STATES_MAX);
    assert.equal(finding.outcome.kind, expectation);
    if (expectation === 'verified') for (const text of finding.reached) reached.add(text);
  });
}

// A search in which nothing happens verifies everything.
after(() => {
  const wanted = [
    'root: remove volume _',
    'root: remove _',
    'root: remove _, which is dead',
    'root: let _ in again',
    'root: register the new disk of _',
    'root, late: report "refused (_)" of volume _',
    'root, late: report "none-left (_)" of volume _',
    'root, late: report "view _" of volume _',
    '_, late: learn list _',
    'root: report "range-wanted" of volume _',
    'volume _ at _: close',
    'volume _ at _: refuse to close',
    'volume _ at _: take another range',
    'volume _ at _: create the reserved file',
    '_: catch up volume _ from _',
    '_: drop volume _',
    'all servers lose power',
    'root: volume moved',
    'root: abort the move',
    'root: late report of catalog _',
    'own: late page _',
    'client: command _ repeated: outcome at the root',
    'client: command _ refused at the root: moved',
    'client: command _ executed in the own catalog',
    'client: command _ refused in the own catalog: not reserved',
    'root: void the reserved numbers',
    'server: asks the root about a replica',
  ];
  assert.deepEqual(
    wanted.filter((text) => !reached.has(text)),
    [],
  );
});

test('each rule is turned off by one variant, which the README describes', () => {
  const named = ['state.ts', 'volume-move.ts'].flatMap((file) => {
    const text = readFileSync(join(FOLDER, file), 'utf8');
    const rules = text.match(/export type (?:Move)?Rule =([^;]*);/)?.[1] ?? '';
    return [...rules.matchAll(/'([a-z-]+)'/g)].map(([, rule]) => rule);
  });
  const planted = VARIANTS.flatMap(({ without }) => [...without]);
  assert.ok(named.length > 0, 'The rules are found in the source');
  assert.deepEqual(planted.toSorted(), named.toSorted());
  const readme = readFileSync(join(FOLDER, 'README.md'), 'utf8');
  assert.deepEqual(
    named.filter((rule) => !readme.includes(`\`${rule}\``)),
    [],
  );
});

test('the command shows a counter-example step by step, and names a wrong command line', () => {
  const run = (...args: string[]) =>
    spawnSync(process.execPath, [join(FOLDER, 'main.ts'), ...args], { encoding: 'utf8' });
  const found = run('--variant', 'without-ranges-apart');
  assert.equal(found.status, 0, found.stderr);
  assert.match(
    found.stdout,
    /counter-example of 4 steps: Number 2 was given out twice\n {2}1 {2}root: create/,
  );
  for (const args of [['--variant', 'without'], ['--depe']])
    assert.equal(run(...args).status, 2, args.join(' '));
  assert.equal(run('--list').status, 0);
});

/**
 * Goal: the models of the lease protocols still show what README.md in model/ says, and their bugs still show.
 * Method: the small variants, through the same command that people use. Without spin or a C compiler they are skipped.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { check, missingTools } from '../../model/checker.ts';
import { Story } from '../../model/story.ts';
import { VARIANTS, type Variant } from '../../model/variants.ts';

const MODEL = join(import.meta.dirname, '../../model');
const missing = missingTools();
const skip = missing.length > 0 && `not checked here, for want of: ${missing.join(', ')}`;

function run(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(process.execPath, [join(MODEL, 'run.ts'), ...args], { encoding: 'utf8' });
}

/** Results of the quick variants; each is checked once, when its test runs. */
const quick: readonly Variant[] = VARIANTS.filter(({ effort }) => effort === 'quick');

for (const variant of quick) {
  test(`${variant.name}: ${variant.about}`, { skip }, () => {
    const { outcome, states } = check(variant);
    assert.equal(outcome.kind, variant.expectation === 'verified' ? 'verified' : 'counter-example');
    assert.ok(states > 1_000, `A search of ${states} states reached its goal`);
    if (outcome.kind !== 'counter-example') return;
    const story = Story.tell(variant.model, outcome.steps);
    assert.ok(story.length >= 5, 'No bug shows in fewer steps');
    const end = variant.model === 'flease' ? /decided is|HOLDS/ : /HOLDS/;
    assert.match(story.at(-1) ?? '', /HOLDS|has a majority|hears of a majority|accepts/);
    assert.ok(
      story.some((line) => end.test(line)),
      'A process holds the lease in the trace',
    );
  });
}

test('the quick variants contain both models, correct rules and broken ones', () => {
  for (const model of ['flease', 'paxos-lease']) {
    for (const expectation of ['verified', 'counter-example', 'reached']) {
      assert.ok(
        quick.some((variant) => variant.model === model && variant.expectation === expectation),
        `${model}: ${expectation}`,
      );
    }
  }
});

test('every switch of a variant is known to its model', () => {
  for (const { name, model, defines } of VARIANTS) {
    const source = readFileSync(join(MODEL, `${model}.pml`), 'utf8');
    for (const define of defines) {
      const [word = ''] = define.split('=');
      assert.match(source, new RegExp(`(?:ifdef|ifndef|defined\\() ?${word}\\b`), `${name}: ${word}`);
    }
  }
  assert.equal(new Set(VARIANTS.map(({ name }) => name)).size, VARIANTS.length, 'Names differ');
});

test('the README describes every variant', () => {
  const text = readFileSync(join(MODEL, 'README.md'), 'utf8');
  assert.deepEqual(
    VARIANTS.map(({ name }) => name).filter((name) => !text.includes(`\`${name}\``)),
    [],
  );
});

test('a wrong command line is named and ends with code 2', () => {
  for (const [args, words] of [
    [['--trase', 'no-wait'], /Unknown option '--trase'/],
    [['--variant', 'no-weight'], /no variant "no-weight"/],
    [['--quick', '--deep'], /exclude each other/],
    [['no-wait'], /no-wait/],
  ] as const) {
    const { status, stderr } = run(...args);
    assert.equal(status, 2, args.join(' '));
    assert.match(stderr, words);
  }
});

test('--list and --help need no tools', () => {
  const list = run('--list');
  assert.equal(list.status, 0);
  for (const { name } of VARIANTS) assert.ok(list.stdout.includes(name), name);
  const help = run('--help');
  assert.equal(help.status, 0);
  assert.match(help.stdout, /Exit codes/);
});

test('without spin the command says what to install and ends with code 3', () => {
  const env = { ...process.env, PATH: '' };
  const result = spawnSync(process.execPath, [join(MODEL, 'run.ts')], { encoding: 'utf8', env });
  assert.equal(result.status, 3);
  assert.match(result.stderr, /spin and a C compiler/);
  assert.match(result.stderr, /apt-get install/);
});

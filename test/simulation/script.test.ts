/**
 * Goal: a random failure is reduced to a simple one, and a mistake in a script names its place.
 * Method: runs broken code until a seed fails, searches for a simple run that fails alike, and runs that by its
 * command line. The broken code is loaded with one expression changed, as in `planted.test.ts`.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { isLong } from '../long.ts';
import { plant, plantedEnv } from '../planted/plant.ts';
import { PLANTED, type Planted } from '../planted/planted-rows.ts';
import { leaseRun } from './lease-run.ts';
import { scriptParse, scriptPlay } from './lease-script.ts';
import { ScriptError } from './script-words.ts';
import { violationKind } from './violation.ts';

interface Said {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function tool(args: readonly string[], env = process.env): Said {
  const main = join(import.meta.dirname, 'main.ts');
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], { encoding: 'utf8', env });
  return { code: status, out: stdout, err: stderr };
}

/** Planted bugs, and the number of faults in the simplest run that detects each. */
const SIMPLE = isLong
  ? { 'start-early': 12, 'renewed-by-other': 12, 'lease-past-end': 80 }
  : { 'start-early': 12 };

for (const [row, faultsMax] of Object.entries(SIMPLE)) {
  test(`a run that detects bug ${row} is reduced to a simple one`, async (context) => {
    const { mutations } = PLANTED.find((one) => one.row === row) as Planted;
    const load = plant(mutations);
    const broken = (await load('test/simulation/lease-run.ts')) as typeof import('./lease-run.ts');
    const { simpler } = (await load('test/simulation/shrink.ts')) as typeof import('./shrink.ts');
    let seed = 1;
    while (broken.leaseRun(seed).violation === null) seed++;
    const { violation } = broken.leaseRun(seed);
    assert.ok(violation !== null);
    const simple = simpler(seed, {}, violation);
    assert.deepEqual(simpler(seed, {}, violation), simple, 'Equal runs are reduced equally');
    assert.equal(violationKind(simple.violation), violationKind(violation));
    const { violation: again, world } = broken.leaseRun(simple.seed, simple.options);
    assert.equal(again, simple.violation, 'The printed command line has the same violation');
    const { crashes, pauses, cuts, lost, duplicated } = world.world.counts;
    context.diagnostic(`seed ${seed}: ${JSON.stringify(simple)}, ${JSON.stringify(world.world.counts)}`);
    assert.ok(crashes + pauses + cuts + lost + duplicated <= faultsMax);
    assert.equal(leaseRun(simple.seed, simple.options).violation, null, 'The unchanged code passes');

    const found = tool(['--layer', 'lease', '--seed', String(seed)], plantedEnv(mutations));
    assert.equal(found.code, 1);
    assert.match(found.err, new RegExp(`Replay it with: npm run simulate -- --layer lease --seed ${seed} `));
    const [, words = ''] = /^npm run simulate -- (.*)$/m.exec(found.err) ?? [];
    const played = tool([...words.split(' '), '--no-shrink'], plantedEnv(mutations));
    assert.equal(played.code, 1);
    assert.ok(played.err.includes(simple.violation));
  });
}

const MISTAKES: Readonly<Record<string, RegExp>> = {
  'opne a': /^test:2: there is no command "opne"/,
  'open f': /^test:2: there is no server "f", only a, b, c/,
  'open a 2': /^test:2: a cell is a whole number from 1 to 1, not "2"/,
  'pause a soon': /^test:2: how long reads like 500ms or 4s, not "soon"/,
  'crash b for': /^test:2: how long is missing/,
  'cut a-b': /^test:2: a link reads like a->b/,
  'hold a->b reed': /^test:2: a kind of message is read or query or write/,
  'expect mark lucky': /^test:2: a mark is recovered or/,
  'pass now': /^test:2: nothing is expected after that, but there is "now"/,
  'at 5ms sleep a': /^test:2: what happens then is settle or/,
};

for (const [line, message] of Object.entries(MISTAKES)) {
  test(`a script with "${line}" is a mistake`, () => {
    assert.throws(() => scriptParse(`servers 3\n${line}\n`, 'test'), { name: 'ScriptError', message });
  });
}

test('a script whose expectation does not hold names the line', () => {
  const script = scriptParse('servers 3\nsettle\nopen a\nexpect holds b\n', 'test');
  assert.throws(() => scriptPlay(script), ScriptError);
  assert.throws(() => scriptPlay(script), /^ScriptError: test:4: /);
});

test('a demand that does not hold is a violation', () => {
  const { violation } = scriptPlay(scriptParse('settle\nopen a\ndemand holds b within 1s\n', 'test'));
  assert.equal(violation, 'Violation: What test:3 demands is not so');
});

test('a mistake on the command line ends with code 2', () => {
  for (const args of [
    ['--sed', '1'],
    ['--loss', '2'],
    ['--seed', 'x'],
    ['--script', join(import.meta.dirname, 'none.txt')],
  ]) {
    const { code, err } = tool(args);
    assert.equal(code, 2, args.join(' '));
    assert.match(err, /npm run simulate -- --script FILE/);
  }
  const { code, out } = tool(['--help']);
  assert.equal(code, 0);
  assert.match(out, /--script FILE/);
});

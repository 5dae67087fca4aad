/**
 * Goal: a failure found by chance becomes a short story, and a mistaken script says where.
 * Method: run broken code until a seed fails, make its schedule short, and play the text of that. The
 * broken code is loaded with one expression changed, as in `planted.test.ts`.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { isLong } from '../long.ts';
import { scriptParse, scriptPlay } from './lease-script.ts';
import { plant, plantedEnv } from './plant.ts';
import { PLANTED, type Planted } from './planted-rows.ts';
import { scheduleOfSeed, schedulePlay } from './schedule.ts';
import { ScriptError } from './script-words.ts';
import { violationKind } from './violation.ts';

const folder = mkdtempSync(join(tmpdir(), 'leasehold-script-'));
after(() => rmSync(folder, { recursive: true, force: true }));

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

/** Bugs, and the most events that the story of one may have. */
const SHORT = isLong
  ? { 'start-early': 12, 'renewed-by-other': 12, 'lease-past-end': 80 }
  : { 'start-early': 12 };

for (const [row, eventsMax] of Object.entries(SHORT)) {
  test(`a run that meets bug ${row} becomes a short schedule`, async (context) => {
    const { mutations } = PLANTED.find((one) => one.row === row) as Planted;
    const load = plant(mutations);
    const broken = (await load('test/simulation/schedule.ts')) as typeof import('./schedule.ts');
    const { scheduleShrink } = (await load('test/simulation/shrink.ts')) as typeof import('./shrink.ts');
    let seed = 1;
    while (broken.scheduleOfSeed(seed).violation === null) seed++;
    const { schedule, violation } = broken.scheduleOfSeed(seed);
    assert.ok(violation !== null);
    const shrunk = scheduleShrink(schedule, violation);
    assert.ok(shrunk !== null, 'Played without dice it fails as well');
    assert.deepEqual(scheduleShrink(schedule, violation), shrunk, 'Equal runs are made short equally');
    assert.equal(violationKind(shrunk.violation), violationKind(violation));
    context.diagnostic(
      `seed ${seed}: ${schedule.items.length} events become ${shrunk.schedule.items.length}`,
    );
    assert.ok(shrunk.schedule.items.length <= eventsMax);
    assert.ok(shrunk.schedule.items.length < schedule.items.length / 4);
    const again = broken.schedulePlay(shrunk.schedule);
    assert.equal(again.violation, shrunk.violation, 'What is printed is what fails');
    assert.equal(schedulePlay(shrunk.schedule).violation, null, 'The code as it is passes');

    const found = tool(['--layer', 'lease', '--seed', String(seed)], plantedEnv(mutations));
    assert.equal(found.code, 1);
    assert.match(found.err, new RegExp(`Replay it with: npm run simulate -- --layer lease --seed ${seed} `));
    const script = join(folder, `${row}.txt`);
    writeFileSync(script, broken.scheduleText(shrunk.schedule));
    const played = tool(['--script', script], plantedEnv(mutations));
    assert.equal(played.code, 1);
    assert.ok(played.out.includes(shrunk.violation));
  });
}

test('a schedule goes as the run that it is of', () => {
  for (let seed = 1; seed <= 20; seed++) {
    const { schedule, violation } = scheduleOfSeed(seed);
    assert.equal(violation, null);
    assert.ok(schedule.items.length > 0);
    assert.equal(schedulePlay(schedule).violation, null, `SEED=${seed}`);
  }
});

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
  'at 5ms sleep a': /^test:2: what happens then is clock or/,
};

for (const [line, message] of Object.entries(MISTAKES)) {
  test(`a script that says "${line}" is mistaken`, () => {
    assert.throws(() => scriptParse(`servers 3\n${line}\n`, 'test'), { name: 'ScriptError', message });
  });
}

test('a script whose story does not happen says in which line', () => {
  const script = scriptParse('servers 3\nsettle\nopen a\nexpect holds b\n', 'test');
  assert.throws(() => scriptPlay(script), ScriptError);
  assert.throws(() => scriptPlay(script), /^ScriptError: test:4: /);
});

test('a demand that is not met is a violation', () => {
  const { violation } = scriptPlay(scriptParse('settle\nopen a\ndemand holds b within 1s\n', 'test'));
  assert.equal(violation, 'Violation: What test:3 demands is not so');
});

test('a mistaken command line ends with code 2', () => {
  for (const args of [
    ['--sed', '1'],
    ['--loss', '2'],
    ['--seed', 'x'],
    ['--script', join(folder, 'none.txt')],
  ]) {
    const { code, err } = tool(args);
    assert.equal(code, 2, args.join(' '));
    assert.match(err, /npm run simulate -- --script FILE/);
  }
  const { code, out } = tool(['--help']);
  assert.equal(code, 0);
  assert.match(out, /--script FILE/);
});

/**
 * Goal: violations that were found once do not occur again, and a mistake in a schedule names its line.
 * Method: directed schedules of composed servers, clients and mounts, each on a cluster of its own.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { SCHEDULES } from '../../planted/planted-catches.ts';
import { scheduleParse, schedulePlay } from './directed/language.ts';

for (const file of readdirSync(SCHEDULES).sort()) {
  test(`schedule ${file} happens as it says`, { timeout: 300_000 }, async () => {
    await schedulePlay(scheduleParse(readFileSync(`${SCHEDULES}/${file}`, 'utf8'), file));
  });
}

const MISTAKES: Readonly<Record<string, RegExp>> = {
  'mout a': /^test:2: a statement begins with mount, client, .* not with "mout"/,
  'servers 9': /^test:2: the number of servers is a whole number from 1 to 7, not "9"/,
  'wait soon': /^test:2: how long reads like 500ms or 4s, not "soon"/,
  'hold R reply of a': /^test:2: what is request or answer or message, not "reply"/,
  'lose R request from a': /^test:2: "of" is expected, not "from"/,
  'a: open f /x creat may be': /^test:2: "may fail" is expected/,
  'a ends with 1': /^test:2: an outcome begins with gives, fails, may/,
  'a:': /^test:2: a call is missing/,
  'heal all': /^test:2: nothing is expected after that, but there is "all"/,
};

for (const [line, message] of Object.entries(MISTAKES)) {
  test(`a schedule with "${line}" is a mistake`, () => {
    assert.throws(() => scheduleParse(`servers 3\n${line}\n`, 'test'), { name: 'ScriptError', message });
  });
}

test('a schedule that does not happen as it says names the line', async () => {
  const schedule = scheduleParse('mount a cache=strict\na: mkdir /d\na: mkdir /d # again\n', 'test');
  await assert.rejects(schedulePlay(schedule), {
    name: 'ScriptError',
    message: 'test:3: a: mkdir /d: expected: succeeds; it fails EEXIST',
  });
});

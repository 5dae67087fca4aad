/** The rows of planted bugs, how they are read, and the hunt that runs the tests which must notice them. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { mutationsOf, plantedSources } from './plant.ts';
import { SCHEDULES } from './planted.ts';
import { plantedHunt } from './planted-hunt.ts';
import { PLANTED, plantedRead } from './planted-rows.ts';

test('no two bugs of a layer have one name', () => {
  const names = PLANTED.map(({ layer, row }) => `${layer} ${row}`);
  assert.equal(new Set(names).size, names.length);
});

test('each bug has one place in the code, and a test that is there', () => {
  for (const bug of PLANTED) {
    plantedSources(mutationsOf(bug));
    const { test: named, schedule } = bug.caughtBy;
    assert.ok(named === undefined || existsSync(named.file), bug.row);
    assert.ok(schedule === undefined || existsSync(`${SCHEDULES}/${schedule}.txt`), bug.row);
  }
});

test('a row is read as it says', () => {
  const text = `# Of halves.
half  A majority is more than half.
  in base/quorum.ts majority
  - Math.floor($count / 2)
  - + 1
  + $count
  in base/quorum.ts
  - isMajority()
  test test/base/quorum.test.ts: a majority: more than half
  test-hangs
  conversation guard.txt
  says L1
  seeds 40
  run 4 seeds: --workload quotas --for 10s
  paired
`;
  assert.deepEqual(plantedRead(text, 'claim'), [
    {
      layer: 'claim',
      row: 'half',
      rule: 'A majority is more than half.',
      file: 'base/quorum.ts',
      in: 'majority',
      find: 'Math.floor($count / 2) + 1',
      replace: '$count',
      also: [{ file: 'base/quorum.ts', find: 'isMajority()', replace: '' }],
      paired: true,
      caughtBy: {
        test: { file: 'test/base/quorum.test.ts', name: 'a majority: more than half', hangs: true },
        conversation: 'guard.txt',
        says: 'L1',
        seeds: 40,
        run: { args: '--workload quotas --for 10s', seeds: 4 },
      },
    },
  ]);
});

const ROW = 'half  A majority is more than half.\n';
const CHANGE = '  in base/quorum.ts majority\n  - 1\n';
const MISTAKES: Readonly<Record<string, RegExp>> = {
  'half A majority.': /^lease\.txt:1: a row begins with NAME, two spaces and a rule/,
  '  seeds 4': /^lease\.txt:1: this belongs to no row/,
  [`${ROW}  - 1`]: /^lease\.txt:2: "-" comes after "in"/,
  [`${ROW}  directed halves`]: /^lease\.txt:1: half does not say what it changes/,
  [`${ROW}${CHANGE}`]: /^lease\.txt:1: half does not say what notices it/,
  [`${ROW}${CHANGE}  caught halves`]: /^lease\.txt:4: "caught" is none of in, -, \+, paired, directed/,
  [`${ROW}${CHANGE}  seeds many`]: /^lease\.txt:4: seeds are a whole number, not "many"/,
  [`${ROW}${CHANGE}  test quorum.test.ts`]: /^lease\.txt:4: a test reads like FILE: NAME/,
  [`${ROW}${CHANGE}  run --for 10s`]: /^lease\.txt:4: a run reads like 4 seeds: /,
  [`${ROW}${CHANGE}  test-hangs`]: /^lease\.txt:4: this says something of the test/,
};

test('a mistake in a row is reported with its file and line', () => {
  for (const [text, message] of Object.entries(MISTAKES)) {
    assert.throws(() => plantedRead(text, 'lease'), { name: 'ScriptError', message }, text);
  }
});

test('a test that hangs is ended with all that it has started, and notices a bug only where that is said of it', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-hunt-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const [bug] = PLANTED;
  assert.ok(bug !== undefined);
  const file = 'test/simulation/hanging.ts';
  const hunt = (hangs: { readonly hangs?: true }) =>
    plantedHunt({ ...bug, caughtBy: { test: { file, name: 'it hangs', ...hangs } } }, 2_000);
  process.env.HANGING_PID = join(folder, 'pid');
  await assert.rejects(hunt({}), /"it hangs" has not ended after 2000 ms/);
  // On a machine with much to do it was ended before it had started anything.
  if (existsSync(process.env.HANGING_PID)) {
    const pid = readFileSync(process.env.HANGING_PID, 'utf8');
    const isRunning =
      existsSync(`/proc/${pid}/stat`) && !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
    assert.equal(isRunning, false);
  }
  assert.deepEqual(await hunt({ hangs: true }), { said: 'It hangs' });
});

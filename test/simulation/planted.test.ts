/** The lists of planted bugs, and the hunt that runs the tests which must notice them. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { mutationsOf, plantedSources } from './plant.ts';
import { SCHEDULES } from './planted.ts';
import { PLANTED } from './planted-all.ts';
import { plantedHunt } from './planted-hunt.ts';

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

/** The lists of planted bugs, and the documents that tell of them, say the same. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { PLANTED } from './planted-all.ts';
import { plantedHunt } from './planted-hunt.ts';
import { PAGES, pageRead, rowText } from './planted-table.ts';

test('no two bugs of a layer have one name', () => {
  const names = PLANTED.map(({ layer, row }) => `${layer} ${row}`);
  assert.equal(new Set(names).size, names.length);
});

for (const page of PAGES) {
  test(`docs/${page.layer}-planted.md has a row for each bug`, () => {
    const text = pageRead(page);
    assert.ok(text.startsWith(`${page.head}\n| `), 'It begins as it does when it is made anew');
    const rows = text
      .split('\n')
      .filter((line) => /^\| \S/.test(line))
      .slice(1);
    assert.deepEqual(
      rows.map((row) => row.split(' | ').slice(0, 3).join(' | ')),
      page.bugs.map((bug) => rowText(bug)),
      `npm run planted -- ${page.layer} --write makes it anew`,
    );
  });
}

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

/** The lists of planted bugs, and the documents that tell of them, say the same. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PLANTED } from './planted-all.ts';
import { PAGES, pageRead, rowText } from './planted-table.ts';

test('no two bugs of a layer have one name', () => {
  const names = PLANTED.map(({ layer, row }) => `${layer} ${row}`);
  assert.equal(new Set(names).size, names.length);
});

for (const page of PAGES) {
  test(`docs/${page.layer}-planted.md has a row for each bug`, () => {
    const rows = pageRead(page)
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

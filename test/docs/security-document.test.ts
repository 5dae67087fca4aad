import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

const ROOT = new URL('../../', import.meta.url);

test('every line of SECURITY.md names existing tests', () => {
  const text = readFileSync(new URL('SECURITY.md', ROOT), 'utf8');
  const rows = text.split('\n').filter((line) => /^\| (?!---|who|can|secret)/.test(line));
  assert.ok(rows.length >= 15);
  for (const row of rows) {
    const named = [...(row.split('|').at(-2) ?? '').matchAll(/`(test\/[^`]+)`/g)].map(
      ([, path]) => path as string,
    );
    assert.ok(named.length > 0, `no test is named: ${row}`);
    for (const path of named) assert.ok(existsSync(new URL(path, ROOT)), path);
  }
});

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ERRORS } from '../../base/errors.ts';

const ROW = /^\| `([a-z-]+)` \| (\d+) \| (\d) \| ([a-z-]+) \| (.+?) \| (.+) \|$/;

test('docs/errors.md equals base/errors.ts', () => {
  const text = readFileSync(new URL('../../docs/errors.md', import.meta.url), 'utf8');
  const documented = text.split('\n').flatMap((line) => {
    const match = ROW.exec(line);
    if (match === null) return [];
    const [, code, status, exit, remedy, title, advice] = match as unknown as string[];
    assert.ok((advice ?? '').length > 20, `${code} says what to do`);
    return [[code, { status: Number(status), exit: Number(exit), remedy, title }] as const];
  });
  assert.deepEqual(
    documented.map(([code]) => code),
    Object.keys(ERRORS),
    'The same codes in the same order',
  );
  assert.deepEqual(Object.fromEntries(documented), ERRORS);
});

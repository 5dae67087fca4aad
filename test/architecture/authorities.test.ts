/**
 * Goal: docs/ARCHITECTURE.md lists every authority over a file, and no other.
 * Method: compare its table with the union in `server/file/authority.ts`, and with the unions of the authorities that
 * order and that answer.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';

const ROOT = resolve(import.meta.dirname, '../..');
const SOURCE = readFileSync(join(ROOT, 'server/file/authority.ts'), 'utf8');

/** @returns the quoted names in a type of the module, sorted */
function kindsOf(type: string): string[] {
  const declaration = new RegExp(
    `export type ${type} =([^]*?(?:\\}|>));\\n\\n?(?:export|type|/\\*\\*|const)`,
  ).exec(SOURCE);
  assert.ok(declaration !== null, `The module has the type ${type}`);
  return [...(declaration[1] ?? '').matchAll(/'([a-z-]+)'/g)].map(([, kind]) => kind ?? '').sort();
}

/** The table's rows: authority, whether it orders changes, whether it answers reads. */
const ROWS =
  readFileSync(join(ROOT, 'docs/ARCHITECTURE.md'), 'utf8')
    .split('\n## Who orders, who answers\n')[1]
    ?.split('\n')
    .filter((line) => line.startsWith('|'))
    .slice(2)
    .map((line) => line.split('|').map((cell) => cell.trim()))
    .map(([, name = '', orders, answers]) => ({ kind: name.replaceAll(' ', '-'), orders, answers })) ?? [];

test("the document's table lists the authorities of the code", () => {
  assert.deepEqual(ROWS.map(({ kind }) => kind).sort(), kindsOf('Authority'));
  assert.deepEqual(
    ROWS.filter(({ orders }) => orders === 'yes')
      .map(({ kind }) => kind)
      .sort(),
    kindsOf('Orderer'),
  );
  // Only a request for them uses reads of the local disk, and stale reads.
  const onRequest = ['local-disk', 'stale-on-request'];
  assert.deepEqual(
    ROWS.filter(({ answers }) => answers === 'yes')
      .map(({ kind }) => kind)
      .sort(),
    [...kindsOf('Reader'), ...onRequest].sort(),
  );
});

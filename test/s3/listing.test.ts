/**
 * Goal: pages of a listing, one after the other, are the keys in the order of their bytes, grouped by the delimiter.
 * Method: random trees in the real catalog, compared with a sorted list of keys. Names are short and of characters
 * around the slash and around the surrogates, in which the orders of names, keys and UTF-16 differ.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { runQuery } from '../../catalog/queries.ts';
import { KeyWalk } from '../../server/s3/key-walk.ts';
import { keyCompare, keyPath } from '../../server/s3/keys.ts';
import { listKeys, markerPosition, positionOf, tokenOf } from '../../server/s3/list-objects.ts';
import { IMPLICIT_XATTR } from '../../server/s3/object-record.ts';
import type { Query } from '../../wire/catalog-api.ts';
import { Catalog } from '../catalog/fixture.ts';
import { isLong } from '../long.ts';

const RUNS = isLong ? 5_000 : 120;
const CHARACTERS = [
  '/',
  '/',
  '-',
  '.',
  'a',
  '~',
  ' ',
  'b',
  '\u{10ffff}',
  '\u{1f600}',
  '\ufffd',
  '\ue000',
  '\u0001',
];
const BUCKET = { name: 'main', volume: 'main', names: [] };

const text = (maxLength: number) => fc.string({ unit: fc.constantFrom(...CHARACTERS), maxLength });
const NAMES = [
  'a',
  'a-',
  'a.',
  'a ',
  'a~',
  'a-b',
  'b',
  '-',
  'a\u{10ffff}',
  'a\u{1f600}',
  'a\ufffd',
  '\u{1f600}',
  '\ue000',
];
const name = fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...NAMES) }, text(3));
const key = fc
  .tuple(fc.array(name, { minLength: 1, maxLength: 3 }), fc.constantFrom('', '', '/'))
  .map(([names, end]) => names.join('/') + end);

interface Case {
  readonly keys: readonly string[];
  readonly prefix: string;
  readonly delimiter: string;
  readonly marker: string;
  readonly countMax: number;
}

/** Also markers and prefixes of keys that there are, which random texts seldom hit. */
const cases: fc.Arbitrary<Case> = fc.array(key, { maxLength: 25 }).chain((keys) => {
  const begins = keys.flatMap((one) => [...one].map((_, end) => [...one].slice(0, end + 1).join('')));
  const known = (maxLength: number) =>
    begins.length === 0 ? text(maxLength) : fc.oneof(text(maxLength), fc.constantFrom(...begins));
  return fc.record({
    keys: fc.constant(keys),
    prefix: fc.oneof(fc.constant(''), known(3)),
    delimiter: fc.oneof(fc.constantFrom('', '/', '/', '-', 'a', '/a', '\u{1f600}'), text(2)),
    marker: fc.oneof(fc.constant(''), known(5)),
    countMax: fc.integer({ min: 1, max: 8 }),
  });
});

/** Creates what S3 would create for these keys. @returns the keys that can be there together, in order */
function build(catalog: Catalog, keys: readonly string[]): string[] {
  const kinds = new Map<string, 'file' | 'directory'>();
  const built = new Set<string>();
  for (const one of keys) {
    const path = keyPath(one);
    if (typeof path === 'string') continue;
    const above = path.names.slice(0, -1).map((_, at) => path.names.slice(0, at + 1).join('/'));
    const whole = path.names.join('/');
    const kind = path.directory ? 'directory' : 'file';
    if (above.some((name) => kinds.get(name) === 'file') || (kinds.get(whole) ?? kind) !== kind) continue;
    for (const name of above) {
      if (kinds.has(name)) continue;
      kinds.set(name, 'directory');
      makeDirectory(catalog, name);
    }
    if (kind === 'file' && !kinds.has(whole)) catalog.file(`/${whole}`);
    else if (kind === 'directory') {
      if (!kinds.has(whole)) makeDirectory(catalog, whole);
      const { inode } = catalog.at(`/${whole}`);
      const value = Buffer.from('{"tags":{}}').toString('base64');
      catalog.run({ kind: 'set-xattr', inode, name: 'user.s3', value, mode: 'set' });
    }
    kinds.set(whole, kind);
    built.add(one);
  }
  return [...built].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

function makeDirectory(catalog: Catalog, name: string): void {
  const place = { volume: 'main', path: `/${name}` };
  catalog.run({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0, xattrs: [IMPLICIT_XATTR] });
}

/** Keys after the marker, and the groups of those that have the delimiter after the prefix. */
function modelOf(keys: readonly string[], { prefix, delimiter, marker }: Case): string[] {
  const listed: string[] = [];
  for (const one of keys) {
    if (!one.startsWith(prefix) || Buffer.compare(Buffer.from(one), Buffer.from(marker)) <= 0) continue;
    const at = delimiter === '' ? -1 : one.indexOf(delimiter, prefix.length);
    const shown = at < 0 ? one : `${one.slice(0, at + delimiter.length)} (group)`;
    // A marker that is a group was the end of a page: the group is not listed again.
    if (at >= 0 && one.slice(0, at + delimiter.length) === marker) continue;
    if (listed.at(-1) !== shown) listed.push(shown);
  }
  return listed;
}

async function pagesOf(walk: KeyWalk, one: Case): Promise<string[]> {
  const { prefix, delimiter, marker, countMax } = one;
  const listed: string[] = [];
  let start = markerPosition(marker, prefix, delimiter);
  for (;;) {
    const page = await listKeys(walk, BUCKET, { prefix, delimiter, start, countMax });
    const shown = [
      ...page.objects.map((object) => ({ name: object.key, text: object.key })),
      ...page.prefixes.map((name) => ({ name, text: `${name} (group)` })),
    ].sort((a, b) => keyCompare(a.name, b.name));
    assert.ok(shown.length <= countMax, 'A page has at most as many as the client wants');
    listed.push(...shown.map((entry) => entry.text));
    if (page.next === null) return listed;
    assert.equal(shown.length, countMax, 'Only full pages have a next one');
    start = positionOf(tokenOf(page.next));
  }
}

test('pages of a listing are the sorted keys, in groups', async () => {
  await fc.assert(
    fc.asyncProperty(cases, async (one) => {
      const catalog = new Catalog();
      const keys = build(catalog, one.keys);
      const query = async (asked: Query) => runQuery(catalog.db, asked) as never;
      const walk = new KeyWalk({ query, queryCatalog: query });
      assert.deepEqual(await pagesOf(walk, one), modelOf(keys, one));
      catalog.db.close();
    }),
    { numRuns: RUNS },
  );
});

test('keys are compared by their bytes', () => {
  fc.assert(
    fc.property(text(6), text(6), (a, b) => {
      assert.equal(Math.sign(keyCompare(a, b)), Buffer.compare(Buffer.from(a), Buffer.from(b)));
    }),
    { numRuns: 1_000 },
  );
});

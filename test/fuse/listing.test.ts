import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ListedName } from '../../fuse/metadata/delegated-directories.ts';
import { LIST_COUNT, Listing } from '../../fuse/metadata/listing.ts';

const PAGE = 128;

/** A directory that is a set of names, and counts its requests. */
class Names {
  readonly names: Set<string>;
  asked = 0;

  constructor(count: number) {
    this.names = new Set(Array.from({ length: count }, (_, index) => nameOf(index)));
  }

  listing(): Listing {
    const list = async (_inode: number, after: string, countMax: number) => {
      this.asked += 1;
      const later = [...this.names].filter((name) => name > after).sort();
      const entries = later.slice(0, countMax).map(entryOf);
      return { entries, more: later.length > countMax };
    };
    return new Listing(1, list);
  }
}

function nameOf(index: number): string {
  return `n${String(index).padStart(6, '0')}`;
}

function entryOf(name: string): ListedName {
  return { name, inode: Number(name.replace(/\D/g, '')) + 10, kind: 'file' };
}

/** Reads from a position to the end; calls `between` between two pages. */
async function readOn(
  listing: Listing,
  position: number,
  between: () => void = () => undefined,
): Promise<string[]> {
  const told: string[] = [];
  for (let at = position; ; ) {
    const page = await listing.read(at, PAGE);
    const last = page.at(-1);
    if (last === undefined) return told;
    told.push(...page.map(({ name }) => name));
    at = last.position + 1;
    between();
  }
}

test('each name is listed once, in order, with one request per stretch', async () => {
  const directory = new Names(5 * LIST_COUNT + 1);
  const told = await readOn(directory.listing(), 0);
  assert.deepEqual(told, [...directory.names]);
  assert.equal(directory.asked, 6);
});

test('an empty directory has no entries', async () => {
  assert.deepEqual(await readOn(new Names(0).listing(), 0), []);
});

test('a directory that fills one stretch exactly has no more entries', async () => {
  const directory = new Names(LIST_COUNT);
  assert.equal((await readOn(directory.listing(), 0)).length, LIST_COUNT);
});

test('names that stay are listed once while others are added and removed', async () => {
  const directory = new Names(20_000);
  const stays = [...directory.names].filter((_, index) => index % 3 !== 0);
  const goes = [...directory.names].filter((_, index) => index % 3 === 0).reverse();
  let comes = 0;
  const told = await readOn(directory.listing(), 0, () => {
    for (const name of goes.splice(0, 40)) directory.names.delete(name);
    for (let count = 0; count < 40; count++) directory.names.add(`n${String(comes++).padStart(6, '0')}x`);
  });
  assert.equal(new Set(told).size, told.length, 'No name is listed twice');
  const wanted = new Set(stays);
  assert.deepEqual(
    told.filter((name) => wanted.has(name)),
    stays,
  );
});

test('a position is found again, also after names before and behind it were added and removed', async () => {
  const directory = new Names(20_000);
  const listing = directory.listing();
  const all = await readOn(listing, 0);
  for (const position of [1, 127, 999, 1000, 7500, 19_999]) {
    const [entry] = await listing.read(position, 1);
    assert.equal(entry?.name, all[position]);
  }
  for (let index = 0; index < 20_000; index += 2) directory.names.delete(nameOf(index));
  for (let index = 0; index < 20_000; index += 5) directory.names.add(`${nameOf(index)}x`);
  for (const position of [2000, 7501, 12_345]) {
    const told = await readOn(listing, position);
    const left = all.slice(position).filter((name) => directory.names.has(name));
    assert.deepEqual(told, left, `the remaining names after position ${position}`);
  }
});

test('a stretch whose names were all removed is skipped', async () => {
  const directory = new Names(3 * LIST_COUNT);
  const listing = directory.listing();
  await readOn(listing, 0);
  for (let more = 0; more < 5 * LIST_COUNT; more++) directory.names.add(`o${String(more).padStart(6, '0')}`);
  const begun = directory.listing();
  await readOn(begun, 0);
  for (let index = LIST_COUNT; index < 2 * LIST_COUNT; index++) directory.names.delete(nameOf(index));
  const [entry] = await begun.read(LIST_COUNT, 1);
  assert.equal(entry?.name, nameOf(2 * LIST_COUNT));
});

test('a listing that failed is requested again', async () => {
  let fails = true;
  const listing = new Listing(1, async () => {
    if (!fails) return { entries: [entryOf('a1')], more: false };
    fails = false;
    throw new Error('not now');
  });
  await assert.rejects(listing.read(0, PAGE), /not now/);
  assert.equal((await listing.read(0, PAGE)).length, 1);
});

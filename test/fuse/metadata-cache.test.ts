import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Answered } from '../../fuse/answered.ts';
import type { Attributes } from '../../fuse/backend.ts';
import { MetadataCache } from '../../fuse/metadata/cache.ts';
import { placeKey } from '../../fuse/place.ts';
import { systemWorld } from '../../world/system-world.ts';

const AGE_MAX_MS = 60_000;
const SERVED = { prefetched: true };

function file(inode: number, sizeBytes = 0): Attributes {
  return { inode, kind: 'file', sizeBytes } as Attributes;
}

test('answers to requests from before a change of names or modes are not cached, of no inode', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  const mark = cache.request();
  cache.attributes.forget(7);
  cache.learnEntry(1, 'a', file(8), mark, SERVED);
  assert.equal(plain(cache.entry(1, 'a')), undefined);
  cache.learnEntry(1, 'a', file(8), cache.request(), SERVED);
  assert.deepEqual(plain(cache.entry(1, 'a')), file(8));
});

test('answers to requests from before a change of contents are cached, except those of that file', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  const mark = cache.request();
  cache.attributes.drop(7);
  for (const inode of [7, 8]) cache.learnEntry(1, String(inode), file(inode), mark, SERVED);
  assert.deepEqual([plain(cache.entry(1, '7')), plain(cache.entry(1, '8'))], [undefined, file(8)]);
  cache.learnEntry(1, '7', file(7, 5), cache.request(), SERVED);
  assert.deepEqual(plain(cache.entry(1, '7')), file(7, 5));
});

test('however many files are written, no earlier answer of one of them is cached', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  const mark = cache.request();
  for (let inode = 1; inode <= 30_000; inode++) cache.attributes.drop(inode);
  cache.learnEntry(1, 'first', file(1), mark, SERVED);
  cache.learnEntry(1, 'last', file(30_000), mark, SERVED);
  assert.deepEqual([plain(cache.entry(1, 'first')), plain(cache.entry(1, 'last'))], [undefined, undefined]);
  cache.learnEntry(1, 'first', file(1), cache.request(), SERVED);
  assert.deepEqual(plain(cache.entry(1, 'first')), file(1));
});

/** @returns the attributes without their validity */
function plain(answered: Answered | undefined): Attributes | undefined {
  if (answered === undefined) return undefined;
  const { validity: _, ...attributes } = answered;
  return attributes;
}

function directory(inode: number, changedNs: string): Attributes {
  return { inode, kind: 'directory', links: 2, modifiedNs: changedNs, changedNs } as Attributes;
}

function made(inode: number, changedNs: string): Attributes {
  return { inode, kind: 'file', sizeBytes: 0, modifiedNs: changedNs, changedNs } as Attributes;
}

test('a directory stays cached while files are created in it, with the times of their creations', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  cache.learnEntry(1, 'd', directory(2, '1000'), cache.request());
  const mark = cache.request();
  cache.nameAdded(2, 'first', made(3, '3000'), mark);
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '3000'));
  // A late answer: the directory has a later time already.
  cache.nameAdded(2, 'second', made(4, '2000'), mark);
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '3000'));
});

test('the link count of a cached directory follows directories that are created and removed in it, unless an answer arrived meanwhile', () => {
  let nowMs = 0;
  const world = { ...systemWorld, nowMs: () => ++nowMs };
  const cache = new MetadataCache(world, AGE_MAX_MS);
  const counted = (changedNs: string, links: number) => ({ ...directory(2, changedNs), links });
  cache.learnEntry(1, 'd', counted('1000', 2), cache.request());
  const mark = cache.request();
  cache.nameAdded(2, 'sub', directory(3, '3000'), mark);
  assert.deepEqual(plain(cache.entry(1, 'd')), counted('3000', 3));
  // Another directory, whose answer arrives late.
  cache.nameAdded(2, 'other', directory(4, '2000'), mark);
  assert.deepEqual(plain(cache.entry(1, 'd')), counted('3000', 4));
  const later = cache.request();
  cache.removedDirectory(2, 'sub', 3, '4000', later);
  assert.deepEqual(plain(cache.entry(1, 'd')), counted('4000', 3));
  cache.learnEntry(1, 'd', counted('5000', 3), cache.request());
  cache.removedDirectory(2, 'other', 4, '5000', later);
  assert.equal(plain(cache.entry(1, 'd')), undefined, 'The answer may count the removed directory or not');
});

test('a renamed inode stays cached under its new name until it expires, with a new ctime', () => {
  let nowMs = 0;
  const world = { ...systemWorld, nowMs: () => nowMs };
  const cache = new MetadataCache(world, 1_000);
  const [from, to] = [
    { parent: 2, name: 'a' },
    { parent: 5, name: 'b' },
  ];
  const begin = (): number => {
    for (const { parent, name } of [from, to]) cache.changingName(parent, name);
    return cache.request();
  };
  cache.learnEntry(1, 'd', directory(2, '1000'), cache.request());
  cache.learnEntry(1, 'e', directory(5, '4000'), cache.request());
  cache.learnEntry(2, 'a', made(3, '1000'), cache.request(), SERVED);
  nowMs = 900;
  cache.renamed(from, to, 3, '3000', begin());
  assert.deepEqual(
    [plain(cache.entry(2, 'a')), plain(cache.entry(5, 'b'))],
    [undefined, { ...made(3, '1000'), changedNs: '3000' }],
  );
  assert.deepEqual(
    [plain(cache.entry(1, 'd')), plain(cache.entry(1, 'e'))],
    [directory(2, '3000'), directory(5, '4000')],
  );
  nowMs = 1_100;
  assert.equal(plain(cache.entry(5, 'b')), undefined);

  for (const [why, change] of [
    ['another call changed the new name meanwhile', () => cache.changingName(to.parent, to.name)],
    ['another call changed the old name meanwhile', () => cache.changingName(from.parent, from.name)],
    ['another call changed the inode meanwhile', () => cache.attributes.changing(3)],
  ] as const) {
    cache.learnEntry(2, 'a', made(3, '1000'), cache.request(), SERVED);
    const since = begin();
    change();
    cache.renamed(from, to, 3, '5000', since);
    assert.equal(plain(cache.entry(5, 'b')), undefined, why);
  }
});

test('answers to requests from before a creation are not cached of its name and its directory, but of all others', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  const mark = cache.request();
  cache.learnEntry(2, 'f', file(9), mark, SERVED);
  cache.nameAdded(2, 'f', made(3, '3000'), cache.request());
  assert.equal(plain(cache.entry(2, 'f')), undefined);
  cache.learnEntry(2, 'f', file(9), mark, SERVED);
  cache.learnEntry(1, 'd', directory(2, '1000'), mark);
  cache.learnEntry(1, 'e', directory(5, '1000'), mark);
  assert.deepEqual(
    [plain(cache.entry(2, 'f')), plain(cache.entry(1, 'd')), plain(cache.entry(1, 'e'))],
    [undefined, undefined, directory(5, '1000')],
  );
});

test('a directory stays cached while files are removed from it, with the times of the removals', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  cache.learnEntry(1, 'd', directory(2, '1000'), cache.request());
  for (const name of ['a', 'b']) cache.learnEntry(2, name, file(3), cache.request(), SERVED);
  const mark = cache.request();
  cache.changingName(2, 'a');
  assert.equal(plain(cache.entry(2, 'a')), undefined);
  cache.learnEntry(2, 'a', file(3), mark, SERVED);
  assert.equal(plain(cache.entry(2, 'a')), undefined, 'The request began before');
  cache.learnEntry(2, 'a', file(3), cache.request(), SERVED);
  cache.removed(2, 'a', 3, '3000');
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '3000'));
  // The link count that is cached under the other name is too large.
  assert.deepEqual([plain(cache.entry(2, 'a')), plain(cache.entry(2, 'b'))], [undefined, undefined]);
  cache.learnEntry(2, 'b', file(3), mark, SERVED);
  cache.learnEntry(1, 'd', directory(2, '1000'), mark);
  assert.deepEqual([plain(cache.entry(2, 'b')), plain(cache.entry(1, 'd'))], [undefined, undefined]);
});

test('a directory is not cached after a removal that returned no time', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  cache.learnEntry(1, 'd', directory(2, '1000'), cache.request());
  cache.changingName(2, 'a');
  cache.removed(2, 'a', 3, null);
  assert.equal(plain(cache.entry(1, 'd')), undefined);
});

test('creations in a directory do not extend its time in the cache', () => {
  let nowMs = 0;
  const world = { ...systemWorld, nowMs: () => nowMs };
  const cache = new MetadataCache(world, 1_000);
  cache.learnEntry(1, 'd', directory(2, '1000'), cache.request());
  nowMs = 900;
  cache.nameAdded(2, 'f', made(3, '3000'), cache.request());
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '3000'));
  nowMs = 1_100;
  assert.equal(plain(cache.entry(1, 'd')), undefined);
});

test('a delegated directory does not expire while it is delegated, if it was requested since', () => {
  let nowMs = 0;
  const world = { ...systemWorld, nowMs: () => nowMs };
  const held = new Set([1, 2]);
  const cache = new MetadataCache(world, 1_000, (inode) => held.has(inode));
  const mark = cache.request();
  for (const inode of held) cache.delegated(directory(inode, '1000'), NO_NAMES);
  cache.learnEntry(1, 'd', directory(2, '1000'), mark);
  nowMs = 1_100;
  assert.equal(plain(cache.entry(1, 'd')), undefined, 'The request began before the delegation');
  cache.learnEntry(1, 'd', directory(2, '1000'), cache.request());
  cache.learnEntry(1, 'f', file(3), cache.request(), SERVED);
  nowMs = 9_000;
  const known = cache.entry(1, 'd');
  assert.deepEqual(plain(known), directory(2, '1000'));
  assert.equal(known && cache.attributes.leftMs(known), 1_000);
  assert.equal(cache.nameValidMs(1, 'd', 2), 1_000);
  assert.equal(plain(cache.entry(1, 'f')), undefined, 'Other clients may write it');
  cache.directoryChanged(2, '2000');
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '2000'));
  held.delete(2);
  assert.equal(plain(cache.entry(1, 'd')), undefined);
});

test('attributes from before a write are used by the writer, and by no open', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  cache.learnEntry(1, 'a', file(7), cache.request(), SERVED);
  const mark = cache.request();
  cache.attributes.written(7);
  assert.deepEqual(plain(cache.attributes.latest(7)), file(7));
  assert.deepEqual(
    [plain(cache.attributes.of(7)), plain(cache.lookedUp(7)), plain(cache.entry(1, 'a'))],
    [undefined, undefined, undefined],
  );
  cache.attributes.learn(file(7, 5), mark);
  assert.equal(
    plain(cache.attributes.latest(7)),
    undefined,
    'The request began before the write, and the answer may be newer',
  );
  cache.attributes.learn(file(7, 5), cache.request());
  cache.attributes.written(7);
  cache.attributes.drop(7);
  assert.equal(plain(cache.attributes.latest(7)), undefined);
});

test('of answers in any order that of the latest request is cached', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  const [early, late] = [cache.request(), cache.request()];
  cache.learnEntry(1, 'a', file(7, 5), late, SERVED);
  cache.learnEntry(1, 'a', file(8, 3), early, SERVED);
  assert.deepEqual(plain(cache.entry(1, 'a')), file(7, 5));
  cache.attributes.learn(file(7, 3), early, SERVED);
  assert.deepEqual(plain(cache.attributes.of(7)), file(7, 5));
  cache.attributes.learn(file(7, 6), cache.request(), SERVED);
  assert.deepEqual(plain(cache.attributes.of(7)), file(7, 6));
});

test('an answer is as old as its request', () => {
  let nowMs = 0;
  const world = { ...systemWorld, nowMs: () => nowMs };
  const cache = new MetadataCache(world, 100);
  const mark = cache.request();
  nowMs = 60;
  cache.learnEntry(1, 'a', file(7), mark, SERVED);
  assert.equal(cache.attributes.leftMs(file(7)), 0, 'No other answer is known');
  assert.ok(cache.attributes.leftMs(cache.entry(1, 'a') as Answered) < 50);
  nowMs = 110;
  assert.equal(plain(cache.entry(1, 'a')), undefined);
  // For an open after a look-up the time of the answer counts.
  const asked = cache.request();
  nowMs = 170;
  cache.learnEntry(1, 'b', file(8), asked);
  assert.deepEqual(plain(cache.lookedUpAt(1, 'b')), file(8));
});

const NO_NAMES = { entries: [], more: false };
const PLACES = { a: { parent: 1, name: 'a' }, b: { parent: 1, name: 'b' } };

test('the kernel caches no name of a file with several links', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  cache.learnEntry(1, 'a', { ...file(7), links: 2 }, cache.request(), SERVED);
  assert.equal(cache.nameValidMs(1, 'a', 7), 0);
  assert.equal(cache.isNameCached(7), true, 'An open at once needs a query, as the name was not requested');
  cache.learnEntry(1, 'b', { ...file(8), links: 2 }, cache.request());
  assert.equal(cache.nameValidMs(1, 'b', 8), 0);
  assert.equal(cache.isNameCached(8), false, 'The name was requested just now');
});

test('an open needs a query after a name that was answered from the cache', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  cache.learnEntry(1, 'a', file(7), cache.request());
  cache.attributes.changed(file(7), cache.attributes.changing(7));
  assert.deepEqual(plain(cache.entry(1, 'a')), file(7));
  cache.nameValidMs(1, 'a', 7);
  assert.equal(cache.isNameCached(7), true);
});

test('a name is certain if it was requested since the delegation of its directory, and while that lasts', () => {
  let isHeld = true;
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS, () => isHeld);
  cache.learnEntry(1, 'a', file(7), cache.request(), SERVED);
  cache.delegated(directory(1, '1000'), NO_NAMES);
  cache.learnEntry(1, 'b', file(8), cache.request(), SERVED);
  const certain = (): boolean[] => [PLACES.a, PLACES.b].map((place) => cache.isCertain(place));
  assert.deepEqual(certain(), [false, true]);
  isHeld = false;
  assert.deepEqual(certain(), [false, false]);
});

test('a name that the kernel caches moves with a rename, and ends with a removal', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  const keep = (name: string, inode: number): number => {
    cache.learnEntry(1, name, { ...file(inode), links: 1 }, cache.request(), SERVED);
    return cache.nameValidMs(1, name, inode);
  };
  assert.ok(keep('a', 7) > 0 && keep('b', 8) > 0);
  const { names } = cache.kernel;
  names.moved(PLACES.a, PLACES.b, true);
  const place = (inode: number): string | undefined => names.of(inode)[0]?.name;
  assert.deepEqual([place(7), place(8)], ['b', 'a']);
  names.moved(PLACES.a, PLACES.b, false);
  assert.deepEqual([place(7), place(8)], [undefined, 'b']);
  cache.removed(1, 'b', 8, null);
  assert.equal(place(8), undefined);
});

/** A cache, and its clock. */
function timed(ageMaxMs = AGE_MAX_MS) {
  const clock = { nowMs: 1 };
  const world = { ...systemWorld, nowMs: () => clock.nowMs };
  return { cache: new MetadataCache(world, ageMaxMs), clock };
}

test('an open is not answered by the listing of a live file, or by a name that was requested long ago', () => {
  const { cache, clock } = timed();
  const live = { ...file(7), live: true };
  cache.learnPage(1, { entries: [{ name: 'a', attributes: live }], more: false }, cache.request());
  assert.equal(plain(cache.lookedUpAt(1, 'a')), undefined, 'The catalog may not know its size');
  cache.attributes.closed(7, (heard) => heard);
  assert.equal(plain(cache.attributes.of(7)), undefined);
  cache.learnEntry(1, 'b', file(8), cache.request());
  assert.deepEqual(plain(cache.lookedUpAt(1, 'b')), file(8));
  clock.nowMs += 60;
  cache.attributes.learn(file(8), cache.request());
  assert.equal(plain(cache.lookedUpAt(1, 'b')), undefined, 'The inode was queried, and not its name');
});

test('the kernel may not cache a name that has another inode now, or that was answered long ago', () => {
  const { cache, clock } = timed();
  cache.learnEntry(1, 'a', file(8), cache.request(), SERVED);
  assert.equal(cache.nameValidMs(1, 'a', 7), 0);
  cache.learnEntry(1, 'b', file(9), cache.request());
  clock.nowMs += 60;
  cache.nameValidMs(1, 'b', 9);
  assert.equal(cache.isNameCached(9), true, 'An open needs a query');
});

test('a name that was just looked up is among the names of its inode', () => {
  const { cache } = timed();
  cache.learnEntry(1, 'a', file(7), cache.request());
  assert.deepEqual(cache.namesOf(7), [placeKey(PLACES.a)]);
});

test('attributes that derive from older ones are valid for the kernel no longer than these', () => {
  const { cache } = timed();
  const older = cache.attributes.learn(file(7, 1), cache.request(), SERVED);
  const newer = cache.attributes.learn(file(7, 2), cache.request(), SERVED);
  const [ofOlder, ofNewer] = [
    { ...older, sizeBytes: 3 },
    { ...newer, sizeBytes: 4 },
  ];
  assert.equal(cache.attributes.leftMs(ofOlder), 0);
  assert.ok(cache.attributes.leftMs(ofNewer) > 0);
});

test('an answer to a request during a change is not cached after it, also of a live file', () => {
  const { cache } = timed();
  const changing = cache.attributes.changing(7);
  const mark = cache.request();
  cache.attributes.changed({ ...file(7, 5), live: true }, changing);
  cache.attributes.learn(file(7), mark, SERVED);
  assert.equal(plain(cache.attributes.of(7)), undefined);
});

test('the times of a directory never go back, also after late answers', () => {
  const { cache } = timed();
  cache.learnEntry(1, 'd', directory(2, '5000'), cache.request());
  cache.directoryChanged(2, '4000');
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '5000'));
  cache.removed(2, 'a', 3, '4000', true);
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '5001'), 'A file was removed since');
  cache.removed(2, 'b', 4, '7000', true);
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '7000'));
});

test('a stale name that was dropped is not cached again by an answer of its inode', () => {
  const { cache } = timed();
  cache.learnEntry(1, 'a', file(7), cache.request(), SERVED);
  cache.dropStaleName(PLACES.a, 7);
  cache.learnEntry(1, 'b', file(7), cache.request(), SERVED);
  assert.deepEqual([plain(cache.entry(1, 'a')), plain(cache.entry(1, 'b'))], [undefined, file(7)]);
});

test('answers to requests from before a change of a name, or from before voidPendingAnswers, are not cached', () => {
  const { cache } = timed();
  let mark = cache.request();
  cache.forgetEntry(1, 'a');
  cache.learnEntry(1, 'a', file(7), mark, SERVED);
  assert.equal(plain(cache.entry(1, 'a')), undefined);
  mark = cache.request();
  cache.voidPendingAnswers();
  cache.learnEntry(1, 'b', file(8), mark, SERVED);
  assert.equal(plain(cache.entry(1, 'b')), undefined);
});

test('however many files are written, no answer from before a change of names is cached', () => {
  const { cache } = timed();
  for (let inode = 1; inode <= 20_000; inode++) cache.attributes.drop(inode);
  const mark = cache.request();
  cache.attributes.forget(50_000);
  for (let inode = 20_001; inode <= 20_010; inode++) cache.attributes.drop(inode);
  cache.learnEntry(1, 'a', file(60_000), mark, SERVED);
  assert.equal(plain(cache.entry(1, 'a')), undefined);
});

test('the absence of extended attributes expires as the attributes do', () => {
  const { cache, clock } = timed();
  cache.attributes.learn({ ...file(7), xattrs: 0 }, cache.request());
  assert.equal(cache.attributes.hasNoXattrs(7), true);
  clock.nowMs += AGE_MAX_MS + 2;
  assert.equal(cache.attributes.hasNoXattrs(7), false);
});

test('without caching the absence of ACLs holds for a moment after the answer, and that of all attributes does not', () => {
  const { cache, clock } = timed(0);
  cache.attributes.learn({ ...file(7), xattrs: 0 }, cache.request());
  assert.deepEqual([cache.attributes.hasNoAcls(7), cache.attributes.hasNoXattrs(7)], [true, false]);
  clock.nowMs += 60;
  assert.equal(cache.attributes.hasNoAcls(7), false);
});

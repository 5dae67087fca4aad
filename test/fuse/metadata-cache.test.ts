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

test('what was asked for before a change of names or modes is not kept, of whatever it is', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  const mark = cache.request();
  cache.attributes.forget(7);
  cache.learnEntry(1, 'a', file(8), mark, SERVED);
  assert.equal(plain(cache.entry(1, 'a')), undefined);
  cache.learnEntry(1, 'a', file(8), cache.request(), SERVED);
  assert.deepEqual(plain(cache.entry(1, 'a')), file(8));
});

test('what was asked for before a change of contents is kept of all other files', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  const mark = cache.request();
  cache.attributes.drop(7);
  for (const inode of [7, 8]) cache.learnEntry(1, String(inode), file(inode), mark, SERVED);
  assert.deepEqual([plain(cache.entry(1, '7')), plain(cache.entry(1, '8'))], [undefined, file(8)]);
  cache.learnEntry(1, '7', file(7, 5), cache.request(), SERVED);
  assert.deepEqual(plain(cache.entry(1, '7')), file(7, 5));
});

test('however many files are written, no old answer about one of them is kept', () => {
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

test('a directory stays known while files are made in it, with the times that they give it', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  cache.learnEntry(1, 'd', directory(2, '1000'), cache.request());
  const mark = cache.request();
  cache.made(2, 'first', made(3, '3000'), mark);
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '3000'));
  // Answered late: the directory had what came after it by then.
  cache.made(2, 'second', made(4, '2000'), mark);
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '3000'));
});

test('a directory counts those that are made and removed in it, unless it was heard of meanwhile', () => {
  let nowMs = 0;
  const world = { ...systemWorld, nowMs: () => ++nowMs };
  const cache = new MetadataCache(world, AGE_MAX_MS);
  const counted = (changedNs: string, links: number) => ({ ...directory(2, changedNs), links });
  cache.learnEntry(1, 'd', counted('1000', 2), cache.request());
  const mark = cache.request();
  cache.made(2, 'sub', directory(3, '3000'), mark);
  assert.deepEqual(plain(cache.entry(1, 'd')), counted('3000', 3));
  // Another one, which was answered late.
  cache.made(2, 'other', directory(4, '2000'), mark);
  assert.deepEqual(plain(cache.entry(1, 'd')), counted('3000', 4));
  const later = cache.request();
  cache.removedDirectory(2, 'sub', 3, '4000', later);
  assert.deepEqual(plain(cache.entry(1, 'd')), counted('4000', 3));
  cache.learnEntry(1, 'd', counted('5000', 3), cache.request());
  cache.removedDirectory(2, 'other', 4, '5000', later);
  assert.equal(
    plain(cache.entry(1, 'd')),
    undefined,
    'What was heard may count the one that was removed, or not',
  );
});

test('what got another name is what it was, for as long as it would have been, but for the time of its change', () => {
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
    ['its new name was changed beside it', () => cache.changingName(to.parent, to.name)],
    ['its old name was changed beside it', () => cache.changingName(from.parent, from.name)],
    ['it was changed beside it', () => cache.attributes.changing(3)],
  ] as const) {
    cache.learnEntry(2, 'a', made(3, '1000'), cache.request(), SERVED);
    const since = begin();
    change();
    cache.renamed(from, to, 3, '5000', since);
    assert.equal(plain(cache.entry(5, 'b')), undefined, why);
  }
});

test('what was asked for before a file was made is not kept of its name and its directory, but of all others', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  const mark = cache.request();
  cache.learnEntry(2, 'f', file(9), mark, SERVED);
  cache.made(2, 'f', made(3, '3000'), cache.request());
  assert.equal(plain(cache.entry(2, 'f')), undefined);
  cache.learnEntry(2, 'f', file(9), mark, SERVED);
  cache.learnEntry(1, 'd', directory(2, '1000'), mark);
  cache.learnEntry(1, 'e', directory(5, '1000'), mark);
  assert.deepEqual(
    [plain(cache.entry(2, 'f')), plain(cache.entry(1, 'd')), plain(cache.entry(1, 'e'))],
    [undefined, undefined, directory(5, '1000')],
  );
});

test('a directory stays known while files are removed from it, with the times that this gives it', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  cache.learnEntry(1, 'd', directory(2, '1000'), cache.request());
  for (const name of ['a', 'b']) cache.learnEntry(2, name, file(3), cache.request(), SERVED);
  const mark = cache.request();
  cache.changingName(2, 'a');
  assert.equal(plain(cache.entry(2, 'a')), undefined);
  cache.learnEntry(2, 'a', file(3), mark, SERVED);
  assert.equal(plain(cache.entry(2, 'a')), undefined, 'It was asked for before');
  cache.learnEntry(2, 'a', file(3), cache.request(), SERVED);
  cache.removed(2, 'a', 3, '3000');
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '3000'));
  // It has a name less than was heard by its other one.
  assert.deepEqual([plain(cache.entry(2, 'a')), plain(cache.entry(2, 'b'))], [undefined, undefined]);
  cache.learnEntry(2, 'b', file(3), mark, SERVED);
  cache.learnEntry(1, 'd', directory(2, '1000'), mark);
  assert.deepEqual([plain(cache.entry(2, 'b')), plain(cache.entry(1, 'd'))], [undefined, undefined]);
});

test('a directory is asked for again where it is not known when a file was removed from it', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  cache.learnEntry(1, 'd', directory(2, '1000'), cache.request());
  cache.changingName(2, 'a');
  cache.removed(2, 'a', 3, null);
  assert.equal(plain(cache.entry(1, 'd')), undefined);
});

test('nothing is believed for longer because files are made', () => {
  let nowMs = 0;
  const world = { ...systemWorld, nowMs: () => nowMs };
  const cache = new MetadataCache(world, 1_000);
  cache.learnEntry(1, 'd', directory(2, '1000'), cache.request());
  nowMs = 900;
  cache.made(2, 'f', made(3, '3000'), cache.request());
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '3000'));
  nowMs = 1_100;
  assert.equal(plain(cache.entry(1, 'd')), undefined);
});

test('a directory that nobody else changes is believed for as long as that is so, if it was asked for since', () => {
  let nowMs = 0;
  const world = { ...systemWorld, nowMs: () => nowMs };
  const held = new Set([1, 2]);
  const cache = new MetadataCache(world, 1_000, (inode) => held.has(inode));
  const mark = cache.request();
  for (const inode of held) cache.delegated(directory(inode, '1000'), NO_NAMES);
  cache.learnEntry(1, 'd', directory(2, '1000'), mark);
  nowMs = 1_100;
  assert.equal(plain(cache.entry(1, 'd')), undefined, 'It was asked for before');
  cache.learnEntry(1, 'd', directory(2, '1000'), cache.request());
  cache.learnEntry(1, 'f', file(3), cache.request(), SERVED);
  nowMs = 9_000;
  const known = cache.entry(1, 'd');
  assert.deepEqual(plain(known), directory(2, '1000'));
  assert.equal(known && cache.attributes.leftMs(known), 1_000);
  assert.equal(cache.entryLeftMs(1, 'd', 2), 1_000);
  assert.equal(plain(cache.entry(1, 'f')), undefined, 'Others may write to it');
  cache.named(2, '2000');
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '2000'));
  held.delete(2);
  assert.equal(plain(cache.entry(1, 'd')), undefined);
});

test('what was heard before a write is for whoever writes, and for nobody who opens', () => {
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
    'It was asked for before the write, and may be newer',
  );
  cache.attributes.learn(file(7, 5), cache.request());
  cache.attributes.written(7);
  cache.attributes.drop(7);
  assert.equal(plain(cache.attributes.latest(7)), undefined);
});

test('answers overtake each other: what was asked for later counts', () => {
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

test('what is heard is as old as its question', () => {
  let nowMs = 0;
  const world = { ...systemWorld, nowMs: () => nowMs };
  const cache = new MetadataCache(world, 100);
  const mark = cache.request();
  nowMs = 60;
  cache.learnEntry(1, 'a', file(7), mark, SERVED);
  assert.equal(cache.attributes.leftMs(file(7)), 0, 'Another answer is not known');
  assert.ok(cache.attributes.leftMs(cache.entry(1, 'a') as Answered) < 50);
  nowMs = 110;
  assert.equal(plain(cache.entry(1, 'a')), undefined);
  // For the open that follows a look-up it counts when that was answered.
  const asked = cache.request();
  nowMs = 170;
  cache.learnEntry(1, 'b', file(8), asked);
  assert.deepEqual(plain(cache.lookedUpAt(1, 'b')), file(8));
});

const NO_NAMES = { entries: [], more: false };
const PLACES = { a: { parent: 1, name: 'a' }, b: { parent: 1, name: 'b' } };

test('the kernel keeps no name of a file that has several', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  cache.learnEntry(1, 'a', { ...file(7), links: 2 }, cache.request(), SERVED);
  assert.equal(cache.entryLeftMs(1, 'a', 7), 0);
  assert.equal(cache.isNameCached(7), true, 'It is opened at once, and nobody has asked for the name');
  cache.learnEntry(1, 'b', { ...file(8), links: 2 }, cache.request());
  assert.equal(cache.entryLeftMs(1, 'b', 8), 0);
  assert.equal(cache.isNameCached(8), false, 'It was asked for just now');
});

test('what was asked for a moment ago, and is told from memory since, an open has to ask for', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  cache.learnEntry(1, 'a', file(7), cache.request());
  cache.attributes.changed(file(7), cache.attributes.changing(7));
  assert.deepEqual(plain(cache.entry(1, 'a')), file(7));
  cache.entryLeftMs(1, 'a', 7);
  assert.equal(cache.isNameCached(7), true);
});

test('a name is certain that was asked for since nobody else changes its directory, and for as long as that is so', () => {
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

test('a name that the kernel keeps moves with what is renamed here, and is over where it is removed', () => {
  const cache = new MetadataCache(systemWorld, AGE_MAX_MS);
  const keep = (name: string, inode: number): number => {
    cache.learnEntry(1, name, { ...file(inode), links: 1 }, cache.request(), SERVED);
    return cache.entryLeftMs(1, name, inode);
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

/** A cache, and the clock. */
function timed(ageMaxMs = AGE_MAX_MS) {
  const clock = { nowMs: 1 };
  const world = { ...systemWorld, nowMs: () => clock.nowMs };
  return { cache: new MetadataCache(world, ageMaxMs), clock };
}

test('no open is served by what a listing tells of a file that is being written, nor by a name that was asked for long ago', () => {
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
  assert.equal(plain(cache.lookedUpAt(1, 'b')), undefined, 'The inode was asked for, and not its name');
});

test('the kernel is told to keep no name for an inode that it does not stand for any more, nor what was answered long before', () => {
  const { cache, clock } = timed();
  cache.learnEntry(1, 'a', file(8), cache.request(), SERVED);
  assert.equal(cache.entryLeftMs(1, 'a', 7), 0);
  cache.learnEntry(1, 'b', file(9), cache.request());
  clock.nowMs += 60;
  cache.entryLeftMs(1, 'b', 9);
  assert.equal(cache.isNameCached(9), true, 'An open has to ask');
});

test('whoever is refused an inode may have come to it by the name for which he has just asked', () => {
  const { cache } = timed();
  cache.learnEntry(1, 'a', file(7), cache.request());
  assert.deepEqual(cache.namesOf(7), [placeKey(PLACES.a)]);
});

test('what is made of older attributes is not believed as long as newer ones', () => {
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

test('what was asked for during a change is not believed after it, of a file that is being written neither', () => {
  const { cache } = timed();
  const changing = cache.attributes.changing(7);
  const mark = cache.request();
  cache.attributes.changed({ ...file(7, 5), live: true }, changing);
  cache.attributes.learn(file(7), mark, SERVED);
  assert.equal(plain(cache.attributes.of(7)), undefined);
});

test('a directory’s times do not go back, whatever answers come late', () => {
  const { cache } = timed();
  cache.learnEntry(1, 'd', directory(2, '5000'), cache.request());
  cache.named(2, '4000');
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '5000'));
  cache.removed(2, 'a', 3, '4000', true);
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '5001'), 'Something has been removed since');
  cache.removed(2, 'b', 4, '7000', true);
  assert.deepEqual(plain(cache.entry(1, 'd')), directory(2, '7000'));
});

test('a name that was lost is not told again because its inode is heard of', () => {
  const { cache } = timed();
  cache.learnEntry(1, 'a', file(7), cache.request(), SERVED);
  cache.dropStaleName(PLACES.a, 7);
  cache.learnEntry(1, 'b', file(7), cache.request(), SERVED);
  assert.deepEqual([plain(cache.entry(1, 'a')), plain(cache.entry(1, 'b'))], [undefined, file(7)]);
});

test('what was asked for before a name was changed, or before nobody knows what was, is not believed', () => {
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

test('however many files are written, what was asked for before a change of names is not believed', () => {
  const { cache } = timed();
  for (let inode = 1; inode <= 20_000; inode++) cache.attributes.drop(inode);
  const mark = cache.request();
  cache.attributes.forget(50_000);
  for (let inode = 20_001; inode <= 20_010; inode++) cache.attributes.drop(inode);
  cache.learnEntry(1, 'a', file(60_000), mark, SERVED);
  assert.equal(plain(cache.entry(1, 'a')), undefined);
});

test('that there are no extended attributes is believed for its time, and no longer', () => {
  const { cache, clock } = timed();
  cache.attributes.learn({ ...file(7), xattrs: 0 }, cache.request());
  assert.equal(cache.attributes.hasNoXattrs(7), true);
  clock.nowMs += AGE_MAX_MS + 2;
  assert.equal(cache.attributes.hasNoXattrs(7), false);
});

test('where nothing is believed, that there is no list of rights is for whoever was just told of the file', () => {
  const { cache, clock } = timed(0);
  cache.attributes.learn({ ...file(7), xattrs: 0 }, cache.request());
  assert.deepEqual([cache.attributes.hasNoAcls(7), cache.attributes.hasNoXattrs(7)], [true, false]);
  clock.nowMs += 60;
  assert.equal(cache.attributes.hasNoAcls(7), false);
});

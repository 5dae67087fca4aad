/**
 * Goal: what a mount tells of a directory from memory is what is there, whatever it changes itself meanwhile, and however questions and answers
 * pass each other.
 * Method: a directory that is a map; changes and questions are begun, happen and are answered in an order that is drawn, and after each step
 * what would be told is compared.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Prng } from '../../base/prng.ts';
import type { Attributes } from '../../fuse/backend.ts';
import { KnownListings, type NameChange } from '../../fuse/metadata/known-listings.ts';
import { namesCompare } from '../../fuse/metadata/name-order.ts';
import { systemWorld } from '../../world/system-world.ts';

const DIRECTORY = 7;
const NAMES = ['a', 'b', 'c', 'ä', '\u{1F600}', '\uFF5E'];
const STEPS = 3_000;
const AGE_MS = 600_000;

type Names = ReadonlyMap<string, number>;

function pageOf(names: Names) {
  const entries = [...names].map(([name, inode]) => {
    return { name, attributes: { inode, kind: 'file' } as Attributes };
  });
  return { entries: entries.sort((a, b) => namesCompare(a.name, b.name)), more: false };
}

function toldOf(names: Names): string[] {
  return pageOf(names).entries.map(({ name, attributes }) => `${name}=${attributes.inode}`);
}

interface Change {
  readonly place: { readonly parent: number; readonly name: string };
  readonly inode: number | null;
  readonly fails: boolean;
  happened: boolean;
  readonly answer: () => void;
  readonly over: Promise<unknown>;
}

for (const seed of [1, 2, 3, 4, 5]) {
  test(`what is told is what is there (SEED=${seed})`, async () => {
    const prng = new Prng(seed);
    let isHeld = true;
    const listings = new KnownListings(systemWorld, AGE_MS, () => isHeld);
    const names = new Map<string, number>();
    const changes: Change[] = [];
    const questions: { readonly requestedAt: number; page: ReturnType<typeof pageOf> | null }[] = [];
    let told = 0;
    let inodeLast = 100;
    const begin = (): void => {
      // Two at a time are rare: the kernel has them one after the other.
      if (!prng.chance(changes.length > 0 ? 0.05 : 0.3)) return;
      const place = { parent: DIRECTORY, name: prng.pick(NAMES) };
      const inode = prng.chance(0.6) ? ++inodeLast : null;
      const fails = prng.chance(0.2);
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const now = inode === null ? null : ({ inode, kind: 'file' } as const);
      const after = (): NameChange[] => [{ place, now }];
      const over = listings.changing([place], () => promise, after).catch(() => undefined);
      const answer = (): void => (fails ? reject(new Error('Fails by intent')) : resolve());
      changes.push({ place, inode, fails, happened: false, answer, over });
    };
    const change = ({ place: { name }, inode }: Change): void => {
      if (inode === null) names.delete(name);
      else names.set(name, inode);
    };
    const steps: (() => unknown)[] = [
      begin,
      () => {
        const one = changes.find(({ happened }) => !happened);
        if (one === undefined) return;
        one.happened = true;
        // Of one that fails nobody knows whether it was made.
        if (!one.fails || prng.chance(0.5)) change(one);
      },
      () => {
        const done = changes.filter(({ happened }) => happened);
        if (done.length === 0) return;
        const one = prng.pick(done);
        changes.splice(changes.indexOf(one), 1);
        one.answer();
        return one.over;
      },
      () => {
        if (questions.length < 3) questions.push({ requestedAt: listings.request(), page: null });
      },
      () => {
        const one = questions.find(({ page }) => page === null);
        if (one !== undefined) one.page = pageOf(names);
      },
      () => {
        const answered = questions.filter(({ page }) => page !== null);
        if (answered.length === 0) return;
        const one = prng.pick(answered);
        questions.splice(questions.indexOf(one), 1);
        assert.ok(one.page !== null);
        if (prng.chance(0.9)) listings.learn(DIRECTORY, one.page, one.requestedAt);
      },
      () => {
        if (!prng.chance(isHeld ? 0.02 : 0.5)) return;
        if (isHeld) isHeld = false;
        else {
          isHeld = true;
          listings.forget(DIRECTORY);
        }
      },
      () => {
        if (!isHeld) names.set(prng.pick(NAMES), ++inodeLast);
      },
    ];
    for (let step = 0; step < STEPS; step++) {
      await prng.pick(steps)();
      await turn();
      const entries = listings.of(DIRECTORY)?.map(({ name, inode }) => `${name}=${inode}`);
      if (entries === undefined) continue;
      assert.ok(isHeld, 'Nobody else may change it');
      told++;
      // Of a change under way either is true.
      const before = new Map(names);
      if (changes.length === 0) assert.deepEqual(entries, toldOf(before));
      else if (changes.length === 1) {
        const [one] = changes as [Change];
        const without = new Set(toldOf(before).filter((text) => !text.startsWith(`${one.place.name}=`)));
        assert.deepEqual(
          entries.filter((text) => !text.startsWith(`${one.place.name}=`)),
          [...without],
        );
      }
    }
    assert.ok(told > STEPS / 20, `Something is told: ${told}`);
  });
}

test('of two changes at a time nobody knows here which one the cluster has made first', async () => {
  const listings = new KnownListings(systemWorld, AGE_MS, () => true);
  listings.learn(DIRECTORY, pageOf(new Map([['a', 1]])), listings.request());
  const place = { parent: DIRECTORY, name: 'a' };
  const answers = [2, 3].map((inode) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const after = (): NameChange[] => [{ place, now: { inode, kind: 'file' } }];
    return { resolve, over: listings.changing([place], () => promise, after) };
  });
  for (const { resolve, over } of answers) {
    resolve();
    await over;
    assert.equal(listings.of(DIRECTORY), undefined);
  }
});

test('nothing is told that was asked for too long ago, or where nothing is believed', () => {
  const clock = { nowMs: 0 };
  const world = { ...systemWorld, nowMs: () => clock.nowMs };
  for (const ageMaxMs of [0, -1]) {
    const listings = new KnownListings(world, ageMaxMs, () => true);
    listings.learn(DIRECTORY, pageOf(new Map([['a', 1]])), listings.request());
    assert.equal(listings.of(DIRECTORY), undefined);
  }
});

test('what was used the longest time ago makes room', () => {
  const listings = new KnownListings(systemWorld, AGE_MS, () => true);
  for (let directory = 1; directory <= 65; directory++)
    listings.learn(directory, pageOf(new Map([['a', directory + 100]])), listings.request());
  assert.equal(listings.of(1), undefined);
  assert.deepEqual(listings.of(65), [{ name: 'a', inode: 165, kind: 'file' }]);
});

test('what is changed here makes no listing younger', async () => {
  const clock = { nowMs: 0 };
  const world = { ...systemWorld, nowMs: () => clock.nowMs };
  const listings = new KnownListings(world, 1_000, () => true);
  listings.learn(DIRECTORY, pageOf(new Map([['a', 1]])), listings.request());
  clock.nowMs = 600;
  const place = { parent: DIRECTORY, name: 'a' };
  await listings.changing(
    [place],
    async () => undefined,
    () => [{ place, now: null }],
  );
  assert.deepEqual(listings.of(DIRECTORY), []);
  clock.nowMs = 1_200;
  assert.equal(listings.of(DIRECTORY), undefined);
});

test('what is moved to another directory is there, and in that one alone', async () => {
  const listings = new KnownListings(systemWorld, AGE_MS, () => true);
  const [from, to] = [1, 2].map((parent) => ({ parent, name: 'a' }));
  assert.ok(from !== undefined && to !== undefined);
  listings.learn(1, pageOf(new Map([['a', 7]])), listings.request());
  listings.learn(2, pageOf(new Map([['b', 8]])), listings.request());
  await listings.changing(
    [from, to],
    async () => undefined,
    () => [
      { place: from, now: null },
      { place: to, now: { inode: 7, kind: 'file' } },
    ],
  );
  const names = (directory: number) => listings.of(directory)?.map(({ name, inode }) => `${name}=${inode}`);
  assert.deepEqual([names(1), names(2)], [[], ['a=7', 'b=8']]);
});

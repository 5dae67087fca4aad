/**
 * Goal: what a mount has cached of the names of a delegated directory is what the cluster has, whatever the mount
 * changes meanwhile and in whatever order requests and answers arrive.
 * Method: a map stands for the directory. A seed decides when changes, requests and recalls begin, are executed and
 * are answered. After each step the test compares each cached name and the cached listing with the map.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Prng } from '../../base/prng.ts';
import type { World } from '../../base/world.ts';
import type { Attributes } from '../../fuse/backend.ts';
import { DelegatedDirectories, type NameState } from '../../fuse/metadata/delegated-directories.ts';
import { namesCompare } from '../../fuse/metadata/name-order.ts';
import { systemWorld } from '../../world/system-world.ts';

const DIRECTORY = 7;
const NAMES = ['a', 'b', 'c', 'ä', '\u{1F600}', '\uFF5E'];
const STEPS = 4_000;
const TTL_MS = 600_000;
const COUNT_MAX = 100;

type Names = ReadonlyMap<string, number>;

function attributesOf(inode: number): Attributes {
  return { inode, kind: 'file', links: 1 } as Attributes;
}

function pageOf(names: Names) {
  const entries = [...names].map(([name, inode]) => ({ name, attributes: attributesOf(inode) }));
  return { entries: entries.sort((a, b) => namesCompare(a.name, b.name)), more: false };
}

function listed(delegations: DelegatedDirectories, directory = DIRECTORY): string[] | undefined {
  return delegations.listing(directory, COUNT_MAX)?.map(({ name, inode }) => `${name}=${inode}`);
}

function begin(delegations: DelegatedDirectories, names: Names, directory: number): void {
  delegations.beginDelegation(attributesOf(directory), pageOf(names));
  delegations.learnAll(directory, pageOf(names), delegations.request());
}

function begun(names: Names, directory = DIRECTORY, world: World = systemWorld): DelegatedDirectories {
  const delegations = new DelegatedDirectories(world, TTL_MS, () => true);
  begin(delegations, names, directory);
  return delegations;
}

interface Change {
  readonly name: string;
  readonly inode: number | null;
  readonly fails: boolean;
  happened: boolean;
  readonly answer: () => void;
  readonly over: Promise<unknown>;
}

/** A request, and the cluster's answer once it has been executed: of a delegation, of all names, or of one name. */
interface Question {
  readonly what: 'delegation' | 'names' | string;
  readonly requestedAt: number;
  answer: Names | null;
  isVoid: boolean;
}

for (const seed of [1, 2, 3, 4, 5, 6, 7, 8]) {
  test(`a cached name is the cluster's (SEED=${seed})`, async () => {
    const prng = new Prng(seed);
    let isDelegated = false;
    let isGranted = false;
    const delegations = new DelegatedDirectories(systemWorld, TTL_MS, () => isDelegated);
    const names = new Map<string, number>();
    const changes: Change[] = [];
    const questions: Question[] = [];
    const seen = { names: 0, free: 0, listings: 0 };
    let inodeLast = 100;
    const begin = (): void => {
      // Two changes at a time are rare: the kernel sends them one by one.
      if (!prng.chance(changes.length > 0 ? 0.05 : 0.3)) return;
      const name = prng.pick(NAMES);
      const inode = prng.chance(0.6) ? ++inodeLast : null;
      const fails = prng.chance(0.2);
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const after = (): NameState[] => [inode === null ? 'free' : { inode, kind: 'file', links: 1 }];
      const over = delegations
        .changing([{ parent: DIRECTORY, name }], () => promise, after)
        .catch(() => undefined);
      const answer = (): void => (fails ? reject(new Error('Unknown by intent')) : resolve());
      changes.push({ name, inode, fails, happened: false, answer, over });
    };
    const execute = (change: Change): void => {
      change.happened = true;
      if (change.inode === null) names.delete(change.name);
      else names.set(change.name, change.inode);
    };
    const ask = (what: Question['what']): void => {
      if (questions.some((one) => one.what === what)) return;
      if (what === 'delegation') {
        if (isGranted) return;
        delegations.beginRequest(DIRECTORY);
      }
      questions.push({ what, requestedAt: delegations.request(), answer: null, isVoid: false });
    };
    const answered = (one: Question, answer: Names): void => {
      questions.splice(questions.indexOf(one), 1);
      const { what, requestedAt } = one;
      if (what === 'names') delegations.learnAll(DIRECTORY, pageOf(answer), requestedAt);
      else if (what === 'delegation') {
        if (!one.isVoid) {
          isDelegated = true;
          delegations.beginDelegation(attributesOf(DIRECTORY), pageOf(answer));
        }
        delegations.endRequest(DIRECTORY);
      } else {
        const inode = answer.get(what);
        const state: NameState = inode === undefined ? 'free' : { inode, kind: 'file', links: 1 };
        delegations.learnName({ parent: DIRECTORY, name: what }, state, requestedAt);
      }
    };
    const steps: (() => Promise<void> | void)[] = [
      begin,
      () => {
        const change = changes.length === 0 ? undefined : prng.pick(changes);
        if (change?.happened === false) execute(change);
      },
      async () => {
        const change = changes.length === 0 ? undefined : prng.pick(changes);
        if (change === undefined) return;
        if (!change.happened) {
          // A change with an unknown outcome may have had no effect.
          if (!change.fails || prng.chance(0.5)) execute(change);
        }
        changes.splice(changes.indexOf(change), 1);
        change.answer();
        await change.over;
      },
      () => ask(prng.pick(['delegation', 'names', ...NAMES])),
      () => ask('delegation'),
      () => {
        // Most listings overlap with no change.
        ask('names');
        const one = questions.find(({ what }) => what === 'names');
        if (one !== undefined && prng.chance(0.5)) answered(one, new Map(names));
      },
      () => {
        const one = questions.length === 0 ? undefined : prng.pick(questions);
        if (one === undefined || one.answer !== null) return;
        one.answer = new Map(names);
        if (one.what === 'delegation') isGranted = true;
      },
      () => {
        const one = questions.length === 0 ? undefined : prng.pick(questions);
        if (one?.answer != null) answered(one, one.answer);
      },
      () => {
        if (!isGranted || !prng.chance(0.05)) return;
        [isGranted, isDelegated] = [false, false];
        delegations.endDelegation(DIRECTORY);
        for (const one of questions) if (one.what === 'delegation') one.isVoid ||= one.answer !== null;
      },
      () => {
        if (!isGranted) names.set(prng.pick(NAMES), ++inodeLast);
      },
    ];
    for (let step = 0; step < STEPS; step++) {
      await prng.pick(steps)();
      await turn();
      for (const name of NAMES) {
        const state = delegations.stateOf({ parent: DIRECTORY, name });
        if (state === 'unknown') continue;
        assert.ok(isDelegated && !changes.some((change) => change.name === name), name);
        assert.equal(state === 'free' ? undefined : (state as { inode: number }).inode, names.get(name));
        if (state === 'free') seen.free++;
        else seen.names++;
      }
      const entries = listed(delegations);
      if (entries === undefined) continue;
      seen.listings++;
      assert.ok(isDelegated && changes.length === 0);
      assert.deepEqual(
        entries,
        pageOf(names).entries.map(({ name, attributes }) => `${name}=${attributes.inode}`),
      );
    }
    assert.ok(
      Math.min(...Object.values(seen)) > STEPS / 40,
      `Names are cached often enough: ${JSON.stringify(seen)}`,
    );
  });
}

test('after two changes of a name at a time its inode is unknown until a request answers it', async () => {
  const delegations = begun(new Map([['a', 1]]));
  const place = { parent: DIRECTORY, name: 'a' };
  const answers = [2, 3].map((inode) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const over = delegations.changing(
      [place],
      () => promise,
      () => [{ inode, kind: 'file', links: 1 }],
    );
    return { resolve, over };
  });
  for (const { resolve, over } of answers) {
    resolve();
    await over;
    assert.deepEqual([delegations.stateOf(place), listed(delegations)], ['unknown', undefined]);
  }
});

test('a listing expires when its attributes do, also if this mount changes the directory meanwhile', async () => {
  const clock = { nowMs: 0 };
  const delegations = begun(new Map([['a', 1]]), DIRECTORY, { ...systemWorld, nowMs: () => clock.nowMs });
  clock.nowMs = TTL_MS / 2;
  delegations.changed({ parent: DIRECTORY, name: 'a' }, 'free');
  assert.deepEqual(listed(delegations), []);
  clock.nowMs = TTL_MS + 1;
  assert.equal(listed(delegations), undefined);
});

test('a listing with more names than the caller wants is not used', () => {
  const delegations = begun(new Map(NAMES.map((name, index) => [name, index])));
  assert.equal(delegations.listing(DIRECTORY, NAMES.length - 1), null);
  assert.equal(delegations.listing(DIRECTORY, NAMES.length)?.length, NAMES.length);
});

test('a rename to another directory moves the cached name there', async () => {
  const delegations = begun(new Map([['a', 7]]), 1);
  begin(delegations, new Map([['b', 8]]), 2);
  const places = [1, 2].map((parent) => ({ parent, name: 'a' }));
  await delegations.changing(
    places,
    async () => undefined,
    () => ['free', { inode: 7, kind: 'file', links: 1 }],
  );
  assert.deepEqual([listed(delegations, 1), listed(delegations, 2)], [[], ['a=7', 'b=8']]);
});

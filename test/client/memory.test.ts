/**
 * Goal: what a client caches after its own change is correct, and what it cannot know it does not cache.
 * Method: one directory, one change, and events between its beginning and its end.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CatalogCache, type OwnChange, type OwnOutcome } from '../../client/cluster/catalog-cache.ts';
import type { Attributes } from '../../wire/catalog-api.ts';

const DIRECTORY = 5;
const [GONE, OTHER] = ['gone', 'other'];
const BEFORE = {
  ...{ inode: DIRECTORY, kind: 'directory', live: false, links: 2 },
  ...{ accessedNs: '1', modifiedNs: '1', changedNs: '1' },
} as Attributes;
const UNLINK: OwnChange = { names: [{ parent: DIRECTORY, name: GONE }], inodes: [70] };
const UNLINKED: OwnOutcome = {
  names: [{ parent: DIRECTORY, name: GONE, inode: null }],
  atNs: '9',
  directories: 0,
};

/** A memory of a directory with two entries. */
function memoryOfTwo(): CatalogCache {
  const memory = new CatalogCache();
  memory.learn(BEFORE, memory.request());
  memory.learnName(DIRECTORY, GONE, 70, memory.request());
  memory.learnName(DIRECTORY, OTHER, 71, memory.request());
  return memory;
}

function unlink(
  memory: CatalogCache,
  between: (since: number) => void,
  outcome: OwnOutcome | null = UNLINKED,
) {
  const since = memory.beginChange(UNLINK);
  between(since);
  memory.endChange(UNLINK, since, outcome);
  return {
    attributes: memory.attributes(DIRECTORY),
    gone: memory.name(DIRECTORY, GONE),
    other: memory.name(DIRECTORY, OTHER),
  };
}

const CHANGED = { ...BEFORE, modifiedNs: '9', changedNs: '9' };
const AS_BEFORE = { attributes: undefined, gone: undefined, other: 71 };

test('after a change, a directory is as before except for the changed entry', () => {
  const memory = memoryOfTwo();
  const known = unlink(memory, () => {
    assert.equal(memory.attributes(DIRECTORY), undefined, 'Nothing is cached while it is under way');
    assert.equal(memory.name(DIRECTORY, GONE), undefined);
  });
  assert.deepEqual(known, { attributes: CHANGED, gone: null, other: 71 });
  const child = { names: [{ parent: DIRECTORY, name: 'child' }], inodes: [] };
  const made = { names: [{ parent: DIRECTORY, name: 'child', inode: 72 }], atNs: '8', directories: 1 };
  memory.endChange(child, memory.beginChange(child), made);
  const after = { ...BEFORE, links: 3, modifiedNs: '8', changedNs: '8' };
  assert.deepEqual(memory.attributes(DIRECTORY), after, 'The time is the last one, and not the latest');
  assert.equal(memory.name(DIRECTORY, 'child'), 72);
});

test('after a change with unknown outcome, the changed entries are not cached', () => {
  assert.deepEqual(
    unlink(memoryOfTwo(), () => undefined, null),
    AS_BEFORE,
  );
});

test('what is recalled during a change is not cached afterwards', () => {
  const memory = memoryOfTwo();
  const known = unlink(memory, () => memory.forget(DIRECTORY));
  assert.deepEqual(known, { attributes: undefined, gone: undefined, other: undefined });
});

test('an entry that is recalled and queried again during a change is as old as its query', () => {
  const memory = memoryOfTwo();
  const known = unlink(memory, () => {
    memory.forget(DIRECTORY);
    memory.learnName(DIRECTORY, OTHER, 71, memory.request());
  });
  assert.deepEqual(known, AS_BEFORE);
});

test('nothing outlives the session', () => {
  const memory = memoryOfTwo();
  const known = unlink(memory, () => memory.forgetAll());
  assert.deepEqual(known, { attributes: undefined, gone: undefined, other: undefined });
});

test('after two concurrent changes, it is unknown which was the last one', () => {
  const memory = memoryOfTwo();
  const other = { names: [{ parent: DIRECTORY, name: GONE }], inodes: [] };
  let mark = 0;
  const known = unlink(memory, () => {
    mark = memory.beginChange(other);
  });
  assert.deepEqual(known, AS_BEFORE);
  memory.endChange(other, mark, { ...UNLINKED, atNs: '8' });
  assert.deepEqual([memory.attributes(DIRECTORY), memory.name(DIRECTORY, GONE)], [undefined, undefined]);
});

test('names that only one of two concurrent changes touches are known, their directory is not', () => {
  const memory = memoryOfTwo();
  const rest = { names: [{ parent: DIRECTORY, name: OTHER }], inodes: [71] };
  const mark = memory.beginChange(rest);
  assert.deepEqual(
    unlink(memory, () => undefined),
    { attributes: undefined, gone: null, other: undefined },
  );
  const names = [{ parent: DIRECTORY, name: OTHER, inode: null }];
  memory.endChange(rest, mark, { ...UNLINKED, names, atNs: '8' });
  assert.deepEqual([memory.attributes(DIRECTORY), memory.name(DIRECTORY, OTHER)], [undefined, null]);
});

test("a change of the directory's own attributes meanwhile is not forgotten", () => {
  const memory = memoryOfTwo();
  const chmod = { names: [], inodes: [DIRECTORY] };
  const known = unlink(memory, () => memory.endChange(chmod, memory.beginChange(chmod)));
  assert.deepEqual(known, { attributes: undefined, gone: null, other: 71 });
});

test('without a grant of the directory, nothing is learned from a change in it', () => {
  const memory = new CatalogCache();
  const known = unlink(memory, () => undefined);
  assert.deepEqual(known, { attributes: undefined, gone: undefined, other: undefined });
});

test('a read of the directory meanwhile counts', () => {
  const memory = memoryOfTwo();
  const { changedNs } = memory.attributes(DIRECTORY) as Attributes;
  const access = { inode: DIRECTORY, accessedNs: '5', seen: { accessedNs: '1', changedNs } };
  const known = unlink(memory, () => memory.noteAccess(access));
  assert.deepEqual(known.attributes, { ...CHANGED, accessedNs: '5' });
});

test('while names are changed, the answered changes determine the directory', () => {
  const memory = memoryOfTwo();
  const rest = { names: [{ parent: DIRECTORY, name: OTHER }], inodes: [71] };
  const [first, second] = [memory.beginChange(UNLINK), memory.beginChange(rest)];
  assert.deepEqual(
    [memory.attributes(DIRECTORY), memory.attributesBeforeOwnChanges(DIRECTORY)],
    [undefined, BEFORE],
  );
  memory.endChange(rest, second, { ...UNLINKED, names: [{ parent: DIRECTORY, name: OTHER, inode: null }] });
  assert.deepEqual(memory.attributesBeforeOwnChanges(DIRECTORY), CHANGED);
  // Executed by one request: the time is certain.
  memory.endChange(UNLINK, first, UNLINKED);
  assert.deepEqual(
    [memory.attributes(DIRECTORY), memory.attributesBeforeOwnChanges(DIRECTORY)],
    [CHANGED, undefined],
  );
});

test('of two concurrent answers with different times, the later one is shown, then the cluster is asked', () => {
  const memory = memoryOfTwo();
  const rest = { names: [{ parent: DIRECTORY, name: OTHER }], inodes: [71] };
  const [first, second] = [memory.beginChange(UNLINK), memory.beginChange(rest)];
  memory.endChange(UNLINK, first, UNLINKED);
  const third = memory.beginChange(UNLINK);
  memory.endChange(rest, second, { ...UNLINKED, atNs: '8' });
  assert.deepEqual(memory.attributesBeforeOwnChanges(DIRECTORY), CHANGED);
  memory.endChange(UNLINK, third, UNLINKED);
  assert.deepEqual(
    [memory.attributes(DIRECTORY), memory.attributesBeforeOwnChanges(DIRECTORY)],
    [undefined, undefined],
  );
});

test('uncertain attributes are not cached while names are changed', () => {
  const rest = { names: [{ parent: DIRECTORY, name: OTHER }], inodes: [71] };
  const chmod = { names: [], inodes: [DIRECTORY] };
  const cases: [string, (memory: CatalogCache) => void][] = [
    ['a recall', (memory) => memory.forget(DIRECTORY)],
    ['the end of the session', (memory) => memory.forgetAll()],
    ['an unknown outcome', (memory) => memory.endChange(rest, memory.beginChange(rest))],
    ['a change of its own attributes', (memory) => void memory.beginChange(chmod)],
  ];
  for (const [what, happens] of cases) {
    const memory = memoryOfTwo();
    memory.beginChange(UNLINK);
    happens(memory);
    assert.equal(memory.attributesBeforeOwnChanges(DIRECTORY), undefined, what);
  }
});

test('attributes granted with an own change are cached, unless another change touched the inode meanwhile', () => {
  const chmod = { names: [], inodes: [70] };
  const granted = { ...BEFORE, inode: 70, kind: 'file', mode: 0o600 } as Attributes;
  const cases: [string, Attributes, (memory: CatalogCache) => void, Attributes | undefined][] = [
    ['nothing', granted, () => undefined, granted],
    ['a live file', { ...granted, live: true }, () => undefined, undefined],
    ['a recall', granted, (memory) => memory.forget(70), undefined],
    ['the end of the session', granted, (memory) => memory.forgetAll(), undefined],
    ['another own change', granted, (memory) => void memory.beginChange(chmod), undefined],
    [
      'one that has ended',
      granted,
      (memory) => memory.endChange(chmod, memory.beginChange(chmod)),
      undefined,
    ],
  ];
  for (const [what, attributes, happens, expected] of cases) {
    const memory = new CatalogCache();
    const since = memory.beginChange(chmod);
    happens(memory);
    memory.endChange(chmod, since, null, attributes);
    assert.deepEqual(memory.attributes(70), expected, what);
  }
});

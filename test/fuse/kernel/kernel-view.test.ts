import assert from 'node:assert/strict';
import { test } from 'node:test';
import { contentsName } from '../../../fuse/answered.ts';
import type { Attributes } from '../../../fuse/backend.ts';
import { UPTAKE_MS_MAX, UPTAKE_SLACK_MS } from '../../../fuse/kernel-view/in-flight.ts';
import { InodeView } from '../../../fuse/kernel-view/kernel-view.ts';
import { systemWorld } from '../../../world/system-world.ts';

const LEFT_MS = UPTAKE_SLACK_MS + 10;
const INODE = 7;
const [ONE, TWO] = [11, 12];
const PLACE = { parent: 1, name: 'f' };

function file(seq: number): Attributes {
  return { inode: INODE, kind: 'file', contents: { epoch: 1, seq }, xattrs: 0 } as Attributes;
}

function version(seq: number): string {
  return contentsName(INODE, { epoch: 1, seq });
}

function believing(leftMs: number, isGranted: ((directory: number) => boolean) | null = null) {
  const dropped: number[] = [];
  const cache = { attributesMs: 1000, validMs: () => leftMs, nameValidMs: null, isGranted };
  let nowMs = 1_000;
  const drop = async (inode: number): Promise<void> => {
    dropped.push(inode);
  };
  const view = new InodeView(cache, { drop, expire: async () => undefined }, null, {
    ...systemWorld,
    nowMs: () => nowMs,
  });
  const pass = (ms: number): void => {
    nowMs += ms;
  };
  return { view, dropped, pass };
}

/** Each way by which the kernel receives attributes. */
const WAYS: Record<string, (view: InodeView, stored: Attributes) => void> = {
  lookup: (view, stored) => view.answer(stored, () => true, ONE, PLACE),
  attributes: (view, stored) => view.answer(stored, () => true, ONE),
  listing: (view, stored) => void view.listed(stored, PLACE),
};

for (const [way, tell] of Object.entries(WAYS)) {
  test(`attributes of other contents are dropped before an open returns, also if the kernel processes them late (${way})`, async () => {
    const { view, dropped, pass } = believing(LEFT_MS);
    tell(view, file(5));
    await view.opening(INODE, version(5));
    assert.deepEqual(dropped, [], 'The kernel has the same contents');
    // The kernel may process the answer a moment later.
    pass(LEFT_MS);
    await view.opening(INODE, version(6));
    assert.deepEqual(dropped, [INODE]);
    await view.opening(INODE, version(7));
    assert.deepEqual(dropped, [INODE], 'The kernel caches nothing any more');
    tell(view, file(7));
    pass(LEFT_MS + UPTAKE_MS_MAX);
    await view.opening(INODE, version(8));
    assert.deepEqual(dropped, [INODE], 'It no longer caches an answer of long ago');
  });
}

test('attributes that the kernel may not cache are not dropped', async () => {
  const { view, dropped } = believing(0);
  view.answer(file(5), () => true, ONE, PLACE);
  await view.opening(INODE, version(6));
  assert.deepEqual(dropped, []);
  view.answerChange(file(6), () => undefined, ONE);
  await view.opening(INODE, version(7));
  assert.deepEqual(dropped, [INODE], 'The kernel caches the outcome of a change');
});

test('after two answers at a time the kernel may cache either', async () => {
  const { view, dropped } = believing(1000);
  const tell = (seq: number, caller: number): void => view.answer(file(seq), () => true, caller);
  tell(5, ONE);
  tell(6, ONE);
  await view.opening(INODE, version(6));
  assert.deepEqual(dropped, [], 'One thread has asked twice');
  tell(7, TWO);
  await view.opening(INODE, version(7));
  assert.deepEqual(dropped, [INODE]);
  await view.opening(INODE, version(7));
  assert.deepEqual(dropped, [INODE], 'Only once');
  tell(7, ONE);
  tell(7, TWO);
  tell(8, TWO);
  await view.opening(INODE, version(8));
  assert.deepEqual(dropped, [INODE, INODE], 'It is not known which answer the kernel processed last');
});

test('a change of a name drops attributes that another thread may not have processed', async () => {
  const directory = { ...file(1), kind: 'directory' } as Attributes;
  for (const { what, isGranted, askers, isDropped } of [
    { what: 'no other thread', isGranted: () => true, askers: [ONE, ONE], isDropped: false },
    { what: 'another thread', isGranted: () => true, askers: [TWO], isDropped: true },
    { what: 'both, this one last', isGranted: () => true, askers: [TWO, ONE], isDropped: true },
    { what: 'a thread of another container', isGranted: () => true, askers: [0], isDropped: true },
    { what: 'another thread, with ttl', isGranted: null, askers: [TWO], isDropped: false },
  ]) {
    const { view, dropped, pass } = believing(LEFT_MS, isGranted);
    for (const asker of askers) view.answer(directory, () => true, asker);
    await view.changedName(INODE, ONE);
    assert.deepEqual(dropped, isDropped ? [INODE] : [], what);
    pass(UPTAKE_MS_MAX + 1);
    view.answer(directory, () => true, ONE);
    await view.changedName(INODE, ONE);
    assert.deepEqual(dropped, isDropped ? [INODE] : [], 'The other threads have processed them');
  }
});

test('an entry of a listing is in flight for a while, as the answer to a look-up is', () => {
  const { view, pass } = believing(LEFT_MS);
  view.page(() => {
    view.listed(file(1), PLACE);
    return true;
  });
  assert.ok(view.isInFlight(INODE), 'Its notice is repeated until the kernel knows the inode');
  pass(UPTAKE_MS_MAX + 1);
  assert.equal(view.isInFlight(INODE), false);
});

test('an inode is forgotten when the kernel has forgotten each entry that it accepted', () => {
  const { view } = believing(LEFT_MS);
  const answer = (isAccepted: boolean, ...place: [(typeof PLACE | null)?]): void =>
    view.answer(file(1), () => isAccepted, ONE, ...place);
  const page = (isAccepted: boolean): void =>
    view.page(() => {
      view.listed(file(1), PLACE);
      return isAccepted;
    });
  for (const { what, counts, tell } of [
    { what: 'a look-up, or a creation', counts: true, tell: () => answer(true, PLACE) },
    { what: 'a creation without a name', counts: true, tell: () => answer(true, null) },
    { what: 'a listing', counts: true, tell: () => page(true) },
    { what: 'attributes', counts: false, tell: () => answer(true) },
    { what: 'a look-up that the kernel refuses', counts: false, tell: () => answer(false, PLACE) },
    { what: 'a listing that the kernel refuses', counts: false, tell: () => page(false) },
  ]) {
    answer(true, PLACE);
    tell();
    view.forget(INODE, 1);
    assert.equal(view.isInFlight(INODE), counts, what);
    view.forget(INODE, 1);
    assert.equal(view.isInFlight(INODE), false, what);
  }
  answer(true, PLACE);
  answer(true, PLACE);
  view.forget(INODE, 2);
  assert.equal(view.isInFlight(INODE), false, 'All entries at once');
});

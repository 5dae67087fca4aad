/** How long questions may take once one of them has been asked in vain for as long as it may take. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { CatalogReach } from '../../fuse/cluster/catalog-reach.ts';
import { systemWorld } from '../../world/system-world.ts';

const SILENCE = new ServiceError('no-majority', 'Nobody answers');
const REFUSAL = new ServiceError('not-found', 'There is no such name');

/** Looks that are answered by the test, and questions that are, too. */
function started(world: World = systemWorld) {
  const looks: PromiseWithResolvers<unknown>[] = [];
  const reach = new CatalogReach(world, () => {
    const look = Promise.withResolvers<unknown>();
    looks.push(look);
    return look.promise;
  });
  const ask = () => {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    let limits: { readonly timeoutMs?: number } = {};
    const answer = reach.request((given) => {
      limits = given;
      return promise;
    });
    return { answer, limits, resolve, reject };
  };
  const inVain = async (): Promise<void> => {
    const { answer, reject } = ask();
    reject(SILENCE);
    await assert.rejects(answer, SILENCE);
  };
  return { reach, looks, ask, inVain };
}

test('questions take as long as they usually may until one was asked in vain, then no longer than a moment', async () => {
  const { reach, looks, ask, inVain } = started();
  const before = ask();
  assert.deepEqual(before.limits, {});
  await inVain();
  assert.ok(reach.isAway);
  assert.equal(looks.length, 1);
  const { limits, reject, answer } = ask();
  assert.ok((limits.timeoutMs ?? Number.POSITIVE_INFINITY) <= 1_000);
  reject(SILENCE);
  await assert.rejects(answer, SILENCE);
  assert.equal(looks.length, 1, 'One looks for all');
  reach.close();
});

test('whoever was asked before is believed: the catalog is back with the first answer, also with a refusal', async () => {
  for (const answered of ['value', 'refusal', 'look', 'look refused'] as const) {
    const { reach, looks, ask, inVain } = started();
    const before = ask();
    await inVain();
    assert.ok(reach.isAway);
    if (answered === 'value') before.resolve('there');
    if (answered === 'refusal') before.reject(REFUSAL);
    if (answered === 'look') looks[0]?.resolve('there');
    if (answered === 'look refused') looks[0]?.reject(REFUSAL);
    if (answered === 'refusal') await assert.rejects(before.answer, REFUSAL);
    await turn();
    assert.equal(reach.isAway, false, answered);
    assert.deepEqual(ask().limits, {});
    reach.close();
  }
});

test('what was asked before somebody was answered says nothing of the time since', async () => {
  const { reach, ask } = started();
  const [old, other] = [ask(), ask()];
  other.resolve('there');
  await other.answer;
  old.reject(SILENCE);
  await assert.rejects(old.answer, SILENCE);
  assert.equal(reach.isAway, false);
});

test('it is looked for until it is back, or the mount ends', async () => {
  let pause = Promise.withResolvers<void>();
  const sleep = (): Promise<void> => {
    pause = Promise.withResolvers();
    return pause.promise;
  };
  const { reach, looks, inVain } = started({ ...systemWorld, sleep });
  await inVain();
  for (let look = 0; look < 3; look++) {
    looks[look]?.reject(SILENCE);
    await turn();
    pause.resolve();
    await turn();
    assert.equal(looks.length, look + 2);
  }
  reach.close();
  looks.at(-1)?.reject(SILENCE);
  await turn();
  pause.resolve();
  await turn();
  assert.equal(looks.length, 4);
});

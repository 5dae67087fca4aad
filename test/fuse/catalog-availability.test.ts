/**
 * Goal: after one catalog request has timed out, the next ones have a short time limit until the catalog answers
 * again.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { CatalogAvailability } from '../../fuse/cluster/catalog-availability.ts';
import { systemWorld } from '../../world/system-world.ts';

const SILENCE = new ServiceError('no-majority', 'Nobody answers');
const REFUSAL = new ServiceError('not-found', 'There is no such name');

/** A `CatalogReach` whose probes and requests the test answers. */
function started(world: World = systemWorld) {
  const looks: PromiseWithResolvers<unknown>[] = [];
  const reach = new CatalogAvailability(world, () => {
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

test('catalog requests have no special time limit until one times out, then at most a second', async () => {
  const { reach, looks, ask, inVain } = started();
  const before = ask();
  assert.deepEqual(before.limits, {});
  await inVain();
  assert.ok(reach.isUnavailable);
  assert.equal(looks.length, 1);
  const { limits, reject, answer } = ask();
  assert.ok((limits.timeoutMs ?? Number.POSITIVE_INFINITY) <= 1_000);
  reject(SILENCE);
  await assert.rejects(answer, SILENCE);
  assert.equal(looks.length, 1, 'One probe at a time');
  reach.close();
});

test('the first answer ends the outage: of an earlier request or of a probe, a value or a refusal', async () => {
  for (const answered of ['value', 'refusal', 'look', 'look refused'] as const) {
    const { reach, looks, ask, inVain } = started();
    const before = ask();
    await inVain();
    assert.ok(reach.isUnavailable);
    if (answered === 'value') before.resolve('there');
    if (answered === 'refusal') before.reject(REFUSAL);
    if (answered === 'look') looks[0]?.resolve('there');
    if (answered === 'look refused') looks[0]?.reject(REFUSAL);
    if (answered === 'refusal') await assert.rejects(before.answer, REFUSAL);
    await turn();
    assert.equal(reach.isUnavailable, false, answered);
    assert.deepEqual(ask().limits, {});
    reach.close();
  }
});

test('a timeout starts no outage if the catalog answered another request after that one began', async () => {
  const { reach, ask } = started();
  const [old, other] = [ask(), ask()];
  other.resolve('there');
  await other.answer;
  old.reject(SILENCE);
  await assert.rejects(old.answer, SILENCE);
  assert.equal(reach.isUnavailable, false);
});

test('probes continue until the catalog answers or the mount ends', async () => {
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

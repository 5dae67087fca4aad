import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import type { ClaimedLease, LeaseOrder, LeaseOutcome } from '../../lease/actions.ts';
import { NamedLeaseService } from '../../server/named/named-lease-service.ts';
import { leaseNoteParse, leaseNoteText } from '../../wire/named-lease.ts';
import { systemWorld } from '../../world/system-world.ts';

const MEMBERS = ['s1', 's2', 's3'] as ServerId[];
const TTL_MS = 5_000;
const ROUND_MS = 40;

/** A service whose cell returns these outcomes, one after the other, each after `ROUND_MS`. */
function serviceOf(...outcomes: readonly LeaseOutcome[]) {
  const orders: LeaseOrder[] = [];
  let nowMs = 1_000;
  const service = new NamedLeaseService({
    driver: {
      membersOf: () => MEMBERS,
      isMember: () => true,
      claimOf: () => null,
      execute: async (_name, order) => {
        nowMs += ROUND_MS;
        orders.push(order);
        const outcome = outcomes[orders.length - 1];
        if (outcome === undefined) throw new Error(`Unexpected: ${order.kind}`);
        return outcome;
      },
    },
    leaseMaxMs: 10_000,
    clockSkewMaxMs: 100,
    operationTimeoutMs: 15_000,
    nowMs: () => nowMs,
    isConnected: (server) => server !== 's3',
  });
  return { service, orders };
}

function claimOf(session: number, keys = {}, name = 'n', remainingMs = 3_000): ClaimedLease {
  const note = leaseNoteText({ name, owner: `owner ${session}`, ttlMs: TTL_MS, keys });
  return { session, token: 77, remainingMs, note };
}

async function refusal(work: Promise<unknown>): Promise<ServiceError> {
  try {
    await work;
  } catch (error) {
    assert.ok(error instanceof ServiceError, String(error));
    return error;
  }
  assert.fail('It was accepted');
}

test('a holder gets the whole remaining time since its request, all others what is left now', async () => {
  const granted = serviceOf({ kind: 'granted', lease: claimOf(5) });
  assert.equal((await granted.service.acquire('n', 5, 'me', TTL_MS, {})).remainingMs, 3_000);
  const seen = serviceOf({ kind: 'seen', lease: claimOf(5) });
  assert.equal((await seen.service.query('n')).remainingMs, 3_000 - ROUND_MS);
  const taken = serviceOf({ kind: 'taken', lease: claimOf(5) });
  const error = await refusal(taken.service.acquire('n', 6, 'me', TTL_MS, {}));
  assert.equal(error.code, 'lease-taken');
  assert.deepEqual(error.details.holder, { owner: 'owner 5', token: 77, remainingMs: 3_000 - ROUND_MS });
});

test('two names with one number: the second is refused with a reason, and nothing of the first is shown as its own', async () => {
  const lease = claimOf(5, { secret: 'of the other' }, 'other');
  const { service, orders } = serviceOf(
    { kind: 'taken', lease },
    { kind: 'seen', lease },
    { kind: 'free', lease },
    { kind: 'free', lease },
    { kind: 'granted', lease },
    { kind: 'seen', lease },
  );
  const works = [
    () => service.acquire('n', 6, 'me', TTL_MS, {}),
    () => service.query('n'),
    () => service.refresh('n', 6, TTL_MS, null),
    () => service.release('n', 6),
    // And so for the session that holds the other one.
    () => service.refresh('n', 5, TTL_MS, null),
    () => service.writeKey('n', 5, 'k', 'v'),
  ];
  for (const [place, work] of works.entries()) {
    const error = await refusal(work());
    assert.equal(orders.length, place + 1);
    assert.equal(error.code, 'lease-taken');
    assert.match(error.message, /"n" is unavailable while lease "other" is held/);
    assert.equal(error.details.holder, undefined);
  }
});

test('a length that arrived with a lease is checked like one of a request', async () => {
  const lease = { ...claimOf(5), note: leaseNoteText({ name: 'n', owner: 'x', ttlMs: 10_001, keys: {} }) };
  const { service, orders } = serviceOf({ kind: 'seen', lease }, { kind: 'seen', lease });
  for (const work of [() => service.refresh('n', 5, null, null), () => service.writeKey('n', 5, 'k', 'v')]) {
    assert.match((await refusal(work())).message, /not 10001/);
  }
  assert.ok(orders.every(({ kind }) => kind === 'query'));
});

test('without a majority a change has an unknown outcome and a query no answer; both name the missing servers', async () => {
  const orders = ['acquire', 'refresh', 'release'] as const;
  const unknown: LeaseOutcome = { kind: 'unknown' };
  const { service } = serviceOf(unknown, unknown, unknown, unknown);
  const works = [
    service.acquire('n', 1, 'me', TTL_MS, {}),
    service.refresh('n', 1, TTL_MS, null),
    service.release('n', 1),
  ];
  for (const [place, work] of works.entries()) {
    const error = await refusal(work);
    assert.equal(error.code, 'unknown', orders[place]);
    assert.deepEqual(error.details.unreachable, ['s3']);
  }
  assert.equal((await refusal(service.query('n'))).code, 'no-majority');
});

test('a refresh with a length is one round; without one, the length of the acquisition is read first', async () => {
  const one = serviceOf({ kind: 'granted', lease: claimOf(5) });
  await one.service.refresh('n', 5, 2_000, null);
  assert.deepEqual(one.orders, [{ kind: 'refresh', session: 5, spanMs: 2_000, note: null }]);
  const two = serviceOf({ kind: 'seen', lease: claimOf(5) }, { kind: 'granted', lease: claimOf(5) });
  await two.service.refresh('n', 5, null, null);
  assert.deepEqual(two.orders[1], { kind: 'refresh', session: 5, spanMs: TTL_MS, note: null });
});

test('a key is written beside the others, by the holder only', async () => {
  const kept = { a: '1', b: '2' };
  const set = serviceOf(
    { kind: 'seen', lease: claimOf(5, kept) },
    { kind: 'granted', lease: claimOf(5, kept) },
  );
  await set.service.writeKey('n', 5, 'b', '3');
  const [, order] = set.orders;
  assert.ok(order?.kind === 'refresh');
  assert.deepEqual(order.note, { text: claimOf(5, { a: '1', b: '3' }).note, before: claimOf(5, kept).note });
  const removed = serviceOf(
    { kind: 'seen', lease: claimOf(5, kept) },
    { kind: 'granted', lease: claimOf(5) },
  );
  await removed.service.writeKey('n', 5, 'a', null);
  assert.ok(removed.orders[1]?.kind === 'refresh');
  assert.equal(removed.orders[1].note?.text, claimOf(5, { b: '2' }).note);
  const stranger = serviceOf({ kind: 'seen', lease: claimOf(5, kept) });
  assert.equal((await refusal(stranger.service.writeKey('n', 6, 'a', 'x'))).code, 'lease-lost');
  assert.equal(stranger.orders.length, 1, 'Nothing was changed');
});

test('a key that is written while another change is under way is read again, and not for ever', async () => {
  const [first, second] = [claimOf(5, { a: '1' }), claimOf(5, { a: '1', b: '2' })];
  const { service, orders } = serviceOf(
    { kind: 'seen', lease: first },
    { kind: 'changed', lease: second },
    { kind: 'seen', lease: second },
    { kind: 'granted', lease: second },
  );
  await service.writeKey('n', 5, 'c', '3');
  const text = claimOf(5, { a: '1', b: '2', c: '3' }).note;
  assert.deepEqual(orders[3], {
    ...{ kind: 'refresh', session: 5, spanMs: TTL_MS, note: { text, before: second.note } },
  });
  const always = Array.from(
    { length: 32 },
    (_, at): LeaseOutcome =>
      at % 2 === 0 ? { kind: 'seen', lease: first } : { kind: 'changed', lease: second },
  );
  assert.equal((await refusal(serviceOf(...always).service.writeKey('n', 5, 'c', '3'))).code, 'busy');
});

test('changes of keys that a holder sends at once are all executed', async () => {
  let note = claimOf(5).note;
  const service = new NamedLeaseService({
    driver: {
      membersOf: () => MEMBERS,
      isMember: () => true,
      claimOf: () => null,
      execute: async (_name, order): Promise<LeaseOutcome> => {
        const lease = () => ({ ...claimOf(5), note });
        await systemWorld.nextTick();
        if (order.kind === 'query') return { kind: 'seen', lease: lease() };
        assert.ok(order.kind === 'refresh' && order.note !== null);
        if (order.note.before !== note) return { kind: 'changed', lease: lease() };
        note = order.note.text;
        return { kind: 'granted', lease: lease() };
      },
    },
    ...{ leaseMaxMs: 10_000, clockSkewMaxMs: 100, operationTimeoutMs: 15_000 },
    nowMs: () => 0,
    isConnected: () => true,
  });
  const keys = Array.from({ length: 32 }, (_, at) => `k${at}`);
  await Promise.all(keys.map((key) => service.writeKey('n', 5, key, key)));
  assert.deepEqual(Object.keys(leaseNoteParse(note)?.keys ?? {}).sort(), keys.toSorted());
});

test('a numbered change of keys that is not later than the last one changes nothing, whenever it arrives', async () => {
  const note = leaseNoteText({ name: 'n', owner: 'me', ttlMs: TTL_MS, keys: { a: '1' }, change: 3 });
  const lease = { ...claimOf(5), note };
  for (const change of [2, 3, 4]) {
    const changes = [
      (service: NamedLeaseService) => service.writeKey('n', 5, 'a', '2', change),
      (service: NamedLeaseService) => service.refresh('n', 5, null, { a: '2' }, change),
    ];
    for (const send of changes) {
      const { service, orders } = serviceOf({ kind: 'seen', lease }, { kind: 'granted', lease });
      if (change < 3) {
        assert.equal((await refusal(send(service))).code, 'precondition-failed');
        continue;
      }
      await send(service);
      assert.ok(orders[1]?.kind === 'refresh');
      const next = leaseNoteText({ name: 'n', owner: 'me', ttlMs: TTL_MS, keys: { a: '2' }, change });
      assert.deepEqual(orders[1].note, change === 3 ? null : { text: next, before: note });
    }
  }
});

test("an ended lease can be released again; another holder's cannot", async () => {
  await serviceOf({ kind: 'free', lease: null }).service.release('n', 5);
  await serviceOf({ kind: 'free', lease: claimOf(5) }).service.release('n', 5);
  const others = serviceOf({ kind: 'free', lease: claimOf(6) });
  const error = await refusal(others.service.release('n', 5));
  assert.equal(error.code, 'lease-lost');
  assert.match(error.message, /Another holder, owner 6,/);
  const refreshed = serviceOf({ kind: 'free', lease: claimOf(6) });
  assert.equal((await refusal(refreshed.service.refresh('n', 5, TTL_MS, null))).code, 'lease-lost');
});

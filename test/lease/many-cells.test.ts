/**
 * Goal: the work of a server in one tick depends on what is due, not on how many cells it has.
 * Method: ten thousand cells of a lone server, all held; count the messages and the ticks.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import type { LeaseAction } from '../../lease/actions.ts';
import { LeaseHost } from '../../lease/host.ts';

const SELF = 'a' as ServerId;
const CELLS = 10_000;
const TOGETHER = 20;
const LEASE_MS = 3000;

function held(actions: readonly LeaseAction[]): number {
  return actions.filter((action) => action.kind === 'held').length;
}

test('ten thousand cells renew three times a lease each, spread over time', () => {
  const host = new LeaseHost(
    { self: SELF, incarnation: 7 as Incarnation, leaseMs: LEASE_MS, clockSkewMaxMs: 100 },
    0,
  );
  let nowMs = LEASE_MS + 200;
  for (let cell = 1; cell <= CELLS; cell++) {
    nowMs += 0.05;
    const event = { kind: 'open', cell: cell as CellId, view: 1, members: [SELF], handicapMs: 0 } as const;
    assert.equal(held(host.step(event, nowMs)), 1);
  }
  const endMs = nowMs + 3 * LEASE_MS;
  let renewals = 0;
  let ticks = 0;
  let most = 0;
  while (nowMs < endMs) {
    const wakeMs = host.nextWakeMs();
    assert.ok(wakeMs !== null && wakeMs > nowMs, 'Held leases are renewed, and a tick leaves nothing due');
    nowMs = Math.max(wakeMs, nowMs + 1);
    ticks++;
    const now = held(host.step({ kind: 'tick' }, nowMs));
    most = Math.max(most, now);
    renewals += now;
  }
  const perCell = renewals / CELLS;
  assert.ok(perCell > 8 && perCell < 11, `${perCell} renewals of each cell in three leases`);
  assert.ok(ticks < 10_000 && most < CELLS / 20, `${most} renewals at once in ${ticks} ticks`);
  for (let cell = 1; cell <= CELLS; cell++) assert.ok(host.owns(cell as CellId, nowMs));
});

test('cells that renew together do so in one tick, whenever they were acquired', () => {
  const host = new LeaseHost(
    {
      ...{ self: SELF, incarnation: 7 as Incarnation, leaseMs: LEASE_MS, clockSkewMaxMs: 100 },
      renewsTogether: (cell) => cell <= TOGETHER,
    },
    0,
  );
  const startMs = LEASE_MS + 200;
  let nowMs = startMs;
  for (let cell = 1; cell <= 2 * TOGETHER; cell++) {
    const untilMs = startMs + (cell * LEASE_MS) / TOGETHER;
    for (let wakeMs = host.nextWakeMs(); wakeMs !== null && wakeMs < untilMs; wakeMs = host.nextWakeMs()) {
      nowMs = Math.max(nowMs, wakeMs);
      host.step({ kind: 'tick' }, nowMs);
    }
    nowMs = Math.max(nowMs, untilMs);
    host.step({ kind: 'open', cell: cell as CellId, view: 1, members: [SELF], handicapMs: 0 }, nowMs);
  }
  const ticks: number[] = [];
  for (const endMs = nowMs + 3 * LEASE_MS; nowMs < endMs; ) {
    nowMs = Math.max(nowMs, host.nextWakeMs() ?? endMs);
    const renewed = host.step({ kind: 'tick' }, nowMs).filter((action) => action.kind === 'held');
    const together = renewed.filter(({ cell }) => cell <= TOGETHER).length;
    if (together > 0) ticks.push(together);
  }
  assert.deepEqual(new Set(ticks), new Set([TOGETHER]));
  assert.ok(ticks.length >= 9 && ticks.length <= 10, `${ticks.length} renewals in three leases`);
});

test('unused cells are forgotten', () => {
  const host = new LeaseHost(
    { self: SELF, incarnation: 7 as Incarnation, leaseMs: LEASE_MS, clockSkewMaxMs: 100 },
    0,
  );
  let nowMs = LEASE_MS + 200;
  for (let cell = 1; cell <= 1000; cell++) {
    host.step({ kind: 'open', cell: cell as CellId, view: 1, members: [SELF], handicapMs: 0 }, nowMs);
    host.step({ kind: 'close', cell: cell as CellId }, nowMs);
    host.step({ kind: 'release', cell: cell as CellId }, nowMs);
  }
  assert.equal(host.cellCount, 1000);
  for (let wakeMs = host.nextWakeMs(); wakeMs !== null; wakeMs = host.nextWakeMs()) {
    nowMs = Math.max(nowMs, wakeMs);
    host.step({ kind: 'tick' }, nowMs);
  }
  assert.equal(host.cellCount, 0);
  assert.ok(nowMs < 4 * LEASE_MS, 'Soon');
});

test('of ten thousand cells requested at once some wait for others, and none for a timer', () => {
  const ids = ['a', 'b', 'c'] as ServerId[];
  let nowMs = 0;
  const hosts = new Map(
    ids.map((self, place) => {
      const incarnation = (place + 1) as Incarnation;
      return [self, new LeaseHost({ self, incarnation, leaseMs: LEASE_MS, clockSkewMaxMs: 100 }, nowMs)];
    }),
  );
  nowMs += LEASE_MS + 200;
  const underWay: [from: ServerId, action: LeaseAction][] = [];
  let decided = 0;
  const take = (from: ServerId, actions: readonly LeaseAction[]): void => {
    decided += held(actions);
    for (const action of actions) if (action.kind === 'send') underWay.push([from, action]);
  };
  for (let cell = 1; cell <= CELLS; cell++) {
    const event = { kind: 'open', cell: cell as CellId, view: 1, members: ids, handicapMs: 0 } as const;
    take(SELF, hosts.get(SELF)?.step(event, nowMs) ?? []);
  }
  assert.ok(underWay.length / 2 < CELLS / 2, 'Not all send requests at once');
  // The clock does not move: a waiting cell continues because another is done.
  for (let at = 0; at < underWay.length; at++) {
    const [from, action] = underWay[at] as [ServerId, LeaseAction];
    if (action.kind !== 'send') continue;
    const envelope = hosts.get(from)?.envelope(action.to, nowMs);
    assert.ok(envelope !== undefined);
    const frame = { kind: 'frame', from, envelope, messages: [action.message] } as const;
    take(action.to, hosts.get(action.to)?.step(frame, nowMs) ?? []);
  }
  assert.equal(decided, CELLS);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type CallUnderWay, PendingCalls } from '../../../fuse/kernel/pending-calls.ts';
import { systemWorld } from '../../../world/system-world.ts';

const HEADER = { opcode: 0, node: 7, uid: 0, gid: 0, pid: 4711 };

test('the close of a killed program gets two seconds, and is then answered with EINTR', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let nowMs = 0;
  const world = { ...systemWorld, nowMs: () => nowMs };
  const broken: [number, string, number][] = [];
  const calls = new PendingCalls(
    world,
    ({ header }, errno) => broken.push([header.unique, errno, nowMs]),
    () => 'killed',
  );
  const begin = (unique: number, request: CallUnderWay['request']): void => {
    calls.begin({ header: { ...HEADER, unique }, request, lateAtMs: () => Number.POSITIVE_INFINITY });
    calls.interrupt(unique);
  };
  begin(2, { kind: 'persist', handle: 1 });
  begin(4, { kind: 'flush', handle: 1, owner: 1n });
  while (nowMs < 4_000) {
    nowMs += 100;
    t.mock.timers.tick(100);
  }
  assert.deepEqual(broken, [
    [2, 'EINTR', 0],
    [4, 'EINTR', 2_000],
  ]);
  calls.stop();
});

test('a lock call of a killed program is answered at once, before its outcome is known; other calls with a signal wait', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let pending: 'killed' | 'stopping' = 'stopping';
  const broken: number[] = [];
  const calls = new PendingCalls(
    systemWorld,
    ({ header }) => broken.push(header.unique),
    () => pending,
  );
  const lock = { kind: 'posix', type: 'exclusive', start: 0n, end: 9n, owner: 1n, pid: 4711 } as const;
  const begin = (unique: number): AbortSignal => {
    const abort = new AbortController();
    const request = { kind: 'lock', handle: 1, lock, waits: false } as const;
    calls.begin({ header: { ...HEADER, unique }, request, lateAtMs: () => Number.POSITIVE_INFINITY, abort });
    calls.interrupt(unique);
    return abort.signal;
  };
  const stopped = begin(2);
  assert.deepEqual([stopped.aborted, broken], [true, []]);
  pending = 'killed';
  const killed = begin(4);
  assert.deepEqual([killed.aborted, broken], [true, [4]], 'The lock that it may get is released later');
  t.mock.timers.tick(100);
  assert.deepEqual(broken, [4, 2], 'The kernel reports only the first signal');
  calls.stop();
});

test('readsAnswered resolves once each earlier read of the node has ended, however it ends', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const calls = new PendingCalls(
    systemWorld,
    () => undefined,
    () => 'killed',
  );
  const begin = (unique: number, node = 7): CallUnderWay => {
    const request = { kind: 'read', handle: 1, offset: 0, length: 1 } as const;
    const call = { header: { ...HEADER, node, unique }, request, lateAtMs: () => Number.POSITIVE_INFINITY };
    calls.begin(call);
    return call;
  };
  await calls.readsAnswered(7);
  const [first] = [begin(2), begin(4), begin(6, 8)];
  let isAnswered = false;
  const answered = calls.readsAnswered(7).then(() => {
    isAnswered = true;
  });
  begin(8);
  calls.end(first);
  await Promise.resolve();
  assert.equal(isAnswered, false);
  calls.interrupt(4);
  await answered;
  const atStop = calls.readsAnswered(8);
  calls.stop();
  await atStop;
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { ReplicaDriver } from '../../server/drivers/replica-driver.ts';
import type { MemberChange } from '../../server/file/member-changes.ts';
import { decodeAnswers, encodeOrders, MoveOrders } from '../../server/membership/move-orders.ts';
import { LoopPace } from '../../server/process/loop-pace.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { systemWorld } from '../../world/system-world.ts';

const MEMBERS = ['a', 'b'] as ServerId[];
const UNUSED = {} as ReplicaDriver;

interface Changing {
  readonly file: FileId;
  readonly decidedBy: number | undefined;
  resolve(change: MemberChange): void;
  reject(error: Error): void;
}

/** Orders whose changes end as the test says; orders are late at once if `isLate`. */
function start(isLate = false) {
  const changing: Changing[] = [];
  const released: ReplicaDriver[] = [];
  const orders = new MoveOrders({
    world: { ...systemWorld, after: (ms, run) => systemWorld.after(isLate ? 0 : ms, run) },
    pace: new LoopPace(systemWorld),
    change: (file, _, decidedBy) =>
      new Promise((resolve, reject) => changing.push({ file, decidedBy, resolve, reject })),
    release: async (driver) => {
      released.push(driver);
    },
  });
  const order = async (...files: number[]) => {
    const wanted = files.map((file) => ({ file: file as FileId, members: MEMBERS, decidedBy: file + 10 }));
    return decodeAnswers(await orders.serve(encodeOrders(wanted)), wanted.length);
  };
  return { changing, released, orders, order };
}

async function ticks(): Promise<void> {
  for (let left = 5; left > 0; left--) await systemWorld.nextTick();
}

async function begun(changing: readonly Changing[], count: number): Promise<void> {
  while (changing.length < count) await systemWorld.nextTick();
}

const viewOf = (number: number) => ({ number, members: MEMBERS });

test('an order is answered once each of its files has moved, or has failed, with the outcome of each', async () => {
  const { changing, order } = start();
  let isAnswered = false;
  const answering = order(1, 2, 3).finally(() => {
    isAnswered = true;
  });
  await begun(changing, 3);
  const [first, second, third] = changing;
  assert.deepEqual([first?.decidedBy, third?.decidedBy], [11, 13]);
  first?.resolve({ view: viewOf(3), unused: null });
  third?.reject(new ServiceError('not-primary', 'Server b is the primary', { primary: 'b' }));
  await ticks();
  assert.equal(isAnswered, false);
  second?.resolve({ view: viewOf(5), unused: null });
  assert.deepEqual(await answering, [
    { view: 3 },
    { view: 5 },
    { code: 'not-primary', message: 'Server b is the primary', primary: 'b' },
  ]);
});

test('a file that needs long is answered as unknown, and continues', async () => {
  const { changing, released, order } = start(true);
  const [answer] = await order(1);
  assert.ok(answer !== undefined && 'code' in answer && answer.code === 'unknown');
  changing[0]?.resolve({ view: viewOf(3), unused: UNUSED });
  await ticks();
  assert.deepEqual(released, [UNUSED]);
});

test('a file that became primary only for its move is released, and no other', async () => {
  const { changing, released, order } = start();
  const answering = order(1, 2);
  await begun(changing, 2);
  changing[0]?.resolve({ view: viewOf(3), unused: UNUSED });
  changing[1]?.resolve({ view: viewOf(3), unused: null });
  await answering;
  assert.deepEqual(released, [UNUSED]);
});

test('malformed orders are refused, and so are malformed answers', async () => {
  const { orders } = start();
  for (const payload of [
    '',
    '{}',
    '[{"file":1}]',
    '[{"file":-1,"members":["a"]}]',
    '[{"file":1,"members":["A B"]}]',
  ])
    await assert.rejects(orders.serve(Buffer.from(payload)), MalformedError);
  for (const answers of ['', '[]', '[{}]', '[{"code":"no-such","message":""}]', '[{"view":1},{"view":1}]'])
    assert.throws(() => decodeAnswers(Buffer.from(answers), 1), { code: 'internal' });
});

test('a busy process delays background work, but not forever', async () => {
  let pauses = 0;
  let nowMs = 0;
  let isBusy = true;
  const pace = new LoopPace({
    nowMs: () => nowMs,
    nextTick: async () => {
      nowMs += isBusy ? 50 : 1;
    },
    sleep: async () => {
      pauses += 1;
    },
  });
  await pace.untilCalm();
  assert.equal(pauses, 20);
  isBusy = false;
  await pace.untilCalm();
  assert.equal(pauses, 20);
});

test('a busy process begins files of all orders in turn, a few at a time', async () => {
  let calm: () => void = () => undefined;
  const begun: FileId[] = [];
  const orders = new MoveOrders({
    world: systemWorld,
    pace: {
      untilCalm: () =>
        new Promise<void>((resolve) => {
          calm = resolve;
        }),
    },
    change: async (file) => {
      begun.push(file);
      return { view: viewOf(3), unused: null };
    },
    release: async () => undefined,
  });
  const order = (first: number) =>
    orders.carryOut(
      Array.from({ length: 12 }, (_, place) => ({ file: (first + place) as FileId, members: MEMBERS })),
    );
  const both = Promise.all([order(1), order(100)]);
  for (const count of [0, 8, 16, 20, 24]) {
    await ticks();
    assert.equal(begun.length, count);
    calm();
  }
  assert.equal((await both).flat().length, 24);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, catalogOfInode, inodesOf } from '../../base/ids.ts';
import { SettleBatches } from '../../server/file/settler.ts';
import type { FileState } from '../../wire/http-api.ts';

const MARK = { epoch: 1, turn: 0 };

function state(file: number): FileState {
  return {
    file,
    sizeBytes: file,
    modifiedNs: '1',
    contents: { epoch: 1, seq: 1 },
    seq: 1,
    primary: 's1',
    epoch: 1,
  };
}

test('requests that arrive while a command is under way share the next one', async () => {
  const commands: number[][] = [];
  let release: () => void = () => undefined;
  const settler = new SettleBatches(catalogOfInode, (files) => {
    commands.push(files.map((file) => file.inode));
    return new Promise<void>((resolve) => {
      release = resolve;
    });
  });
  const first = settler.settle(state(1), MARK);
  const others = [settler.settle(state(2), MARK), settler.settle(state(3), MARK)];
  release();
  await first;
  release();
  await Promise.all(others);
  assert.deepEqual(commands, [[1], [2, 3]]);
});

test('a failed command fails its own requests, and no others', async () => {
  let count = 0;
  const settler = new SettleBatches(catalogOfInode, async () => {
    count++;
    if (count === 1) throw new Error('no majority');
  });
  const first = settler.settle(state(1), MARK);
  const second = settler.settle(state(2), MARK);
  await assert.rejects(first, /no majority/);
  await second;
  assert.equal(count, 2);
});

test('settlings that share a command with those of a volume that moves are sent again without them', async () => {
  const commands: number[][] = [];
  const moving = new Set([2, 3]);
  const settler = new SettleBatches(catalogOfInode, async (files) => {
    const inodes = files.map(({ inode }) => inode);
    commands.push(inodes);
    const cause = new ServiceError('moving', 'The volume moves');
    // The primary was killed before it answered, and the next one refuses.
    if (inodes.includes(3)) throw new ServiceError('unknown', 'The volume began to move', {}, { cause });
    if (inodes.some((inode) => moving.has(inode))) throw cause;
    if (inodes.includes(5)) throw new ServiceError('not-found', 'It has moved', { elsewhere: true });
  });
  const first = settler.settle(state(1), MARK);
  const outcomes = await Promise.allSettled([2, 3, 4, 5].map((file) => settler.settle(state(file), MARK)));
  await first;
  assert.deepEqual(
    outcomes.map((outcome) => (outcome.status === 'rejected' ? outcome.reason.code : 'settled')),
    ['moving', 'unknown', 'settled', 'not-found'],
  );
  assert.deepEqual(commands, [[1], [2, 3, 4, 5], [2, 3], [2], [3], [4, 5], [4], [5]]);
});

test('each catalog gets its own files, also while another one has not answered', async () => {
  const [first, other] = [1, inodesOf(3 as CatalogNumber).first];
  const commands: number[][] = [];
  let release: () => void = () => undefined;
  const settler = new SettleBatches(catalogOfInode, async (files) => {
    commands.push(files.map(({ inode }) => inode));
    const { promise, resolve } = Promise.withResolvers<void>();
    if (files[0]?.inode !== first) return;
    release = resolve;
    await promise;
  });
  const waiting = settler.settle(state(first), MARK);
  const shared = [2, other, other + 1].map((file) => settler.settle(state(file), MARK));
  await new Promise(setImmediate);
  assert.deepEqual(commands, [[first], [other], [other + 1]]);
  release();
  await Promise.all([waiting, ...shared]);
  assert.deepEqual(commands.at(-1), [2]);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
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
  const settler = new SettleBatches((files) => {
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
  const settler = new SettleBatches(async () => {
    count++;
    if (count === 1) throw new Error('no majority');
  });
  const first = settler.settle(state(1), MARK);
  const second = settler.settle(state(2), MARK);
  await assert.rejects(first, /no majority/);
  await second;
  assert.equal(count, 2);
});

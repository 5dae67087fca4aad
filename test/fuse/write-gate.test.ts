import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { test } from 'node:test';
import type { FileSystemCalls } from '../../fuse/transport.ts';
import { WriteGate } from '../../fuse/write-gate.ts';

const READ_ONLY = { errno: 'EROFS' };

/** @param answers collects functions that answer the calls in order; absent: each call is answered at once */
function callsOf(called: string[], answers?: (() => void)[]): FileSystemCalls {
  const call = (name: string) => () => {
    called.push(name);
    return answers === undefined ? Promise.resolve() : new Promise<void>((resolve) => answers.push(resolve));
  };
  const names = [
    ...['setAttributes', 'touchStatus', 'truncate', 'setXattr', 'removeXattr', 'create', 'createUnnamed'],
    ...['makeNode', 'makeDirectory', 'symlink', 'link', 'unlink', 'removeDirectory', 'rename', 'write'],
    ...['allocate', 'copyRange', 'open', 'read', 'flush', 'persist', 'release'],
  ];
  return Object.fromEntries(names.map((name) => [name, call(name)])) as unknown as FileSystemCalls;
}

test('a closed gate refuses calls that begin a change, and passes all others', async () => {
  const called: string[] = [];
  const gate = new WriteGate();
  const calls = gate.over(callsOf(called));
  await gate.close();
  const by = { uid: 0, gid: 0 };
  const { O_RDONLY, O_WRONLY, O_RDWR, O_TRUNC } = constants;
  for (const flags of [O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC])
    await assert.rejects(calls.open(1, flags, by), READ_ONLY);
  for (const name of Object.keys(callsOf([])) as (keyof FileSystemCalls)[]) {
    if (['open', 'read', 'flush', 'persist', 'release'].includes(name)) continue;
    await assert.rejects((calls[name] as () => Promise<unknown>)(), READ_ONLY, name);
  }
  assert.deepEqual(called, []);
  void calls.open(1, O_RDONLY, by);
  void calls.read(1, 0, 1);
  void calls.flush(1);
  void calls.release(1);
  assert.deepEqual(called, ['open', 'read', 'flush', 'release']);
  gate.open();
  void calls.unlink(1, 'name');
  assert.equal(called.at(-1), 'unlink');
});

test('close resolves once the calls that have passed the gate are answered', async () => {
  const answers: (() => void)[] = [];
  const gate = new WriteGate();
  const calls = gate.over(callsOf([], answers));
  void calls.unlink(1, 'one');
  void calls.unlink(1, 'two');
  let isClosed = false;
  const closed = gate.close().then(() => {
    isClosed = true;
  });
  answers[0]?.();
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isClosed, false);
  answers[1]?.();
  await closed;
});

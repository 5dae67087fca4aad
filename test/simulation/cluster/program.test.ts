/** Goal: a program accepts EEXIST for a new file that its mount has dropped, and for nothing else. */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { test } from 'node:test';
import { Prng } from '../../../base/prng.ts';
import { KernelError } from '../kernel/kernel-error.ts';
import type { Process } from '../kernel/process.ts';
import { MountProgram } from './program.ts';
import type { Run } from './run.ts';
import type { SimulatedMachine } from './simulated-machine.ts';
import type { SimulatedProcess } from './simulated-process.ts';

const { O_CREAT, O_EXCL, O_WRONLY } = constants;

type Call = 'open' | 'ftruncate' | 'close';

/**
 * @returns violations of a program that truncates a file if this call fails with EEXIST, and `fstat` of another
 * descriptor with ESTALE
 */
async function violationsOf(failing: Call, flags: number, isKept = false): Promise<string[]> {
  const violations: string[] = [];
  const call = (name: Call) => async () => {
    if (name === failing) throw new KernelError('EEXIST');
    return 3;
  };
  const fstat = async () => {
    throw new KernelError('ESTALE');
  };
  const process = { open: call('open'), ftruncate: call('ftruncate'), close: call('close'), fstat };
  const run = {
    ...{
      history: [],
      completed: 0,
      unknown: 0,
      nowNs: () => 0,
      count: () => undefined,
      note: () => undefined,
    },
    violation: (text: string) => violations.push(text),
  };
  const world = { sleep: async () => undefined };
  const program = new MountProgram(
    'm1/1',
    world as unknown as SimulatedProcess,
    new Prng(1),
    run as unknown as Run,
    process as unknown as Process,
    { dropped: new Set() } as unknown as SimulatedMachine,
    new Map(),
  );
  await program.operation('truncate', 'file/vol1/f', { size: 4 }, {}, () =>
    program.opened('/f', O_WRONLY | flags, async (file) => {
      await program.process.ftruncate(file, 4);
      return null;
    }),
  );
  if (isKept) await program.operation('size', 'file/vol1/f', null, {}, () => program.sizeOf('/f', 4));
  assert.equal(run.unknown, isKept ? 2 : 1);
  return violations;
}

test('calls on a new file, and its close, may fail with EEXIST because another client has created the name', async () => {
  assert.deepEqual(await violationsOf('ftruncate', O_CREAT), []);
  assert.deepEqual(await violationsOf('close', O_CREAT), []);
});

test('the cluster must then have no file with its number, and only then', async () => {
  assert.deepEqual(await violationsOf('close', O_CREAT, true), []);
  assert.equal((await violationsOf('close', O_CREAT | O_EXCL, true)).length, 2);
});

test('an open without O_EXCL, and calls on a file that was created exclusively, must not fail so', async () => {
  assert.equal((await violationsOf('open', O_CREAT)).length, 1);
  assert.equal((await violationsOf('close', O_CREAT | O_EXCL)).length, 1);
  assert.equal((await violationsOf('ftruncate', 0)).length, 1);
});

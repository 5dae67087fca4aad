import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { IN_HEADER_BYTES, OPCODE, OUT_HEADER_BYTES } from '../../../fuse/kernel/protocol.ts';
import { promptAnswer } from '../../../fuse/kernel/reader-answers.ts';
import { InodesWithoutAcls } from '../../../fuse/kernel-view/inodes-without-acls.ts';
import { systemWorld } from '../../../world/system-world.ts';

const ENODATA = -61;
const EOPNOTSUPP = -95;
const LONG_MS = 60_000;
/** Inode numbers of a later epoch of the catalog have upper halves. */
const LARGE = 7 * 2 ** 32 + 5;

function requestFor(name: string, node: number, opcode: number = OPCODE.getxattr): Buffer {
  const request = Buffer.alloc(IN_HEADER_BYTES + 8 + name.length + 1);
  request.writeUInt32LE(request.length, 0);
  request.writeUInt32LE(opcode, 4);
  request.writeBigUInt64LE(42n, 8);
  request.writeBigUInt64LE(BigInt(node), 16);
  request.write(name, IN_HEADER_BYTES + 8, 'latin1');
  return request;
}

function errorOf(absent: InodesWithoutAcls, name: string, node: number): number | null {
  const reply = promptAnswer(requestFor(name, node), absent);
  if (reply === null) return null;
  assert.deepEqual([reply.length, reply.readUInt32LE(0)], [OUT_HEADER_BYTES, OUT_HEADER_BYTES]);
  assert.equal(reply.readBigUInt64LE(8), 42n);
  return reply.readInt32LE(4);
}

test('a query of the ACLs of an inode without any is answered at once, until that expires or is forgotten', () => {
  const absent = new InodesWithoutAcls(InodesWithoutAcls.memory(), systemWorld.nowMs);
  const list = 'system.posix_acl_access';
  assert.equal(errorOf(absent, list, LARGE), null);
  absent.add(LARGE, LONG_MS);
  assert.equal(errorOf(absent, list, LARGE), ENODATA);
  assert.equal(errorOf(absent, 'system.posix_acl_default', LARGE), ENODATA);
  // Nothing is known of other inodes, also if only the upper half of their number differs.
  for (const other of [LARGE + 1, 5, LARGE + 2 ** 32]) assert.equal(errorOf(absent, list, other), null);
  absent.add(9, -1);
  assert.equal(errorOf(absent, list, 9), null);
  absent.forgetAll();
  assert.equal(errorOf(absent, list, LARGE), null);
  absent.add(LARGE, LONG_MS);
  assert.equal(errorOf(absent, list, LARGE), ENODATA);
});

test('attributes that no file has are refused at once; those that a file may have, and other calls, are not answered here', () => {
  const absent = new InodesWithoutAcls(InodesWithoutAcls.memory(), systemWorld.nowMs);
  absent.add(7, LONG_MS);
  assert.equal(errorOf(absent, 'security.selinux', 7), EOPNOTSUPP);
  assert.equal(errorOf(absent, 'security.capability', 7), ENODATA);
  assert.equal(errorOf(absent, 'security.capability', 8), null);
  assert.equal(errorOf(absent, 'user.color', 7), null);
  assert.equal(errorOf(absent, 'leasehold.replicas', 7), null);
  assert.equal(promptAnswer(requestFor('security.capability', 7, OPCODE.setxattr), absent), null);
  assert.equal(promptAnswer(Buffer.alloc(IN_HEADER_BYTES), absent), null);
});

test('a thread that reads during a write of another thread never confuses two inodes', async () => {
  const memory = InodesWithoutAcls.memory();
  const absent = new InodesWithoutAcls(memory, systemWorld.nowMs);
  // All three have the same slot; the last one consists of halves of the others.
  const [here, other, never] = [5 + 2 ** 32, 5 + 2 ** 14 + 2 * 2 ** 32, 5 + 2 * 2 ** 32];
  const program = `
    const { parentPort, workerData } = require('node:worker_threads');
    Promise.all(workerData.sources.map((source) => import(source))).then(([{ InodesWithoutAcls }, { systemWorld }]) => {
      const absent = new InodesWithoutAcls(workerData.memory, systemWorld.nowMs);
      const counts = { here: 0, never: 0 };
      while (counts.here < 1000) {
        if (absent.has(workerData.here)) counts.here++;
        if (absent.has(workerData.never)) counts.never++;
      }
      parentPort.postMessage(counts);
    });`;
  const sources = ['fuse/kernel-view/inodes-without-acls.ts', 'world/system-world.ts'].map(
    (path) => new URL(`../../../${path}`, import.meta.url).href,
  );
  const thread = new Worker(program, { eval: true, workerData: { memory, sources, here, never } });
  let counts: unknown = null;
  thread.once('message', (told) => {
    counts = told;
  });
  while (counts === null) {
    for (let round = 0; round < 1000; round++) {
      absent.add(here, LONG_MS);
      absent.add(other, LONG_MS);
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.deepEqual(counts, { here: 1000, never: 0 });
  await thread.terminate();
});

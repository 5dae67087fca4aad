import { readSync, writeSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { systemWorld } from '../../world/system-world.ts';
import { InodesWithoutAcls } from '../kernel-view/inodes-without-acls.ts';
import { IN_HEADER_BYTES } from './protocol.ts';
import { type ReaderData, SMALL_BYTES_MAX } from './reader.ts';
import { promptAnswer } from './reader-answers.ts';
import { RequestRing } from './request-ring.ts';

/**
 * Blocks in reads of the device. Answers the most frequent simple requests itself, passes small ones through the ring,
 * and transfers large writes with their memory.
 */

const { fd, memory, absent, requestBytesMax } = workerData as ReaderData;
const absentLists = absent === null ? null : new InodesWithoutAcls(absent, systemWorld.nowMs);
const ring = new RequestRing(memory);
let buffer = newBuffer();

for (let length = next(); length !== null; length = next()) {
  if (length < IN_HEADER_BYTES) continue;
  if (isAnswered(length)) continue;
  if (length <= SMALL_BYTES_MAX) {
    ring.put(buffer.subarray(0, length));
  } else if (length * 2 > requestBytesMax) {
    parentPort?.postMessage(buffer.subarray(0, length), [buffer.buffer]);
    buffer = newBuffer();
  } else {
    // A copy: a slice of a Buffer would share the transferred memory.
    const bytes = new Uint8Array(buffer.subarray(0, length));
    parentPort?.postMessage(bytes, [bytes.buffer]);
  }
}

function isAnswered(length: number): boolean {
  const reply = absentLists === null ? null : promptAnswer(buffer.subarray(0, length), absentLists);
  if (reply === null) return false;
  try {
    writeSync(fd, reply);
    return true;
  } catch {
    // The main thread will get the error.
    return false;
  }
}

/** Not cleared: that would take as long as filling it. */
function newBuffer(): Buffer<ArrayBuffer> {
  return Buffer.allocUnsafeSlow(requestBytesMax);
}

function next(): number | null {
  for (;;) {
    try {
      return readSync(fd, buffer);
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? error.code : undefined;
      if (code === 'ENODEV') return null;
      // ENOENT: the caller ended during the read.
      if (code !== 'EINTR' && code !== 'EAGAIN' && code !== 'ENOENT') throw error;
    }
  }
}

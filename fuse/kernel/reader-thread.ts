import { readSync, writeSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { systemWorld } from '../../world/system-world.ts';
import { AbsentLists } from '../kernel-view/absent-lists.ts';
import { promptAnswer } from './prompt-answers.ts';
import { IN_HEADER_BYTES } from './protocol.ts';
import { type ReaderData, SMALL_BYTES_MAX } from './reader.ts';
import { RequestRing } from './request-ring.ts';

/**
 * The thread that waits for the kernel. It does hardly anything else: a read of the device blocks until there is a
 * request. What is asked for most, and needs no more than a look, it answers itself. What is small goes through the ring; a large write is given away together with its memory.
 */

const { fd, memory, absent, requestBytesMax } = workerData as ReaderData;
const absentLists = absent === null ? null : new AbsentLists(absent, systemWorld.nowMs);
const ring = new RequestRing(memory);
let buffer = room();

for (let length = next(); length !== null; length = next()) {
  if (length < IN_HEADER_BYTES) continue;
  if (isAnswered(length)) continue;
  if (length <= SMALL_BYTES_MAX) {
    ring.put(buffer.subarray(0, length));
  } else if (length * 2 > requestBytesMax) {
    parentPort?.postMessage(buffer.subarray(0, length), [buffer.buffer]);
    buffer = room();
  } else {
    // A copy: the slice of a Buffer would be the same memory, which would be gone.
    const bytes = new Uint8Array(buffer.subarray(0, length));
    parentPort?.postMessage(bytes, [bytes.buffer]);
  }
}

/** @returns whether the kernel has the answer to the request in the buffer */
function isAnswered(length: number): boolean {
  const reply = absentLists === null ? null : promptAnswer(buffer.subarray(0, length), absentLists);
  if (reply === null) return false;
  try {
    writeSync(fd, reply);
    return true;
  } catch {
    // Whoever answers all else finds out what is wrong with it.
    return false;
  }
}

/** Not cleared, which would take as long as to fill it. */
function room(): Buffer<ArrayBuffer> {
  return Buffer.allocUnsafeSlow(requestBytesMax);
}

/** @returns how many bytes the next request has; null when the mount is gone */
function next(): number | null {
  for (;;) {
    try {
      return readSync(fd, buffer);
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? error.code : undefined;
      if (code === 'ENODEV') return null;
      // ENOENT: whoever asked has gone while it was being handed over.
      if (code !== 'EINTR' && code !== 'EAGAIN' && code !== 'ENOENT') throw error;
    }
  }
}

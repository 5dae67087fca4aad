import { readSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { IN_HEADER_BYTES } from './protocol.ts';
import { type ReaderData, SMALL_BYTES_MAX } from './reader.ts';
import { RequestRing } from './request-ring.ts';

/**
 * The thread that waits for the kernel. It does nothing else: a read of the device blocks until there is a
 * request. What is small goes through the ring; a large write is given away together with its memory.
 */

const { fd, memory, requestBytesMax } = workerData as ReaderData;
const ring = new RequestRing(memory);
let buffer = room();

for (let length = next(); length !== null; length = next()) {
  if (length < IN_HEADER_BYTES) continue;
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

/** Not cleared, which would take as long as to fill it. */
function room(): Uint8Array<ArrayBuffer> {
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

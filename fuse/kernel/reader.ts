import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { makeReleasable } from '../../base/releasable-memory.ts';
import type { World } from '../../base/world.ts';
import { RequestRing } from './request-ring.ts';

export interface ReaderData {
  readonly fd: number;
  readonly memory: SharedArrayBuffer;
  readonly absent: SharedArrayBuffer | null;
  readonly requestBytesMax: number;
}

/** Larger requests, which are writes, bypass the ring. */
export const SMALL_BYTES_MAX = 64 * 1024;
const RING_BYTES = 1024 * 1024;
/** Per turn of the event loop, so that answers of the cluster are handled in between. */
const REQUESTS_PER_TICK = 64;

/**
 * @param absent memory of `InodesWithoutAcls`; null if the thread answers nothing
 * @param received gets each request complete, in memory of its own
 * @returns resolves when the mount is gone; rejects when it cannot be read any more
 */
export function readRequests(
  world: World,
  fd: number,
  requestBytesMax: number,
  absent: SharedArrayBuffer | null,
  received: (request: Buffer) => void,
): Promise<void> {
  const memory = RequestRing.memory(RING_BYTES);
  const ring = new RequestRing(memory);
  const workerData: ReaderData = { fd, memory, absent, requestBytesMax };
  const source = new URL(`reader-thread${extname(import.meta.url)}`, import.meta.url);
  // Only with an environment of its own a thread heeds NODE_OPTIONS, by which an installed package loads TypeScript.
  const thread = new Worker(source, { workerData, env: { ...process.env } });
  thread.on('message', (bytes: Uint8Array) => {
    // The only request in its memory, which was transferred.
    makeReleasable(bytes);
    received(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  });
  const takeRequests = (): void => {
    try {
      for (let count = 0; count < REQUESTS_PER_TICK; count++) {
        const request = ring.take();
        if (request === null) break;
        received(request);
      }
    } finally {
      // Even after an error, since later requests need replies.
      const more = ring.more();
      if (more === undefined) world.soon(takeRequests);
      else void more.then(takeRequests);
    }
  };
  takeRequests();
  return new Promise((resolve, reject) => {
    thread.once('error', reject);
    thread.once('exit', () => resolve());
  });
}

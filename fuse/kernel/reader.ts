import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { lend } from '../../base/lent-memory.ts';
import type { World } from '../../base/world.ts';
import { RequestRing } from './request-ring.ts';

/** What the reading thread is started with. */
export interface ReaderData {
  readonly fd: number;
  readonly memory: SharedArrayBuffer;
  /** Of `AbsentLists`; null where all is answered by the other thread. */
  readonly absent: SharedArrayBuffer | null;
  readonly requestBytesMax: number;
}

/** Larger requests, which are writes, do not go through the ring. */
export const SMALL_BYTES_MAX = 64 * 1024;
const RING_BYTES = 1024 * 1024;
/** Requests that are begun in one turn of the event loop, so that answers of the cluster get theirs. */
const TURN_COUNT = 64;

/**
 * Brings the requests of a mount from the thread that waits for them, each whole and in memory of its own.
 *
 * @param fd /dev/fuse, of a mount
 * @param absent memory of `AbsentLists`, by which the thread answers what is asked for most; null where it answers nothing
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
  // TypeScript as this file is, or JavaScript.
  const source = new URL(`reader-thread${extname(import.meta.url)}`, import.meta.url);
  // With an environment of its own, a thread heeds NODE_OPTIONS, by which an installed package loads TypeScript.
  const thread = new Worker(source, { workerData, env: { ...process.env } });
  thread.on('message', (bytes: Uint8Array) => {
    // It is the only one of its memory, which came along.
    lend(bytes);
    received(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  });
  const turn = (): void => {
    try {
      for (let count = 0; count < TURN_COUNT; count++) {
        const request = ring.take();
        if (request === null) break;
        received(request);
      }
    } finally {
      // Also behind an error: the requests that follow get their replies.
      const more = ring.more();
      if (more === undefined) world.soon(turn);
      else void more.then(turn);
    }
  };
  turn();
  return new Promise((resolve, reject) => {
    thread.once('error', reject);
    thread.once('exit', () => resolve());
  });
}

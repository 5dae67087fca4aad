import { randomFillSync } from 'node:crypto';
import {
  closeSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

const BLOCK_BYTES = 4096;

/** The work of one job. Paths are absolute; sizes and offsets are in bytes. */
export type Order =
  | { readonly kind: 'write'; path: string; bytes: number; requestBytes: number; fsync: boolean }
  | { readonly kind: 'read'; path: string; bytes: number; requestBytes: number }
  /** Requests of 4 KiB at random offsets of a file, for `forMs`; writes end with one `fsync`. */
  | { readonly kind: 'random'; path: string; bytes: number; writes: boolean; forMs: number; seed: number }
  /** Files of `bytes` bytes, each created, written and closed before the next. */
  | { readonly kind: 'create'; folder: string; from: number; count: number; bytes: number }
  | { readonly kind: 'stat' | 'unlink'; folder: string; from: number; count: number };

/** The result of a job: bytes, requests or files, and how long it took. */
export interface Done {
  readonly units: number;
  readonly ms: number;
}

/**
 * Runs orders at the same time, each in a thread of its own: calls that wait for a mount block no other job, and not
 * the reading of the servers' output.
 *
 * @returns units of all jobs per second of the slowest
 */
export async function perform(orders: readonly Order[]): Promise<number> {
  const done = await Promise.all(orders.map(performOne));
  const units = done.reduce((sum, one) => sum + one.units, 0);
  return (units * 1000) / Math.max(...done.map(({ ms }) => ms));
}

function performOne(order: Order): Promise<Done> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: order });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

function carryOut(order: Order): Done {
  const beganMs = performance.now();
  const units = unitsOf(order, beganMs);
  return { units, ms: performance.now() - beganMs };
}

function unitsOf(order: Order, beganMs: number): number {
  switch (order.kind) {
    case 'write': {
      const buffer = randomFillSync(Buffer.alloc(order.requestBytes));
      const file = openSync(order.path, 'w');
      for (let at = 0; at < order.bytes; at += order.requestBytes) writeSync(file, buffer);
      if (order.fsync) fsyncSync(file);
      closeSync(file);
      return order.bytes;
    }
    case 'read': {
      const buffer = Buffer.alloc(order.requestBytes);
      const file = openSync(order.path, 'r');
      let bytes = 0;
      for (let read = readSync(file, buffer); read > 0; read = readSync(file, buffer)) bytes += read;
      closeSync(file);
      if (bytes !== order.bytes) throw new Error(`${order.path}: ${bytes} bytes instead of ${order.bytes}`);
      return bytes;
    }
    case 'random': {
      const buffer = randomFillSync(Buffer.alloc(BLOCK_BYTES));
      const file = openSync(order.path, order.writes ? 'r+' : 'r');
      const blocks = Math.floor(order.bytes / BLOCK_BYTES);
      let state = order.seed;
      let requests = 0;
      while (performance.now() - beganMs < order.forMs) {
        // Marsaglia's xorshift: the same offsets for each subject.
        state ^= state << 13;
        state ^= state >>> 17;
        state ^= state << 5;
        const at = ((state >>> 0) % blocks) * BLOCK_BYTES;
        const moved = order.writes
          ? writeSync(file, buffer, 0, BLOCK_BYTES, at)
          : readSync(file, buffer, 0, BLOCK_BYTES, at);
        if (moved !== BLOCK_BYTES) throw new Error(`${order.path}: ${moved} bytes at ${at}`);
        requests++;
      }
      if (order.writes) fsyncSync(file);
      closeSync(file);
      return requests;
    }
    case 'create': {
      const buffer = randomFillSync(Buffer.alloc(order.bytes));
      mkdirSync(order.folder, { recursive: true });
      for (let number = order.from; number < order.from + order.count; number++) {
        writeFileSync(join(order.folder, `f${number}`), buffer);
      }
      return order.count;
    }
    case 'stat':
    case 'unlink': {
      const call = order.kind === 'stat' ? lstatSync : unlinkSync;
      for (let number = order.from; number < order.from + order.count; number++) {
        call(join(order.folder, `f${number}`));
      }
      // The servers must have executed the unlinks that have returned.
      if (order.kind === 'unlink') syncDirectory(order.folder);
      return order.count;
    }
  }
}

function syncDirectory(folder: string): void {
  const directory = openSync(folder, 'r');
  fsyncSync(directory);
  closeSync(directory);
}

if (!isMainThread) parentPort?.postMessage(carryOut(workerData as Order));

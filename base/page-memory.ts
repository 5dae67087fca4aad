import { assert } from './assert.ts';

/** Direct writes use multiples of this for memory, offset and length; no known file system needs more. */
export const PAGE_BYTES = 4096;

/** The largest write, and a page before it for its header. */
export const PAGE_MEMORY_BYTES_MAX = 4 * 1024 * 1024 + PAGE_BYTES;
/** Slots kept for reuse; more go back to the system. */
const IDLE_SLOTS_MAX = 8;

const idle: ArrayBuffer[] = [];
const inUse = new WeakSet<ArrayBufferLike>();

/**
 * Page-aligned memory, which direct writes need (decision 0061). Node does not report a buffer's address, but V8
 * allocates resizable buffers by pages. If that changes, the system refuses direct writes. Memory given back is
 * reused, but never through an old view, which then has no bytes.
 *
 * @param sizeBytes at most `PAGE_MEMORY_BYTES_MAX`
 * @returns uncleared memory; if not given back, the garbage collector frees it
 */
export function pageMemory(sizeBytes: number): Buffer<ArrayBuffer> {
  assert(sizeBytes > 0 && sizeBytes <= PAGE_MEMORY_BYTES_MAX, 'Page memory holds one write at most');
  const slot = idle.pop() ?? new ArrayBuffer(PAGE_MEMORY_BYTES_MAX, { maxByteLength: PAGE_MEMORY_BYTES_MAX });
  inUse.add(slot);
  return Buffer.from(slot, 0, sizeBytes);
}

export function isPageMemory(buffer: ArrayBufferLike): boolean {
  return inUse.has(buffer);
}

/** Whether a direct write can use the bytes where they are. */
export function isPageAligned(bytes: Uint8Array): boolean {
  return inUse.has(bytes.buffer) && bytes.byteOffset % PAGE_BYTES === 0;
}

/** Gives the memory back: all views lose their bytes. @throws AssertionFailure if it is not `pageMemory`'s, or twice */
export function releasePages({ buffer }: Uint8Array): void {
  assert(buffer instanceof ArrayBuffer && inUse.delete(buffer), 'Memory is released once, by its last user');
  // Without a copy: the same memory in a new buffer.
  const slot = structuredClone(buffer, { transfer: [buffer] });
  if (idle.length < IDLE_SLOTS_MAX) idle.push(slot);
}

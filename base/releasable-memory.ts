import { assert } from './assert.ts';
import { isPageMemory, PAGE_BYTES, pageMemory, releasePages } from './page-memory.ts';

/**
 * Memory for contents, which its last user gives back at once. Otherwise the garbage collector has to find it in the
 * whole heap, and following contents use memory outside the processor's cache (decision 0042). A user gives it back
 * only if nothing else, the system included, uses the bytes; not giving back is harmless. A stale view
 * of memory given back has no bytes, so it never reads others.
 */
const releasable = new WeakSet<ArrayBufferLike>();

const RELEASABLE_BYTES_MIN = 16 * 1024;

/** @returns uncleared memory that may be given back */
export function releasableMemory(sizeBytes: number): Buffer<ArrayBuffer> {
  const bytes = Buffer.allocUnsafeSlow(sizeBytes);
  if (sizeBytes >= RELEASABLE_BYTES_MIN) releasable.add(bytes.buffer);
  return bytes;
}

/**
 * Memory for direct writes to the disk (decision 0061).
 *
 * @param sizeBytes at most `PAGE_MEMORY_BYTES_MAX`, less the part of a page before `pageAt`
 * @param pageAt offset in the bytes at which a page begins
 */
export function releasablePages(sizeBytes: number, pageAt: number): Buffer<ArrayBuffer> {
  assert(pageAt < PAGE_BYTES, 'The bytes before the first page fit the page before it');
  const whole = pageMemory(PAGE_BYTES - pageAt + sizeBytes);
  releasable.add(whole.buffer);
  return whole.subarray(PAGE_BYTES - pageAt);
}

/** Lets the receiver give back the memory of these bytes; nothing else needs it. */
export function makeReleasable(bytes: Uint8Array): void {
  releasable.add(bytes.buffer);
}

/** Leaves the memory to the garbage collector, because it has several users. */
export function makeUnreleasable(bytes: Uint8Array): void {
  releasable.delete(bytes.buffer);
}

/** Frees the memory of these bytes if it is releasable; no user needs it any more. */
export function releaseMemory(bytes: Uint8Array): void {
  const { buffer } = bytes;
  if (!releasable.delete(buffer) || !(buffer instanceof ArrayBuffer)) return;
  // Transferring leaves nothing here: the memory is free at the return.
  if (isPageMemory(buffer)) releasePages(bytes);
  else buffer.transfer(0);
}

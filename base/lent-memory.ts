import { assert } from './assert.ts';
import { givePagesBack, isPageMemory, PAGE_BYTES, pageMemory } from './page-memory.ts';

/**
 * Memory for contents that pass through, which its last user gives back at once instead of leaving it to the garbage collector: that
 * looks through all of the heap to find it, and until then the contents that follow go to memory that the processor has not in
 * its cache (decision 0042). Whoever does not know that nobody else looks at the bytes, nor the system on behalf of one of its
 * calls, gives nothing back, and no harm is done. Bytes that were given back are no bytes any more: nobody reads others in their place.
 */
const lent = new WeakSet<ArrayBufferLike>();

/** Smaller memory costs the garbage collector less than to remember it here. */
const LENT_BYTES_MIN = 16 * 1024;

/** @returns memory that was not cleared, and may be given back */
export function lentMemory(sizeBytes: number): Buffer<ArrayBuffer> {
  const bytes = Buffer.allocUnsafeSlow(sizeBytes);
  if (sizeBytes >= LENT_BYTES_MIN) lent.add(bytes.buffer);
  return bytes;
}

/**
 * For what is written to the disk past the page cache (decision 0061).
 *
 * @param sizeBytes at most `PAGE_MEMORY_BYTES_MAX`, less what there is of a page before `pageAt`
 * @param pageAt which byte of it a page begins with
 * @returns memory that was not cleared, and may be given back
 */
export function lentPages(sizeBytes: number, pageAt: number): Buffer<ArrayBuffer> {
  assert(pageAt < PAGE_BYTES, 'What is before the first page begins in the one before it');
  const whole = pageMemory(PAGE_BYTES - pageAt + sizeBytes);
  lent.add(whole.buffer);
  return whole.subarray(PAGE_BYTES - pageAt);
}

/** Whoever gets these bytes may give back the memory in which they are. It has nothing else in it that anybody needs. */
export function lend(bytes: Uint8Array): void {
  lent.add(bytes.buffer);
}

/** From now on the memory is the garbage collector's, whoever gives it back: there are several users of it. */
export function keepMemory(bytes: Uint8Array): void {
  lent.delete(bytes.buffer);
}

/** Ends the memory in which the bytes are, if it was lent: nobody looks at it any more. */
export function giveBack(bytes: Uint8Array): void {
  const { buffer } = bytes;
  if (!lent.delete(buffer) || !(buffer instanceof ArrayBuffer)) return;
  // What is moved elsewhere has nothing left here: the memory is free when this returns.
  if (isPageMemory(buffer)) givePagesBack(bytes);
  else buffer.transfer(0);
}

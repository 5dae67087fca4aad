import { assert } from './assert.ts';

/** Memory, positions and lengths of what passes by the page cache are multiples of this: no file system that we know asks for more. */
export const PAGE_BYTES = 4096;

/** The largest write, and a page before it for what else is said of it. */
export const PAGE_MEMORY_BYTES_MAX = 4 * 1024 * 1024 + PAGE_BYTES;
/** Kept for whoever needs memory next; what is more goes back to the system. */
const IDLE_SLOTS_MAX = 8;

const idle: ArrayBuffer[] = [];
const lent = new WeakSet<ArrayBufferLike>();

/**
 * Memory that begins at a page of the processor, which a direct write needs (decision 0061). Node tells nobody where a buffer lies; but V8 takes
 * the memory of buffers that can be resized from the system by pages. Where that changes, the system refuses direct writes, and says so.
 *
 * It is used again once it was given back, but never through an old view: whoever still has one finds no bytes.
 *
 * @param sizeBytes at most `PAGE_MEMORY_BYTES_MAX`
 * @returns memory that has in it whatever was there before; whoever does not give it back leaves it to the garbage collector
 */
export function pageMemory(sizeBytes: number): Buffer<ArrayBuffer> {
  assert(
    sizeBytes > 0 && sizeBytes <= PAGE_MEMORY_BYTES_MAX,
    'Memory of whole pages is for one write at the most',
  );
  const slot = idle.pop() ?? new ArrayBuffer(PAGE_MEMORY_BYTES_MAX, { maxByteLength: PAGE_MEMORY_BYTES_MAX });
  lent.add(slot);
  return Buffer.from(slot, 0, sizeBytes);
}

/** Whether `pageMemory` made it, and it was not given back. */
export function isPageMemory(buffer: ArrayBufferLike): boolean {
  return lent.has(buffer);
}

/** Whether a direct write can take the bytes from where they are. */
export function isPageAligned(bytes: Uint8Array): boolean {
  return lent.has(bytes.buffer) && bytes.byteOffset % PAGE_BYTES === 0;
}

/**
 * Ends the memory in which the bytes are: for all who have a view of it, they are gone. No call of the system looks at it any more.
 *
 * @throws AssertionFailure where `pageMemory` did not make it, or it was given back before
 */
export function givePagesBack({ buffer }: Uint8Array): void {
  assert(buffer instanceof ArrayBuffer && lent.delete(buffer), 'Memory is given back once, by who has it');
  // Without a copy: the same memory under another name.
  const slot = structuredClone(buffer, { transfer: [buffer] });
  if (idle.length < IDLE_SLOTS_MAX) idle.push(slot);
}

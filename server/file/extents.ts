import type { FileId } from '../../base/ids.ts';
import type { Whence } from '../../wire/http-api.ts';
import type { FileStore } from '../storage/store.ts';

/** Objects examined per tick of the event loop. */
const ENTRIES_PER_TICK = 1_024;

export type ExtentStep =
  | { readonly kind: 'found'; readonly at: number | null }
  | { readonly kind: 'on'; readonly next: number };

/**
 * One tick's part of a search for data or a hole, by the index alone: a missing object is a hole, and so is the missing
 * end of a short one. A file has a hole at its end (`lseek`(2)). `at` is null beyond the end, or if only holes follow.
 */
export function extentStep(
  store: Pick<FileStore, 'attributes' | 'entries'>,
  file: FileId,
  from: number,
  whence: Whence,
): ExtentStep {
  const { sizeBytes, objectBytes } = store.attributes(file);
  if (from >= sizeBytes) return { kind: 'found', at: null };
  const first = Math.floor(from / objectBytes);
  // The first object may end before `from`; every other one begins after it.
  const countMax = whence === 'data' ? 2 : ENTRIES_PER_TICK;
  const entries = store.entries(file, first, Number.MAX_SAFE_INTEGER, countMax);
  let at = from;
  for (const { index, length } of entries) {
    const begin = index * objectBytes;
    const end = begin + length;
    if (whence === 'data') {
      if (end > from) return { kind: 'found', at: Math.max(begin, from) };
      continue;
    }
    if (begin > at || end <= at) return { kind: 'found', at };
    at = end;
    if (length < objectBytes) return { kind: 'found', at };
  }
  if (whence === 'data') return { kind: 'found', at: null };
  return entries.length < ENTRIES_PER_TICK || at >= sizeBytes
    ? { kind: 'found', at }
    : { kind: 'on', next: at };
}

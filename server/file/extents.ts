import type { FileId } from '../../base/ids.ts';
import type { Whence } from '../../wire/http-api.ts';
import type { FileStore } from '../storage/store.ts';

/** Objects looked at between two turns of the event loop. */
const ENTRIES_PER_TURN = 1_024;

/** Where a search ended: `at` is the place, null where there is none; or it goes on from `next`. */
export type ExtentStep =
  | { readonly kind: 'found'; readonly at: number | null }
  | { readonly kind: 'on'; readonly next: number };

/**
 * One turn's worth of a search for data or a hole, by the index of objects alone: an object that is not there is a hole, and
 * so is what an object has less than its size. A file has a hole at its end (`lseek`(2)).
 *
 * @param from where the search begins, or goes on
 * @returns a place not before `from`; null where it is not within the file, or where only holes follow
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
  // The first object may end before `from`; every other one begins behind it.
  const countMax = whence === 'data' ? 2 : ENTRIES_PER_TURN;
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
  return entries.length < ENTRIES_PER_TURN || at >= sizeBytes
    ? { kind: 'found', at }
    : { kind: 'on', next: at };
}

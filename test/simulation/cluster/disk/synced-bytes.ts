import type { Prng } from '../../../../base/prng.ts';
import { realFiles } from './real-files.ts';

/** A disk writes whole sectors: each is written or not. */
export const SECTOR_BYTES = 512;

/** The bytes that a write since the last sync replaced. */
interface Replaced {
  readonly position: number;
  readonly bytes: Buffer;
}

/** How much of what was not synced a loss of power removes. */
export type Loss = 'all' | 'some';

/** The synced bytes of one file, as those that later writes have replaced. */
export class SyncedBytes {
  /** Size of the file at its last sync; 0 before the first. */
  #sizeBytes: number;
  #replaced: Replaced[] = [];

  constructor(sizeBytes: number) {
    this.#sizeBytes = sizeBytes;
  }

  /** Call it before bytes of the file are written or cut off. */
  changes(fd: number, position: number, length: number): void {
    const count = Math.min(position + length, this.#sizeBytes) - position;
    if (count <= 0) return;
    this.#replaced.push({ position, bytes: bytesOf(fd, position, count) });
  }

  synced(sizeBytes: number): void {
    this.#sizeBytes = sizeBytes;
    this.#replaced = [];
  }

  /** @returns whether all of a file with this size is synced */
  isWhole(sizeBytes: number): boolean {
    return this.#replaced.length === 0 && this.#sizeBytes === sizeBytes;
  }

  /** @returns what is left of a file with the bytes `now`: of each unsynced sector the present or the synced bytes */
  afterLoss(now: Buffer, loss: Loss, random: Prng): Buffer {
    const isKept = (): boolean => loss === 'some' && random.chance(0.5);
    const bytes = Buffer.alloc(isKept() ? now.length : this.#sizeBytes);
    now.copy(bytes);
    const kept = new Set<number>();
    for (const { position, bytes: former } of this.#replaced.toReversed()) {
      const end = Math.min(bytes.length, position + former.length);
      for (let at = position; at < end; ) {
        const sector = Math.floor(at / SECTOR_BYTES);
        const next = Math.min(end, (sector + 1) * SECTOR_BYTES);
        if (!kept.has(sector) && isKept()) kept.add(sector);
        // If the cut is undone, its bytes are there again.
        const from = kept.has(sector) ? Math.min(next, Math.max(at, now.length)) : at;
        former.copy(bytes, from, from - position, next - position);
        at = next;
      }
    }
    for (let at = this.#sizeBytes; at < bytes.length; ) {
      const next = Math.min(bytes.length, (Math.floor(at / SECTOR_BYTES) + 1) * SECTOR_BYTES);
      if (!isKept()) bytes.fill(0, at, next);
      at = next;
    }
    return bytes;
  }
}

/** A write-only descriptor cannot be read: the file is opened once more. */
function bytesOf(fd: number, position: number, count: number): Buffer {
  const bytes = Buffer.alloc(count);
  const read = (from: number): Buffer =>
    bytes.subarray(0, realFiles.readSync(from, bytes, 0, count, position));
  try {
    return read(fd);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EBADF') throw error;
  }
  const reader = realFiles.openSync(`/proc/self/fd/${fd}`, 'r');
  try {
    return read(reader);
  } finally {
    realFiles.closeSync(reader);
  }
}

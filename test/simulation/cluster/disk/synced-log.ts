import type { Prng } from '../../../../base/prng.ts';
import { realFiles } from './real-files.ts';
import { type Loss, SECTOR_BYTES } from './synced-bytes.ts';

/** https://sqlite.org/fileformat2.html#walformat: the log's header, and that of each page in it. */
const HEADER_BYTES = 32;
const PAGE_SIZE_AT = 8;
const SALTS_AT = 16;
const FRAME_HEADER_BYTES = 24;
const FRAME_SALTS_AT = 8;
const SALTS_BYTES = 8;

/**
 * The synced part of a database's log. SQLite appends to it until all of it is copied back, and then restarts it with
 * other salts, whose header it syncs before anything else; so a length says which bytes were synced.
 */
export class SyncedLog {
  #header: Buffer = Buffer.alloc(0);
  #endBytes = 0;
  /** The size of the file at its last sync. */
  #sizeBytes = 0;

  /**
   * @param read reads bytes of the log by position
   * @param sizeBytes of its file
   */
  synced(read: Read, sizeBytes: number): void {
    const header = read(0, HEADER_BYTES);
    const isSame = header.equals(this.#header);
    // New pages at the end are behind all others of the same log: these need not be read again.
    const hasGrown = isSame && sizeBytes > this.#sizeBytes && this.#sizeBytes > 0;
    if (hasGrown) this.#endBytes = sizeBytes;
    else this.#endBytes = endOf(read, header, isSame ? this.#endBytes : 0);
    this.#header = header;
    this.#sizeBytes = sizeBytes;
  }

  /**
   * @returns what is left of a log with the bytes `now`; overwritten bytes are not part of the log, and are zeros here
   */
  afterLoss(now: Buffer, loss: Loss, random: Prng): Buffer {
    const header = now.subarray(0, HEADER_BYTES);
    const isSame = header.equals(this.#header);
    const syncedBytes = Math.min(now.length, isSame ? this.#endBytes : HEADER_BYTES);
    if (loss === 'all') return Buffer.from(now.subarray(0, Math.max(HEADER_BYTES, syncedBytes)));
    const bytes = Buffer.from(now);
    // Earlier pages are left more often: the kernel writes them back in some order, and begins early.
    const untilBytes = random.chance(0.5) ? syncedBytes + random.next() * (now.length - syncedBytes) : 0;
    for (let at = Math.max(HEADER_BYTES, syncedBytes); at < bytes.length; ) {
      const next = Math.min(bytes.length, (Math.floor(at / SECTOR_BYTES) + 1) * SECTOR_BYTES);
      if (at >= untilBytes && random.chance(0.5)) bytes.fill(0, at, next);
      at = next;
    }
    return bytes;
  }
}

export type Read = (position: number, length: number) => Buffer;

export function readerOf(fd: number): Read {
  return (position, length) => {
    const bytes = Buffer.alloc(length);
    return bytes.subarray(0, realFiles.readSync(fd, bytes, 0, length, position));
  };
}

/** @returns the end of the log that begins with `header`, searched from a position at which it did not end */
function endOf(read: Read, header: Buffer, fromBytes: number): number {
  if (header.length < HEADER_BYTES) return 0;
  const frameBytes = FRAME_HEADER_BYTES + header.readUInt32BE(PAGE_SIZE_AT);
  const salts = header.subarray(SALTS_AT, SALTS_AT + SALTS_BYTES);
  for (let at = Math.max(HEADER_BYTES, fromBytes); ; at += frameBytes) {
    const frame = read(at, FRAME_HEADER_BYTES);
    if (frame.length < FRAME_HEADER_BYTES) return at;
    if (!frame.subarray(FRAME_SALTS_AT, FRAME_SALTS_AT + SALTS_BYTES).equals(salts)) return at;
  }
}

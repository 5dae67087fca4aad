import fs from 'node:fs';

/** https://sqlite.org/fileformat2.html#walformat: the file's header, and that of each page in it. */
const HEADER_BYTES = 32;
const PAGE_SIZE_AT = 8;
const SALTS_AT = 16;
const FRAME_HEADER_BYTES = 24;
const FRAME_SALTS_AT = 8;
const SALTS_BYTES = 8;

/** Whether SQLite's log reaches `bytes`. Its file may be longer: older frames stay at the end, with other salts. */
export function hasLogReached(logFd: number, bytes: number): boolean {
  const header = Buffer.alloc(HEADER_BYTES);
  if (fs.readSync(logFd, header, 0, HEADER_BYTES, 0) < HEADER_BYTES) return false;
  const frameBytes = FRAME_HEADER_BYTES + header.readUInt32BE(PAGE_SIZE_AT);
  const frame = Buffer.alloc(FRAME_HEADER_BYTES);
  const at = HEADER_BYTES + Math.floor((bytes - HEADER_BYTES) / frameBytes) * frameBytes;
  if (fs.readSync(logFd, frame, 0, FRAME_HEADER_BYTES, at) < FRAME_HEADER_BYTES) return false;
  const salts = header.subarray(SALTS_AT, SALTS_AT + SALTS_BYTES);
  return salts.equals(frame.subarray(FRAME_SALTS_AT, FRAME_SALTS_AT + SALTS_BYTES));
}

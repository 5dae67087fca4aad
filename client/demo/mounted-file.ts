import { open } from 'node:fs/promises';

/**
 * Opens, reads and closes, so that earlier writes of others are visible. Never with the synchronous calls of node:fs: a
 * mount that waits for its cluster would stop this whole process. Reads less than `length` only at the end of the file.
 */
export async function readThroughMount(path: string, offset: number, length: number): Promise<Uint8Array> {
  const file = await open(path, 'r');
  try {
    const bytes = Buffer.alloc(length);
    let filled = 0;
    while (filled < length) {
      const { bytesRead } = await file.read(bytes, filled, length - filled, offset + filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    return bytes.subarray(0, filled);
  } finally {
    await file.close();
  }
}

import fs from 'node:fs';
import path from 'node:path';
import { errorCode } from './failures.ts';

export const BALLAST = 'ballast';
/** For META, the logs of both databases, and the commands that remove what fills the disk. */
const BALLAST_BYTES = 4 * 1024 * 1024;

/**
 * Reserves disk space for a later start: a server with a full disk deletes the ballast, so that it can start and
 * collect garbage. Only written zeros reserve space, a hole does not. A full disk gets no ballast.
 */
export async function ballastKeep(folder: string): Promise<void> {
  const file = path.join(folder, BALLAST);
  if (fs.existsSync(file)) return;
  const fresh = `${file}.new`;
  try {
    await fs.promises.writeFile(fresh, Buffer.alloc(BALLAST_BYTES), { mode: 0o600, flush: true });
    await fs.promises.rename(fresh, file);
  } catch (error) {
    await fs.promises.rm(fresh, { force: true });
    if (errorCode(error) !== 'ENOSPC' && errorCode(error) !== 'EDQUOT') throw error;
  }
}

/** @returns whether there was a ballast, whose space is free now */
export function ballastRelease(folder: string): boolean {
  try {
    fs.unlinkSync(path.join(folder, BALLAST));
    return true;
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return false;
    throw error;
  }
}

import fs from 'node:fs';
import path from 'node:path';
import { errorCode } from './failures.ts';

/** In the data folder. */
export const BALLAST = 'ballast';
/** For META, the logs of both databases, and the commands that remove what fills the disk. */
const BALLAST_BYTES = 4 * 1024 * 1024;

/**
 * Reserves disk space for a later start: a server that finds its disk full deletes the ballast, so that it can
 * start and collect garbage. Only zeros that were written reserve space, a hole does not.
 *
 * @param folder a data folder in use
 * @throws the system's error other than a full disk, which leaves no ballast
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

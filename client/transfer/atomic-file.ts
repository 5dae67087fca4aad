import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { systemWorld } from '../../world/system-world.ts';

const SUFFIX_BYTES = 8;

/** Writes beside the file, syncs and renames: after a crash the old file is there, or the whole new one. */
export async function writeFileAtomically(
  path: string,
  mode: number,
  write: (file: FileHandle) => Promise<void>,
): Promise<void> {
  const draft = join(
    dirname(path),
    `.${basename(path)}.${systemWorld.randomBytes(SUFFIX_BYTES).toString('hex')}.part`,
  );
  const file = await open(draft, 'wx', mode);
  try {
    await write(file);
    await file.sync();
    // Some file systems report a failed write only here.
    await file.close();
    await rename(draft, path);
  } catch (error) {
    await file.close();
    await rm(draft, { force: true });
    throw error;
  }
}

import { open, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { systemWorld } from '../../world/system-world.ts';
import type { Phase } from './phase.ts';

/** Writes and syncs, then reads, perhaps from the page cache. @param folder a mount or another folder; empty */
export function mountPhases(folder: string, fileBytes: number): Phase[] {
  const bytes = systemWorld.randomBytes(fileBytes);
  const pathOf = (worker: number): string => join(folder, `file-${worker}`);
  return [
    {
      name: 'write and fsync',
      operationBytes: fileBytes,
      async step(worker) {
        const file = await open(pathOf(worker), 'w');
        try {
          await file.writeFile(bytes);
          await file.datasync();
        } finally {
          await file.close();
        }
      },
    },
    {
      name: 'read',
      operationBytes: fileBytes,
      async step(worker) {
        const { length } = await readFile(pathOf(worker));
        if (length !== fileBytes)
          throw new Error(`${pathOf(worker)} has ${length} bytes instead of ${fileBytes}`);
      },
    },
    {
      name: 'stat',
      operationBytes: 0,
      async step(worker) {
        await stat(pathOf(worker));
      },
    },
  ];
}

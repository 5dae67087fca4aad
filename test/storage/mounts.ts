import { spawnSync } from 'node:child_process';
import fs from 'node:fs';

export interface Mount {
  unmount(): void;
}

/** Mounts something on `folder`. @returns null where this process is not allowed to */
export function mounted(folder: string, options: readonly string[]): Mount | null {
  fs.mkdirSync(folder, { recursive: true });
  const done = spawnSync('mount', [...options, folder], { encoding: 'utf8' });
  if (done.error !== undefined || done.status !== 0) return null;
  return {
    unmount() {
      const undone = spawnSync('umount', [folder], { encoding: 'utf8' });
      if (undone.status !== 0) throw new Error(`Cannot unmount ${folder}: ${undone.stderr}`);
    },
  };
}

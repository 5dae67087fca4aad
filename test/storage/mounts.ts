import { spawnSync } from 'node:child_process';
import fs from 'node:fs';

export interface Mount {
  unmount(): void;
}

/**
 * Attaches an unmounted image to another loop device with the next mount. The earlier device continues to exist, with
 * the changes of its file system, for as long as any other mount namespace uses it: that of a test that runs at the
 * same time.
 */
export function renewImage(image: string): void {
  const copy = `${image}.copy`;
  const copied = spawnSync('cp', ['--sparse=always', image, copy], { encoding: 'utf8' });
  if (copied.status !== 0) throw new Error(`Cannot copy ${image}: ${copied.stderr}`);
  fs.renameSync(copy, image);
}

/**
 * Mounts something on `folder`.
 * @returns null if this process is not allowed to
 */
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

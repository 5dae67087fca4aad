import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { join } from 'node:path';
import type { RealCluster } from '../cluster/real-cluster.ts';
import { LoopDisk } from '../storage/loop-disk.ts';

/** Stops a server, moves its folder to a separate file system, and starts it again. */
export async function onDiskOfItsOwn(
  cluster: RealCluster,
  id: string,
  sizeMiB: number,
): Promise<ReturnType<typeof LoopDisk.make>> {
  await cluster.kill(id);
  const kept = `${cluster.data(id)}-kept`;
  fs.renameSync(cluster.data(id), kept);
  const made = LoopDisk.make('ext4', sizeMiB, cluster.data(id));
  if (made.disk === null) {
    fs.renameSync(kept, cluster.data(id));
    return made;
  }
  execFileSync('cp', ['-a', `${kept}/.`, cluster.data(id)]);
  execFileSync('sync', ['-f', cluster.data(id)]);
  await cluster.restart(id);
  return made;
}

/** @returns the file that now takes all but `leftBytes` of the disk */
export function fillDisk({ folder }: LoopDisk, leftBytes: number): string {
  const filler = join(folder, 'lost+found', 'filler');
  const { bavail, bsize } = fs.statfsSync(folder);
  execFileSync('fallocate', ['-l', `${bavail * bsize - leftBytes}`, filler]);
  return filler;
}

/** Fills the disk to its last block, those included that only root may use. */
export function fillWholeDisk({ folder }: LoopDisk): void {
  const filler = fs.openSync(join(folder, 'lost+found', 'whole'), 'a');
  try {
    for (let bytes = 2 ** 20; bytes > 0; ) {
      try {
        fs.writeSync(filler, Buffer.alloc(bytes));
        fs.fsyncSync(filler);
      } catch (error) {
        if (!(error instanceof Error && 'code' in error && error.code === 'ENOSPC')) throw error;
        bytes = Math.floor(bytes / 2);
      }
    }
  } finally {
    fs.closeSync(filler);
  }
}

import { mkdtempSync, rmSync } from 'node:fs';
import { closeDisks } from './disk/private-disk.ts';
import { guardWith } from './guard.ts';
import { VirtualTime } from './virtual-time.ts';

/** @returns the common prefix of all folders in which a process of this machine keeps simulated disks */
export function foldersOf(pid: number): string {
  return `/dev/shm/leasehold-simulated-${pid}-`;
}

/** Calls `run` with a time of its own and a folder for its machines' disks, which is removed at the end. */
export async function inSimulation<Value>(
  seed: number,
  run: (time: VirtualTime, root: string) => Promise<Value>,
): Promise<Value> {
  const root = mkdtempSync(foldersOf(process.pid));
  const time = new VirtualTime(seed);
  guardWith(time);
  try {
    return await run(time, root);
  } finally {
    guardWith(null);
    try {
      closeDisks(root);
    } finally {
      rmSync(root, { recursive: true, force: true });
    }
  }
}

import { mkdtempSync, rmSync } from 'node:fs';
import { closeDisks } from './disk/private-disk.ts';
import { guardWith } from './guard.ts';
import { VirtualTime } from './virtual-time.ts';

/** @returns how the paths of all folders begin that a process of this machine keeps simulated disks in */
export function foldersOf(pid: number): string {
  return `/dev/shm/leasehold-simulated-${pid}-`;
}

/** Calls `run` with a time of its own and a folder for the disks of its machines, both of which end with it. */
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

import { writeFile } from 'node:fs/promises';
import { mountAt } from '../../client/mounts/mount-table.ts';

/** The kernel's read-ahead. Its default of 128 KiB is too short to hide the latency of the network. */
const READ_AHEAD_KIB = 4096;
/** Read-ahead requests in flight; the kernel's default is 12. */
export const BACKGROUND_MAX = 64;

export function escapedPath(path: string): string {
  return path.replaceAll(/[ \t\n\\]/g, (c) => `\\${c.charCodeAt(0).toString(8).padStart(3, '0')}`);
}

/** Raises the mount's read-ahead, if /sys may be written; else reads over long distances are slower. */
export async function tuneKernel(mountpoint: string): Promise<void> {
  const device = (await mountAt(mountpoint))?.device;
  if (device === undefined) throw new Error('The mount is not in /proc/self/mountinfo');
  await writeFile(`/sys/class/bdi/${device}/read_ahead_kb`, String(READ_AHEAD_KIB));
  const minor = device.split(':')[1];
  await writeFile(`/sys/fs/fuse/connections/${minor}/max_background`, String(BACKGROUND_MAX)).catch(
    // Needs a mounted fusectl; without, fewer requests are in flight.
    () => undefined,
  );
}

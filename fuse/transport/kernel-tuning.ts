import { writeFile } from 'node:fs/promises';
import { mountAt } from '../../client/mount-table.ts';

/** The kernel's own read-ahead; its default of 128 KiB would leave the latency of every read in the open. */
const READ_AHEAD_KIB = 4096;
/** Requests of read-ahead in flight; the kernel's default is 12. */
export const BACKGROUND_MAX = 64;

/** As the table of mounts writes it. */
export function escapedPath(path: string): string {
  return path.replaceAll(/[ \t\n\\]/g, (c) => `\\${c.charCodeAt(0).toString(8).padStart(3, '0')}`);
}

/** Best effort: without the right to write to /sys the mount works, only slower over long distances. */
export async function tuneKernel(mountpoint: string): Promise<void> {
  const device = (await mountAt(mountpoint))?.device;
  if (device === undefined) throw new Error('The mount is not in /proc/self/mountinfo');
  await writeFile(`/sys/class/bdi/${device}/read_ahead_kb`, String(READ_AHEAD_KIB));
  const minor = device.split(':')[1];
  await writeFile(`/sys/fs/fuse/connections/${minor}/max_background`, String(BACKGROUND_MAX)).catch(
    // Only where fusectl is mounted; a few requests fewer in flight otherwise.
    () => undefined,
  );
}

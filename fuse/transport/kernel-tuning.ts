import { readFile, writeFile } from 'node:fs/promises';

/** The kernel's own read-ahead; its default of 128 KiB would leave the latency of every read in the open. */
const READ_AHEAD_KIB = 4096;
/** Requests of read-ahead in flight; the kernel's default is 12. */
export const BACKGROUND_MAX = 64;

export interface MountEntry {
  /** `major:minor`. */
  readonly device: string;
  readonly type: string;
}

/** @returns the topmost mount at exactly `mountpoint`, from the table of mounts and not by a question to it */
export async function mountedAt(mountpoint: string): Promise<MountEntry | undefined> {
  const mounts = await readFile('/proc/self/mountinfo', 'utf8');
  const escaped = escapedPath(mountpoint);
  const line = mounts.split('\n').findLast((text) => text.split(' ')[4] === escaped);
  const device = line?.split(' ')[2];
  const type = line?.split(' - ')[1]?.split(' ')[0];
  return device === undefined || type === undefined ? undefined : { device, type };
}

/** As the table of mounts writes it. */
export function escapedPath(path: string): string {
  return path.replaceAll(/[ \t\n\\]/g, (c) => `\\${c.charCodeAt(0).toString(8).padStart(3, '0')}`);
}

/** Best effort: without the right to write to /sys the mount works, only slower over long distances. */
export async function tuneKernel(mountpoint: string): Promise<void> {
  const device = (await mountedAt(mountpoint))?.device;
  if (device === undefined) throw new Error('The mount is not in /proc/self/mountinfo');
  await writeFile(`/sys/class/bdi/${device}/read_ahead_kb`, String(READ_AHEAD_KIB));
  const minor = device.split(':')[1];
  await writeFile(`/sys/fs/fuse/connections/${minor}/max_background`, String(BACKGROUND_MAX)).catch(
    // Only where fusectl is mounted; a few requests fewer in flight otherwise.
    () => undefined,
  );
}

import { access, constants } from 'node:fs/promises';
import { isSystemError } from '../terminal/failure.ts';

export const DEVICE = '/dev/fuse';

/** @returns why this process cannot make FUSE file systems, and what helps; null if it can */
export async function deviceObstacle(): Promise<{ readonly what: string; readonly fix: string } | null> {
  try {
    await access(DEVICE, constants.R_OK | constants.W_OK);
    return null;
  } catch (error) {
    if (!isSystemError(error)) throw error;
    if (error.code === 'EACCES' || error.code === 'EPERM')
      return { what: `this user may not use ${DEVICE}`, fix: `as root: chmod 666 ${DEVICE}` };
    const fix = 'modprobe fuse; in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN';
    return { what: `there is no ${DEVICE}`, fix };
  }
}

import { spawn } from 'node:child_process';
import { escapedPath } from './kernel-tuning.ts';

/**
 * Waits for the end of standard input, then removes the mount if `$2` (as in the mount table) is still of device `$1`.
 * The other arguments are the command for that.
 */
const GUARD = `
  cat > /dev/null
  while read -r _ _ device _ point _; do
    if [ "$point" = "$2" ]; then top=$device; fi
  done < /proc/self/mountinfo
  if [ "$top" = "$1" ]; then shift 2; exec "$@"; fi`;

/** Neither command calls into the mount, which does not answer. */
const REMOVAL_BY_ROOT = ['umount', '-i', '-c', '-l'];
const REMOVAL_BY_USER = ['fusermount3', '-u', '-z', '-q'];

/** Has the mount removed when this process ends in any way. @param device `major:minor` of the mount */
export function guardMount(device: string, mountpoint: string): void {
  const removal = process.getuid?.() === 0 ? REMOVAL_BY_ROOT : REMOVAL_BY_USER;
  const guard = spawn(
    'sh',
    ['-c', GUARD, 'leasehold-mount-guard', device, escapedPath(mountpoint), ...removal, mountpoint],
    {
      cwd: '/',
      // In its own session, so that signals of a terminal do not reach it.
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    },
  );
  guard.unref();
  // If the guard was killed, the mount works without it.
  guard.stdin.on('error', () => undefined);
  (guard.stdin as unknown as { unref(): void }).unref();
}

import { spawn } from 'node:child_process';
import { escapedPath } from './kernel-tuning.ts';

/**
 * Waits for the end of its standard input, and removes the mount if it is still this one: of device `$1` at
 * `$2`, as the table of mounts writes it. The other arguments are the command for that.
 */
const GUARD = `
  cat > /dev/null
  while read -r _ _ device _ point _; do
    if [ "$point" = "$2" ]; then top=$device; fi
  done < /proc/self/mountinfo
  if [ "$top" = "$1" ]; then shift 2; exec "$@"; fi`;

/** Neither asks the mount itself, which does not answer any more. */
const REMOVAL_BY_ROOT = ['umount', '-i', '-c', '-l'];
const REMOVAL_BY_USER = ['fusermount3', '-u', '-z', '-q'];

/**
 * However this process ends, no dead mount stays behind.
 *
 * @param device `major:minor` of the mount
 * @param mountpoint where it is, without symbolic links
 */
export function guardMount(device: string, mountpoint: string): void {
  const removal = process.getuid?.() === 0 ? REMOVAL_BY_ROOT : REMOVAL_BY_USER;
  const guard = spawn(
    'sh',
    ['-c', GUARD, 'leasehold-mount-guard', device, escapedPath(mountpoint), ...removal, mountpoint],
    {
      cwd: '/',
      // In a session of its own: what a terminal sends to us is not for it.
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    },
  );
  guard.unref();
  // A guard that was killed guards no more; that is all.
  guard.stdin.on('error', () => undefined);
  (guard.stdin as unknown as { unref(): void }).unref();
}

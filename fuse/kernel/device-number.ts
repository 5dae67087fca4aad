import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mountAt } from '../../client/mounts/mount-table.ts';
import { unmountDirectory } from './mount-programs.ts';

/**
 * Linux gives a file system without a disk the lowest free minor device number (`get_anon_bdev`). In its own mount
 * namespace, this script takes all free numbers up to `$1` with empty file systems, frees `$1`, prints `free`, and
 * keeps the others until the end of its input. Only one runs at a time, since each takes numbers of others.
 */
const KEEP_SMALLER = `
  set -e
  exec 9> /run/leasehold-device-number.lock
  flock 9
  cd /
  mount -i -t ramfs leasehold-numbers /sys
  if [ "$(mountpoint -d /sys)" = "0:$1" ]; then
    umount -i /sys
  else
    seq "$1" | (cd /sys && xargs mkdir)
    seq "$1" | sed 's,.*,leasehold-& /sys/& ramfs defaults 0 0,' > /sys/fstab
    mount -a -T /sys/fstab
    found=
    while read -r _ _ device _ point _; do
      if [ "$device" = "0:$1" ]; then found=$point; fi
    done < /proc/self/mountinfo
    case $found in
      /sys/*) umount -i "$found" ;;
      *) echo used; exit 0 ;;
    esac
  fi
  echo free
  cat > /dev/null`;

const PROGRAM = ['--mount', '--propagation', 'private', 'sh', '-c', KEEP_SMALLER, 'leasehold-device-number'];

/**
 * Has `mount` mount a file system of the device `0:number` on `mountpoint`.
 * @throws Error if the number is in use; nothing is mounted then
 */
export async function withDeviceNumber(
  number: number,
  mountpoint: string,
  mount: () => Promise<void>,
): Promise<void> {
  const keeper = spawn('unshare', [...PROGRAM, String(number)], { stdio: ['pipe', 'pipe', 'pipe'] });
  const closed = once(keeper, 'close');
  // The keeper may have ended; then its answer says why.
  keeper.stdin.on('error', () => undefined);
  try {
    await readFree(keeper, number, closed);
    await mount();
  } finally {
    keeper.stdin.end();
    await closed;
  }
  const device = (await mountAt(mountpoint))?.device;
  if (device === `0:${number}`) return;
  await unmountDirectory(mountpoint, true);
  throw new Error(
    `The device number 0:${number} was taken by another mount at the same moment; mount again (got ${device})`,
  );
}

type Keeper = ReturnType<typeof spawn>;

/** Resolves when the number is the lowest free one. */
async function readFree(keeper: Keeper, number: number, closed: Promise<unknown>): Promise<void> {
  let answer = '';
  let complaint = '';
  keeper.stderr?.on('data', (chunk: Buffer) => {
    complaint += chunk.toString();
  });
  const isAnswered = new Promise<void>((resolve) => {
    keeper.stdout?.on('data', (chunk: Buffer) => {
      answer += chunk.toString();
      if (answer.endsWith('\n')) resolve();
    });
  });
  await Promise.race([isAnswered, closed]);
  if (answer === 'free\n') return;
  if (answer === 'used\n') {
    throw new Error(
      `The device number 0:${number} is in use: by a mount, or by a program that still has an earlier mount of it ` +
        'open, as an NFS server does. Stop that, or choose another number',
    );
  }
  await closed;
  throw new Error(`Cannot reserve the device number 0:${number}: ${complaint.trim() || 'unshare(1) failed'}`);
}

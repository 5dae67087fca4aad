import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mountAt } from '../../client/mounts/mount-table.ts';
import { unmountDirectory } from './mount-programs.ts';

/**
 * Linux gives a file system without a disk the lowest free minor device number (`get_anon_bdev`). In its own mount
 * namespace, this script takes all free numbers up to `$1` with empty file systems, frees up to `$2` of the smaller
 * ones and then `$1`, prints how many it freed below `$1`, and keeps the others until the end of its input. It keeps no
 * copies of the machine's volumes: they could not end.
 */
const KEEP_SMALLER = `
  set -e
  cd /
  while read -r _ _ _ _ point rest; do
    case $rest in
      *' - fuse.leasehold '*) umount -i -c -l "$(printf %b "$point")" || true ;;
    esac
  done < /proc/self/mountinfo
  mount -i -t ramfs leasehold-numbers /sys
  # Linux gives the numbers of a namespace that has ended back later.
  trap 'umount -i -l /sys' EXIT
  below=
  if [ "$(mountpoint -d /sys)" = "0:$1" ]; then
    umount -i /sys
    trap - EXIT
  else
    seq "$1" | (cd /sys && xargs mkdir)
    seq "$1" | sed 's,.*,leasehold-& /sys/& ramfs defaults 0 0,' > /sys/fstab
    mount -a -T /sys/fstab
    found=
    more=$2
    while read -r _ _ device _ point _; do
      number=\${device#0:}
      case $point in
        /sys/[0-9]*)
          if [ "$number" = "$1" ]; then
            found=$point
          elif [ "$number" -lt "$1" ] && [ "$more" -gt 0 ]; then
            below="$below $point"
            more=$((more - 1))
          fi ;;
      esac
    done < /proc/self/mountinfo
    if [ -z "$found" ]; then echo used; exit 0; fi
    umount -i -c $below "$found"
  fi
  set -- $below
  echo "free $#"
  cat > /dev/null`;

/**
 * Only one script runs at a time, since each takes numbers of others. It does not have the lock itself: its process
 * would give it back before its file systems.
 */
const LOCKED = ['--close', '/run/leasehold-device-number.lock'];
const NAMESPACE = ['unshare', '--mount', '--propagation', 'private'];
const PROGRAM = [...LOCKED, ...NAMESPACE, 'sh', '-c', KEEP_SMALLER, 'leasehold-device-number'];

/** So many other file systems can be mounted before the mount; with more, one of them has its number and keeps it. */
const FREE_BELOW = 4;
const ATTEMPTS_MAX = 10;

/** Another file system was mounted or unmounted at that moment, and the mount got another number. */
export class DeviceNumberMissed extends Error {}

/** Repeats an attempt to mount that missed its number. @param again called before each repetition */
export async function untilNumbered<Result>(
  attempt: () => Promise<Result>,
  again: (missed: DeviceNumberMissed) => void = () => undefined,
): Promise<Result> {
  for (let count = 1; ; count++) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof DeviceNumberMissed) || count === ATTEMPTS_MAX) throw error;
      again(error);
    }
  }
}

/**
 * Has `mount` mount a file system of the device `0:number` on `mountpoint`.
 *
 * What another program mounts before it gets a smaller number, which is free for that, and not this one for good.
 *
 * @param mount is given the number of file systems that must be mounted just before, without time for others between
 * @throws Error if the number is in use; nothing is mounted then
 * @throws DeviceNumberMissed if the mount had another number, and is removed again
 */
export async function withDeviceNumber(
  number: number,
  mountpoint: string,
  mount: (mountsBefore: number) => Promise<void>,
): Promise<void> {
  const keeper = spawn('flock', [...PROGRAM, String(number), String(FREE_BELOW)], {
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const closed = once(keeper, 'close');
  // The keeper may have ended; then its answer says why.
  keeper.stdin.on('error', () => undefined);
  try {
    await mount(await freeBelow(keeper, number, closed));
    const device = (await mountAt(mountpoint))?.device;
    if (device === `0:${number}`) return;
    // Before the next keeper, which may look for the number that this mount has.
    await unmountDirectory(mountpoint, true);
    throw new DeviceNumberMissed(
      `The mount got the device number ${device} and not 0:${number}, since another file system was mounted or unmounted at that moment; mount again`,
    );
  } finally {
    keeper.stdin.end();
    await closed;
  }
}

type Keeper = ReturnType<typeof spawn>;

/** Resolves when the number is free. @returns how many smaller ones are free */
async function freeBelow(keeper: Keeper, number: number, closed: Promise<unknown>): Promise<number> {
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
  const [, below] = /^free (\d+)\n$/.exec(answer) ?? [];
  if (below !== undefined) return Number(below);
  if (answer === 'used\n') {
    throw new Error(
      `The device number 0:${number} is in use: by a mount, or by a program that still has an earlier mount of it ` +
        'open, as an NFS server does. Stop that, or choose another number',
    );
  }
  await closed;
  throw new Error(
    `Cannot reserve the device number 0:${number}: ${complaint.trim() || 'flock(1) or unshare(1) failed'}`,
  );
}

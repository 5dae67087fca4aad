import { closeSync, openSync, writeSync, writev, writevSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { release } from 'node:os';
import type { World } from '../../base/world.ts';
import { canonical, mountAt } from '../../client/mounts/mount-table.ts';
import { withDeadline } from '../deadline.ts';
import { InodesWithoutAcls } from '../kernel-view/inodes-without-acls.ts';
import { tuneKernel } from '../transport/kernel-tuning.ts';
import { guardMount } from '../transport/mount-guard.ts';
import type { FileSystemCalls, Log, MountedTransport, TransportOptions } from '../transport.ts';
import { connectKernel, type KernelDevice } from './connection.ts';
import { untilNumbered, withDeviceNumber } from './device-number.ts';
import { abortConnection, mountDevice, unmountDirectory } from './mount-programs.ts';
import { readRequests } from './reader.ts';
import type { Send } from './replier.ts';
import { REQUEST_BYTES_MAX } from './session.ts';
import { pendingSignals } from './signals.ts';

/** The first with the required version of the protocol. */
const LINUX_MIN = [5, 17] as const;
/** The first with `FUSE_EXPIRE_ONLY` (version 7.38 of the protocol). */
const LINUX_EXPIRES = [6, 2] as const;
const DEVICE = '/dev/fuse';
const START_LIMIT_MS = 15_000;
/** `stat` takes longer only on a mount that hangs. */
const STAT_LIMIT_MS = 5_000;

export function isLinuxSince(text: string, [major, minor]: readonly [number, number]): boolean {
  const [, ...numbers] = /^(\d+)\.(\d+)/.exec(text) ?? [];
  const [foundMajor = 0, foundMinor = 0] = numbers.map(Number);
  return foundMajor > major || (foundMajor === major && foundMinor >= minor);
}

/** Whether the kernel can drop a single name and keep what is mounted below it. */
export function kernelExpiresNames(): boolean {
  return isLinuxSince(release(), LINUX_EXPIRES);
}

/** @returns why this process cannot use the kernel's protocol, or null if it can */
export function kernelTransportObstacle(): string | null {
  if (process.platform !== 'linux') return 'it works on Linux only';
  if (!isLinuxSince(release(), LINUX_MIN)) return `Linux ${LINUX_MIN.join('.')} is needed`;
  if (process.getuid?.() !== 0) return 'only root can mount without the help of fusermount3';
  try {
    closeSync(openSync(DEVICE, 'r+'));
    return null;
  } catch (error) {
    return `${DEVICE} cannot be opened: ${codeOf(error) ?? String(error)}`;
  }
}

interface MountedDevice {
  /** The open /dev/fuse. */
  readonly fd: number;
  /** The kernel's number of the file system, `0:51`. */
  readonly device: string;
}

async function mountedDevice(mountpoint: string, options: TransportOptions): Promise<MountedDevice> {
  const { deviceNumber } = options;
  const fd = openSync(DEVICE, 'r+');
  try {
    const mount = (mountsBefore = 0) =>
      mountDevice(fd, mountpoint, options.source, options.kernelOptions, mountsBefore);
    await (deviceNumber === null ? mount() : withDeviceNumber(deviceNumber, mountpoint, mount));
    const mounted = await mountAt(mountpoint);
    if (mounted === null) throw new Error(`The mount on "${mountpoint}" is not in /proc/self/mountinfo`);
    return { fd, device: mounted.device };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** The transport for root (decision 0016). @throws Error on a working mount, or if the kernel or mount(8) refuses */
export async function mountWithKernel(
  directory: string,
  calls: FileSystemCalls,
  options: TransportOptions,
): Promise<MountedTransport> {
  const { world, log } = options;
  const mountpoint = await canonical(directory);
  await removeDeadMount(world, mountpoint, log);
  const { fd, device } = await untilNumbered(
    () => mountedDevice(mountpoint, options),
    ({ message }) => log('info', 'mounts again', { reason: message }),
  );
  guardMount(device, mountpoint);
  // The reader thread keeps the process from ending, and a mount without answers blocks its programs.
  const abort = (): void => abortConnection(device);
  process.once('exit', abort);

  let isOpen = true;
  const kernel: KernelDevice = {
    send: sender(fd, log),
    notify: (pieces, done) => {
      if (isOpen) writev(fd, pieces, (error) => done(error));
      else done(null);
    },
    signals: pendingSignals,
  };
  const lists = options.acls ? InodesWithoutAcls.memory() : null;
  const absentLists = lists === null ? null : new InodesWithoutAcls(lists, () => world.nowMs());
  const connection = connectKernel(kernel, calls, options, absentLists);
  const readerEnded = readRequests(world, fd, REQUEST_BYTES_MAX, lists, (request) =>
    connection.receive(request),
  );
  const ended = readerEnded
    .catch((error: unknown) => log('error', 'cannot read from the kernel', { error: String(error) }))
    .then(() => {
      process.removeListener('exit', abort);
      connection.stop();
      // From here on the number may be another file's.
      isOpen = false;
      closeSync(fd);
    });
  const unmount = async (): Promise<void> => {
    const failure = await unmountDirectory(mountpoint, false);
    // In use, or unmounted lazily while in use: its programs get errors.
    if (failure !== null) {
      if ((await mountAt(mountpoint))?.device === device) await unmountDirectory(mountpoint, true);
      abortConnection(device);
    }
    await ended;
  };
  try {
    await withDeadline(world, connection.started, START_LIMIT_MS, 'The INIT request of the kernel');
    await tuneKernel(mountpoint).catch((error: unknown) => {
      log('info', 'the kernel keeps its default read-ahead', { error: String(error) });
    });
    return { ...connection.notices, ended, unmount };
  } catch (error) {
    await unmount();
    throw error;
  }
}

/** Removes a mount whose process died; throws if the mount works. */
async function removeDeadMount(world: World, mountpoint: string, log: Log): Promise<void> {
  const mounted = await mountAt(mountpoint);
  if (!mounted?.type.startsWith('fuse')) return;
  try {
    await withDeadline(world, stat(mountpoint), STAT_LIMIT_MS, 'A stat of the directory');
  } catch (error) {
    if (codeOf(error) !== 'ENOTCONN' && codeOf(error) !== 'ECONNABORTED') throw error;
    log('info', 'a dead mount is removed', { directory: mountpoint });
    await unmountDirectory(mountpoint, true);
    return removeDeadMount(world, mountpoint, log);
  }
  throw new Error(`Cannot mount on "${mountpoint}": a file system of type ${mounted.type} is there already`);
}

function sender(fd: number, log: Log): Send {
  return (pieces) => {
    const [first] = pieces;
    try {
      if (pieces.length === 1 && first !== undefined) writeSync(fd, first);
      else writevSync(fd, pieces);
      return true;
    } catch (error) {
      // ENOENT: the caller has ended. ENODEV: the mount is gone.
      const code = codeOf(error);
      if (code !== 'ENOENT' && code !== 'ENODEV' && code !== 'EBADF')
        log('error', 'the kernel refuses an answer', { error: String(error) });
      return false;
    }
  };
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}

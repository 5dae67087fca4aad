import type { InodesWithoutAcls } from '../kernel-view/inodes-without-acls.ts';
import type { Place } from '../place.ts';
import { BACKGROUND_MAX } from '../transport/kernel-tuning.ts';
import type { FileKernel, FileSystemCalls, MountedTransport, TransportOptions } from '../transport.ts';
import { Notifier, type Write } from './notifier.ts';
import type { Send } from './replier.ts';
import { Session } from './session.ts';
import type { Signals } from './signals.ts';

/** Between repetitions of a notice, until the kernel has taken up an answer. */
const REPEAT_MS = 2;

/** The kernel as this process reaches it: /dev/fuse and /proc, or a model of both. */
export interface KernelDevice {
  readonly send: Send;
  /** Sends a notice, which may block for long. */
  readonly notify: Write;
  readonly signals: Signals;
}

export interface KernelConnection {
  readonly notices: FileKernel & Pick<MountedTransport, 'expireNames'>;
  readonly started: Promise<number>;
  receive(request: Buffer): void;
  stop(): void;
}

/** @param absentLists for the reader thread; null if it answers nothing */
export function connectKernel(
  { send, notify, signals }: KernelDevice,
  calls: FileSystemCalls,
  options: TransportOptions,
  absentLists: InodesWithoutAcls | null,
): KernelConnection {
  const { world, log } = options;
  const notifier = new Notifier(notify);
  const invalidateInode = async (inode: number, pages = true): Promise<void> => {
    absentLists?.forgetAll();
    const node = session.numbers.node(inode);
    // The kernel itself waits for these reads. After a notice it ignores the end of the file in the answer of an
    // earlier read (`fuse_read_update_size`), and the program would read zeros beyond it.
    if (pages) await session.underWay.readsAnswered(node);
    // An answer that the kernel takes up later would be cached after the notice.
    while (!(await notifier.invalidateInode(node, pages)) && session.view.isInFlight(inode)) {
      await world.sleep(REPEAT_MS);
    }
  };
  const storePages: FileKernel['storePages'] = async (inode, offset, bytes, isCurrent) => {
    try {
      return await notifier.storePages(session.numbers.node(inode), offset, bytes, isCurrent);
    } catch (error) {
      log('warn', 'the kernel refuses pages', { inode, error: String(error) });
      return false;
    }
  };
  const logRefusal = (inode: number) => (error: unknown) => {
    log('error', 'the kernel refuses a notice to drop its cache', { inode, error: String(error) });
  };
  const drop = (inode: number): Promise<void> => invalidateInode(inode, false).catch(logRefusal(inode));
  const expire = async ({ parent, name }: Place, isWanted: () => boolean): Promise<void> => {
    const node = session.numbers.node(parent);
    // A thread of this process blocks while the kernel waits for the directory's lock. If the process were killed then,
    // the call that holds the lock would never be answered, and the mount could not end.
    const ready = async (): Promise<boolean> => {
      if (isWanted()) await session.underWay.directoryCallsAnswered(node);
      return isWanted();
    };
    await notifier.expireEntry(node, name, ready).catch(logRefusal(parent));
  };
  const how = {
    ...{ ...options, backgroundMax: BACKGROUND_MAX, absentLists, signals },
    notices: { drop, expire },
  };
  const session = new Session(calls, how, send);
  return {
    started: session.started,
    receive: (request) => session.receive(request),
    stop: () => session.underWay.stop(),
    notices: {
      checksAttributesBeforeReads: true,
      invalidateInode,
      expireNames: (directories) => session.view.recalled(directories),
      dropAttributes: (inode) => session.view.dropAttributes(inode),
      storePages,
    },
  };
}

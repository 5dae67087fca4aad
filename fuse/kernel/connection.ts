import type { AbsentLists } from '../kernel-view/absent-lists.ts';
import type { Place } from '../place.ts';
import { BACKGROUND_MAX } from '../transport/kernel-tuning.ts';
import type { FileKernel, FileSystemCalls, MountedTransport, TransportOptions } from '../transport.ts';
import { Notifier, type Write } from './notifier.ts';
import type { Send } from './replier.ts';
import { Session } from './session.ts';
import type { Signals } from './signals.ts';

/** Between looks whether the kernel has applied the mount's settings. */
const UPTAKE_LOOK_MS = 2;

/** The kernel as this process reaches it: /dev/fuse and /proc, or a model of both. */
export interface KernelDevice {
  /** Hands over one reply. */
  readonly send: Send;
  /** Hands over one notice, for which the kernel may wait long. */
  readonly notify: Write;
  /** @returns which signals wait for the thread of a call under way */
  readonly signals: Signals;
}

/** A file system connected with the kernel, whatever the two are connected by. */
export interface KernelConnection {
  /** What the file system asks of the kernel. */
  readonly notices: FileKernel & Pick<MountedTransport, 'expireNames'>;
  /** @see Session.started */
  readonly started: Promise<number>;
  /** @param request as the kernel wrote it, in memory of its own */
  receive(request: Buffer): void;
  /** The mount is gone: nothing is answered any more. */
  stop(): void;
}

/** @param absentLists of the lists that another thread answers; null where all requests come here */
export function connectKernel(
  { send, notify, signals }: KernelDevice,
  calls: FileSystemCalls,
  options: TransportOptions,
  absentLists: AbsentLists | null,
): KernelConnection {
  const { world, log } = options;
  const notifier = new Notifier(notify);
  const invalidateInode = async (inode: number, pages = true): Promise<void> => {
    absentLists?.forgetAll();
    const node = session.numbers.node(inode);
    // The kernel waits for these reads itself before it drops pages. Once it has a notice, it ignores where the answer of an earlier
    // read says that the file ends (`fuse_read_update_size`), and the program reads zeros behind that.
    if (pages) await session.underWay.readsAnswered(node);
    // An answer that its caller has not taken up yet would be cached afterwards.
    while (!(await notifier.invalidateInode(node, pages)) && session.view.isInFlight(inode)) {
      await world.sleep(UPTAKE_LOOK_MS);
    }
  };
  const givePages: FileKernel['givePages'] = async (inode, offset, bytes, isCurrent) => {
    try {
      return await notifier.givePages(session.numbers.node(inode), offset, bytes, isCurrent);
    } catch (error) {
      log('warn', 'the kernel refuses pages', { inode, error: String(error) });
      return false;
    }
  };
  const kept = (inode: number) => (error: unknown) => {
    log('error', 'the kernel keeps what it is to drop', { inode, error: String(error) });
  };
  const drop = (inode: number): Promise<void> => invalidateInode(inode, false).catch(kept(inode));
  const expire = async ({ parent, name }: Place, isWanted: () => boolean): Promise<void> => {
    const node = session.numbers.node(parent);
    // While the kernel waits for the directory's lock, a thread of this process does: if the process were killed then, nothing would answer the
    // call that has the lock, and end the mount.
    const ready = async (): Promise<boolean> => {
      if (isWanted()) await session.underWay.directoryCallsAnswered(node);
      return isWanted();
    };
    await notifier.expireEntry(node, name, ready).catch(kept(parent));
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
      asksBeforeReads: true,
      invalidateInode,
      expireNames: (directories) => session.view.recalled(directories),
      dropAttributes: (inode) => session.view.dropAttributes(inode),
      givePages,
    },
  };
}

import { IOCTL } from '../../../fuse/kernel/ioctls.ts';
import { OPCODE } from '../../../fuse/kernel/protocol.ts';
import type { Call, FuseClient } from './fuse-client.ts';
import type { Inode } from './inode.ts';
import { ignoreKernelError, KernelError } from './kernel-error.ts';
import { longs, readLong, words } from './messages.ts';
import { isCapable, isOwner } from './permissions.ts';
import { KERNEL } from './request-queue.ts';

/**
 * FS_IOC_GETFLAGS and FS_IOC_SETFLAGS (fs/file_attr.c, fs/fuse/ioctl.c), for the two flags that the mount supports.
 */

const IMMUTABLE = 0x10;
const APPEND = 0x20;
const IOCTL_DIRECTORY = 1 << 4;
const REPLY_BYTES = 16;

/** fuse_fileattr_get */
export async function inodeFlags(call: Call, client: FuseClient, inode: Inode): Promise<number> {
  const reply = await ioctl(call, client, inode, IOCTL.getFlags, Buffer.alloc(0), 4);
  return reply.readUInt32LE(REPLY_BYTES);
}

/** vfs_fileattr_set and fuse_fileattr_set. @throws KernelError EPERM */
export async function setInodeFlags(
  call: Call,
  client: FuseClient,
  inode: Inode,
  flags: number,
): Promise<void> {
  if (!isOwner(call.task, inode)) throw new KernelError('EPERM');
  await inode.lock.exclusive(async () => {
    const before = await inodeFlags(call, client, inode);
    // fileattr_set_prepare
    if (((before ^ flags) & (IMMUTABLE | APPEND)) !== 0 && !isCapable(call.task))
      throw new KernelError('EPERM');
    await ioctl(call, client, inode, IOCTL.setFlags, words(flags), 0);
  });
}

/** fuse_priv_ioctl_prepare, fuse_priv_ioctl and fuse_priv_ioctl_cleanup: with a handle of its own. */
async function ioctl(
  { task }: Call,
  { queue }: FuseClient,
  inode: Inode,
  command: number,
  argument: Buffer,
  replyBytes: number,
): Promise<Buffer> {
  if (inode.isBad) throw new KernelError('EIO');
  const { isDirectory, node } = inode;
  const [open, release] = isDirectory ? [OPCODE.opendir, OPCODE.releasedir] : [OPCODE.open, OPCODE.release];
  const handle = readLong(await queue.request(task, open, node, [words(0, 0)]));
  try {
    const flags = isDirectory ? IOCTL_DIRECTORY : 0;
    const sizes = words(argument.length, replyBytes);
    const body = [longs(handle), words(flags, command), longs(0), sizes, argument];
    return await queue.request(task, OPCODE.ioctl, node, body);
  } finally {
    queue
      .request(KERNEL, release, node, [longs(handle), words(0, 0), longs(0)], {
        force: true,
        background: true,
      })
      .catch(ignoreKernelError);
  }
}

import { OPCODE, SETATTR_FLAG } from '../../../fuse/kernel/protocol.ts';
import type { Dentry } from './dentries.ts';
import type { Call, FuseClient } from './fuse-client.ts';
import { type Inode, STALE } from './inode.ts';
import { KernelError } from './kernel-error.ts';
import { longs, name as nameWithZero, readAttributesReply, words } from './messages.ts';
import { isCapable, isInGroup, isOwner } from './permissions.ts';

const LOCK_OWNER_FLAG = 1 << 9;

/** The changes of an inode that a call makes: `struct iattr`. */
export interface AttributeChange {
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly sizeBytes?: number;
  readonly accessed?: bigint | 'now';
  readonly modified?: bigint | 'now';
  /** The handle of a file that is open for writing, for ftruncate. */
  readonly handle?: number;
}

/** setattr_prepare (fs/attr.c). @throws KernelError EPERM; @returns the change without what the caller may not do */
function prepared({ task }: Call, inode: Inode, change: AttributeChange): AttributeChange {
  const { attributes } = inode;
  const owns = isOwner(task, inode);
  const { uid, gid, mode, accessed, modified } = change;
  const mayChown =
    isCapable(task) || (task.uid === attributes.uid && (uid === undefined || uid === attributes.uid));
  if (uid !== undefined && !mayChown) throw new KernelError('EPERM');
  const mayChgrp =
    isCapable(task) ||
    (task.uid === attributes.uid && (gid === attributes.gid || isInGroup(task, gid ?? -1)));
  if (gid !== undefined && !mayChgrp) throw new KernelError('EPERM');
  const setsTime = typeof accessed === 'bigint' || typeof modified === 'bigint';
  if ((mode !== undefined || setsTime) && !owns) throw new KernelError('EPERM');
  if (mode === undefined) return change;
  const group = gid ?? attributes.gid;
  return isInGroup(task, group) || isCapable(task) ? change : { ...change, mode: mode & ~0o2000 };
}

/** fuse_setattr and fuse_do_setattr; locks the inode. @param dentry by which it was found or opened */
export async function setAttributes(
  client: FuseClient,
  call: Call,
  inode: Inode,
  change: AttributeChange,
  dentry?: Dentry,
): Promise<void> {
  await inode.lock.exclusive(() => setLocked(client, call, inode, change));
  // fuse_invalidate_entry_cache: the right to search the directory may have changed.
  if (dentry !== undefined && inode.isDirectory && change.mode !== undefined)
    dentry.validUntilMs = Number.NEGATIVE_INFINITY;
}

/** As `setAttributes`, if the caller has locked the inode. @param isForced skips the checks of the caller's rights */
export async function setLocked(
  client: FuseClient,
  call: Call,
  inode: Inode,
  change: AttributeChange,
  isForced = false,
): Promise<void> {
  if (inode.isBad) throw new KernelError('EIO');
  const { mode, uid, gid, sizeBytes, accessed, modified, handle } = isForced
    ? change
    : prepared(call, inode, change);
  const kills =
    (!inode.isDirectory && (uid !== undefined || gid !== undefined)) ||
    (sizeBytes !== undefined && !isCapable(call.task));
  if (!inode.isDirectory && (uid !== undefined || gid !== undefined || sizeBytes !== undefined))
    await killCapability(client, call, inode);
  const valid =
    (mode === undefined ? 0 : SETATTR_FLAG.mode) |
    (uid === undefined ? 0 : SETATTR_FLAG.uid) |
    (gid === undefined ? 0 : SETATTR_FLAG.gid) |
    (sizeBytes === undefined ? 0 : SETATTR_FLAG.size | LOCK_OWNER_FLAG) |
    (accessed === undefined ? 0 : SETATTR_FLAG.accessed) |
    (accessed === 'now' ? SETATTR_FLAG.accessedNow : 0) |
    (modified === undefined ? 0 : SETATTR_FLAG.modified) |
    (modified === 'now' ? SETATTR_FLAG.modifiedNow : 0) |
    (handle === undefined ? 0 : SETATTR_FLAG.handle) |
    (kills ? SETATTR_FLAG.killPrivileges : 0);
  const [atime, mtime] = [accessed, modified].map((time) => split(typeof time === 'bigint' ? time : 0n));
  const type = inode.attributes.mode & 0o170000;
  const body = [
    ...[words(valid, 0), longs(handle ?? 0, sizeBytes ?? 0, 0)],
    ...[longs(atime?.seconds ?? 0n, mtime?.seconds ?? 0n, 0n), words(atime?.rest ?? 0, mtime?.rest ?? 0, 0)],
    words(mode === undefined ? 0 : type | mode, 0, uid ?? 0, gid ?? 0, 0),
  ];
  const { version } = client;
  if (sizeBytes !== undefined) inode.isSizeUnstable = true;
  try {
    const reply = readAttributesReply(
      await client.queue.request(call.task, OPCODE.setattr, inode.node, body),
    );
    // Answers meanwhile may be newer: these attributes are valid for this call only.
    const validMs = inode.version > version ? 0 : reply.attributesMs;
    client.takeAttributes(inode, reply.attributes, validMs);
    const { sizeBytes: sizeBefore } = inode;
    inode.sizeBytes = reply.attributes.sizeBytes;
    if (inode.isFile && sizeBefore !== inode.sizeBytes) {
      await client.pages(inode).truncate(inode.sizeBytes);
      await client.dropPages(inode);
    }
  } catch (error) {
    if (error instanceof KernelError && error.errno === 'EINTR') inode.invalidate();
    throw error;
  } finally {
    if (sizeBytes !== undefined) inode.isSizeUnstable = false;
  }
  inode.forgetAcls();
}

/**
 * cap_inode_need_killpriv and cap_inode_killpriv (security/commoncap.c).
 *
 * @returns whether the file had a capability, which is removed
 */
export async function killCapability(client: FuseClient, { task }: Call, inode: Inode): Promise<boolean> {
  const name = nameWithZero('security.capability');
  const ask = (opcode: number, body: readonly Uint8Array[]): Promise<Buffer> =>
    client.queue.request(task, opcode, inode.node, body);
  try {
    await ask(OPCODE.getxattr, [words(0, 0), name]);
  } catch (error) {
    if (error instanceof KernelError) return false;
    throw error;
  }
  await ask(OPCODE.removexattr, [name]);
  inode.invalidate(STALE.modified);
  return true;
}

function split(ns: bigint): { readonly seconds: bigint; readonly rest: number } {
  const rest = ((ns % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
  return { seconds: (ns - rest) / 1_000_000_000n, rest: Number(rest) };
}

import { constants } from 'node:fs';
import type { KernelErrno } from './kernel-error.ts';
import { SharedMutex } from './kernel-locks.ts';
import type { Inode64 } from './messages.ts';
import type { Acl } from './permissions.ts';

/** Parts of the attributes that are invalid before their time is over (`inval_mask`). */
export const STALE = { access: 1, size: 2, modified: 4, accessed: 8 } as const;
export const STALE_ALL = 15;
/** FUSE_STATX_MODSIZE: what a write changes. */
export const STALE_WRITTEN = STALE.size | STALE.modified;

export type AclKind = 'access' | 'default';

/** An inode in the kernel's memory, `struct fuse_inode` with its `struct inode`. */
export class Inode {
  readonly node: number;
  attributes: Inode64;
  /** i_size: the end of the file for the kernel. */
  sizeBytes: number;
  validUntilMs = Number.NEGATIVE_INFINITY;
  staleParts: number = STALE_ALL;
  /** Counts changes of attributes, see `Inodes.version`. */
  version = 0;
  /** The number of look-ups that the file system counts, which FORGET returns. */
  lookups = 0;
  /** Names, open files and calls that use it. */
  references = 0;
  isBad = false;
  /** A removed directory. */
  isDead = false;
  isSizeUnstable = false;
  /** S_NOSEC: a write has no privileges to remove. */
  hasNoPrivileges = false;
  /** i_rwsem. */
  readonly lock = new SharedMutex();
  /** Cached ACLs; null: there is none. */
  readonly acls = new Map<AclKind, Acl | null>();
  /** Counts how often the ACLs were dropped. */
  aclGeneration = 0;
  advisesPlus = false;
  cameByPlus = false;
  linkTarget: string | null = null;
  /** AS_EIO and AS_ENOSPC: returned once, by the next call that waits for writes. */
  writeError: KernelErrno | null = null;
  /** errseq_t: returned once by fsync of each file that was open. */
  writeErrors: { readonly count: number; readonly errno: KernelErrno | null } = { count: 0, errno: null };

  constructor(node: number, attributes: Inode64) {
    this.node = node;
    this.attributes = attributes;
    this.sizeBytes = attributes.sizeBytes;
  }

  get type(): number {
    return this.attributes.mode & constants.S_IFMT;
  }

  get isDirectory(): boolean {
    return this.type === constants.S_IFDIR;
  }

  get isFile(): boolean {
    return this.type === constants.S_IFREG;
  }

  get isSymlink(): boolean {
    return this.type === constants.S_IFLNK;
  }

  isStale(parts: number, nowMs: number): boolean {
    return (this.staleParts & parts) !== 0 || this.validUntilMs < nowMs;
  }

  invalidate(parts: number = STALE_ALL): void {
    this.staleParts |= parts;
  }

  forgetAcls(): void {
    this.acls.clear();
    this.aclGeneration++;
  }

  /** mapping_set_error */
  writeFailed(errno: KernelErrno): void {
    this.writeErrors = { count: this.writeErrors.count + 1, errno };
    this.writeError = errno === 'ENOSPC' ? errno : 'EIO';
  }

  takeWriteError(): KernelErrno | null {
    const error = this.writeError;
    this.writeError = null;
    return error;
  }
}

/** Numbers of the kernel's protocol, from <linux/fuse.h>. */

export const MAJOR = 7;
/** Spoken here; a newer kernel adapts to it. */
export const MINOR = 38;
/** The first with all required features: 1 MiB requests, INIT with 64 flags, KILLPRIV_V2 (Linux 5.17). */
export const MINOR_MIN = 36;
/** The first with `EXPIRE_ONLY` (Linux 6.2). */
export const MINOR_EXPIRES = 38;

export const ROOT_NODE = 1;

export const IN_HEADER_BYTES = 40;
export const OUT_HEADER_BYTES = 16;

export const OPCODE = {
  lookup: 1,
  forget: 2,
  getattr: 3,
  setattr: 4,
  readlink: 5,
  symlink: 6,
  mknod: 8,
  mkdir: 9,
  unlink: 10,
  rmdir: 11,
  rename: 12,
  link: 13,
  open: 14,
  read: 15,
  write: 16,
  statfs: 17,
  release: 18,
  fsync: 20,
  setxattr: 21,
  getxattr: 22,
  listxattr: 23,
  removexattr: 24,
  flush: 25,
  init: 26,
  opendir: 27,
  readdir: 28,
  releasedir: 29,
  fsyncdir: 30,
  getlk: 31,
  setlk: 32,
  setlkw: 33,
  create: 35,
  interrupt: 36,
  destroy: 38,
  ioctl: 39,
  notifyReply: 41,
  batchForget: 42,
  fallocate: 43,
  readdirplus: 44,
  rename2: 45,
  lseek: 46,
  copyFileRange: 47,
  tmpfile: 51,
  statx: 52,
} as const;

export const INIT_FLAG = {
  asyncRead: 1 << 0,
  posixLocks: 1 << 1,
  atomicTruncate: 1 << 3,
  exportSupport: 1 << 4,
  bigWrites: 1 << 5,
  dontMask: 1 << 6,
  flockLocks: 1 << 10,
  autoInvalidateData: 1 << 12,
  readDirectoryPlus: 1 << 13,
  readDirectoryPlusAuto: 1 << 14,
  asyncDirectIo: 1 << 15,
  parallelDirectoryCalls: 1 << 18,
  posixAcls: 1 << 20,
  maxPages: 1 << 22,
  cacheSymlinks: 1 << 23,
  killPrivilegesV2: 1 << 28,
  setXattrExtended: 1 << 29,
} as const;

/** Mask of a STATX reply: the fields of GETATTR, and the creation time. */
export const STATX_BASIC = 0x7ff;
export const STATX_CREATED = 0x800;

export const SETATTR_FLAG = {
  mode: 1 << 0,
  uid: 1 << 1,
  gid: 1 << 2,
  size: 1 << 3,
  accessed: 1 << 4,
  modified: 1 << 5,
  handle: 1 << 6,
  accessedNow: 1 << 7,
  modifiedNow: 1 << 8,
  killPrivileges: 1 << 11,
} as const;

export const OPEN_KILL_PRIVILEGES = 1 << 0;
export const WRITE_KILL_PRIVILEGES = 1 << 2;
export const SETXATTR_CLEAR_SETGID = 1 << 0;
export const LOCK_FLOCK = 1 << 0;

export const OPENED_FLAG = {
  directIo: 1 << 0,
  keepCache: 1 << 1,
  /** The kernel sends no FLUSH at a close. */
  noFlush: 1 << 5,
} as const;

export const NOTIFY = { invalidateInode: 2, invalidateEntry: 3, store: 4 } as const;
/** The name stays, with what is mounted below it, and is looked up at its next use. */
export const EXPIRE_ONLY = 1 << 0;

import { constants } from 'node:fs';
import { utf8Text } from '../../base/utf8.ts';
import { ErrnoError } from '../errno.ts';
import type { AttributeRequest, LockRequest, TimeChange } from '../transport.ts';
import {
  IN_HEADER_BYTES,
  LOCK_FLOCK,
  OPCODE,
  OPEN_KILL_PRIVILEGES,
  SETATTR_FLAG,
  SETXATTR_CLEAR_SETGID,
  WRITE_KILL_PRIVILEGES,
} from './protocol.ts';

/** Decodes requests. Numbers have the machine's byte order: little-endian wherever Node runs. */

export interface RequestHeader {
  /** Identifies the request in its reply. Even; the kernel counts up. */
  readonly unique: number;
  readonly opcode: number;
  readonly node: number;
  readonly uid: number;
  readonly gid: number;
  /** The calling thread; 0 if this process cannot see it. */
  readonly pid: number;
}

interface Creation {
  readonly mode: number;
  readonly umask: number;
  readonly flags: number;
  readonly killsPrivileges: boolean;
}

/** The kernel no longer refers to `lookups` of the entries that replies have given it of a node (`nlookup`). */
interface Forgotten {
  readonly node: number;
  readonly lookups: number;
}

export type Request =
  | {
      readonly kind: 'init';
      readonly major: number;
      readonly minor: number;
      readonly readAheadBytes: number;
      readonly flags: number;
    }
  | { readonly kind: 'destroy' }
  | { readonly kind: 'interrupt'; readonly unique: number }
  | { readonly kind: 'forget'; readonly forgotten: readonly Forgotten[] }
  | { readonly kind: 'lookup'; readonly name: string }
  | {
      readonly kind: 'attributes';
      readonly withCreation?: true;
    }
  | {
      readonly kind: 'set-attributes';
      readonly sizeBytes?: number;
      /** By descriptor, not by path. */
      readonly isOpen: boolean;
      readonly killsPrivileges: boolean;
      readonly changes: AttributeRequest;
    }
  | { readonly kind: 'read-link' }
  | { readonly kind: 'symlink'; readonly name: string; readonly target: string }
  | {
      readonly kind: 'make-node';
      readonly name: string;
      readonly mode: number;
      readonly umask: number;
      readonly device: number;
    }
  | { readonly kind: 'make-directory'; readonly name: string; readonly mode: number; readonly umask: number }
  | { readonly kind: 'unlink'; readonly name: string }
  | { readonly kind: 'remove-directory'; readonly name: string }
  | {
      readonly kind: 'rename';
      readonly name: string;
      readonly toParent: number;
      readonly toName: string;
      readonly flags: number;
    }
  | { readonly kind: 'link'; readonly name: string; readonly of: number }
  | { readonly kind: 'open'; readonly flags: number; readonly killsPrivileges: boolean }
  | (Creation & { readonly kind: 'create'; readonly name: string })
  | (Creation & { readonly kind: 'tmpfile' })
  | { readonly kind: 'read'; readonly handle: number; readonly offset: number; readonly length: number }
  | {
      readonly kind: 'write';
      readonly handle: number;
      readonly offset: number;
      /** A view of the request's own bytes. */
      readonly bytes: Uint8Array;
      /** Whether the descriptor has O_APPEND now; that may have changed since its open. */
      readonly appends: boolean;
      readonly killsPrivileges: boolean;
    }
  | { readonly kind: 'flush'; readonly handle: number; readonly owner: bigint }
  | { readonly kind: 'persist'; readonly handle: number }
  | { readonly kind: 'persist-directory'; readonly handle: number }
  | { readonly kind: 'release'; readonly handle: number }
  | {
      readonly kind: 'allocate';
      readonly handle: number;
      readonly mode: number;
      readonly offset: number;
      readonly length: number;
    }
  | { readonly kind: 'seek'; readonly handle: number; readonly offset: number; readonly whence: number }
  | {
      readonly kind: 'copy-range';
      readonly from: number;
      readonly fromOffset: number;
      readonly to: number;
      readonly toOffset: number;
      readonly length: number;
      readonly flags: number;
    }
  | { readonly kind: 'open-directory'; readonly flags: number }
  | {
      readonly kind: 'read-directory';
      readonly handle: number;
      readonly offset: number;
      readonly bytesMax: number;
      readonly plus: boolean;
    }
  | { readonly kind: 'release-directory'; readonly handle: number }
  | { readonly kind: 'space' }
  | { readonly kind: 'xattr'; readonly name: string; readonly bytesMax: number }
  | { readonly kind: 'xattrs'; readonly bytesMax: number }
  | {
      readonly kind: 'set-xattr';
      readonly name: string;
      readonly value: Uint8Array;
      readonly flags: number;
      readonly clearsSetgid: boolean;
    }
  | { readonly kind: 'remove-xattr'; readonly name: string }
  | { readonly kind: 'ioctl'; readonly command: number; readonly bytes: Buffer }
  | { readonly kind: 'lock-holder'; readonly handle: number; readonly lock: LockRequest }
  | { readonly kind: 'lock'; readonly handle: number; readonly lock: LockRequest; readonly waits: boolean }
  | { readonly kind: 'unknown' };

const F_RDLCK = 0;
const F_WRLCK = 1;

/** @returns null if `bytes` is not one whole request */
export function decodeHeader(bytes: Buffer): RequestHeader | null {
  if (bytes.length < IN_HEADER_BYTES || bytes.readUInt32LE(0) !== bytes.length) return null;
  return {
    opcode: bytes.readUInt32LE(4),
    unique: readNumber(bytes, 8),
    node: readNumber(bytes, 16),
    uid: bytes.readUInt32LE(24),
    gid: bytes.readUInt32LE(28),
    pid: bytes.readUInt32LE(32),
  };
}

/**
 * @param bytes with the header; the bytes of a write remain a part of it
 * @throws ErrnoError EILSEQ for names that are not UTF-8, EFBIG for positions beyond 2^53 (ENXIO for seek), EIO if
 *   truncated
 */
export function decodeRequest(header: RequestHeader, bytes: Buffer): Request {
  try {
    return decodeBody(header, bytes);
  } catch (error) {
    if (error instanceof RangeError) throw new ErrnoError('EIO', `A request ${header.opcode} is truncated`);
    throw error;
  }
}

function decodeBody({ opcode, node }: RequestHeader, bytes: Buffer): Request {
  const at = IN_HEADER_BYTES;
  switch (opcode) {
    case OPCODE.init:
      return {
        kind: 'init',
        major: bytes.readUInt32LE(at),
        minor: bytes.readUInt32LE(at + 4),
        readAheadBytes: bytes.readUInt32LE(at + 8),
        flags: bytes.readUInt32LE(at + 12),
      };
    case OPCODE.destroy:
      return { kind: 'destroy' };
    case OPCODE.interrupt:
      return { kind: 'interrupt', unique: readNumber(bytes, at) };
    case OPCODE.forget:
      return { kind: 'forget', forgotten: [{ node, lookups: readNumber(bytes, at) }] };
    case OPCODE.batchForget: {
      const forgotten: Forgotten[] = [];
      const end = at + 8 + bytes.readUInt32LE(at) * 16;
      for (let next = at + 8; next < end; next += 16)
        forgotten.push({ node: readNumber(bytes, next), lookups: readNumber(bytes, next + 8) });
      return { kind: 'forget', forgotten };
    }
    case OPCODE.lookup:
      return { kind: 'lookup', name: readText(bytes, at).text };
    case OPCODE.getattr:
      return { kind: 'attributes' };
    case OPCODE.statx:
      return { kind: 'attributes', withCreation: true };
    case OPCODE.setattr:
      return decodeSetAttributes(bytes, at);
    case OPCODE.readlink:
      return { kind: 'read-link' };
    case OPCODE.symlink: {
      const name = readText(bytes, at);
      return { kind: 'symlink', name: name.text, target: readText(bytes, name.end).text };
    }
    case OPCODE.mknod: {
      const [mode, device] = [bytes.readUInt32LE(at), bytes.readUInt32LE(at + 4)];
      const umask = bytes.readUInt32LE(at + 8);
      return { kind: 'make-node', name: readText(bytes, at + 16).text, mode, umask, device };
    }
    case OPCODE.mkdir: {
      const [mode, umask] = [bytes.readUInt32LE(at), bytes.readUInt32LE(at + 4)];
      return { kind: 'make-directory', name: readText(bytes, at + 8).text, mode, umask };
    }
    case OPCODE.unlink:
      return { kind: 'unlink', name: readText(bytes, at).text };
    case OPCODE.rmdir:
      return { kind: 'remove-directory', name: readText(bytes, at).text };
    case OPCODE.rename:
      return decodeRename(bytes, at, at + 8, 0);
    case OPCODE.rename2:
      return decodeRename(bytes, at, at + 16, bytes.readUInt32LE(at + 8));
    case OPCODE.link:
      return { kind: 'link', of: readNumber(bytes, at), name: readText(bytes, at + 8).text };
    case OPCODE.open: {
      const killsPrivileges = (bytes.readUInt32LE(at + 4) & OPEN_KILL_PRIVILEGES) !== 0;
      return { kind: 'open', flags: bytes.readUInt32LE(at), killsPrivileges };
    }
    case OPCODE.create:
      return { kind: 'create', name: readText(bytes, at + 16).text, ...readCreation(bytes, at) };
    case OPCODE.tmpfile:
      return { kind: 'tmpfile', ...readCreation(bytes, at) };
    case OPCODE.read: {
      const { handle, offset } = readHandleAndOffset(bytes, at);
      return { kind: 'read', handle, offset, length: bytes.readUInt32LE(at + 16) };
    }
    case OPCODE.write:
      return decodeWrite(bytes, at);
    case OPCODE.statfs:
      return { kind: 'space' };
    case OPCODE.release:
      return { kind: 'release', handle: readNumber(bytes, at) };
    case OPCODE.fsync:
      return { kind: 'persist', handle: readNumber(bytes, at) };
    case OPCODE.fsyncdir:
      return { kind: 'persist-directory', handle: readNumber(bytes, at) };
    case OPCODE.flush:
      return { kind: 'flush', handle: readNumber(bytes, at), owner: bytes.readBigUInt64LE(at + 16) };
    case OPCODE.setxattr: {
      const [length, flags] = [bytes.readUInt32LE(at), bytes.readUInt32LE(at + 4)];
      const clearsSetgid = (bytes.readUInt32LE(at + 8) & SETXATTR_CLEAR_SETGID) !== 0;
      const name = readText(bytes, at + 16);
      return {
        kind: 'set-xattr',
        name: name.text,
        value: Uint8Array.from(readBytes(bytes, name.end, length)),
        flags,
        clearsSetgid,
      };
    }
    case OPCODE.getxattr:
      return { kind: 'xattr', name: readText(bytes, at + 8).text, bytesMax: bytes.readUInt32LE(at) };
    case OPCODE.listxattr:
      return { kind: 'xattrs', bytesMax: bytes.readUInt32LE(at) };
    case OPCODE.removexattr:
      return { kind: 'remove-xattr', name: readText(bytes, at).text };
    case OPCODE.ioctl: {
      const [command, length] = [bytes.readUInt32LE(at + 12), bytes.readUInt32LE(at + 24)];
      return { kind: 'ioctl', command, bytes: Buffer.from(readBytes(bytes, at + 32, length)) };
    }
    case OPCODE.opendir:
      return { kind: 'open-directory', flags: bytes.readUInt32LE(at) };
    case OPCODE.readdir:
    case OPCODE.readdirplus: {
      const bytesMax = bytes.readUInt32LE(at + 16);
      const plus = opcode === OPCODE.readdirplus;
      return { kind: 'read-directory', ...readHandleAndOffset(bytes, at), bytesMax, plus };
    }
    case OPCODE.releasedir:
      return { kind: 'release-directory', handle: readNumber(bytes, at) };
    case OPCODE.fallocate: {
      const { handle, offset } = readHandleAndOffset(bytes, at);
      const length = readPosition(bytes, at + 16);
      return { kind: 'allocate', handle, offset, length, mode: bytes.readUInt32LE(at + 24) };
    }
    case OPCODE.lseek:
      return {
        kind: 'seek',
        ...readHandleAndOffset(bytes, at, 'ENXIO'),
        whence: bytes.readUInt32LE(at + 16),
      };
    case OPCODE.copyFileRange:
      return {
        kind: 'copy-range',
        from: readNumber(bytes, at),
        fromOffset: readPosition(bytes, at + 8),
        to: readNumber(bytes, at + 24),
        toOffset: readPosition(bytes, at + 32),
        length: readPosition(bytes, at + 40),
        flags: readNumber(bytes, at + 48),
      };
    case OPCODE.getlk:
      return { kind: 'lock-holder', ...decodeLock(bytes, at) };
    case OPCODE.setlk:
    case OPCODE.setlkw:
      return { kind: 'lock', ...decodeLock(bytes, at), waits: opcode === OPCODE.setlkw };
    default:
      return { kind: 'unknown' };
  }
}

function decodeSetAttributes(bytes: Buffer, at: number): Request {
  const valid = bytes.readUInt32LE(at);
  const has = (flag: number): boolean => (valid & flag) !== 0;
  const accessed = decodeTime(bytes, at + 32, at + 56, has(SETATTR_FLAG.accessedNow));
  const modified = decodeTime(bytes, at + 40, at + 60, has(SETATTR_FLAG.modifiedNow));
  return {
    kind: 'set-attributes',
    ...(has(SETATTR_FLAG.size) ? { sizeBytes: readPosition(bytes, at + 16) } : {}),
    isOpen: has(SETATTR_FLAG.handle),
    killsPrivileges: has(SETATTR_FLAG.killPrivileges),
    changes: {
      ...(has(SETATTR_FLAG.mode) ? { mode: bytes.readUInt32LE(at + 68) } : {}),
      ...(has(SETATTR_FLAG.uid) ? { uid: bytes.readUInt32LE(at + 76) } : {}),
      ...(has(SETATTR_FLAG.gid) ? { gid: bytes.readUInt32LE(at + 80) } : {}),
      ...(has(SETATTR_FLAG.accessed) ? { accessed } : {}),
      ...(has(SETATTR_FLAG.modified) ? { modified } : {}),
    },
  };
}

function decodeTime(bytes: Buffer, secondsAt: number, nanosecondsAt: number, now: boolean): TimeChange {
  if (now) return { kind: 'now' };
  const ns = bytes.readBigInt64LE(secondsAt) * 1_000_000_000n + BigInt(bytes.readUInt32LE(nanosecondsAt));
  return { kind: 'time', ns };
}

function decodeRename(bytes: Buffer, at: number, namesAt: number, flags: number): Request {
  const name = readText(bytes, namesAt);
  const toName = readText(bytes, name.end).text;
  return { kind: 'rename', name: name.text, toParent: readNumber(bytes, at), toName, flags };
}

function decodeWrite(bytes: Buffer, at: number): Request {
  const killsPrivileges = (bytes.readUInt32LE(at + 20) & WRITE_KILL_PRIVILEGES) !== 0;
  const contents = readBytes(bytes, at + 40, bytes.readUInt32LE(at + 16));
  const appends = (bytes.readUInt32LE(at + 32) & constants.O_APPEND) !== 0;
  return { kind: 'write', ...readHandleAndOffset(bytes, at), bytes: contents, appends, killsPrivileges };
}

function decodeLock(bytes: Buffer, at: number): { readonly handle: number; readonly lock: LockRequest } {
  const type = bytes.readUInt32LE(at + 32);
  return {
    handle: readNumber(bytes, at),
    lock: {
      kind: (bytes.readUInt32LE(at + 40) & LOCK_FLOCK) !== 0 ? 'flock' : 'posix',
      type: type === F_RDLCK ? 'shared' : type === F_WRLCK ? 'exclusive' : 'unlock',
      start: bytes.readBigUInt64LE(at + 16),
      end: bytes.readBigUInt64LE(at + 24),
      owner: bytes.readBigUInt64LE(at + 8),
      pid: bytes.readUInt32LE(at + 36),
    },
  };
}

function readCreation(bytes: Buffer, at: number): Creation {
  return {
    flags: bytes.readUInt32LE(at),
    mode: bytes.readUInt32LE(at + 4),
    umask: bytes.readUInt32LE(at + 8),
    killsPrivileges: (bytes.readUInt32LE(at + 12) & OPEN_KILL_PRIVILEGES) !== 0,
  };
}

function readHandleAndOffset(
  bytes: Buffer,
  at: number,
  beyond: 'EFBIG' | 'ENXIO' = 'EFBIG',
): { readonly handle: number; readonly offset: number } {
  return { handle: readNumber(bytes, at), offset: readPosition(bytes, at + 8, beyond) };
}

function readPosition(bytes: Buffer, at: number, beyond: 'EFBIG' | 'ENXIO' = 'EFBIG'): number {
  const position = readNumber(bytes, at);
  if (!Number.isSafeInteger(position))
    throw new ErrnoError(beyond, 'A position is beyond the maximum size of a file');
  return position;
}

/** A 64-bit number. Those of this mount, and those that the kernel counts from 0, are below 2^53. */
function readNumber(bytes: Buffer, at: number): number {
  return bytes.readUInt32LE(at) + bytes.readUInt32LE(at + 4) * 0x1_0000_0000;
}

function readBytes(bytes: Buffer, at: number, length: number): Buffer {
  if (at + length > bytes.length) throw new RangeError('Beyond the end');
  return bytes.subarray(at, at + length);
}

function readText(bytes: Buffer, at: number): { readonly text: string; readonly end: number } {
  const end = bytes.indexOf(0, at);
  if (end < 0) throw new RangeError('A string is not terminated');
  const text = utf8Text(bytes.subarray(at, end));
  if (text === null) throw new ErrnoError('EILSEQ', 'A name is not UTF-8');
  return { text, end: end + 1 };
}

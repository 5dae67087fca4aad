import { constants } from 'node:os';
import type { ErrnoName } from '../errno.ts';
import type { InodesWithoutAcls } from '../kernel-view/inodes-without-acls.ts';
import { xattrKind } from '../xattr-names.ts';
import { IN_HEADER_BYTES, OPCODE, OUT_HEADER_BYTES } from './protocol.ts';
import { putHeader } from './replies.ts';
import { decodeHeader } from './requests.ts';

/** After the header, getxattr has the size of the caller's buffer, then the name and a zero byte. */
const NAME_AT = IN_HEADER_BYTES + 8;

/**
 * Answers, on the reader thread, requests for an unsupported extended attribute, and for an access control list or
 * capability of an inode without any. A program that lists files requests one of each.
 * @returns null if the main thread has to answer
 */
export function promptAnswer(request: Buffer, absent: InodesWithoutAcls): Buffer | null {
  if (request.length <= NAME_AT || request.readUInt32LE(4) !== OPCODE.getxattr) return null;
  const header = decodeHeader(request);
  if (header === null) return null;
  const kind = xattrKind(request.toString('latin1', NAME_AT, request.length - 1));
  if (kind === 'none') return refusal(header.unique, 'EOPNOTSUPP');
  return (kind === 'acl' || kind === 'security') && absent.has(header.node)
    ? refusal(header.unique, 'ENODATA')
    : null;
}

function refusal(unique: number, errno: ErrnoName): Buffer {
  const reply = Buffer.allocUnsafe(OUT_HEADER_BYTES);
  putHeader(reply, OUT_HEADER_BYTES, -constants.errno[errno], unique);
  return reply;
}

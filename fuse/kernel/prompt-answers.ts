import { constants } from 'node:os';
import type { ErrnoName } from '../errno.ts';
import type { AbsentLists } from '../kernel-view/absent-lists.ts';
import { xattrKind } from '../xattr-names.ts';
import { IN_HEADER_BYTES, OPCODE, OUT_HEADER_BYTES } from './protocol.ts';
import { putHeader } from './replies.ts';
import { decodeHeader } from './requests.ts';

/** Behind the header a request for an extended attribute has the room that there is for it, then the name with a zero. */
const NAME_AT = IN_HEADER_BYTES + 8;

/**
 * Answers a request on the reading thread: for an extended attribute that no file here has, and for an access control list or
 * a capability of an inode that is known to have no extended attributes. A program that lists files asks for one of each.
 *
 * @param request as it was read, whole
 * @returns the reply; null where it is for the other thread to answer
 */
export function promptAnswer(request: Buffer, absent: AbsentLists): Buffer | null {
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

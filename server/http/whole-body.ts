import type { FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';

/** A larger body is read and dropped up to this multiple of the limit, so that the client reads the answer. */
const DROPPED_TIMES_MAX = 4;

/** Reads an unparsed body into memory. @throws ServiceError `too-large`, or `bad-request` if it breaks off */
export async function readWholeBody(request: FastifyRequest, bytesMax: number): Promise<Buffer> {
  let parts: Buffer[] = [];
  let length = 0;
  try {
    for await (const part of request.raw.iterator({ destroyOnReturn: false })) {
      length += (part as Buffer).length;
      if (length <= bytesMax) parts.push(part as Buffer);
      else parts = [];
      if (length > DROPPED_TIMES_MAX * bytesMax) break;
    }
  } catch (cause) {
    throw new ServiceError(
      'bad-request',
      'The body is incomplete: the connection ended early; send the request again',
      {},
      { cause },
    );
  }
  if (length > bytesMax) throw new ServiceError('too-large', `The body is larger than ${bytesMax} bytes`);
  return Buffer.concat(parts, length);
}

import type { FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';

/** What is too large is read on and dropped, so that the client comes to read the answer: up to so many times the limit. */
const DROPPED_TIMES_MAX = 4;

/**
 * Reads a body that fits into memory, of a route whose bodies nobody parses.
 *
 * @throws ServiceError `too-large` (no more than the limit was kept), or `bad-request` where the body breaks off
 */
export async function wholeBodyOf(request: FastifyRequest, bytesMax: number): Promise<Buffer> {
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
    throw new ServiceError('bad-request', 'The body ended before it was complete', {}, { cause });
  }
  if (length > bytesMax) throw new ServiceError('too-large', `The body is larger than ${bytesMax} bytes`);
  return Buffer.concat(parts, length);
}

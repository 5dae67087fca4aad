import type { FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';

/** A larger body is read and dropped up to this multiple of the limit, so that the client reads the answer. */
const DROPPED_TIMES_MAX = 4;

const bodies = new WeakMap<FastifyRequest, Promise<Buffer>>();

/**
 * Reads an unparsed body into memory, where it stays as long as the request.
 * @throws ServiceError `too-large`, or `bad-request` if it breaks off
 */
export function readWholeBody(request: FastifyRequest, bytesMax: number): Promise<Buffer> {
  const body = bodies.get(request) ?? read(request, bytesMax);
  bodies.set(request, body);
  return body;
}

/** Whether a request can be handled once more from its beginning. */
export function hasWholeBody(request: FastifyRequest): boolean {
  return !request.raw.readableDidRead || bodies.has(request);
}

async function read(request: FastifyRequest, bytesMax: number): Promise<Buffer> {
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

import type { IncomingMessage } from 'node:http';
import { finished } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { makeReleasable, releaseMemory } from '../../base/releasable-memory.ts';
import { allocateWriteBuffer } from '../../wire/file-operation.ts';
import { wholeBodyReader } from './contents-connections.ts';

/**
 * Reads a body into the memory from which it is stored and sent to other servers.
 * @throws ServiceError `too-large` above the route's limit, or `bad-request` if the body breaks off
 */
export function readOctets(request: FastifyRequest, payload: IncomingMessage): Promise<Buffer> {
  const { bodyLimit: bytesMax = 0 } = request.routeOptions;
  const announced = request.headers['content-length'];
  const length = announced === undefined ? null : Number(announced);
  if (length !== null && length > bytesMax) return Promise.reject(tooLarge(bytesMax));
  const read = wholeBodyReader(payload);
  if (read !== null && length !== null) return readWhole(read, length);
  const body = length === null ? null : allocateWriteBuffer(length);
  const parts: Buffer[] = [];
  let at = 0;
  return new Promise((resolve, reject) => {
    // Iterating the stream would join the parts that have arrived, and copy them.
    payload.on('data', (part: Buffer) => {
      const begin = at;
      at += part.length;
      if (at > bytesMax) reject(tooLarge(bytesMax));
      else if (body === null) parts.push(part);
      else {
        body.set(part, begin);
        // The HTTP parser has copied each part to memory of its own, and forgets it.
        if (part.length === part.buffer.byteLength) makeReleasable(part);
        releaseMemory(part);
      }
    });
    finished(payload, { writable: false }, (cause) => {
      if (!cause) resolve(body ?? Buffer.concat(parts, at));
      else reject(incompleteBody(cause));
    });
  });
}

async function readWhole(read: (target: Buffer) => Promise<void>, length: number): Promise<Buffer> {
  const body = allocateWriteBuffer(length);
  try {
    await read(body);
  } catch (cause) {
    throw incompleteBody(cause);
  }
  return body;
}

function incompleteBody(cause: unknown): ServiceError {
  return new ServiceError(
    'bad-request',
    'The body is incomplete: the connection ended early; send the request again',
    {},
    { cause },
  );
}

function tooLarge(bytesMax: number): ServiceError {
  return new ServiceError('too-large', `The body is larger than ${bytesMax} bytes`);
}

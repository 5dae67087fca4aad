import { createHash } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';

const HEADER = 'idempotency-key';
const KEY_LENGTH_MAX = 255;

/**
 * `Idempotency-Key`: the client's own name of a request, so that it may be sent again. It becomes the name by which the
 * servers remember an operation, which is replicated with it: whoever is asked after a failure answers what was answered.
 * Method and target are part of it: the same key with another request names another operation.
 *
 * @returns a session for one operation; null where the client gave no key
 * @throws ServiceError `bad-request`
 */
export function idempotencyKeyOf(request: FastifyRequest): number | null {
  const key = request.headers[HEADER];
  if (key === undefined) return null;
  if (typeof key !== 'string' || key.length === 0 || key.length > KEY_LENGTH_MAX) {
    throw new ServiceError('bad-request', `Idempotency-Key is one text of 1 to ${KEY_LENGTH_MAX} characters`);
  }
  const named = JSON.stringify([request.method, request.originalUrl, key]);
  const digest = createHash('sha256').update(named).digest();
  // 53 bits, and never 0: what sessions are.
  return Number(digest.readBigUInt64BE() >> 11n) || 1;
}

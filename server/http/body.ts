import type { FastifyRequest } from 'fastify';
import type { Schema, Static } from '../../wire/schema.ts';
import { matching } from './matching.ts';

/** Returns a reader that validates a request's body, and says where it is wrong. */
export function bodyReader<Of extends Schema>(schema: Of): (request: FastifyRequest) => Static<Of> {
  const matched = matching(schema);
  return ({ body }) => matched(body, 'body');
}

import type { FastifyRequest } from 'fastify';
import type { Schema, Static } from '../../wire/schema.ts';
import { matching } from './matching.ts';

/** @returns what reads a request's body, or refuses it with the place where it is wrong */
export function bodyReader<Of extends Schema>(schema: Of): (request: FastifyRequest) => Static<Of> {
  const matched = matching(schema);
  return ({ body }) => matched(body, 'body');
}

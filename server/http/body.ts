import type { FastifyRequest } from 'fastify';
import type { Static, TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { ServiceError } from '../../base/errors.ts';

/** @returns what reads a request's body, or refuses it with the place where it is wrong */
export function bodyReader<Schema extends TSchema>(
  schema: Schema,
): (request: FastifyRequest) => Static<Schema> {
  const checker = Compile(schema);
  return ({ body }) => {
    if (checker.Check(body)) return body as Static<Schema>;
    const [first] = checker.Errors(body);
    const where = first === undefined ? '' : ` at ${first.instancePath || '/'}: ${first.message}`;
    throw new ServiceError('bad-request', `The body is malformed${where}`);
  };
}

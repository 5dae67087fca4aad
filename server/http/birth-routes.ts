import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { NumbersRequest, type ReservedNumbers } from '../../wire/birth-numbers.ts';
import {
  BIRTHS_BODY_BYTES_MAX,
  type BirthAnswer,
  type BirthRequest,
  decodeBirths,
} from '../../wire/births.ts';
import { MalformedError } from '../../wire/bytes.ts';
import type { Births } from '../file/births.ts';
import { bodyReader } from './body.ts';
import { callOptionsOf, integerOf } from './input.ts';
import { WRITE } from './roles.ts';

const numbersBody = bodyReader(NumbersRequest);

/** `POST /v1/births` and `/v1/births/numbers`: small files with their contents, many in one request. */
export function birthRoutes(app: FastifyInstance, births: Births): void {
  app.post('/v1/births/numbers', WRITE, async (request): Promise<ReservedNumbers> => {
    return births.reserve(numbersBody(request));
  });

  app.register(async (octets) => {
    octets.removeAllContentTypeParsers();
    octets.addContentTypeParser(
      '*',
      { parseAs: 'buffer', bodyLimit: BIRTHS_BODY_BYTES_MAX },
      (_request, body, done) => {
        done(null, body);
      },
    );
    octets.post(
      '/v1/births',
      { ...WRITE, bodyLimit: BIRTHS_BODY_BYTES_MAX },
      async (request): Promise<BirthAnswer> => {
        const { since } = request.query as { readonly since?: unknown };
        const named = since === undefined ? {} : { since: integerOf(String(since), 'since') };
        const bearing = { ...birthsOf(request.body), ...named };
        const outcomes = await births.bear(bearing, callOptionsOf(request.headers));
        return { outcomes };
      },
    );
  });
}

/** Decodes a body of `encodeBirths`. @throws ServiceError `bad-request` if it is malformed */
export function birthsOf(body: unknown): BirthRequest {
  try {
    return decodeBirths(Buffer.isBuffer(body) ? body : Buffer.alloc(0));
  } catch (cause) {
    if (!(cause instanceof MalformedError)) throw cause;
    throw new ServiceError('bad-request', `The births are malformed: ${cause.message}`, {}, { cause });
  }
}

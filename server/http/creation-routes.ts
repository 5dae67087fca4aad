import type { FastifyInstance } from 'fastify';
import { ROOT_CATALOG } from '../../base/ids.ts';
import {
  encodeNumbers,
  encodeOutcomes,
  NEW_FILES_BODY_BYTES_MAX,
  type NewFilesAnswer,
  type NumbersAnswer,
} from '../../wire/new-files.ts';
import { NumbersRequest } from '../../wire/reserved-numbers.ts';
import type { CreateWithContents } from '../file/create-with-contents.ts';
import { decodeNewFilesBody } from '../requests/new-files-body.ts';
import { assertCatalogNamed, movedRefusal } from '../routing/named-catalog.ts';
import { bodyReader } from './body.ts';
import { callOptionsOf, integerOf } from './input.ts';
import { WRITE } from './roles.ts';

const numbersBody = bodyReader(NumbersRequest);

/** `POST /v1/births` and `/v1/births/numbers`: small files with their contents, many in one request. */
export function creationRoutes(app: FastifyInstance, creations: CreateWithContents): void {
  app.post('/v1/births/numbers', WRITE, async (request): Promise<NumbersAnswer> => {
    const { catalog } = callOptionsOf(request.headers);
    const reserved = await creations.reserve(numbersBody(request), (number) => {
      if (catalog === ROOT_CATALOG && number !== catalog) throw movedRefusal(number);
      // Otherwise a client would acknowledge new files that it cannot create.
      assertCatalogNamed(number, catalog);
    });
    return encodeNumbers(reserved);
  });

  app.register(async (octets) => {
    octets.removeAllContentTypeParsers();
    octets.addContentTypeParser(
      '*',
      { parseAs: 'buffer', bodyLimit: NEW_FILES_BODY_BYTES_MAX },
      (_request, body, done) => {
        done(null, body);
      },
    );
    octets.post(
      '/v1/births',
      { ...WRITE, bodyLimit: NEW_FILES_BODY_BYTES_MAX },
      async (request): Promise<NewFilesAnswer> => {
        const { since } = request.query as { readonly since?: unknown };
        const options = since === undefined ? {} : { since: integerOf(String(since), 'since') };
        const wanted = { ...decodeNewFilesBody(request.body), ...options };
        return encodeOutcomes(await creations.create(wanted, callOptionsOf(request.headers)));
      },
    );
  });
}

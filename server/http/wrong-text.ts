import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { utf8Text } from '../../base/utf8.ts';
import { parseSearch } from './path.ts';

/**
 * Refuses queries and JSON whose bytes are not UTF-8: the decoders behind would put U+FFFD for them, or leave a query encoded, and
 * a name would become another one. An empty body is none, also where a label says that it is JSON: a route that needs one says so.
 */
export function refuseWrongText(app: FastifyInstance): void {
  app.addHook('onRequest', async ({ originalUrl }) => {
    const queryAt = originalUrl.indexOf('?');
    if (queryAt >= 0) parseSearch(originalUrl.slice(queryAt + 1));
  });
  app.removeContentTypeParser('application/json');
  const parse = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser<Buffer>('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    const text = utf8Text(body);
    if (text === '') done(null);
    else if (text === null) done(new ServiceError('bad-request', 'The body is not UTF-8'));
    else parse(request, text, done);
  });
}

import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { utf8Text } from '../../base/utf8.ts';
import { parseSearch } from '../requests/path.ts';

/**
 * Refuses queries and JSON that are not UTF-8: decoders would replace bytes by U+FFFD, and a name would become another
 * one. An empty body counts as none, even with a label of JSON.
 */
export function refuseInvalidUtf8(app: FastifyInstance): void {
  app.addHook('onRequest', async ({ originalUrl }) => {
    const queryAt = originalUrl.indexOf('?');
    if (queryAt >= 0) parseSearch(originalUrl.slice(queryAt + 1));
  });
  app.removeContentTypeParser('application/json');
  const parseJson = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser<Buffer>('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    const text = utf8Text(body);
    if (text === '') done(null);
    else if (text === null) done(new ServiceError('bad-request', 'The body is not UTF-8'));
    else parseJson(request, text, done);
  });
}

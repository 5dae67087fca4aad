import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { type FileId, isFileId } from '../../base/ids.ts';
import { SETTLE_FILES_MAX, type SettleAnswer } from '../../wire/http-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import { callOptionsOf } from './input.ts';
import { WRITE } from './roles.ts';

/** `POST /v1/data/settle`: settles many closed files in one request. */
export function settleRoutes(app: FastifyInstance, gateway: Gateway): void {
  app.post('/v1/data/settle', WRITE, async (request): Promise<SettleAnswer> => {
    const options = callOptionsOf(request.headers);
    const settlings = filesOf(request.body).map(async (file) => {
      try {
        await gateway.files.settle(file, options);
        return [];
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        return [{ file, code: error.code, message: error.message }];
      }
    });
    return { failed: (await Promise.all(settlings)).flat() };
  });
}

function filesOf(body: unknown): FileId[] {
  const { files } = typeof body === 'object' && body !== null ? (body as Record<string, unknown>) : {};
  if (!Array.isArray(files) || files.length === 0 || files.length > SETTLE_FILES_MAX) {
    throw new ServiceError('bad-request', `"files" is a list of 1 to ${SETTLE_FILES_MAX} numbers of files`);
  }
  return files.map((file: unknown) => {
    if (typeof file === 'number' && isFileId(file)) return file;
    throw new ServiceError(
      'bad-request',
      `"files" has ${JSON.stringify(file)}, which is no number of a file`,
    );
  });
}

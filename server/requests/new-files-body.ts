import { ServiceError } from '../../base/errors.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { decodeNewFiles, type NewFilesRequest } from '../../wire/new-files.ts';

/** Decodes a body of `encodeNewFiles`. @throws ServiceError `bad-request` if it is malformed */
export function decodeNewFilesBody(body: unknown): NewFilesRequest {
  try {
    return decodeNewFiles(Buffer.isBuffer(body) ? body : Buffer.alloc(0));
  } catch (cause) {
    if (!(cause instanceof MalformedError)) throw cause;
    throw new ServiceError(
      'bad-request',
      `The list of new files is malformed: ${cause.message}`,
      {},
      { cause },
    );
  }
}

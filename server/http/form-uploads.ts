import type { FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { nameCheck } from '../../catalog/names.ts';
import type { FilePath } from '../requests/path.ts';
import { preconditionOf } from './conditional-change.ts';
import { conditionsOf } from './conditions.ts';
import { DigestCheck } from './digests.ts';
import { receiveForm } from './form.ts';
import { wantsPage } from './listing-page.ts';
import { type NewFiles, type ReceivedFile, sizeOf } from './new-files.ts';
import { removalOf } from './removal.ts';
import { UPLOAD_IDLE_MS } from './upload.ts';

/** Bytes of one form's files in memory until they get their names. */
const WHOLES_BYTES_MAX = 1024 * 1024;

interface StoredFile {
  readonly name: string;
  readonly size: number;
  readonly etag: string;
  readonly created: boolean;
}

/** Stores the files of a form sent to a directory. They get their names one by one, once the whole form has arrived. */
export async function storeForm(
  request: FastifyRequest,
  reply: FastifyReply,
  files: NewFiles,
  directory: FilePath,
  url: string,
): Promise<FastifyReply> {
  const conditions = conditionsOf(request.headers);
  const received: { readonly path: FilePath; readonly file: ReceivedFile }[] = [];
  const stored: StoredFile[] = [];
  let memoryBytes = WHOLES_BYTES_MAX;
  try {
    request.raw.setTimeout(UPLOAD_IDLE_MS, () => request.raw.destroy());
    await receiveForm(request.raw, async (name, body) => {
      nameCheck(name);
      const path = { ...directory, names: [...directory.names, name], directory: false };
      const limits = { wholeBytesMax: memoryBytes };
      const file = await files.receive(
        path,
        preconditionOf(conditions, path),
        body,
        new DigestCheck([]),
        limits,
      );
      if (file.kind === 'whole') memoryBytes -= sizeOf(file);
      received.push({ path, file });
    }).finally(() => request.raw.setTimeout(0));
    if (received.length === 0) throw new ServiceError('bad-request', 'The form contains no file');
    const removal = removalOf(request, directory.search);
    for (const { path, file } of received) {
      const { etag, created } = await files.name(path, file, preconditionOf(conditions, path), null, removal);
      stored.push({ name: path.names.at(-1) ?? '', size: sizeOf(file), etag, created });
    }
  } catch (error) {
    await Promise.all(received.map(({ file }) => files.discard(file)));
    throw withStored(error, stored);
  }
  // The browser then shows the directory, and a reload does not send the form again.
  if (wantsPage(request.headers.accept)) return reply.redirect(url, 303);
  return reply.code(201).send({ stored });
}

/** Adds the files that are stored to the error that refused another one. */
function withStored(error: unknown, stored: readonly StoredFile[]): unknown {
  if (!(error instanceof ServiceError) || stored.length === 0) return error;
  const names = stored.map(({ name }) => `"${name}"`).join(', ');
  const message = `${error.message}. Stored so far: ${names}`;
  return new ServiceError(error.code, message, error.details, { cause: error });
}

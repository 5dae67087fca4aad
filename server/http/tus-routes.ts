import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { utf8Text } from '../../base/utf8.ts';
import { nameCheck } from '../../catalog/names.ts';
import type { FilePath } from '../requests/path.ts';
import { conditionsOf } from './conditions.ts';
import { DigestCheck, parseClaimedDigest } from './digests.ts';
import { contentTypeOf } from './form.ts';
import { integerOf } from './input.ts';
import { sendProblem } from './problems.ts';
import { READ, WRITE } from './roles.ts';
import type { TusUpload, TusUploads } from './tus-uploads.ts';
import { UPLOAD_IDLE_MS } from './upload.ts';
import { readWholeBody } from './whole-body.ts';

const VERSION = '1.0.0';
const UPLOADS = '/v1/uploads';
const PIECE = 'application/offset+octet-stream';
/** By their names in the protocol, which are those of Node. */
const ALGORITHMS = ['sha1', 'sha256', 'sha512', 'md5'];
/** A piece with a checksum is kept in memory: nothing of it is stored before it is verified. */
const CHECKED_BYTES_MAX = 16 * 1024 * 1024;
const METADATA_LENGTH_MAX = 8 * 1024;

/** Statuses that tus defines where our errors have others. */
const CHECKSUM_MISMATCH = 460;
const CONFLICT = 409;

/** Resumable uploads, https://tus.io/protocols/resumable-upload version 1.0.0, begun by `POST` under `/v1/files/`. */
export class TusRoutes {
  readonly #uploads: TusUploads;

  constructor(uploads: TusUploads) {
    this.#uploads = uploads;
  }

  /** Adds the routes of uploads. @param app a scope without body parsers */
  register(app: FastifyInstance): void {
    app.options(UPLOADS, READ, async (_request, reply) => this.options(reply));
    app.options(`${UPLOADS}/:volume/:upload`, READ, async (_request, reply) => this.options(reply));
    app.head(`${UPLOADS}/:volume/:upload`, READ, (request, reply) => this.#head(request, reply));
    app.patch(`${UPLOADS}/:volume/:upload`, WRITE, (request, reply) => this.#patch(request, reply));
    app.delete(`${UPLOADS}/:volume/:upload`, WRITE, (request, reply) => this.#delete(request, reply));
  }

  options(reply: FastifyReply): FastifyReply {
    return reply
      .headers({
        'tus-resumable': VERSION,
        'tus-version': VERSION,
        'tus-extension': 'creation,creation-with-upload,termination,checksum,expiration',
        'tus-checksum-algorithm': ALGORITHMS.join(','),
      })
      .code(204)
      .send();
  }

  /** `POST` with `Tus-Resumable`, of a file's path, or of a directory's with `filename` in the metadata. */
  async create(request: FastifyRequest, reply: FastifyReply, path: FilePath): Promise<FastifyReply> {
    const refusal = checkVersion(request, reply);
    if (refusal !== null) return refusal;
    const metadata = headerOf(request, 'upload-metadata') ?? '';
    const target = path.directory ? targetIn(path, metadata) : path;
    const length = integerOf(headerOf(request, 'upload-length'), 'Upload-Length');
    const conditions = conditionsOf(request.headers);
    const name = await this.#uploads.create(target, length, checkedMetadata(metadata), conditions);
    reply.header('location', `${UPLOADS}/${path.volume}/${name}`).code(201);
    const upload = await this.#uploads.find(path.volume, name);
    if (contentTypeOf(request.raw) === PIECE) return this.#receive(request, reply, path.volume, upload);
    await this.#uploads.complete(path.volume, upload);
    return reply.header('upload-expires', this.#uploads.expires()).send();
  }

  async #head(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const refusal = checkVersion(request, reply);
    if (refusal !== null) return refusal;
    const { volume, upload } = await this.#uploadOf(request);
    // The server that had the last piece may have died before it gave the file its name.
    await this.#uploads.complete(volume, upload);
    const { note, offsetBytes, lengthBytes } = upload;
    reply.headers({
      'upload-offset': String(offsetBytes),
      'upload-length': String(lengthBytes),
      'cache-control': 'no-store',
    });
    if (note !== null && note.metadata !== '') reply.header('upload-metadata', note.metadata);
    return reply.code(200).send();
  }

  async #patch(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const refusal = checkVersion(request, reply);
    if (refusal !== null) return refusal;
    if (contentTypeOf(request.raw) !== PIECE) {
      return sendProblem(reply, new ServiceError('bad-request', `The Content-Type must be ${PIECE}`), 415);
    }
    const offset = integerOf(headerOf(request, 'upload-offset'), 'Upload-Offset');
    const { volume, upload } = await this.#uploadOf(request);
    if (offset !== upload.offsetBytes) {
      const detail = `Wrong Upload-Offset: the upload is at ${upload.offsetBytes}, not ${offset}`;
      return sendProblem(reply, new ServiceError('precondition-failed', detail), CONFLICT);
    }
    return this.#receive(request, reply.code(204), volume, upload);
  }

  async #receive(
    request: FastifyRequest,
    reply: FastifyReply,
    volume: string,
    upload: TusUpload,
  ): Promise<FastifyReply> {
    request.raw.setTimeout(UPLOAD_IDLE_MS, () => request.raw.destroy());
    let offsetBytes = 0;
    try {
      offsetBytes = await this.#uploads.runAsUpload(async () =>
        this.#uploads.append(upload, await checkedBody(request)),
      );
    } catch (error) {
      const status = statusOf(error);
      if (status === null) throw error;
      return sendProblem(reply, error as ServiceError, status);
    } finally {
      request.raw.setTimeout(0);
    }
    await this.#uploads.complete(volume, { ...upload, offsetBytes });
    return reply
      .headers({ 'upload-offset': String(offsetBytes), 'upload-expires': this.#uploads.expires() })
      .send();
  }

  async #delete(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const refusal = checkVersion(request, reply);
    if (refusal !== null) return refusal;
    const { upload } = await this.#uploadOf(request);
    await this.#uploads.terminate(upload);
    return reply.code(204).send();
  }

  async #uploadOf(request: FastifyRequest): Promise<{ readonly volume: string; readonly upload: TusUpload }> {
    const { volume = '', upload = '' } = request.params as Readonly<Record<string, string>>;
    return { volume, upload: await this.#uploads.find(volume, upload) };
  }
}

/** Adds the version to the answer. @returns the refusal of a request with another version; else null */
function checkVersion(request: FastifyRequest, reply: FastifyReply): FastifyReply | null {
  reply.header('tus-resumable', VERSION);
  if (headerOf(request, 'tus-resumable') === VERSION) return null;
  reply.header('tus-version', VERSION);
  return sendProblem(
    reply,
    new ServiceError('precondition-failed', `Unsupported Tus-Resumable: use ${VERSION}`),
  );
}

/** The body as it arrives or, with a checksum, once it is verified. */
async function checkedBody(request: FastifyRequest): Promise<Readable> {
  const checksum = headerOf(request, 'upload-checksum');
  if (checksum === undefined) return request.raw;
  const [algorithm = '', value = ''] = checksum.split(' ');
  if (!ALGORITHMS.includes(algorithm)) {
    throw new ServiceError(
      'bad-request',
      `Unsupported algorithm in Upload-Checksum: use one of ${ALGORITHMS.join(', ')}`,
    );
  }
  const check = new DigestCheck([parseClaimedDigest('upload-checksum', algorithm, value)]);
  const bytes = await readWholeBody(request, CHECKED_BYTES_MAX);
  check.update(bytes);
  check.check();
  return Readable.from(bytes.length === 0 ? [] : [bytes]);
}

function statusOf(error: unknown): number | null {
  if (!(error instanceof ServiceError)) return null;
  if (error.code === 'digest-mismatch') return CHECKSUM_MISMATCH;
  return error.code === 'precondition-failed' ? CONFLICT : null;
}

function targetIn(directory: FilePath, metadata: string): FilePath {
  const entry = metadata.split(',').find((pair) => pair.trim().startsWith('filename '));
  const encoded = entry?.trim().split(' ')[1];
  if (encoded === undefined) {
    throw new ServiceError(
      'bad-request',
      'Upload-Metadata lacks "filename", which an upload to a directory needs',
    );
  }
  const name = utf8Text(Buffer.from(encoded, 'base64'));
  if (name === null) throw new ServiceError('bad-request', 'The "filename" in Upload-Metadata is not UTF-8');
  nameCheck(name);
  return { ...directory, names: [...directory.names, name], directory: false };
}

function checkedMetadata(text: string): string {
  const isRight = /^(?:[^\s,]+(?: [A-Za-z0-9+/]*={0,2})?(?:, ?|$))*$/.test(text);
  if (isRight && text.length <= METADATA_LENGTH_MAX) return text;
  throw new ServiceError('bad-request', 'Upload-Metadata is a list of "key base64", separated by commas');
}

function headerOf(request: FastifyRequest, name: string): string | undefined {
  return [request.headers[name]].flat()[0];
}

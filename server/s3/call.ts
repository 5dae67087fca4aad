import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { iterateBody, UPLOAD_IDLE_MS } from '../http/upload.ts';
import { isClientWaiting } from '../requests/expectation.ts';
import { principalName } from '../security/principal.ts';
import type { Authenticated } from './authentication.ts';
import {
  algorithmOf,
  CHECKSUM_PREFIX,
  type Checksum,
  type ChecksumAlgorithm,
  claimedChecksum,
  claimedMd5,
  PayloadCheck,
} from './checksums.ts';
import { decodeChunks } from './chunked-body.ts';
import { S3Error } from './s3-error.ts';

/** What a request is about: a service, a bucket, or an object. */
export interface S3Target {
  readonly bucket: string | null;
  readonly key: string | null;
}

/** An authenticated request, and its answer. */
export interface S3Call extends S3Target, Authenticated {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  /** Decoded names and values, in their order. */
  readonly query: ReadonlyMap<string, string>;
}

/** A body that is read once, and what is checked of it. */
export interface ReceivedBody {
  readonly body: Readable;
  readonly check: PayloadCheck;
  readonly lengthBytes: number;
  /** The length, if the client waits for an answer before it sends the body. */
  readonly announcedBytes: number | null;
}

export function header({ request }: Pick<S3Call, 'request'>, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value.join(',') : value;
}

/** For the trash, and logs. */
export function removerOf({ principal }: S3Call): { readonly by?: string } {
  return principal.kind === 'client' ? { by: principalName(principal) } : {};
}

/** Objects have one version, "null". @throws S3Error `NoSuchVersion` for another one, which must not pass for it */
export function refuseVersion(version: string | undefined): void {
  if (version === undefined || version === 'null') return;
  throw new S3Error(
    'NoSuchVersion',
    'Objects have no versions here: leave out the version, or ask for "null"',
  );
}

export interface BodyChecksums {
  /** To compute if the client claims none of its own. */
  readonly algorithm?: ChecksumAlgorithm | null;
  /** The checksums in the headers are not of the body. */
  readonly areOfObject?: true;
}

/** @throws S3Error `MissingContentLength`, `InvalidDigest`, `InvalidRequest` */
export function bodyOf(call: S3Call, checksums: BodyChecksums = {}): ReceivedBody {
  const { request, payload } = call;
  const lengthBytes = lengthOf(call);
  const chunks =
    payload.kind === 'chunks'
      ? decodeChunks(iterateBody(request.raw), payload.signatures, lengthBytes)
      : null;
  const ofHeader = checksums.areOfObject ? null : claimedChecksum(request.headers);
  const announced = trailersOf(call);
  const algorithm =
    ofHeader?.algorithm ??
    announcedAlgorithm(announced) ??
    algorithmOf(header(call, 'x-amz-sdk-checksum-algorithm')) ??
    checksums.algorithm ??
    null;
  const claimed = (): Pick<Checksum, 'algorithm' | 'value'> | null => {
    assertTrailers(chunks?.trailers ?? NO_TRAILERS, announced);
    if (ofHeader !== null || chunks === null) return ofHeader;
    return claimedChecksum(Object.fromEntries(chunks.trailers));
  };
  const sha256 = payload.kind === 'plain' ? payload.sha256 : null;
  const check = new PayloadCheck({ md5: claimedMd5(request.headers), sha256, algorithm, claimed });
  request.raw.setTimeout(UPLOAD_IDLE_MS, () => request.raw.destroy());
  const body = chunks === null ? request.raw : decodedBody(call, chunks.body);
  return { body, check, lengthBytes, announcedBytes: isClientWaiting(request.raw) ? lengthBytes : null };
}

/** If its reader leaves it early, its error must not end the process, and the rest must be drained. */
function decodedBody({ request, reply }: S3Call, chunks: AsyncIterable<Buffer>): Readable {
  const body = Readable.from(chunks, { objectMode: false });
  body.on('error', () => undefined);
  body.once('close', () => request.raw.resume());
  reply.raw.once('finish', () => body.destroy());
  return body;
}

const NO_TRAILERS: ReadonlyMap<string, string> = new Map();

/** Names of the trailers that the head announces, in lower case. */
function trailersOf(call: S3Call): string[] {
  const names = (header(call, 'x-amz-trailer') ?? '').split(',').map((name) => name.trim().toLowerCase());
  return names.filter((name) => name !== '');
}

function announcedAlgorithm(announced: readonly string[]): ChecksumAlgorithm | null {
  const name = announced.find((one) => one.startsWith(CHECKSUM_PREFIX));
  return algorithmOf(name?.slice(CHECKSUM_PREFIX.length));
}

/** @throws S3Error `MalformedTrailerError` unless the trailers are the announced ones */
function assertTrailers(trailers: ReadonlyMap<string, string>, announced: readonly string[]): void {
  const missing = announced.find((name) => !trailers.has(name));
  if (missing !== undefined) throw new S3Error('MalformedTrailerError', `The trailer ${missing} is missing`);
  const other = [...trailers.keys()].find((name) => !announced.includes(name));
  if (other !== undefined)
    throw new S3Error('MalformedTrailerError', `The trailer ${other} is not announced in x-amz-trailer`);
}

/** @returns 0 if it is unknown */
function lengthOf(call: S3Call): number {
  const name = call.payload.kind === 'chunks' ? 'x-amz-decoded-content-length' : 'content-length';
  const text = header(call, name);
  if (text === undefined) {
    const isStream = header(call, 'transfer-encoding') !== undefined;
    if (call.payload.kind === 'chunks' || (!isStream && call.request.method !== 'POST'))
      throw new S3Error('MissingContentLength', `The request needs the header ${name}`);
    return 0;
  }
  if (!/^\d{1,15}$/.test(text)) throw new S3Error('InvalidArgument', `${name} is no number of bytes`);
  return Number(text);
}

/** Reads a body into memory, and checks it. @throws S3Error `EntityTooLarge` */
export async function readBody(
  call: S3Call,
  bytesMax: number,
  checksums: BodyChecksums = {},
): Promise<Buffer> {
  const { body, check, lengthBytes } = bodyOf(call, checksums);
  const tooLarge = (): S3Error =>
    new S3Error('EntityTooLarge', `The document is larger than ${bytesMax} bytes`);
  if (lengthBytes > bytesMax) throw tooLarge();
  const parts: Buffer[] = [];
  let received = 0;
  // The length of a body in chunks of HTTP is not known before.
  for await (const part of iterateBody(body)) {
    received += part.length;
    if (received > bytesMax) throw tooLarge();
    check.update(part);
    parts.push(part);
  }
  check.check();
  return Buffer.concat(parts);
}

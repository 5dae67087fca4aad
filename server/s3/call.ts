import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { iterateBody, UPLOAD_IDLE_MS } from '../http/upload.ts';
import { isClientWaiting } from '../requests/expectation.ts';
import { principalName } from '../security/principal.ts';
import type { Authenticated } from './authentication.ts';
import {
  algorithmOf,
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
  const source = iterateBody(request.raw);
  const chunks = payload.kind === 'chunks' ? decodeChunks(source, payload.signatures, lengthBytes) : null;
  const ofHeader = checksums.areOfObject ? null : claimedChecksum(request.headers);
  const trailer = header(call, 'x-amz-trailer')?.toLowerCase();
  const announced = trailer?.startsWith('x-amz-checksum-')
    ? algorithmOf(trailer.slice('x-amz-checksum-'.length))
    : null;
  const algorithm =
    ofHeader?.algorithm ??
    announced ??
    algorithmOf(header(call, 'x-amz-sdk-checksum-algorithm')) ??
    checksums.algorithm ??
    null;
  const claimed = (): Pick<Checksum, 'algorithm' | 'value'> | null => {
    if (ofHeader !== null) return ofHeader;
    const ofTrailer = chunks === null ? null : claimedChecksum(Object.fromEntries(chunks.trailers));
    if (ofTrailer === null && announced !== null)
      throw new S3Error('IncompleteBody', `The trailer ${trailer} is missing`);
    return ofTrailer;
  };
  const sha256 = payload.kind === 'plain' ? payload.sha256 : null;
  const check = new PayloadCheck({ md5: claimedMd5(request.headers), sha256, algorithm, claimed });
  request.raw.setTimeout(UPLOAD_IDLE_MS, () => request.raw.destroy());
  const body = Readable.from(chunks?.body ?? source, { objectMode: false });
  return { body, check, lengthBytes, announcedBytes: isClientWaiting(request.raw) ? lengthBytes : null };
}

function lengthOf(call: S3Call): number {
  const name = call.payload.kind === 'chunks' ? 'x-amz-decoded-content-length' : 'content-length';
  const text = header(call, name);
  if (text === undefined) {
    const hasBody = header(call, 'transfer-encoding') !== undefined || call.request.method !== 'POST';
    if (hasBody || call.payload.kind === 'chunks')
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
  if (lengthBytes > bytesMax)
    throw new S3Error('EntityTooLarge', `The document is larger than ${bytesMax} bytes`);
  const parts: Buffer[] = [];
  for await (const part of body.iterator({ destroyOnReturn: false })) {
    check.update(part as Buffer);
    parts.push(part as Buffer);
  }
  check.check();
  return Buffer.concat(parts);
}

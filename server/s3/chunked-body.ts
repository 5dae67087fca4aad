import { createHash, type Hash } from 'node:crypto';
import { type ChunkSignatures, isSignature } from '../../platform/s3-signature.ts';
import { S3Error } from './s3-error.ts';

/** Longest line of a chunk's head, or of a trailer, in bytes. */
const LINE_BYTES_MAX = 4096;
const TRAILERS_MAX = 16;
/** The data of a chunk is stored before its signature is checked, but gets its name after the last one only. */
const HEX = /^[0-9a-f]{1,12}$/i;

export interface ChunkedBody {
  readonly body: AsyncGenerator<Buffer>;
  /** Complete after the body; names in lower case. */
  readonly trailers: ReadonlyMap<string, string>;
}

/**
 * Decodes `Content-Encoding: aws-chunked`. @param signatures null if chunks are not signed
 * @throws S3Error from the body, before its end: `IncompleteBody`, `MalformedTrailerError`, `SignatureDoesNotMatch`
 */
export function decodeChunks(
  source: AsyncIterable<Buffer>,
  signatures: ChunkSignatures | null,
  decodedBytes: number,
): ChunkedBody {
  const trailers = new Map<string, string>();
  return { body: decode(new ByteReader(source), signatures, decodedBytes, trailers), trailers };
}

async function* decode(
  reader: ByteReader,
  signatures: ChunkSignatures | null,
  decodedBytes: number,
  trailers: Map<string, string>,
): AsyncGenerator<Buffer> {
  try {
    yield* decodeData(reader, signatures, decodedBytes);
    await readTrailers(reader, signatures, trailers);
    await reader.end();
  } finally {
    // After an error, the source would keep its listener on the body, whose rest could not be drained.
    await reader.release();
  }
}

async function* decodeData(
  reader: ByteReader,
  signatures: ChunkSignatures | null,
  decodedBytes: number,
): AsyncGenerator<Buffer> {
  let received = 0;
  for (;;) {
    const head = await reader.line();
    const [size = '', ...extensions] = head.split(';');
    if (!HEX.test(size)) throw incomplete(`a chunk begins with ${JSON.stringify(head.slice(0, 40))}`);
    const length = Number.parseInt(size, 16);
    received += length;
    if (received > decodedBytes) throw incomplete(`it has more than the announced ${decodedBytes} bytes`);
    const hash = signatures === null ? null : createHash('sha256');
    yield* reader.bytes(length, hash);
    if (signatures !== null && hash !== null) checkSignature(signatures.next(hash.digest('hex')), extensions);
    // The last chunk has no data, and trailers may follow.
    if (length === 0) break;
    if ((await reader.line()) !== '') throw incomplete('a chunk is longer than it says');
  }
  if (received !== decodedBytes)
    throw incomplete(`it has ${received} of the announced ${decodedBytes} bytes`);
}

function checkSignature(expected: string, extensions: readonly string[]): void {
  const given = extensions
    .find((one) => one.startsWith('chunk-signature='))
    ?.slice('chunk-signature='.length);
  if (given === undefined || !isSignature(given, expected))
    throw new S3Error('SignatureDoesNotMatch', 'The signature of a chunk is wrong');
}

async function readTrailers(
  reader: ByteReader,
  signatures: ChunkSignatures | null,
  trailers: Map<string, string>,
): Promise<void> {
  let signed = '';
  let signature: string | null = null;
  for (let count = 0; ; count++) {
    const line = await reader.lineOrEnd();
    if (line === null || line === '') break;
    if (count === TRAILERS_MAX) throw malformedTrailer('there are too many');
    const colon = line.indexOf(':');
    if (colon < 1) throw malformedTrailer(`one is ${JSON.stringify(line.slice(0, 40))}`);
    const [name, value] = [line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim()];
    if (name === 'x-amz-trailer-signature') {
      signature = value;
      continue;
    }
    signed += `${name}:${value}\n`;
    trailers.set(name, value);
  }
  if (signatures === null || trailers.size === 0) return;
  if (signature === null || !isSignature(signature, signatures.ofTrailers(signed)))
    throw new S3Error('SignatureDoesNotMatch', 'The signature of the trailers is wrong');
}

function malformedTrailer(why: string): S3Error {
  return new S3Error('MalformedTrailerError', `The trailers are malformed: ${why}`);
}

function incomplete(why: string): S3Error {
  return new S3Error('IncompleteBody', `The body is malformed: ${why}`);
}

/** Reads lines and counted bytes of a body. */
class ByteReader {
  readonly #source: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  async #more(): Promise<Buffer | null> {
    for (;;) {
      const { done, value } = await this.#source.next();
      if (done === true) return null;
      if (value.length > 0) return value;
    }
  }

  /** @returns a line without its end; null at the end of the body */
  async lineOrEnd(): Promise<string | null> {
    for (;;) {
      const at = this.#rest.indexOf('\r\n');
      if (at > LINE_BYTES_MAX || (at < 0 && this.#rest.length > LINE_BYTES_MAX))
        throw incomplete('a line is too long');
      if (at >= 0) {
        const line = this.#rest.toString('latin1', 0, at);
        this.#rest = this.#rest.subarray(at + 2);
        return line;
      }
      const more = await this.#more();
      if (more === null && this.#rest.length === 0) return null;
      if (more === null) throw incomplete('it ends within a line');
      this.#rest = this.#rest.length === 0 ? more : Buffer.concat([this.#rest, more]);
    }
  }

  async line(): Promise<string> {
    const line = await this.lineOrEnd();
    if (line === null) throw incomplete('it ends before its last chunk');
    return line;
  }

  async *bytes(count: number, hash: Hash | null): AsyncGenerator<Buffer> {
    for (let remaining = count; remaining > 0; ) {
      if (this.#rest.length === 0) this.#rest = (await this.#more()) ?? this.#rest;
      if (this.#rest.length === 0) throw incomplete('it ends within a chunk');
      const part = this.#rest.subarray(0, remaining);
      this.#rest = this.#rest.subarray(part.length);
      remaining -= part.length;
      hash?.update(part);
      yield part;
    }
  }

  async end(): Promise<void> {
    const more = this.#rest.length > 0 ? this.#rest : await this.#more();
    if (more !== null) throw incomplete('bytes follow the last chunk');
  }
  async release(): Promise<void> {
    await this.#source.return?.();
  }
}

import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { isRefusal, ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes, ContentVersion } from '../../wire/catalog-api.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { FileState } from '../../wire/http-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import type { FileRead } from '../routing/service-interfaces.ts';
import { bufferOf, setFileHeaders } from './answers.ts';
import { checkUnchanged, conditionsOf, etagOf, httpDate, isKnownToClient } from './conditions.ts';
import { digestOf, wantedDigest } from './digests.ts';
import { FileDigests } from './file-digests.ts';
import { type RangeResult, rangeOf } from './range.ts';

const CHUNK_BYTES = 1024 * 1024;
/** With many readers each gets less memory, so that the total is bounded. */
const CHUNK_BYTES_CROWDED = 256 * 1024;
const READ_AHEAD_COUNT = 2;
const CROWD_COUNT = 32;
const DOWNLOADS_MAX = 512;
/** How long an answer without contents waits for the file's primary, which it names in a header. */
const LOCATE_MS = 1000;
/** Attempts to read the first bytes while others change the file. */
const ATTEMPTS_MAX = 5;

interface FileVersion {
  readonly sizeBytes: number;
  readonly modifiedNs: string;
  readonly contents: ContentVersion;
}

type Part = Extract<RangeResult, { kind: 'part' }>;

/** What an interface says of the contents of a file. */
export interface Representation {
  /** In quotes; equal ones mean equal bytes. */
  etagOf(inode: number, contents: ContentVersion): string;
  /** Whether `HEAD` of a range describes the answer to a `GET` of it. */
  readonly rangesOfHead: boolean;
  /** Sets headers that depend on the contents, before the answer begins. */
  describe(reply: FastifyReply, contents: ContentVersion): void;
}

const OF_REST: Representation = { etagOf, rangesOfHead: false, describe: () => undefined };

/** Sends contents in bounded memory: only a few reads run ahead of the client's connection. */
export class Downloads {
  readonly #gateway: Gateway;
  readonly #digests: FileDigests;
  #active = 0;

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
    this.#digests = new FileDigests(gateway);
  }

  get active(): number {
    return this.#active;
  }

  /**
   * Answers `GET` and `HEAD` of a file (RFC 9110: conditions, then range). The first read fixes version and size of the
   * whole answer. `attributes` include what the primary knows.
   */
  async send(
    request: FastifyRequest,
    reply: FastifyReply,
    attributes: Attributes,
    representation: Representation = OF_REST,
  ): Promise<FastifyReply> {
    const { inode, snapshot } = attributes;
    const file = inode as FileId;
    let version: FileVersion = attributes;
    let read: (FileRead & { readonly offset: number }) | null = null;
    for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
      const etag = representation.etagOf(inode, version.contents);
      const conditions = conditionsOf(request.headers);
      const ranged = { etag, modifiedNs: version.modifiedNs, sizeBytes: version.sizeBytes };
      representation.describe(reply, version.contents);
      checkUnchanged(conditions, ranged, 'the file');
      reply.header('etag', etag).header('last-modified', httpDate(version.modifiedNs));
      reply.header('accept-ranges', 'bytes');
      const unchanged = isKnownToClient(conditions, ranged);
      if (unchanged || request.method === 'HEAD' || version.sizeBytes === 0) {
        const isWhole = unchanged || (request.method === 'HEAD' && !representation.rangesOfHead);
        const { range } = isWhole ? { range: undefined } : request.headers;
        if (snapshot === undefined) await this.#findPrimary(file);
        setFileHeaders(reply, this.#gateway, file, read?.state ?? null);
        const part = rangeOf(range, conditions, ranged, this.#gateway.world.wallMs());
        if (part.kind === 'unsatisfiable') throw unsatisfiable(reply, version.sizeBytes);
        if (unchanged) return reply.code(304).send();
        await this.#addDigest(request, reply, attributes, version);
        if (part.kind === 'part') {
          setPart(reply, part, version.sizeBytes);
          return setBody(reply, part.end - part.start).send();
        }
        return setBody(reply, version.sizeBytes).send();
      }
      const range = rangeOf(request.headers.range, conditions, ranged, this.#gateway.world.wallMs());
      if (range.kind === 'unsatisfiable') {
        setFileHeaders(reply, this.#gateway, file, read?.state ?? null);
        throw unsatisfiable(reply, version.sizeBytes);
      }
      const { start, end } = range.kind === 'part' ? range : { start: 0, end: version.sizeBytes };
      if (read === null || read.offset !== start || (read.bytes.length === 0 && end > start)) {
        const length = Math.min(this.#chunkBytes() - (start % this.#chunkBytes()), end - start);
        read = { ...(await this.#gateway.files.read(file, start, length, { snapshot })), offset: start };
        if (contentVersionCompare(read.state.contents, version.contents) !== 0) {
          // Written meanwhile: conditions and range are checked again, against the version that was read.
          version = read.state;
          continue;
        }
      }
      setFileHeaders(reply, this.#gateway, file, read.state);
      setBody(reply, end - start);
      await this.#addDigest(request, reply, attributes, version);
      if (range.kind === 'part') setPart(reply, range, version.sizeBytes);
      const first = bufferOf(read.bytes).subarray(0, end - start);
      if (first.length === end - start) {
        const wanted = wantedDigest(request.headers['want-content-digest']);
        if (wanted !== null) reply.header('content-digest', digestOf(wanted, first));
        return reply.send(first);
      }
      return reply.send(this.#stream(attributes, first, start, end, read.state));
    }
    throw new ServiceError('busy', `Cannot read file ${file}: it is being written concurrently; retry later`);
  }

  /** Adds the digest that `Want-Repr-Digest` asks for; reads the file before the answer unless the digest is cached. */
  async #addDigest(
    request: FastifyRequest,
    reply: FastifyReply,
    { inode, snapshot }: Attributes,
    version: FileVersion,
  ): Promise<void> {
    const file = inode as FileId;
    const wanted = wantedDigest(request.headers['want-repr-digest']);
    if (wanted === null) return;
    const digest = await this.#digests.digestOf(
      file,
      etagOf(file, version.contents),
      version,
      wanted,
      snapshot,
    );
    if (digest !== null) reply.header('repr-digest', digest);
  }

  #stream(shown: Attributes, first: Buffer, start: number, end: number, state: FileState): Readable {
    if (this.#active >= DOWNLOADS_MAX) {
      throw new ServiceError(
        'busy',
        `Too many downloads: ${DOWNLOADS_MAX} at this server, the maximum; retry later or use another server`,
      );
    }
    this.#active++;
    const stream = Readable.from(this.#chunks(shown, first, start, end, state), { objectMode: false });
    // Closes once: at the end, after a failure, or when the client leaves.
    stream.once('close', () => {
      this.#active--;
    });
    return stream;
  }

  /**
   * Yields the bytes from `start` to `end`, all of the version of `state`. If a write in place changes the contents,
   * the answer breaks off: a client must not take a mixture for a file.
   */
  async *#chunks(
    { inode, snapshot }: Attributes,
    first: Buffer,
    start: number,
    end: number,
    state: FileState,
  ): AsyncGenerator<Buffer> {
    const file = inode as FileId;
    const ahead: { readonly length: number; readonly result: Promise<FileRead> }[] = [];
    let next = start + first.length;
    const fill = () => {
      const count = this.#active > CROWD_COUNT ? 1 : 1 + READ_AHEAD_COUNT;
      while (next < end && ahead.length < count) {
        const chunkBytes = this.#chunkBytes();
        const length = Math.min(chunkBytes - (next % chunkBytes), end - next);
        const result = this.#gateway.files.read(file, next, length, { snapshot });
        // Awaited below, unless the client leaves first: then its failure does not matter.
        result.catch(() => {});
        ahead.push({ length, result });
        next += length;
      }
    };
    fill();
    yield first;
    for (let chunk = ahead.shift(); chunk !== undefined; chunk = ahead.shift()) {
      const { bytes, state: now } = await chunk.result;
      if (contentVersionCompare(now.contents, state.contents) !== 0 || bytes.length !== chunk.length) {
        throw new ServiceError('busy', `File ${file} was changed during the download: download it again`);
      }
      fill();
      yield bufferOf(bytes);
    }
  }

  #chunkBytes(): number {
    return this.#active > CROWD_COUNT ? CHUNK_BYTES_CROWDED : CHUNK_BYTES;
  }

  /** Waits until the file's primary is known here, for `LOCATE_MS` at most. */
  async #findPrimary(file: FileId): Promise<void> {
    if (this.#gateway.router.knownPrimary(file).primary !== null) return;
    try {
      await this.#gateway.files.state(file, { timeoutMs: LOCATE_MS });
    } catch (error) {
      if (!(error instanceof ServiceError) || isRefusal(error)) throw error;
    }
  }
}

function setBody(reply: FastifyReply, lengthBytes: number): FastifyReply {
  if (!reply.hasHeader('content-type')) reply.type('application/octet-stream');
  // No browser may take contents for a page of this server.
  return reply.header('content-length', String(lengthBytes)).header('x-content-type-options', 'nosniff');
}

function setPart(reply: FastifyReply, { start, end }: Omit<Part, 'kind'>, sizeBytes: number): void {
  reply.code(206).header('content-range', `bytes ${start}-${end - 1}/${sizeBytes}`);
}

function unsatisfiable(reply: FastifyReply, sizeBytes: number): ServiceError {
  reply.header('content-range', `bytes */${sizeBytes}`);
  return new ServiceError(
    'range-unsatisfiable',
    `The range begins after the end of the file (${sizeBytes} bytes)`,
  );
}

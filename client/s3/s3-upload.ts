/** Uploads of objects whose size is known at their end only. */
import { releasableMemory, releaseMemory } from '../../base/releasable-memory.ts';
import { childText, type XmlElements, type XmlNode, xmlRoot } from '../../platform/s3-xml.ts';
import { generalFailure, preconditionFailure } from '../terminal/failure.ts';
import { prefetch } from '../transfer/prefetch.ts';
import { digestOf, LONG_SILENCE_MS_MAX, type S3Client, type S3Request } from './s3-client.ts';
import { S3Refusal } from './s3-failure.ts';
import { documentOf, findObject } from './s3-objects.ts';

const MIB = 1024 * 1024;
const PART_BYTES_MIN = 8 * MIB;
const PART_BYTES_MAX = 5 * 1024 * MIB;
const PARTS_MAX = 10_000;
/** Some stores combine parts of one size only. Later ones grow, so that each object fits. */
const EQUAL_PARTS = 8_000;
const PARTS_OF_ONE_SIZE = 100;
/** Of parts that are filled or being sent; there are always two. */
const PARTS_BYTES_MAX = 32 * MIB;
const ABORT_MS_MAX = 15_000;
const ID_BYTES = 16;
/** Tells whether an object is the one of this upload. */
const ID_HEADER = 'x-amz-meta-leasehold-upload';
const DONE_OR_TAKEN: ReadonlySet<string> = new Set(['PreconditionFailed', 'NoSuchUpload']);
const UNLESS_EXISTS = { 'if-none-match': '*' };

/** @returns the size of part `number`, from 1 on, of an object that is expected to be so large */
export function partBytes(expectedBytes: number, number: number): number {
  const equal = Math.max(PART_BYTES_MIN, Math.ceil((1.25 * expectedBytes) / EQUAL_PARTS / MIB) * MIB);
  const doublings = Math.max(0, Math.ceil((number - EQUAL_PARTS) / PARTS_OF_ONE_SIZE));
  return Math.min(equal * 2 ** doublings, PART_BYTES_MAX);
}

/**
 * Stores an object that is there as a whole or not at all, and in no other's place.
 * @throws CommandFailure, if the name is taken with exit code 4
 */
export async function uploadObject(
  client: S3Client,
  key: string,
  source: AsyncIterable<Uint8Array>,
  expectedBytes: number,
): Promise<void> {
  // Stores without conditions find it only here.
  if ((await findObject(client, key)) !== null) throw taken(client, key);
  const id = client.world.randomBytes(ID_BYTES).toString('hex');
  const parts = partsOf(source, expectedBytes);
  try {
    const first = await parts.next();
    const bytes = first.value ?? Buffer.alloc(0);
    if (bytes.length < partBytes(expectedBytes, 1)) await putObject(client, key, id, bytes);
    else await new PartsUpload(client, key, id, expectedBytes).run(bytes, parts);
  } finally {
    await parts.return();
  }
}

/** Yields parts, each as large as its number wants, but for the last one. */
async function* partsOf(
  source: AsyncIterable<Uint8Array>,
  expectedBytes: number,
): AsyncGenerator<Buffer, void, undefined> {
  let number = 1;
  let part = releasableMemory(partBytes(expectedBytes, number));
  let filled = 0;
  for await (const piece of source) {
    for (let at = 0; at < piece.length; ) {
      if (filled === part.length) {
        yield part;
        number += 1;
        part = releasableMemory(partBytes(expectedBytes, number));
        filled = 0;
      }
      const more = piece.subarray(at, at + part.length - filled);
      part.set(more, filled);
      at += more.length;
      filled += more.length;
    }
  }
  yield part.subarray(0, filled);
}

async function putObject(client: S3Client, key: string, id: string, body: Uint8Array): Promise<void> {
  await createOnce(client, key, id, async (condition) => {
    const headers = { ...objectHeaders(id), ...digestHeader(body), ...condition };
    await client.send({ method: 'PUT', what: 'write', key, headers, body }, async ({ body }) => body.dump());
  });
  releaseMemory(body);
}

/**
 * Creates the object by a request that the store executes only if the name is free.
 * @param create sends it, under a condition if the store knows conditions
 */
async function createOnce(
  client: S3Client,
  key: string,
  id: string,
  create: (condition: Readonly<Record<string, string>>) => Promise<void>,
): Promise<void> {
  const attempt = async (condition: Readonly<Record<string, string>>): Promise<void> => {
    try {
      await create(condition);
    } catch (error) {
      if (!(error instanceof S3Refusal)) throw error;
      if (error.status !== 412 && !DONE_OR_TAKEN.has(error.code)) throw error;
      // The answer of an earlier attempt may have been lost.
      const found = await findObject(client, key);
      if (found?.(ID_HEADER) === id) return;
      throw found === null ? error : taken(client, key);
    }
  };
  try {
    await attempt(UNLESS_EXISTS);
  } catch (error) {
    if (!(error instanceof S3Refusal) || error.status !== 501) throw error;
    if ((await findObject(client, key)) !== null) throw taken(client, key);
    await attempt({});
  }
}

function taken(client: S3Client, key: string): Error {
  return preconditionFailure(
    `Cannot write ${client.placeOf(key)}: it exists already`,
    'choose another name; no backup replaces another one',
  );
}

interface SentPart {
  readonly number: number;
  readonly etag: string;
}

/** An upload in parts. The store shows nothing of it before its completion. */
class PartsUpload {
  readonly #client: S3Client;
  readonly #key: string;
  readonly #id: string;
  readonly #expectedBytes: number;
  #uploadId = '';

  constructor(client: S3Client, key: string, id: string, expectedBytes: number) {
    this.#client = client;
    this.#key = key;
    this.#id = id;
    this.#expectedBytes = expectedBytes;
  }

  async run(first: Buffer, others: AsyncIterable<Buffer>): Promise<void> {
    this.#uploadId = await this.#create();
    try {
      const sent: SentPart[] = [];
      const atOnce = Math.max(2, Math.floor(PARTS_BYTES_MAX / partBytes(this.#expectedBytes, 1)));
      for await (const part of prefetch(numbered(first, others), atOnce, (one) => this.#send(...one)))
        sent.push(part);
      await createOnce(this.#client, this.#key, this.#id, (condition) => this.#complete(sent, condition));
    } catch (error) {
      await this.#abort();
      throw error;
    }
  }

  async #create(): Promise<string> {
    const document = await this.#ask(
      { method: 'POST', query: [['uploads', '']], headers: objectHeaders(this.#id) },
      'InitiateMultipartUploadResult',
    );
    const id = childText(document, 'UploadId') ?? '';
    // Without an id, a part would be an object: a store may take it as one.
    if (id !== '') return id;
    throw generalFailure(
      `Cannot write ${this.#client.placeOf(this.#key)}: the store began an upload without an id`,
    );
  }

  async #send(number: number, body: Buffer): Promise<SentPart> {
    const etag = await this.#client.send(
      {
        ...{ method: 'PUT', what: `write part ${number} of`, key: this.#key, body },
        query: [
          ['partNumber', String(number)],
          ['uploadId', this.#uploadId],
        ],
        headers: digestHeader(body),
      },
      async (answer) => {
        await answer.body.dump();
        return answer.header('etag') ?? '';
      },
    );
    releaseMemory(body);
    return { number, etag };
  }

  async #complete(sent: readonly SentPart[], condition: Readonly<Record<string, string>>): Promise<void> {
    const list: XmlElements = {
      Part: sent.map(({ number, etag }) => ({ PartNumber: number, ETag: etag })),
    };
    await this.#ask(
      {
        ...{ method: 'POST', query: [['uploadId', this.#uploadId]], headers: condition },
        body: Buffer.from(xmlRoot('CompleteMultipartUpload', list)),
        silenceMs: LONG_SILENCE_MS_MAX,
      },
      'CompleteMultipartUploadResult',
    );
  }

  /** Sends a request whose answer is a document: after a status of success, too, it may be that of an error. */
  #ask(
    request: Pick<S3Request, 'method' | 'query' | 'headers' | 'body' | 'silenceMs'>,
    root: string,
  ): Promise<XmlNode> {
    const key = this.#key;
    return this.#client.send({ ...request, what: 'write', key }, async (answer) => {
      const document = await documentOf(this.#client, answer, key, root, 'Error');
      if (document.name === root) return document;
      throw answer.refusal(document);
    });
  }

  /** Removes the parts, also after the user has stopped the command. */
  async #abort(): Promise<void> {
    const { world } = this.#client;
    try {
      await this.#client.send(
        {
          ...{ method: 'DELETE', what: 'remove the parts of', key: this.#key },
          query: [['uploadId', this.#uploadId]],
          signal: world.timeout(ABORT_MS_MAX),
        },
        async ({ body }) => body.dump(),
      );
    } catch (error) {
      if (error instanceof S3Refusal && error.code === 'NoSuchUpload') return;
      const why = error instanceof Error ? error.message : String(error);
      this.#client.report(
        `the parts of ${this.#client.placeOf(this.#key)} stay in the store until its upload "${this.#uploadId}" is aborted: ${why}`,
      );
    }
  }
}

async function* numbered(
  first: Buffer,
  others: AsyncIterable<Buffer>,
): AsyncGenerator<[number: number, part: Buffer], void, undefined> {
  yield [1, first];
  let number = 1;
  for await (const part of others) {
    // The source ended with the part before.
    if (part.length === 0) return;
    number += 1;
    if (number > PARTS_MAX)
      throw generalFailure(
        `The backup is larger than an object of S3 may be: ${PARTS_MAX} parts do not hold it`,
        'back up to a directory, or split the volume',
      );
    yield [number, part];
  }
}

function objectHeaders(id: string): Record<string, string> {
  return { 'content-type': 'application/octet-stream', [ID_HEADER]: id };
}

/** Buckets with retention want it, beside the digest that is signed. */
function digestHeader(body: Uint8Array): Record<string, string> {
  return { 'content-md5': digestOf('md5', body, 'base64') };
}

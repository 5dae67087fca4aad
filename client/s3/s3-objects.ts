/** Listing and reading the objects of a bucket. */
import { childrenOf, childText, XmlFault, type XmlNode, xmlRead } from '../../platform/s3-xml.ts';
import { CommandFailure, generalFailure } from '../terminal/failure.ts';
import { beginningOf, type S3Answer, type S3Client } from './s3-client.ts';
import { S3Refusal } from './s3-failure.ts';

/** Read first: often no more is wanted than an object's beginning. */
const BEGINNING_BYTES = 256 * 1024;
/** Of a document; a page of 1,000 keys of 1,024 characters, all of them encoded, is smaller. */
const DOCUMENT_BYTES_MAX = 16 * 1024 * 1024;
const CONTENT_RANGE = /^bytes (\d+)-\d+\/(\d+)$/;

/** An object that was replaced or removed while it was read, or is in an archive from which it is not read. */
export class UnreadableObject extends Error {
  override readonly name = 'UnreadableObject';
}

/** @returns the names of the objects `prefix/NAME`, without those that have a further slash */
export async function listNames(client: S3Client, prefix: string): Promise<string[]> {
  const names: string[] = [];
  for (let token: string | undefined, isFirst = true; isFirst || token !== undefined; isFirst = false) {
    const page = await client.send(
      {
        ...{ method: 'GET', what: 'list', key: '' },
        query: [
          ['list-type', '2'],
          ['prefix', prefix],
          ['delimiter', '/'],
          ['encoding-type', 'url'],
          ...(token === undefined ? [] : [['continuation-token', token] as const]),
        ],
      },
      (answer) => documentOf(client, answer, prefix, 'ListBucketResult'),
    );
    // Keys may have characters that XML has not; a store may ignore the request to encode them.
    const isEncoded = childText(page, 'EncodingType') === 'url';
    for (const object of childrenOf(page, 'Contents')) {
      const text = childText(object, 'Key') ?? '';
      const key = isEncoded ? decodedKey(text) : text;
      if (key === null)
        throw generalFailure(
          `Cannot list ${client.placeOf(prefix)}: the store encodes the key "${text}" wrongly`,
        );
      const name = key.slice(prefix.length);
      // A store may ignore the delimiter.
      if (key.startsWith(prefix) && !name.includes('/')) names.push(name);
    }
    const isTruncated = childText(page, 'IsTruncated') === 'true';
    const before = token;
    token = isTruncated ? childText(page, 'NextContinuationToken') : undefined;
    if (isTruncated && (token === undefined || token === before))
      throw generalFailure(`Cannot list ${client.placeOf(prefix)}: the store ends its list without its rest`);
  }
  return names;
}

/** @returns null for a text that is no percent-encoded UTF-8 */
function decodedKey(text: string): string | null {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return null;
  }
}

/** @returns the document that the store has answered. @throws CommandFailure if it is another one */
export async function documentOf(
  client: S3Client,
  { body }: S3Answer,
  key: string,
  ...roots: readonly string[]
): Promise<XmlNode> {
  const bytes = await beginningOf(body, DOCUMENT_BYTES_MAX);
  if (bytes.length > DOCUMENT_BYTES_MAX)
    throw generalFailure(`Cannot use ${client.placeOf(key)}: the store's answer has no end`);
  const text = bytes.toString();
  try {
    return xmlRead(text.trimStart(), ...roots);
  } catch (fault) {
    if (!(fault instanceof XmlFault)) throw fault;
    throw generalFailure(
      `Cannot use ${client.placeOf(key)}: the answer is none of S3: ${fault.message}`,
      'check the endpoint: another service may have answered',
      { cause: fault },
    );
  }
}

/** @returns the headers of an object; null if there is no such object */
export async function findObject(client: S3Client, key: string): Promise<S3Answer['header'] | null> {
  try {
    // HEAD would not say why it is refused.
    const request = { method: 'GET', what: 'find', key, headers: { range: 'bytes=0-0' } } as const;
    return await client.send(request, async ({ status, header, body }) => {
      // A store may ignore the range.
      if (status === 206) await body.dump();
      else body.destroy();
      return header;
    });
  } catch (error) {
    if (!(error instanceof S3Refusal)) throw error;
    if (error.status === 404 && error.code !== 'NoSuchBucket') return null;
    if (error.status === 416 || error.code === 'InvalidObjectState') return () => undefined;
    throw error;
  }
}

/**
 * Reads an object, and continues where a connection broke, in the same version of it.
 * @throws UnreadableObject, CommandFailure
 */
export async function* readObject(
  client: S3Client,
  key: string,
): AsyncGenerator<Uint8Array, void, undefined> {
  let etag: string | undefined;
  let sizeBytes = Number.POSITIVE_INFINITY;
  let retries = client.retries('read', key);
  for (let at = 0; at < sizeBytes; ) {
    const end = at === 0 ? BEGINNING_BYTES - 1 : '';
    const headers = { range: `bytes=${at}-${end}`, ...(etag === undefined ? {} : { 'if-match': etag }) };
    const answer = await openRange(client, key, headers);
    if (answer === null) return;
    const from = at;
    try {
      const [size, tag] = checkedRange(client, key, answer, at);
      // A store may ignore the condition.
      if (etag !== undefined && tag !== etag) throw new UnreadableObject('it was replaced while it was read');
      [sizeBytes, etag] = [size, tag];
      for await (const piece of answer.body as AsyncIterable<Buffer>) {
        at += piece.length;
        yield piece;
      }
      // Without a length, an answer that ends as one does is whole.
      if (sizeBytes === Number.POSITIVE_INFINITY) return;
      if (at === from) throw Object.assign(new Error('the answer has no end'), { code: 'ECONNRESET' });
    } catch (error) {
      if (error instanceof CommandFailure || error instanceof UnreadableObject) throw error;
      if (at > from) retries = client.retries('read', key);
      await retries.wait(error);
    } finally {
      answer.body.destroy();
    }
  }
}

/** @returns null for an object without bytes */
async function openRange(
  client: S3Client,
  key: string,
  headers: Readonly<Record<string, string>>,
): Promise<S3Answer | null> {
  try {
    return await client.send({ method: 'GET', what: 'read', key, headers }, async (answer) => answer);
  } catch (error) {
    if (!(error instanceof S3Refusal)) throw error;
    if (error.status === 412) throw new UnreadableObject('it was replaced while it was read');
    if (error.code === 'NoSuchKey') throw new UnreadableObject('it was removed');
    if (error.code === 'InvalidObjectState')
      throw new UnreadableObject('it is archived: restore the object to a class that can be read');
    if (error.status === 416 && !('if-match' in headers)) return null;
    throw error;
  }
}

/** @returns size and ETag of the object. @throws CommandFailure unless the answer begins at `at` */
function checkedRange(
  client: S3Client,
  key: string,
  { status, header }: S3Answer,
  at: number,
): [number, string | undefined] {
  const [, from, size] = CONTENT_RANGE.exec(header('content-range') ?? '') ?? [];
  if (status === 206 && Number(from) === at) return [Number(size), header('etag')];
  // All of it, from a store that ignores ranges.
  if (status === 200 && at === 0)
    return [Number(header('content-length') ?? Number.POSITIVE_INFINITY), header('etag')];
  throw generalFailure(
    `Cannot read ${client.placeOf(key)}: the store does not answer with the range that was asked for`,
    'copy the backups to a directory, and read them there',
  );
}

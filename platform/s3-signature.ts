import { createHash, createHmac, timingSafeEqual } from 'node:crypto';

/** Signature Version 4 of S3: pure functions. Names are those of its documentation. */
export const ALGORITHM = 'AWS4-HMAC-SHA256';
const PAYLOAD_ALGORITHM = 'AWS4-HMAC-SHA256-PAYLOAD';
const TRAILER_ALGORITHM = 'AWS4-HMAC-SHA256-TRAILER';
const EMPTY_SHA256 = createHash('sha256').digest('hex');

/** `date/region/service/aws4_request`. */
export interface CredentialScope {
  /** `YYYYMMDD`. */
  readonly date: string;
  readonly region: string;
  readonly service: string;
}

export interface CanonicalParts {
  readonly method: string;
  /** As sent, still encoded. */
  readonly path: string;
  /** Decoded names and values, without the signature. */
  readonly query: readonly (readonly [string, string])[];
  /** Signed headers, in lower case, in the order of the request's list. */
  readonly headers: readonly (readonly [string, string])[];
  readonly payloadHash: string;
}

export function scopeText({ date, region, service }: CredentialScope): string {
  return `${date}/${region}/${service}/aws4_request`;
}

/** Encodes all but unreserved characters (RFC 3986). */
export function uriEncode(text: string): string {
  return encodeURIComponent(text).replaceAll(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

export function canonicalRequest({ method, path, query, headers, payloadHash }: CanonicalParts): string {
  const pairs = query.map(([name, value]) => [uriEncode(name), uriEncode(value)] as const);
  const sorted = pairs.toSorted(([a, x], [b, y]) => (a < b ? -1 : a > b ? 1 : x < y ? -1 : x > y ? 1 : 0));
  return [
    method,
    path.split('/').map(reencoded).join('/'),
    sorted.map(([name, value]) => `${name}=${value}`).join('&'),
    ...headers.map(([name, value]) => `${name}:${value.trim().replaceAll(/ +/g, ' ')}`),
    '',
    headers.map(([name]) => name).join(';'),
    payloadHash,
  ].join('\n');
}

/** A segment that is no percent-encoded UTF-8 stays: its signature may still be right, and its key is refused later. */
function reencoded(segment: string): string {
  try {
    return uriEncode(decodeURIComponent(segment));
  } catch {
    return segment;
  }
}

export function stringToSign(amzDate: string, scope: CredentialScope, request: string): string {
  return [ALGORITHM, amzDate, scopeText(scope), sha256Hex(request)].join('\n');
}

export function signingKey(secret: string, { date, region, service }: CredentialScope): Buffer {
  const ofDate = hmac(`AWS4${secret}`, date);
  return hmac(hmac(hmac(ofDate, region), service), 'aws4_request');
}

export function signatureOf(key: Buffer, text: string): string {
  return createHmac('sha256', key).update(text).digest('hex');
}

/** Signature Version 2 of a form's policy. */
export function oldSignatureOf(secret: string, policy: string): string {
  return createHmac('sha1', secret).update(policy).digest('base64');
}

/** Compares in constant time. */
export function isSignature(given: string, expected: string): boolean {
  const bytes = Buffer.from(given);
  return bytes.length === expected.length && timingSafeEqual(bytes, Buffer.from(expected));
}

/** Signs the chunks of a body, each with the signature of the one before. */
export class ChunkSignatures {
  readonly #key: Buffer;
  readonly #amzDate: string;
  readonly #scope: string;
  #previous: string;

  /** @param seed the signature of the request's head */
  constructor(key: Buffer, amzDate: string, scope: CredentialScope, seed: string) {
    this.#key = key;
    this.#amzDate = amzDate;
    this.#scope = scopeText(scope);
    this.#previous = seed;
  }

  /** @param sha256 of the chunk's data, in hexadecimal digits */
  next(sha256: string): string {
    const text = [PAYLOAD_ALGORITHM, this.#amzDate, this.#scope, this.#previous, EMPTY_SHA256, sha256].join(
      '\n',
    );
    this.#previous = signatureOf(this.#key, text);
    return this.#previous;
  }

  /** @param trailers `name:value\n` of each */
  ofTrailers(trailers: string): string {
    const text = [TRAILER_ALGORITHM, this.#amzDate, this.#scope, this.#previous, sha256Hex(trailers)].join(
      '\n',
    );
    return signatureOf(this.#key, text);
  }
}

function sha256Hex(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

/**
 * Signature Version 4 as a client computes it, written from the documentation of S3 alone: the tests of a signature
 * share no line with the server. `sign.test.ts` compares it with the examples that AWS publishes.
 */
import { createHash, createHmac } from 'node:crypto';

export const ALGORITHM = 'AWS4-HMAC-SHA256';
export const UNSIGNED = 'UNSIGNED-PAYLOAD';
export const STREAMED = 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD';
export const STREAMED_TRAILER = 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER';
export const STREAMED_UNSIGNED = 'STREAMING-UNSIGNED-PAYLOAD-TRAILER';

export interface Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

export type Header = readonly [name: string, value: string];

/** A request as it is sent. */
export interface RawRequest {
  readonly method: string;
  /** Encoded path and query. */
  readonly target: string;
  readonly headers: readonly Header[];
  readonly body: Buffer;
}

/** What is signed beside the request. */
export interface Scope {
  /** As in `x-amz-date`. */
  readonly amzDate: string;
  readonly region: string;
  readonly service: string;
  /** Other than that of `amzDate`. */
  readonly day?: string;
}

export function amzDateOf(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19).replaceAll(/[-:]/g, '')}Z`;
}

export function sha256Hex(data: string | Buffer): string {
  return createHash('sha256').update(data).digest('hex');
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

export function percentEncode(text: string): string {
  return [...Buffer.from(text)]
    .map((byte) => {
      const character = String.fromCharCode(byte);
      return /[A-Za-z0-9._~-]/.test(character)
        ? character
        : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
    })
    .join('');
}

/** The path of a key, encoded as clients do. */
export function encodedPath(bucket: string, key: string): string {
  return `/${bucket}/${key.split('/').map(percentEncode).join('/')}`;
}

export function encodedQuery(pairs: readonly Header[]): string {
  return pairs.map(([name, value]) => `${percentEncode(name)}=${percentEncode(value)}`).join('&');
}

function day({ day: given, amzDate }: Scope): string {
  return given ?? amzDate.slice(0, 8);
}

export function scopeOf(scope: Scope): string {
  return `${day(scope)}/${scope.region}/${scope.service}/aws4_request`;
}

export function keyOf(secret: string, scope: Scope): Buffer {
  const parts = [day(scope), scope.region, scope.service, 'aws4_request'];
  return parts.reduce<Buffer | string>((key, part) => hmac(key, part), `AWS4${secret}`) as Buffer;
}

/** @param names signed headers, in lower case and in order */
function canonical(request: RawRequest, names: readonly string[], payload: string): string {
  const [path = '', query = ''] = request.target.split('?');
  const pairs = query
    .split('&')
    .filter((pair) => pair !== '')
    .map((pair) => {
      const [name = '', ...value] = pair.split('=');
      const decoded = [name, value.join('=')].map((part) => decodeURIComponent(part.replaceAll('+', ' ')));
      return decoded.map(percentEncode).join('=');
    });
  const lines = names.map((name) => {
    const values = request.headers.filter(([one]) => one.toLowerCase() === name).map(([, value]) => value);
    return `${name}:${values.map((value) => value.trim().replaceAll(/ +/g, ' ')).join(',')}\n`;
  });
  return [
    request.method,
    path
      .split('/')
      .map((part) => percentEncode(decodeURIComponent(part)))
      .join('/'),
    pairs.toSorted().join('&'),
    lines.join(''),
    names.join(';'),
    payload,
  ].join('\n');
}

function signatureOf(
  request: RawRequest,
  names: readonly string[],
  payload: string,
  secret: string,
  scope: Scope,
): string {
  const hashed = sha256Hex(canonical(request, names, payload));
  return hmac(keyOf(secret, scope), [ALGORITHM, scope.amzDate, scopeOf(scope), hashed].join('\n')).toString(
    'hex',
  );
}

function namesOf(request: RawRequest, isSigned: (name: string) => boolean): string[] {
  return [...new Set(request.headers.map(([name]) => name.toLowerCase()))].filter(isSigned).toSorted();
}

export interface Signed {
  readonly request: RawRequest;
  readonly signature: string;
}

/** Signs in the header Authorization. @param payload the value of x-amz-content-sha256 */
export function signHeaders(
  request: RawRequest,
  { accessKeyId, secretAccessKey }: Credentials,
  scope: Scope,
  payload: string,
  isSigned: (name: string) => boolean = () => true,
): Signed {
  const dated: RawRequest = {
    ...request,
    headers: [...request.headers, ['x-amz-content-sha256', payload], ['x-amz-date', scope.amzDate]],
  };
  const names = namesOf(dated, isSigned);
  const signature = signatureOf(dated, names, payload, secretAccessKey, scope);
  const fields = [
    `Credential=${accessKeyId}/${scopeOf(scope)}`,
    `SignedHeaders=${names.join(';')}`,
    `Signature=${signature}`,
  ];
  const headers: Header[] = [...dated.headers, ['authorization', `${ALGORITHM} ${fields.join(', ')}`]];
  return { request: { ...dated, headers }, signature };
}

/** Signs in the query. @param expires as in X-Amz-Expires */
export function presign(
  request: RawRequest,
  { accessKeyId, secretAccessKey }: Credentials,
  scope: Scope,
  expires: string,
  isSigned: (name: string) => boolean = () => true,
): RawRequest {
  const names = namesOf(request, isSigned);
  const query = encodedQuery([
    ['X-Amz-Algorithm', ALGORITHM],
    ['X-Amz-Credential', `${accessKeyId}/${scopeOf(scope)}`],
    ['X-Amz-Date', scope.amzDate],
    ['X-Amz-Expires', expires],
    ['X-Amz-SignedHeaders', names.join(';')],
  ]);
  const target = request.target + (request.target.includes('?') ? '&' : '?') + query;
  const signature = signatureOf({ ...request, target }, names, UNSIGNED, secretAccessKey, scope);
  return { ...request, target: `${target}&X-Amz-Signature=${signature}` };
}

export interface ChunkSigner {
  /** Signs the next chunk. */
  chunk(data: Buffer): string;
  /** Signs trailers, `name:value\n` of each. */
  trailers(text: string): string;
}

export function chunkSigner(secret: string, scope: Scope, seed: string): ChunkSigner {
  const key = keyOf(secret, scope);
  let previous = seed;
  const sign = (kind: string, ...hashes: readonly string[]): string =>
    hmac(
      key,
      [`${ALGORITHM}-${kind}`, scope.amzDate, scopeOf(scope), previous, ...hashes].join('\n'),
    ).toString('hex');
  return {
    chunk: (data) => {
      previous = sign('PAYLOAD', sha256Hex(''), sha256Hex(data));
      return previous;
    },
    trailers: (text) => sign('TRAILER', sha256Hex(text)),
  };
}

/** Encodes a body as aws-chunked. @param signer null: chunks are not signed */
export function chunkedBody(
  chunks: readonly Buffer[],
  signer: ChunkSigner | null,
  trailers: readonly Header[] = [],
): Buffer {
  const signed = (data: Buffer): string => (signer === null ? '' : `;chunk-signature=${signer.chunk(data)}`);
  const parts = chunks.map((data) =>
    Buffer.concat([Buffer.from(`${data.length.toString(16)}${signed(data)}\r\n`), data, Buffer.from('\r\n')]),
  );
  const last = `0${signed(Buffer.alloc(0))}\r\n`;
  const lines = trailers.map(([name, value]) => `${name}:${value}\r\n`).join('');
  const text = trailers.map(([name, value]) => `${name}:${value}\n`).join('');
  const isSigned = signer !== null && trailers.length > 0;
  const end = isSigned ? `x-amz-trailer-signature:${signer.trailers(text)}\r\n` : '';
  return Buffer.concat([...parts, Buffer.from(`${last}${lines}${end}\r\n`)]);
}

/** Signs the policy of a form, in base64. */
export function signPolicy(policy: string, secret: string, scope: Scope): string {
  return hmac(keyOf(secret, scope), policy).toString('hex');
}

/** Signs the policy of a form as in Signature Version 2. */
export function signPolicyOld(policy: string, secret: string): string {
  return createHmac('sha1', secret).update(policy).digest('base64');
}

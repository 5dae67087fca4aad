import type { FastifyRequest } from 'fastify';
import { utf8Text } from '../../base/utf8.ts';
import {
  ALGORITHM,
  ChunkSignatures,
  type CredentialScope,
  canonicalRequest,
  isSignature,
  oldSignatureOf,
  signatureOf,
  signingKey,
  stringToSign,
} from '../../platform/s3-signature.ts';
import { type Principal, principalOf } from '../security/principal.ts';
import type { S3Access, TokenStore } from '../security/token-file.ts';
import { S3Error } from './s3-error.ts';

/** How far the client's clock may be off, as in S3. */
const SKEW_MS_MAX = 15 * 60_000;
const PRESIGNED_S_MAX = 7 * 86_400;

/** What the head says of the body. */
export type Payload =
  | { readonly kind: 'plain'; readonly sha256: Buffer | null }
  | { readonly kind: 'chunks'; readonly signatures: ChunkSignatures | null };

export interface Authenticated {
  readonly principal: Principal;
  readonly payload: Payload;
}

/** A signature and what it covers. */
interface Signed {
  readonly accessKeyId: string;
  readonly scope: CredentialScope;
  readonly amzDate: string;
  readonly signedHeaders: readonly string[];
  readonly signature: string;
}

export interface Target {
  /** As sent, still encoded. */
  readonly path: string;
  readonly query: readonly (readonly [string, string])[];
}

/** Signature Version 2 in the header Authorization. */
const VERSION_2 = /^AWS [^:]+:/;
const CREDENTIAL = /^([^/]+)\/(\d{8})\/([^/]+)\/([^/]+)\/aws4_request$/;
const AMZ_DATE = /^(\d{4})(\d{2})(\d{2})T(\d{2})(\d{2})(\d{2})Z$/;
const SHA256_HEX = /^[0-9a-f]{64}$/;

/**
 * Authenticates a request by Signature Version 4, in its headers or its query, or by a certificate.
 * @param tokens null if the server authenticates no client: then signatures are not checked
 * @throws S3Error `AccessDenied`, `InvalidAccessKeyId`, `SignatureDoesNotMatch`, `RequestTimeTooSkewed` and others
 */
export function authenticate(
  request: FastifyRequest,
  target: Target,
  tokens: TokenStore | null,
  nowMs: number,
): Authenticated {
  const { authorization } = request.headers;
  const isPresigned = target.query.some(([name]) => name === 'X-Amz-Signature' || name === 'X-Amz-Algorithm');
  if (target.query.some(([name]) => name === 'AWSAccessKeyId') || VERSION_2.test(authorization ?? ''))
    throw new S3Error('InvalidRequest', `This server knows ${ALGORITHM} only: set the signature version 4`);
  if (isPresigned) addHoisted(request, target);
  if (tokens === null)
    return { principal: { kind: 'anyone' }, payload: payloadOf(request, null, isPresigned) };
  const ofHeader = authorization?.startsWith(ALGORITHM) === true;
  if (ofHeader && isPresigned)
    throw new S3Error(
      'InvalidArgument',
      'Only one of a signature in the headers and one in the query is allowed',
    );
  if (!ofHeader && !isPresigned) {
    if (authorization !== undefined && !/^(?:Bearer .*)?$/i.test(authorization))
      throw new S3Error('InvalidArgument', `Unsupported Authorization: sign the request (${ALGORITHM})`);
    const principal = principalOf(request, tokens, nowMs);
    if (principal !== null && principal.kind !== 'server')
      return { principal, payload: payloadOf(request, null, false) };
    throw new S3Error('AccessDenied', `Access denied: sign the request (${ALGORITHM})`);
  }
  const parsed = isPresigned ? parseQuery(target) : parseHeader(authorization ?? '');
  const access = tokens.s3AccessOf(parsed.accessKeyId, nowMs);
  if (access === null)
    throw new S3Error('InvalidAccessKeyId', 'The access key is unknown, revoked or expired: use another one');
  const amzDate = isPresigned ? checkedUrlDate(target, parsed, nowMs) : checkedDate(request, parsed, nowMs);
  return verified(request, target, { ...parsed, amzDate }, isPresigned, access);
}

/** Headers that clients put into the query of a presigned URL instead. */
const HOISTED =
  /^x-amz-(?:meta-.+|acl|tagging|storage-class|object-lock-.+|server-side-encryption.*|grant-.+)$/;

/** Adds headers that are in the query of a presigned URL, which is signed as a whole. */
function addHoisted({ headers }: FastifyRequest, { query }: Target): void {
  for (const [name, value] of query) {
    const header = name.toLowerCase();
    if (HOISTED.test(header)) headers[header] ??= Buffer.from(value).toString('latin1');
  }
}

function verified(
  request: FastifyRequest,
  { path, query }: Target,
  signed: Signed,
  isPresigned: boolean,
  access: S3Access,
): Authenticated {
  const headers = headersOf(request);
  assertAllSigned(headers, signed.signedHeaders);
  const sha256 = request.headers['x-amz-content-sha256'];
  const values = signed.signedHeaders.map((name) => headers.get(name)?.join(',') ?? '');
  const texts = readings(values).map((read) => {
    const canonical = canonicalRequest({
      method: request.method,
      path,
      query: query.filter(([name]) => name !== 'X-Amz-Signature'),
      headers: signed.signedHeaders.map((name, index) => [name, read[index] ?? ''] as const),
      payloadHash: isPresigned ? String(sha256 ?? 'UNSIGNED-PAYLOAD') : String(sha256),
    });
    return stringToSign(signed.amzDate, signed.scope, canonical);
  });
  for (const secret of access.secrets) {
    const key = signingKey(secret, signed.scope);
    if (!texts.some((text) => isSignature(signed.signature, signatureOf(key, text)))) continue;
    const chunks = new ChunkSignatures(key, signed.amzDate, signed.scope, signed.signature);
    return {
      principal: { kind: 'client', grant: access.grant },
      payload: payloadOf(request, chunks, isPresigned),
    };
  }
  throw new S3Error(
    'SignatureDoesNotMatch',
    'The signature does not match the request: check the secret access key, and that no proxy changes the request',
  );
}

/** Some clients sign the bytes of a header, others the characters of Latin-1 that these are in HTTP. */
function readings(values: readonly string[]): (readonly string[])[] {
  if (values.every((value) => Buffer.byteLength(value) === value.length)) return [values];
  return [values, values.map((value) => utf8Text(Buffer.from(value, 'latin1')) ?? value)];
}

function parseHeader(authorization: string): Omit<Signed, 'amzDate'> {
  const fields = new Map(
    authorization
      .slice(ALGORITHM.length)
      .split(',')
      .map((field) => {
        const [name = '', ...value] = field.trim().split('=');
        return [name, value.join('=')] as const;
      }),
  );
  const signature = fields.get('Signature');
  const signedHeaders = fields.get('SignedHeaders')?.split(';');
  if (signature === undefined || signedHeaders === undefined)
    throw malformedHeader('The Authorization header lacks Credential, SignedHeaders or Signature');
  return { ...credentialOf(fields.get('Credential') ?? '', malformedHeader), signedHeaders, signature };
}

/** Returns the time of a request with a signature in its headers, which is now. */
function checkedDate({ headers }: FastifyRequest, { scope }: Pick<Signed, 'scope'>, nowMs: number): string {
  const amzDate = String(headers['x-amz-date'] ?? isoOfDate(headers.date));
  const atMs = timeOf(amzDate);
  if (atMs === null || atMs < 0)
    throw new S3Error('AccessDenied', 'A signed request has x-amz-date, or Date');
  if (Math.abs(atMs - nowMs) > SKEW_MS_MAX)
    throw new S3Error(
      'RequestTimeTooSkewed',
      "The request's time and this server's differ by more than 15 minutes",
    );
  if (!amzDate.startsWith(scope.date))
    throw malformedHeader('The date of the credential is not that of the request');
  if (headers['x-amz-content-sha256'] === undefined)
    throw new S3Error('InvalidRequest', 'A signed request has x-amz-content-sha256');
  return amzDate;
}

function parseQuery(target: Target): Omit<Signed, 'amzDate'> {
  if (onlyValue(target, 'X-Amz-Algorithm') !== ALGORITHM)
    throw malformedQuery(`X-Amz-Algorithm must be ${ALGORITHM}`);
  const credential = credentialOf(onlyValue(target, 'X-Amz-Credential'), malformedQuery);
  const signedHeaders = onlyValue(target, 'X-Amz-SignedHeaders').split(';');
  return { ...credential, signedHeaders, signature: onlyValue(target, 'X-Amz-Signature') };
}

/** Returns the time of a presigned URL, which is valid now. */
function checkedUrlDate(target: Target, { scope }: Pick<Signed, 'scope'>, nowMs: number): string {
  const amzDate = onlyValue(target, 'X-Amz-Date');
  const atMs = timeOf(amzDate);
  if (atMs === null || !amzDate.startsWith(scope.date)) throw malformedQuery('X-Amz-Date is malformed');
  // Denied, as all URLs that are not valid now.
  const isUnlimited = !target.query.some(([name]) => name === 'X-Amz-Expires');
  const text = isUnlimited ? '' : onlyValue(target, 'X-Amz-Expires');
  const expiresS = Number(text);
  if (!/^\d{1,6}$/.test(text) || expiresS > PRESIGNED_S_MAX)
    throw new S3Error('AccessDenied', `X-Amz-Expires is a number of seconds from 0 to ${PRESIGNED_S_MAX}`);
  if (nowMs > atMs + expiresS * 1000) throw new S3Error('AccessDenied', 'Request has expired');
  if (atMs - nowMs > SKEW_MS_MAX) throw new S3Error('AccessDenied', 'Request is not valid yet');
  return amzDate;
}

/** @throws S3Error `AuthorizationQueryParametersError` unless the parameter is there once */
function onlyValue({ query }: Target, name: string): string {
  const found = query.filter(([one]) => one === name);
  if (found.length !== 1) throw malformedQuery(`A presigned URL has ${name} once`);
  return found[0]?.[1] ?? '';
}

function malformedHeader(why: string): S3Error {
  return new S3Error('AuthorizationHeaderMalformed', why);
}

function malformedQuery(why: string): S3Error {
  return new S3Error('AuthorizationQueryParametersError', why);
}

function credentialOf(
  text: string,
  malformed: (why: string) => S3Error,
): Pick<Signed, 'accessKeyId' | 'scope'> {
  const [, accessKeyId, date, region, service] = CREDENTIAL.exec(text) ?? [];
  if (accessKeyId === undefined || date === undefined || region === undefined || service === undefined)
    throw malformed('The credential is not KEY/YYYYMMDD/REGION/s3/aws4_request');
  if (service !== 's3') throw malformed('The service of the credential must be s3');
  return { accessKeyId, scope: { date, region, service } };
}

/** Names in lower case, each with its values in their order. */
function headersOf({ raw: { rawHeaders } }: FastifyRequest): Map<string, string[]> {
  const headers = new Map<string, string[]>();
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = String(rawHeaders[index]).toLowerCase();
    headers.set(name, [...(headers.get(name) ?? []), String(rawHeaders[index + 1]).trim()]);
  }
  return headers;
}

/** Who can alter a request on its way must not be able to add to its meaning. */
function assertAllSigned(headers: ReadonlyMap<string, unknown>, signed: readonly string[]): void {
  const isNeeded = (name: string): boolean =>
    name === 'host' || (name.startsWith('x-amz-') && name !== 'x-amz-content-sha256');
  const missing = [...headers.keys()].filter((name) => isNeeded(name) && !signed.includes(name));
  if (missing.length === 0) return;
  throw new S3Error('AccessDenied', `Headers of the request are not signed: ${missing.join(', ')}`);
}

function payloadOf(
  { headers }: FastifyRequest,
  chunks: ChunkSignatures | null,
  isPresigned: boolean,
): Payload {
  const sha256 = headers['x-amz-content-sha256'];
  const text = typeof sha256 === 'string' ? sha256 : 'UNSIGNED-PAYLOAD';
  switch (text) {
    case 'UNSIGNED-PAYLOAD':
      return { kind: 'plain', sha256: null };
    case 'STREAMING-UNSIGNED-PAYLOAD-TRAILER':
      return { kind: 'chunks', signatures: null };
    case 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD':
    case 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER':
      return { kind: 'chunks', signatures: chunks };
    default:
      if (text.startsWith('STREAMING-'))
        throw new S3Error('NotImplemented', `The signature of chunks ${text} is not implemented`);
      if (SHA256_HEX.test(text)) return { kind: 'plain', sha256: Buffer.from(text, 'hex') };
      // Clients put any text there when the URL is signed.
      if (isPresigned) return { kind: 'plain', sha256: null };
      throw new S3Error('InvalidArgument', 'x-amz-content-sha256 is no SHA-256 in hexadecimal digits');
  }
}

function timeOf(amzDate: string): number | null {
  const match = AMZ_DATE.exec(amzDate);
  if (match === null) return null;
  const [, year, month, day, hour, minute, second] = match;
  const ms = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  return Number.isNaN(ms) ? null : ms;
}

function isoOfDate(text: string | undefined): string {
  const ms = Date.parse(text ?? '');
  return Number.isNaN(ms) ? '' : new Date(ms).toISOString().replaceAll(/[-:]|\.\d+/g, '');
}

/** Authenticates a form by the signature of its policy, of version 4 or, as old forms have it, 2. */
export function verifyPolicy(
  fields: ReadonlyMap<string, string>,
  policy: string,
  tokens: TokenStore | null,
  nowMs: number,
): Principal {
  if (tokens === null) return { kind: 'anyone' };
  const malformed = (why: string): S3Error => new S3Error('InvalidArgument', why);
  if (policy === '') throw new S3Error('AccessDenied', 'A form without a signed policy is refused');
  const old = fields.get('awsaccesskeyid');
  const signature = fields.get(old === undefined ? 'x-amz-signature' : 'signature');
  if (signature === undefined) throw malformed('The policy of the form has no signature');
  if (old === undefined && fields.get('x-amz-algorithm') !== ALGORITHM)
    throw malformed(`x-amz-algorithm must be ${ALGORITHM}`);
  const { accessKeyId, scope } =
    old === undefined
      ? credentialOf(fields.get('x-amz-credential') ?? '', malformed)
      : { accessKeyId: old, scope: null };
  const access = tokens.s3AccessOf(accessKeyId, nowMs);
  if (access === null)
    throw new S3Error('InvalidAccessKeyId', 'The access key is unknown, revoked or expired: use another one');
  const expected = (secret: string): string =>
    scope === null ? oldSignatureOf(secret, policy) : signatureOf(signingKey(secret, scope), policy);
  if (!access.secrets.some((secret) => isSignature(signature, expected(secret))))
    throw new S3Error('SignatureDoesNotMatch', 'The signature of the policy is wrong');
  return { kind: 'client', grant: access.grant };
}

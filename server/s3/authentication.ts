import type { FastifyRequest } from 'fastify';
import { type Principal, principalOf } from '../security/principal.ts';
import type { TokenStore } from '../security/token-file.ts';
import { S3Error } from './s3-error.ts';
import {
  ALGORITHM,
  ChunkSignatures,
  type CredentialScope,
  canonicalRequest,
  isSignature,
  scopeText,
  signatureOf,
  signingKey,
  stringToSign,
} from './signature.ts';

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
  if (target.query.some(([name]) => name === 'AWSAccessKeyId') || /^AWS /.test(authorization ?? ''))
    throw new S3Error('InvalidRequest', `This server knows ${ALGORITHM} only: set the signature version 4`);
  if (tokens === null)
    return { principal: { kind: 'anyone' }, payload: payloadOf(request, null, isPresigned) };
  const ofHeader = authorization?.startsWith(ALGORITHM) === true;
  if (ofHeader && isPresigned)
    throw new S3Error(
      'InvalidRequest',
      'Only one of a signature in the headers and one in the query is allowed',
    );
  if (!ofHeader && !isPresigned) {
    const principal = principalOf(request, tokens, nowMs);
    if (principal !== null && principal.kind !== 'server')
      return { principal, payload: payloadOf(request, null, false) };
    throw new S3Error('AccessDenied', `Access denied: sign the request (${ALGORITHM})`);
  }
  const signed = isPresigned
    ? signedByQuery(target, nowMs)
    : signedByHeader(request, authorization ?? '', nowMs);
  return verified(request, target, signed, isPresigned, tokens, nowMs);
}

function verified(
  request: FastifyRequest,
  { path, query }: Target,
  signed: Signed,
  isPresigned: boolean,
  tokens: TokenStore,
  nowMs: number,
): Authenticated {
  const access = tokens.s3AccessOf(signed.accessKeyId, nowMs);
  if (access === null)
    throw new S3Error('InvalidAccessKeyId', 'The access key is unknown, revoked or expired: use another one');
  const headers = headersOf(request);
  assertAllSigned(headers, signed.signedHeaders);
  const sha256 = request.headers['x-amz-content-sha256'];
  const canonical = canonicalRequest({
    method: request.method,
    path,
    query: query.filter(([name]) => name !== 'X-Amz-Signature'),
    headers: signed.signedHeaders.map((name) => [name, headers.get(name)?.join(',') ?? ''] as const),
    payloadHash: isPresigned ? String(sha256 ?? 'UNSIGNED-PAYLOAD') : String(sha256),
  });
  const text = stringToSign(signed.amzDate, signed.scope, canonical);
  for (const secret of access.secrets) {
    const key = signingKey(secret, signed.scope);
    if (!isSignature(signed.signature, signatureOf(key, text))) continue;
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

function signedByHeader(request: FastifyRequest, authorization: string, nowMs: number): Signed {
  const fields = new Map(
    authorization
      .slice(ALGORITHM.length)
      .split(',')
      .map((field) => {
        const [name = '', ...value] = field.trim().split('=');
        return [name, value.join('=')] as const;
      }),
  );
  const malformed = (why: string): S3Error => new S3Error('AuthorizationHeaderMalformed', why);
  const signature = fields.get('Signature');
  const signedHeaders = fields.get('SignedHeaders')?.split(';');
  if (signature === undefined || signedHeaders === undefined)
    throw malformed('The Authorization header lacks Credential, SignedHeaders or Signature');
  const credential = credentialOf(fields.get('Credential') ?? '', malformed);
  const amzDate = String(request.headers['x-amz-date'] ?? isoOfDate(request.headers.date));
  const atMs = timeOf(amzDate);
  if (atMs === null) throw new S3Error('AccessDenied', 'A signed request has x-amz-date, or Date');
  if (Math.abs(atMs - nowMs) > SKEW_MS_MAX)
    throw new S3Error(
      'RequestTimeTooSkewed',
      "The request's time and this server's differ by more than 15 minutes",
    );
  if (!amzDate.startsWith(credential.scope.date))
    throw malformed('The date of the credential is not that of the request');
  if (request.headers['x-amz-content-sha256'] === undefined)
    throw new S3Error('InvalidRequest', 'A signed request has x-amz-content-sha256');
  return { ...credential, amzDate, signedHeaders, signature };
}

function signedByQuery({ query }: Target, nowMs: number): Signed {
  const malformed = (why: string): S3Error => new S3Error('AuthorizationQueryParametersError', why);
  const value = (name: string): string => {
    const found = query.filter(([one]) => one === name);
    if (found.length !== 1) throw malformed(`A presigned URL has ${name} once`);
    return found[0]?.[1] ?? '';
  };
  if (value('X-Amz-Algorithm') !== ALGORITHM) throw malformed(`X-Amz-Algorithm must be ${ALGORITHM}`);
  const credential = credentialOf(value('X-Amz-Credential'), malformed);
  const amzDate = value('X-Amz-Date');
  const atMs = timeOf(amzDate);
  const expires = Number(value('X-Amz-Expires'));
  if (atMs === null || !amzDate.startsWith(credential.scope.date)) throw malformed('X-Amz-Date is malformed');
  if (!Number.isInteger(expires) || expires < 0 || expires > PRESIGNED_S_MAX)
    throw malformed(`X-Amz-Expires is a number of seconds from 0 to ${PRESIGNED_S_MAX}`);
  if (nowMs > atMs + expires * 1000) throw new S3Error('AccessDenied', 'Request has expired');
  if (atMs - nowMs > SKEW_MS_MAX) throw new S3Error('AccessDenied', 'Request is not valid yet');
  const signedHeaders = value('X-Amz-SignedHeaders').split(';');
  return { ...credential, amzDate, signedHeaders, signature: value('X-Amz-Signature') };
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

/** The text that a form's policy signs; @see PostPolicy. */
export function verifyPolicy(
  fields: ReadonlyMap<string, string>,
  policy: string,
  tokens: TokenStore | null,
  nowMs: number,
): Principal {
  if (tokens === null) return { kind: 'anyone' };
  const malformed = (why: string): S3Error => new S3Error('InvalidArgument', why);
  const signature = fields.get('x-amz-signature');
  if (fields.get('x-amz-algorithm') !== ALGORITHM || signature === undefined)
    throw new S3Error('AccessDenied', `A form without a signature (${ALGORITHM}) is refused`);
  const { accessKeyId, scope } = credentialOf(fields.get('x-amz-credential') ?? '', malformed);
  const access = tokens.s3AccessOf(accessKeyId, nowMs);
  if (access === null)
    throw new S3Error('InvalidAccessKeyId', 'The access key is unknown, revoked or expired: use another one');
  const isRight = access.secrets.some((secret) =>
    isSignature(signature, signatureOf(signingKey(secret, scope), policy)),
  );
  if (!isRight)
    throw new S3Error('SignatureDoesNotMatch', `The signature of the policy (${scopeText(scope)}) is wrong`);
  return { kind: 'client', grant: access.grant };
}

import {
  ALGORITHM,
  canonicalRequest,
  scopeText,
  signatureOf,
  signingKey,
  stringToSign,
} from '../../platform/s3-signature.ts';
import type { SessionCredentials } from './s3-settings.ts';

export interface UnsignedRequest {
  readonly method: string;
  /** Percent-encoded. */
  readonly path: string;
  readonly query: readonly (readonly [string, string])[];
  /** With the host; names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** SHA-256 of the body, in hexadecimal digits. */
  readonly payloadHash: string;
}

/** @returns the headers of a request with its signature, which covers them and the body */
export function signedHeaders(
  { headers, payloadHash, ...request }: UnsignedRequest,
  { accessKeyId, secretAccessKey, sessionToken }: SessionCredentials,
  region: string,
  wallMs: number,
): Record<string, string> {
  const amzDate = `${new Date(wallMs).toISOString().slice(0, 19).replaceAll(/[-:]/g, '')}Z`;
  const scope = { date: amzDate.slice(0, 8), region, service: 's3' };
  const all: Record<string, string> = {
    ...headers,
    'x-amz-content-sha256': payloadHash,
    'x-amz-date': amzDate,
    ...(sessionToken === null ? {} : { 'x-amz-security-token': sessionToken }),
  };
  const signed = Object.entries(all).toSorted(([a], [b]) => (a < b ? -1 : 1));
  const canonical = canonicalRequest({ ...request, headers: signed, payloadHash });
  const signature = signatureOf(signingKey(secretAccessKey, scope), stringToSign(amzDate, scope, canonical));
  const fields = [
    `Credential=${accessKeyId}/${scopeText(scope)}`,
    `SignedHeaders=${signed.map(([name]) => name).join(';')}`,
    `Signature=${signature}`,
  ];
  return { ...all, authorization: `${ALGORITHM} ${fields.join(', ')}` };
}

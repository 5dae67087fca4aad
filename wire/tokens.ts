import { type Grant, isCredentialName, isRole, isVolumeName } from './access.ts';

/** A token as servers store it. */
export interface KnownToken extends Grant {
  /** The public part of the token, by which it is found. */
  readonly id: string;
  /** SHA-256 of the secret, in base64url. The secret is fully random, so it needs no salt. */
  readonly hash: string;
  readonly createdAt: string;
  readonly expiresAt: string | null;
}

/** The tokens' file, the same on all servers. It contains no token, but secret keys that sign capabilities. */
export interface TokenFile {
  readonly keys: readonly string[];
  readonly tokens: readonly KnownToken[];
  /** Certificates revoked before their end. */
  readonly revoked: readonly RevokedCertificate[];
}

export interface RevokedCertificate {
  readonly serial: string;
  /** The certificate's subject, for people; null if unknown. */
  readonly name: string | null;
  readonly revokedAt: string;
  /** The certificate's end, ISO 8601, after which the entry may be dropped; null if unknown. */
  readonly expiresAt: string | null;
}

/** Revoked certificates, for clients. */
export interface RevokedList {
  readonly revoked: readonly RevokedCertificate[];
}

export const TOKEN_SECRET_BYTES = 32;
export const TOKEN_ID_BYTES = 6;
export const TOKEN_KEY_BYTES = 32;

const FORMAT = 1;
const TOKEN = /^lh_([0-9a-f]{12})_([A-Za-z0-9_-]{43})$/;
const SERIAL = /^[0-9A-F]{1,40}$/;
const BASE64_256_BITS = /^[A-Za-z0-9_-]{43}$/;

export function tokenText(id: string, secret: string): string {
  return `lh_${id}_${secret}`;
}

export function tokenParts(text: string): { readonly id: string; readonly secret: string } | null {
  const [, id, secret] = TOKEN.exec(text) ?? [];
  return id === undefined || secret === undefined ? null : { id, secret };
}

export function formatTokenFile({ keys, tokens, revoked }: TokenFile): string {
  return `${JSON.stringify({ format: FORMAT, keys, tokens, revoked }, null, 2)}\n`;
}

/** A certificate's serial number without colons and leading zeros, in upper case, so that equal ones compare equal. */
export function serialText(serial: string): string {
  return serial
    .replaceAll(':', '')
    .toUpperCase()
    .replace(/^0+(?=.)/, '');
}

/** @throws Error that describes the fault without quoting the text */
export function parseTokenFile(text: string): TokenFile {
  // Files of earlier releases have no such list.
  const { format, keys, tokens, revoked = [] } = objectIn(text);
  if (format !== FORMAT) throw new Error(`its format is not ${FORMAT}`);
  if (!Array.isArray(keys) || keys.length === 0 || !keys.every(is256Bits)) {
    throw new Error('"keys" is not a list of keys');
  }
  if (!Array.isArray(tokens)) throw new Error('"tokens" is not a list');
  const index = tokens.findIndex((token) => !isKnownToken(token));
  if (index >= 0) throw new Error(`token ${index + 1} of it is malformed`);
  const known = tokens as readonly KnownToken[];
  const names = known.map(({ name }) => name);
  const duplicate = names.find((name, index) => names.indexOf(name) !== index);
  if (duplicate !== undefined) throw new Error(`two of its tokens are called "${duplicate}"`);
  if (!Array.isArray(revoked) || !revoked.every(isRevokedCertificate)) {
    throw new Error('"revoked" is not a list of certificates');
  }
  return { keys: keys as string[], tokens: known, revoked };
}

/** @param text a list, or a whole token file. @throws Error that describes the fault without quoting the text */
export function parseRevokedList(text: string): readonly RevokedCertificate[] {
  const { revoked } = objectIn(text);
  if (!Array.isArray(revoked) || !revoked.every(isRevokedCertificate)) {
    throw new Error('"revoked" is not a list of certificates');
  }
  return revoked;
}

function objectIn(text: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // Without the cause, which quotes the text.
    throw new Error('it is not JSON');
  }
  if (typeof value !== 'object' || value === null) throw new Error('it is no object');
  return value as Readonly<Record<string, unknown>>;
}

function isKnownToken(value: unknown): value is KnownToken {
  if (typeof value !== 'object' || value === null) return false;
  const { id, name, role, volumes, hash, createdAt, expiresAt } = value as Record<string, unknown>;
  return (
    typeof id === 'string' &&
    /^[0-9a-f]{12}$/.test(id) &&
    isCredentialName(name) &&
    isRole(role) &&
    (volumes === null || (Array.isArray(volumes) && volumes.length > 0 && volumes.every(isVolumeName))) &&
    is256Bits(hash) &&
    typeof createdAt === 'string' &&
    (expiresAt === null || (typeof expiresAt === 'string' && ISO.test(expiresAt)))
  );
}

const ISO = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/;

function isRevokedCertificate(value: unknown): value is RevokedCertificate {
  if (typeof value !== 'object' || value === null) return false;
  const { serial, name, revokedAt, expiresAt } = value as Record<string, unknown>;
  return (
    typeof serial === 'string' &&
    SERIAL.test(serial) &&
    (name === null || typeof name === 'string') &&
    typeof revokedAt === 'string' &&
    (expiresAt === null || (typeof expiresAt === 'string' && ISO.test(expiresAt)))
  );
}

function is256Bits(value: unknown): value is string {
  return typeof value === 'string' && BASE64_256_BITS.test(value);
}

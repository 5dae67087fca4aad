import { type Grant, isGrantName, isRole, isVolumeName } from './access.ts';

/** A token that a server knows: what it lets do, and by what it is recognized. */
export interface KnownToken extends Grant {
  /** Part of the token that is no secret, by which it is found. */
  readonly id: string;
  /** SHA-256 of the secret, in base64url. The secret is random to its last bit, so nothing is added to it. */
  readonly hash: string;
  /** ISO 8601. */
  readonly createdAt: string;
  /** Null for a token that lives until it is revoked. */
  readonly expiresAt: string | null;
}

/** The file of tokens, the same on all servers. It opens nothing: but its keys sign capabilities, so it is a secret too. */
export interface TokenFile {
  /** By which servers sign capabilities, in base64url: the first signs, all are believed. */
  readonly keys: readonly string[];
  readonly tokens: readonly KnownToken[];
  /** Certificates that are not believed any more before they end. */
  readonly revoked: readonly RevokedCertificate[];
}

/** A certificate of a client or server that is not believed any more. */
export interface RevokedCertificate {
  /** @see serialText */
  readonly serial: string;
  /** For whom it was made, where that is known: for people. */
  readonly name: string | null;
  /** ISO 8601. */
  readonly revokedAt: string;
  /** When it would have ended, in ISO 8601; then the entry may go. Null where that is not known. */
  readonly expiresAt: string | null;
}

/** Certificates that are not believed any more, as clients hear of them. */
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

/** @returns a token as it is shown, once */
export function tokenText(id: string, secret: string): string {
  return `lh_${id}_${secret}`;
}

/** @returns the parts of a token; null where `text` is none */
export function tokenParts(text: string): { readonly id: string; readonly secret: string } | null {
  const [, id, secret] = TOKEN.exec(text) ?? [];
  return id === undefined || secret === undefined ? null : { id, secret };
}

export function formatTokenFile({ keys, tokens, revoked }: TokenFile): string {
  return `${JSON.stringify({ format: FORMAT, keys, tokens, revoked }, null, 2)}\n`;
}

/** @returns the serial number of a certificate in the one way in which it is written here: upper case, without colons and leading zeros */
export function serialText(serial: string): string {
  return serial
    .replaceAll(':', '')
    .toUpperCase()
    .replace(/^0+(?=.)/, '');
}

/** @throws Error that says what is wrong with the text, and repeats nothing of it */
export function parseTokenFile(text: string): TokenFile {
  // Files of before have no list of certificates.
  const { format, keys, tokens, revoked = [] } = objectIn(text);
  if (format !== FORMAT) throw new Error(`its format is not ${FORMAT}`);
  if (!Array.isArray(keys) || keys.length === 0 || !keys.every(is256Bits)) {
    throw new Error('"keys" is not a list of keys');
  }
  if (!Array.isArray(tokens)) throw new Error('"tokens" is not a list');
  const place = tokens.findIndex((token) => !isKnownToken(token));
  if (place >= 0) throw new Error(`token ${place + 1} of it is malformed`);
  const known = tokens as readonly KnownToken[];
  const names = known.map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new Error(`two of its tokens are called "${twice}"`);
  if (!Array.isArray(revoked) || !revoked.every(isRevokedCertificate)) {
    throw new Error('"revoked" is not a list of certificates');
  }
  return { keys: keys as string[], tokens: known, revoked };
}

/**
 * @param text a list of its own, or a whole file of tokens
 * @throws Error that says what is wrong with the text, and repeats nothing of it
 */
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
    // Without the cause: it quotes what it could not read.
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
    isGrantName(name) &&
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

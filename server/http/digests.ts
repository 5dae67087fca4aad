import { createHash, type Hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { ServiceError } from '../../base/errors.ts';

/** Algorithms of RFC 9530 that are neither broken nor rare, by their names there and in Node. */
const ALGORITHMS: ReadonlyMap<string, string> = new Map([
  ['sha-512', 'sha512'],
  ['sha-256', 'sha256'],
]);

export interface ClaimedDigest {
  readonly header: string;
  readonly algorithm: string;
  readonly value: Buffer;
}

/** A dictionary member of structured fields (RFC 8941): a key, and bytes between colons. */
const MEMBER = /^([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/]*={0,2}):(?:;.*)?$/;

/**
 * Reads `Content-Digest`, `Repr-Digest` (equal here, because bodies are stored as they come) and `Content-MD5`. Unknown
 * algorithms are ignored (RFC 9530). @throws ServiceError `bad-request` for a malformed value
 */
export function claimedDigests(headers: IncomingHttpHeaders): ClaimedDigest[] {
  const claims: ClaimedDigest[] = [];
  for (const header of ['content-digest', 'repr-digest']) {
    const text = [headers[header]].flat().join(', ');
    if (text === '') continue;
    for (const member of text.split(',')) {
      const match = MEMBER.exec(member.trim());
      if (match === null) throw malformed(header, member);
      const [, name = '', value = ''] = match;
      const algorithm = ALGORITHMS.get(name);
      if (algorithm !== undefined) claims.push(parseClaimedDigest(header, algorithm, value));
    }
  }
  const md5 = [headers['content-md5']].flat()[0];
  if (md5 !== undefined) claims.push(parseClaimedDigest('content-md5', 'md5', md5.trim()));
  return claims;
}

/** Parses a digest in base64. @throws ServiceError `bad-request` unless it fits the algorithm */
export function parseClaimedDigest(header: string, algorithm: string, text: string): ClaimedDigest {
  const value = Buffer.from(text, 'base64');
  if (value.length !== createHash(algorithm).digest().length || value.toString('base64') !== text) {
    throw malformed(header, text);
  }
  return { header, algorithm, value };
}

function malformed(header: string, text: string): ServiceError {
  const why = 'sha-256=:…: and sha-512=:…:, or bytes of MD5, in base64';
  return new ServiceError(
    'bad-request',
    `${header}: "${text.trim().slice(0, 100)}" is not of the form ${why}`,
  );
}

/** Checks a body while it is stored. */
export interface BodyCheck {
  update(bytes: Uint8Array): void;
  /** Called once, after the last byte. @throws ServiceError `digest-mismatch` */
  check(): void;
}

export class DigestCheck implements BodyCheck {
  readonly #hashes: readonly { readonly claim: ClaimedDigest; readonly hash: Hash }[];

  constructor(claims: readonly ClaimedDigest[]) {
    this.#hashes = claims.map((claim) => ({ claim, hash: createHash(claim.algorithm) }));
  }

  update(bytes: Uint8Array): void {
    for (const { hash } of this.#hashes) hash.update(bytes);
  }

  /** Call it once, after the last byte. @throws ServiceError `digest-mismatch` */
  check(): void {
    for (const { claim, hash } of this.#hashes) {
      const found = hash.digest();
      if (found.equals(claim.value)) continue;
      const detail =
        `${claim.header} is ${claim.value.toString('base64')}, but the received body has ` +
        `${found.toString('base64')}: send it again`;
      throw new ServiceError('digest-mismatch', detail);
    }
  }
}

/** Returns the known algorithm of `Want-Repr-Digest` or `Want-Content-Digest` with the largest weight, or null. */
export function wantedDigest(header: string | readonly string[] | undefined): string | null {
  let best: { readonly name: string; readonly weight: number } | null = null;
  for (const member of [header].flat().join(',').split(',')) {
    const [, name = '', weight = '0'] = /^\s*([a-z0-9-]+)\s*=\s*(\d{1,2})\s*$/.exec(member) ?? [];
    if (ALGORITHMS.has(name) && Number(weight) > (best?.weight ?? 0)) best = { name, weight: Number(weight) };
  }
  return best?.name ?? null;
}

export function digestHash(name: string): Hash {
  return createHash(ALGORITHMS.get(name) ?? 'sha256');
}

export function digestOf(name: string, bytes: Uint8Array): string {
  return digestText(name, digestHash(name).update(bytes).digest());
}

export function digestText(name: string, value: Buffer): string {
  return `${name}=:${value.toString('base64')}:`;
}

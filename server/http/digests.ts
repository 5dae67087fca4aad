import { createHash, type Hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { ServiceError } from '../../base/errors.ts';

/** Algorithms of RFC 9530 that are neither broken nor rare, by their names there and in Node. */
const ALGORITHMS: ReadonlyMap<string, string> = new Map([
  ['sha-512', 'sha512'],
  ['sha-256', 'sha256'],
]);

/** A value that the client has computed, and which header says so. */
export interface ClaimedDigest {
  readonly header: string;
  /** As Node calls it. */
  readonly algorithm: string;
  readonly value: Buffer;
}

/** A member of a dictionary of structured fields (RFC 8941): a key and bytes between colons. */
const MEMBER = /^([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/]*={0,2}):(?:;.*)?$/;

/**
 * What a request says about its body: `Content-Digest`, `Repr-Digest` (equal here, because bodies are stored as they come)
 * and `Content-MD5`. Algorithms that are not known are passed over, as RFC 9530 has it.
 *
 * @throws ServiceError `bad-request` where a value is malformed
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
      if (algorithm !== undefined) claims.push(claimOf(header, algorithm, value));
    }
  }
  const md5 = [headers['content-md5']].flat()[0];
  if (md5 !== undefined) claims.push(claimOf('content-md5', 'md5', md5.trim()));
  return claims;
}

/** @throws ServiceError `bad-request` unless `text` is as many bytes in base64 as the algorithm makes */
export function claimOf(header: string, algorithm: string, text: string): ClaimedDigest {
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

/** Computes what was claimed while the bytes pass by. */
export class DigestCheck {
  readonly #hashes: readonly { readonly claim: ClaimedDigest; readonly hash: Hash }[];

  constructor(claims: readonly ClaimedDigest[]) {
    this.#hashes = claims.map((claim) => ({ claim, hash: createHash(claim.algorithm) }));
  }

  update(bytes: Uint8Array): void {
    for (const { hash } of this.#hashes) hash.update(bytes);
  }

  /** To be called once, after the last byte. @throws ServiceError `digest-mismatch` */
  check(): void {
    for (const { claim, hash } of this.#hashes) {
      const found = hash.digest();
      if (found.equals(claim.value)) continue;
      const detail = `${claim.header} says ${claim.value.toString('base64')}, what arrived has ${found.toString('base64')}`;
      throw new ServiceError('digest-mismatch', detail);
    }
  }
}

/**
 * The algorithm that a client would like best (`Want-Repr-Digest`, `Want-Content-Digest`): of those known here
 * the one with the largest weight.
 *
 * @returns its name in RFC 9530; null where the client wants none, or none of these
 */
export function wantedDigest(header: string | readonly string[] | undefined): string | null {
  let best: { readonly name: string; readonly weight: number } | null = null;
  for (const member of [header].flat().join(',').split(',')) {
    const [, name = '', weight = '0'] = /^\s*([a-z0-9-]+)\s*=\s*(\d{1,2})\s*$/.exec(member) ?? [];
    if (ALGORITHMS.has(name) && Number(weight) > (best?.weight ?? 0)) best = { name, weight: Number(weight) };
  }
  return best?.name ?? null;
}

/** @param name of RFC 9530 */
export function digestHash(name: string): Hash {
  return createHash(ALGORITHMS.get(name) ?? 'sha256');
}

/** @returns the digest of bytes that are here, as its header has it */
export function digestOf(name: string, bytes: Uint8Array): string {
  return digestText(name, digestHash(name).update(bytes).digest());
}

/** A digest as its header has it. */
export function digestText(name: string, value: Buffer): string {
  return `${name}=:${value.toString('base64')}:`;
}

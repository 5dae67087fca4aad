import { createSecretKey, hash, type KeyObject, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Timer, World } from '../../base/world.ts';
import { s3CredentialsOf, tokenIdOf } from '../../platform/s3-credentials.ts';
import type { Grant } from '../../wire/access.ts';
import { type KnownToken, parseTokenFile, type RevokedCertificate, tokenParts } from '../../wire/tokens.ts';
import { ConfigurationError } from '../config/configuration-error.ts';

/** Compared for an unknown id, so that the answer takes the same time. */
const UNKNOWN_HASH = Buffer.alloc(32);
const TIMER_MS_MAX = 2 ** 31 - 1;

/** What an S3 access key allows, and the secrets that sign its requests: one for each key of the token file. */
export interface S3Access {
  readonly grant: Grant;
  readonly secrets: readonly string[];
}

interface Entry {
  readonly grant: Grant;
  readonly token: KnownToken;
  readonly hash: Buffer;
  readonly expiresAtMs: number;
}

/** The tokens of this server's token file, and the keys that sign capabilities. */
export class TokenStore {
  readonly #world: World;
  readonly #file: string;
  #entries: ReadonlyMap<string, Entry> = new Map();
  #keys: readonly KeyObject[] = [];
  #keyTexts: readonly string[] = [];
  #revoked: readonly RevokedCertificate[] = [];
  readonly #listeners = new Set<(nowMs: number) => void>();
  #nextEnd: Timer | null = null;

  /** @throws ConfigurationError if the file is invalid */
  constructor(world: World, file: string) {
    this.#world = world;
    this.#file = file;
    this.reload();
  }

  /** The first signs, all verify. */
  get keys(): readonly KeyObject[] {
    return this.#keys;
  }

  get revoked(): readonly string[] {
    return this.#revoked.map(({ serial }) => serial);
  }

  get revokedCertificates(): readonly RevokedCertificate[] {
    return this.#revoked;
  }

  get count(): number {
    return this.#entries.size;
  }

  /** @throws ConfigurationError if the file is invalid; the previous tokens stay in use */
  reload(): void {
    const { keys, tokens, revoked } = readTokenFile(this.#file);
    this.#revoked = revoked;
    this.#keyTexts = keys;
    this.#keys = keys.map((key) => createSecretKey(key, 'base64url'));
    this.#entries = new Map(tokens.map((token) => [token.id, entryOf(token)]));
    this.#changed();
  }

  /**
   * Calls `listener` when a token may have become invalid: the file was read again, or a token ended. The listener
   * judges by the time it gets: with a clock of its own it could count a token as ended too early, and miss the call.
   */
  onChange(listener: (nowMs: number) => void): void {
    this.#listeners.add(listener);
  }

  #changed(): void {
    // A token that ends while listeners run is still valid at `nowMs`: the next timer covers it.
    const nowMs = this.#world.wallMs();
    for (const listener of this.#listeners) listener(nowMs);
    this.#nextEnd?.cancel();
    const ends = [...this.#entries.values()].map(({ expiresAtMs }) => expiresAtMs).filter((ms) => ms > nowMs);
    const nextMs = Math.min(...ends) - nowMs;
    if (nextMs === Number.POSITIVE_INFINITY) return;
    this.#nextEnd = this.#world.after(Math.min(nextMs, TIMER_MS_MAX), () => this.#changed()).unref();
  }

  /** Returns what the token allows; null if it is unknown, revoked or expired. */
  grantOf(token: string, nowMs: number): Grant | null {
    const parts = tokenParts(token);
    if (parts === null) return null;
    const entry = this.#entries.get(parts.id);
    const isRight = timingSafeEqual(hash('sha256', parts.secret, 'buffer'), entry?.hash ?? UNKNOWN_HASH);
    return entry !== undefined && isRight && nowMs < entry.expiresAtMs ? entry.grant : null;
  }

  /** Returns what the access key allows; null if it is unknown, or its token is revoked or expired. */
  s3AccessOf(accessKeyId: string, nowMs: number): S3Access | null {
    const id = tokenIdOf(accessKeyId);
    const entry = id === null ? undefined : this.#entries.get(id);
    if (entry === undefined || nowMs >= entry.expiresAtMs) return null;
    const secrets = this.#keyTexts.map((key) => s3CredentialsOf(key, entry.token).secretAccessKey);
    return { grant: entry.grant, secrets };
  }
}

function entryOf(token: KnownToken): Entry {
  const { name, role, volumes, hash, expiresAt } = token;
  return {
    token,
    grant: { name, role, volumes },
    hash: Buffer.from(hash, 'base64url'),
    expiresAtMs: expiresAt === null ? Number.POSITIVE_INFINITY : Date.parse(expiresAt),
  };
}

function readTokenFile(file: string): ReturnType<typeof parseTokenFile> {
  try {
    return parseTokenFile(readFileSync(file, 'utf8'));
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new ConfigurationError(
      `Cannot use --tokens "${file}": ${why}. Create the file with "leasehold token create"`,
    );
  }
}

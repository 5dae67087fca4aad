import { createSecretKey, hash, type KeyObject, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Timer, World } from '../../base/world.ts';
import type { Grant } from '../../wire/access.ts';
import { type KnownToken, parseTokenFile, type RevokedCertificate, tokenParts } from '../../wire/tokens.ts';
import { ConfigurationError } from '../configuration-error.ts';

/** Compared with where no token has the id, so that the answer takes as long. */
const NOBODY = Buffer.alloc(32);
/** A timer waits no longer. */
const TIMER_MS_MAX = 2 ** 31 - 1;

interface Entry {
  readonly grant: Grant;
  readonly hash: Buffer;
  readonly expiresAtMs: number;
}

/** The tokens that this server knows, as they stand in its file, and the keys by which capabilities are signed. */
export class TokenBook {
  readonly #world: World;
  readonly #file: string;
  #entries: ReadonlyMap<string, Entry> = new Map();
  #keys: readonly KeyObject[] = [];
  #revoked: readonly RevokedCertificate[] = [];
  readonly #listeners = new Set<(nowMs: number) => void>();
  #nextEnd: Timer | null = null;

  /** @throws ConfigurationError where the file is no good */
  constructor(world: World, file: string) {
    this.#world = world;
    this.#file = file;
    this.reload();
  }

  /** The first signs, all are believed. */
  get keys(): readonly KeyObject[] {
    return this.#keys;
  }

  /** Serial numbers of certificates that are not believed any more. */
  get revoked(): readonly string[] {
    return this.#revoked.map(({ serial }) => serial);
  }

  get revokedCertificates(): readonly RevokedCertificate[] {
    return this.#revoked;
  }

  get count(): number {
    return this.#entries.size;
  }

  /** @throws ConfigurationError and keeps what it has, where the file is no good */
  reload(): void {
    const { keys, tokens, revoked } = readBook(this.#file);
    this.#revoked = revoked;
    this.#keys = keys.map((key) => createSecretKey(key, 'base64url'));
    this.#entries = new Map(tokens.map((token) => [token.id, entryOf(token)]));
    this.#changed();
  }

  /**
   * Calls back when a token may have become worthless: the file was read again, or one has ended.
   *
   * @param listener is given the time by which to judge: whoever read the clock himself would take what ends meanwhile for over before
   *   anybody was told of it, or not at all
   */
  onChange(listener: (nowMs: number) => void): void {
    this.#listeners.add(listener);
  }

  #changed(): void {
    // What ends while listeners are told has not ended for them: that is still to be told.
    const nowMs = this.#world.wallMs();
    for (const listener of this.#listeners) listener(nowMs);
    this.#nextEnd?.cancel();
    const ends = [...this.#entries.values()].map(({ expiresAtMs }) => expiresAtMs).filter((ms) => ms > nowMs);
    const nextMs = Math.min(...ends) - nowMs;
    if (nextMs === Number.POSITIVE_INFINITY) return;
    this.#nextEnd = this.#world.after(Math.min(nextMs, TIMER_MS_MAX), () => this.#changed()).unref();
  }

  /** @returns what the token lets do; null where it is unknown, revoked or has ended */
  grantOf(token: string, nowMs: number): Grant | null {
    const parts = tokenParts(token);
    if (parts === null) return null;
    const entry = this.#entries.get(parts.id);
    const isRight = timingSafeEqual(hash('sha256', parts.secret, 'buffer'), entry?.hash ?? NOBODY);
    return entry !== undefined && isRight && nowMs < entry.expiresAtMs ? entry.grant : null;
  }
}

function entryOf({ name, role, volumes, hash, expiresAt }: KnownToken): Entry {
  return {
    grant: { name, role, volumes },
    hash: Buffer.from(hash, 'base64url'),
    expiresAtMs: expiresAt === null ? Number.POSITIVE_INFINITY : Date.parse(expiresAt),
  };
}

function readBook(file: string): ReturnType<typeof parseTokenFile> {
  try {
    return parseTokenFile(readFileSync(file, 'utf8'));
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new ConfigurationError(
      `Cannot use --tokens "${file}": ${why}. "leasehold token create" makes such a file`,
    );
  }
}

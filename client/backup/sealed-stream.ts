/**
 * A stream of bytes in chunks that are authenticated, and encrypted if there is a key. Each chunk is bound to its
 * number and to whether it is the last one (STREAM, Hoang et al., CRYPTO 2015), and all of them to the header: a stream
 * that was truncated, extended, reordered or spliced is refused. Without a key, digests in place of tags find damage
 * only.
 */
import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createHmac,
  hkdfSync,
  scrypt,
  timingSafeEqual,
} from 'node:crypto';

const MAGIC = 'leasehold-backup 1\n';
const CIPHER = 'chacha20-poly1305';
const CHUNK_BYTES = 64 * 1024;
const TAG_BYTES = 16;
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const LENGTH_BYTES = 4;
/** In a chunk's length: it is the last one. */
const LAST_FLAG = 2 ** 31;
const HEADER_BYTES_MAX = 4_096;
/** Cost of deriving a key: 32 MiB, and a tenth of a second. */
const SCRYPT = { N: 2 ** 15, r: 8, p: 1, maxmem: 128 * 1024 * 1024 } as const;

/** Header of a stream: readable without a key, but authenticated by it. */
export interface SealedHeader {
  readonly id: string;
  /** The stream that this one continues; null if it is complete by itself. */
  readonly base: string | null;
  /** The file key, encrypted with a key derived from the secret; null: the stream is not encrypted. */
  readonly key: { readonly salt: string; readonly wrapped: string } | null;
}

export type RandomBytes = (count: number) => Buffer;

/** A stream that cannot be read: what is wrong with it completes `Cannot read FILE: `. */
export class SealedStreamError extends Error {
  override readonly name = 'SealedStreamError';
}

/** Yields the stream of `source`, encrypted if there is a secret. */
export async function* sealStream(
  { id, base }: Pick<SealedHeader, 'id' | 'base'>,
  secret: Buffer | null,
  source: AsyncIterable<Uint8Array>,
  random: RandomBytes,
): AsyncGenerator<Buffer, void, undefined> {
  const fileKey = secret === null ? null : random(KEY_BYTES);
  const key = secret === null || fileKey === null ? null : await wrapKey(secret, fileKey, random);
  const text = Buffer.from(`${MAGIC}${JSON.stringify({ id, base, key } satisfies SealedHeader)}\n`);
  yield Buffer.concat([text, Buffer.from(`${headerTag(text, fileKey).toString('base64')}\n`)]);
  const chunks = chunkSealer(text, fileKey);
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  for await (const piece of source) {
    pending.push(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength));
    pendingBytes += piece.byteLength;
    // At least one byte remains: only the last chunk may be empty, and only if there is no other.
    if (pendingBytes <= CHUNK_BYTES) continue;
    const all = Buffer.concat(pending);
    let at = 0;
    for (; all.length - at > CHUNK_BYTES; at += CHUNK_BYTES)
      yield chunks.seal(all.subarray(at, at + CHUNK_BYTES), false);
    pending = [all.subarray(at)];
    pendingBytes = all.length - at;
  }
  yield chunks.seal(Buffer.concat(pending), true);
}

export interface SealedStream {
  /** Not authenticated before the stream is opened. */
  readonly header: SealedHeader;
  open(secret: Buffer | null): AsyncGenerator<Buffer, void, undefined>;
  close(): Promise<void>;
}

export async function readSealedHeader(source: AsyncIterable<Uint8Array>): Promise<SealedStream> {
  const bytes = new ByteReader(source);
  const magic = await bytes.line(MAGIC.length);
  if (`${magic}\n` !== MAGIC)
    throw new SealedStreamError('it is no backup of this program, or of a later release');
  const line = await bytes.line(HEADER_BYTES_MAX);
  const tag = await bytes.line(HEADER_BYTES_MAX);
  const header = parseHeader(line);
  const text = Buffer.from(`${MAGIC}${line}\n`);
  return {
    header,
    open: (secret) => openChunks(bytes, header, text, tag, secret),
    close: () => bytes.close(),
  };
}

async function* openChunks(
  bytes: ByteReader,
  { key }: SealedHeader,
  text: Buffer,
  tag: string,
  secret: Buffer | null,
): AsyncGenerator<Buffer, void, undefined> {
  if (key !== null && secret === null)
    throw new SealedStreamError('it is encrypted: give the key with --key-file, or a passphrase');
  if (key === null && secret !== null)
    throw new SealedStreamError('it is not encrypted, so anybody may have written it: leave out the key');
  const fileKey = key === null || secret === null ? null : await unwrapKey(secret, key);
  if (!isEqual(headerTag(text, fileKey), Buffer.from(tag, 'base64')))
    throw new SealedStreamError('its header is damaged');
  const chunks = chunkSealer(text, fileKey);
  for (let isLast = false; !isLast; ) {
    const prefix = await bytes.take(LENGTH_BYTES);
    const word = prefix.readUInt32BE(0);
    isLast = word >= LAST_FLAG;
    const length = isLast ? word - LAST_FLAG : word;
    if (length > CHUNK_BYTES) throw new SealedStreamError('it is damaged: a chunk is too long');
    yield chunks.open(await bytes.take(length), await bytes.take(TAG_BYTES), isLast);
  }
  if (!(await bytes.isAtEnd())) throw new SealedStreamError('there are bytes after its end');
}

interface ChunkSealer {
  seal(plain: Buffer, isLast: boolean): Buffer;
  open(sealed: Buffer, tag: Buffer, isLast: boolean): Buffer;
}

function chunkSealer(header: Buffer, fileKey: Buffer | null): ChunkSealer {
  const bound = createHash('sha256').update(header).digest();
  const key = fileKey === null ? null : derive(fileKey, bound, 'leasehold backup payload');
  let count = 0n;
  const nonceOf = (isLast: boolean): Buffer => {
    const nonce = Buffer.alloc(NONCE_BYTES);
    nonce.writeBigUInt64BE(count++, NONCE_BYTES - 1 - 8);
    nonce[NONCE_BYTES - 1] = isLast ? 1 : 0;
    return nonce;
  };
  const digest = (nonce: Buffer, plain: Buffer): Buffer =>
    createHash('sha256').update(bound).update(nonce).update(plain).digest().subarray(0, TAG_BYTES);
  return {
    seal(plain, isLast) {
      const prefix = Buffer.alloc(LENGTH_BYTES);
      prefix.writeUInt32BE(plain.length + (isLast ? LAST_FLAG : 0));
      const nonce = nonceOf(isLast);
      if (key === null) return Buffer.concat([prefix, plain, digest(nonce, plain)]);
      const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES });
      const sealed = Buffer.concat([cipher.update(plain), cipher.final()]);
      return Buffer.concat([prefix, sealed, cipher.getAuthTag()]);
    },
    open(sealed, tag, isLast) {
      const nonce = nonceOf(isLast);
      if (key === null) {
        if (isEqual(digest(nonce, sealed), tag)) return sealed;
      } else {
        const opened = decrypt(key, nonce, sealed, tag);
        if (opened !== null) return opened;
      }
      throw new SealedStreamError(`it is damaged: chunk ${count} is not what was written there`);
    },
  };
}

async function wrapKey(secret: Buffer, fileKey: Buffer, random: RandomBytes): Promise<SealedHeader['key']> {
  const salt = random(KEY_BYTES / 2);
  // The key of the salt encrypts nothing else, so the nonce may be constant.
  const cipher = createCipheriv(CIPHER, await deriveFromSecret(secret, salt), Buffer.alloc(NONCE_BYTES), {
    authTagLength: TAG_BYTES,
  });
  const wrapped = Buffer.concat([cipher.update(fileKey), cipher.final(), cipher.getAuthTag()]);
  return { salt: salt.toString('base64'), wrapped: wrapped.toString('base64') };
}

async function unwrapKey(secret: Buffer, key: NonNullable<SealedHeader['key']>): Promise<Buffer> {
  const wrapped = Buffer.from(key.wrapped, 'base64');
  if (wrapped.length !== KEY_BYTES + TAG_BYTES) throw new SealedStreamError('its header is damaged');
  const wrapping = await wrappingKey(secret, key.salt);
  const sealed = wrapped.subarray(0, KEY_BYTES);
  const fileKey = decrypt(wrapping, Buffer.alloc(NONCE_BYTES), sealed, wrapped.subarray(KEY_BYTES));
  if (fileKey === null)
    throw new SealedStreamError('the key or passphrase is another one, or its header is damaged');
  return fileKey;
}

function decrypt(key: Buffer, nonce: Buffer, sealed: Buffer, tag: Buffer): Buffer | null {
  const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES });
  decipher.setAuthTag(tag);
  try {
    return Buffer.concat([decipher.update(sealed), decipher.final()]);
  } catch {
    // The only failure there is: the tag is another one.
    return null;
  }
}

/** Each stream of a chain is opened twice: for its beginning, and to be read. */
const derived = new Map<string, Promise<Buffer>>();
const DERIVED_MAX = 10_000;

function wrappingKey(secret: Buffer, salt: string): Promise<Buffer> {
  const place = `${salt} ${createHash('sha256').update(secret).digest('hex')}`;
  const known = derived.get(place) ?? deriveFromSecret(secret, Buffer.from(salt, 'base64'));
  if (derived.size >= DERIVED_MAX) derived.clear();
  derived.set(place, known);
  return known;
}

function deriveFromSecret(secret: Buffer, salt: Buffer): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  scrypt(secret, salt, KEY_BYTES, SCRYPT, (error, key) => (error === null ? resolve(key) : reject(error)));
  return promise;
}

function derive(key: Buffer, salt: Buffer, use: string): Buffer {
  return Buffer.from(hkdfSync('sha256', key, salt, use, KEY_BYTES));
}

function headerTag(text: Buffer, fileKey: Buffer | null): Buffer {
  if (fileKey === null) return createHash('sha256').update(text).digest();
  const key = derive(fileKey, Buffer.alloc(0), 'leasehold backup header');
  return createHmac('sha256', key).update(text).digest();
}

function isEqual(a: Buffer, b: Buffer): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}

const ID = /^[0-9a-f]{32}$/;

function parseHeader(line: string): SealedHeader {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw new SealedStreamError('its header is damaged');
  }
  const { id, base, key } = (value ?? {}) as Readonly<Record<string, unknown>>;
  const { salt, wrapped } = (key ?? {}) as Readonly<Record<string, unknown>>;
  if (
    !(typeof id === 'string' && ID.test(id)) ||
    !(base === null || (typeof base === 'string' && ID.test(base))) ||
    !(key === null || (typeof salt === 'string' && typeof wrapped === 'string'))
  )
    throw new SealedStreamError('its header is damaged');
  return {
    id,
    base,
    key: typeof salt === 'string' && typeof wrapped === 'string' ? { salt, wrapped } : null,
  };
}

/** Reads exact numbers of bytes from a stream. @throws SealedStreamError if it ends before */
export class ByteReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  async take(count: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for (let left = count; left > 0; ) {
      if (this.#rest.length === 0 && !(await this.#more()))
        throw new SealedStreamError('it is truncated: its end is missing');
      const piece = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(piece.length);
      pieces.push(piece);
      left -= piece.length;
    }
    return pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces);
  }

  /** @returns the text up to the next line feed, which is skipped */
  async line(bytesMax: number): Promise<string> {
    const bytes: number[] = [];
    for (;;) {
      const byte = (await this.take(1))[0] as number;
      if (byte === 0x0a) return Buffer.from(bytes).toString();
      bytes.push(byte);
      if (bytes.length > bytesMax) throw new SealedStreamError('it is no backup of this program');
    }
  }

  async isAtEnd(): Promise<boolean> {
    return this.#rest.length === 0 && !(await this.#more());
  }

  async close(): Promise<void> {
    await this.#source.return?.();
  }

  async #more(): Promise<boolean> {
    while (this.#rest.length === 0) {
      const next = await this.#source.next();
      if (next.done) return false;
      this.#rest = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
    }
    return true;
  }
}

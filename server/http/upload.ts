import type { Readable } from 'node:stream';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import { WRITE_BYTES_MAX } from '../../wire/file-operation.ts';
import type { FileState } from '../../wire/http-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import type { BodyCheck } from './digests.ts';
import { Semaphore } from './semaphore.ts';

/** Size of one write, rounded to whole objects. */
const CHUNK_BYTES = 1024 * 1024;
/** Writes in flight of one upload: they keep the replicas busy while the next bytes arrive. */
const IN_FLIGHT_MAX = 4;
/** Writes in flight of all uploads; each holds a chunk in memory. */
const IN_FLIGHT_ALL_MAX = 32;
/** Concurrent uploads; each holds a chunk that is being filled. */
const UPLOADS_MAX = 64;
/** A staged file is not collected for this long, however short `--gc-grace` is. */
const IN_USE_MS = 60_000;
/** Between two renewals of that time; two may fail. */
const KEEP_ORPHAN_MS = 20_000;
/** A client that sends nothing for this long counts as disconnected. */
export const UPLOAD_IDLE_MS = 120_000;

/** A file, or a part of it: `end` is exclusive. */
export interface CopySource {
  readonly attributes: Attributes;
  /** Only in the version of `attributes`. */
  readonly exact?: true;
  readonly range?: { readonly start: number; readonly end: number };
}

/** Writes bodies to unlinked files in bounded memory: a client faster than the replicas is slowed by its connection. */
export class Uploads {
  readonly #gateway: Gateway;
  readonly #permits = new Semaphore(IN_FLIGHT_ALL_MAX);
  #active = 0;

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
  }

  get active(): number {
    return this.#active;
  }

  /**
   * Stores `body` in `file`, which is empty and has no other writer, and finishes it.
   * @throws ServiceError if the client disconnects, a digest differs or a write fails; the file is removed later
   */
  async store(file: Attributes, body: AsyncIterable<Buffer>, check: BodyCheck): Promise<FileState> {
    return this.#fillAndFinish(file, () =>
      this.#write(file.inode as FileId, chunkBytesOf(file.objectBytes), body, check),
    );
  }

  /** Fills `file` with the contents of `sources`, which its primary reads. @throws ServiceError `busy`: they change */
  async copy(file: Attributes, ...sources: readonly CopySource[]): Promise<FileState> {
    return this.#fillAndFinish(file, async () => {
      // One for all sources: once a file has forgotten a session, it refuses those that may be older.
      const session = { session: this.#gateway.drawSession(), number: 0 };
      let offset = 0;
      for (const source of sources) offset += await this.#copy(file.inode as FileId, session, source, offset);
      return offset;
    });
  }

  /** Flushes the file (or seals it, by the volume's policy), settles it, and checks its size. */
  async finish(file: Attributes, sizeBytes: number): Promise<FileState> {
    const inode = file.inode as FileId;
    if (file.policy === 'read-only') await this.#gateway.files.seal(inode);
    else if (sizeBytes > 0) await this.#gateway.files.flush(inode);
    const state = await this.#gateway.files.settle(inode);
    if (state.sizeBytes !== sizeBytes) {
      throw new ServiceError(
        'internal',
        `Only ${state.sizeBytes} of ${sizeBytes} bytes were stored: repeat the upload`,
      );
    }
    return state;
  }

  /** Keeps a staged file from being collected while `fill` writes it, then finishes it. */
  async #fillAndFinish(file: Attributes, fill: () => Promise<number>): Promise<FileState> {
    return this.runAsUpload(async () => {
      const renewal = this.#gateway.world.every(KEEP_ORPHAN_MS, () => this.#keep(file.inode as FileId));
      try {
        return await this.finish(file, await fill());
      } finally {
        renewal.cancel();
      }
    });
  }

  /** Counts work that holds a client's bytes as an upload. @throws ServiceError `busy` above the bound */
  async runAsUpload<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#active >= UPLOADS_MAX) {
      throw new ServiceError(
        'busy',
        `Too many uploads: ${UPLOADS_MAX} at this server, the maximum; retry later or use another server`,
      );
    }
    this.#active++;
    try {
      return await work();
    } finally {
      this.#active--;
    }
  }

  /**
   * Copies in pieces, and checks at the end that the source was of one version all the time.
   * @param last the session's last request; its number is advanced
   * @returns the bytes
   */
  async #copy(
    file: FileId,
    last: { readonly session: number; number: number },
    { attributes, exact, range }: CopySource,
    toOffset: number,
  ): Promise<number> {
    const { inode, snapshot } = attributes;
    const source = inode as FileId;
    const shown = snapshot === undefined ? {} : { snapshot };
    const before = await this.#gateway.files.state(source, shown);
    if (exact && contentVersionCompare(before.contents, attributes.contents) !== 0)
      throw changedSource(source);
    const { start, end } = range ?? { start: 0, end: before.sizeBytes };
    let offset = start;
    while (offset < end) {
      const order = {
        ...{ from: source, ...shown },
        ...{ fromOffset: offset, toOffset: toOffset + offset - start, length: end - offset },
      };
      const answered = last.number++;
      const request = { session: last.session, number: last.number, since: 0, answered };
      const { offset: reached } = await this.#gateway.files.copy(file, request, order);
      const next = reached - toOffset + start;
      if (next === offset) break;
      offset = next;
    }
    const after = await this.#gateway.files.state(source, shown);
    if (offset === end && contentVersionCompare(before.contents, after.contents) === 0) return end - start;
    throw changedSource(source);
  }

  async #write(
    file: FileId,
    chunkBytes: number,
    body: AsyncIterable<Buffer>,
    check: BodyCheck,
  ): Promise<number> {
    // No client has written the file, so its sequence ends at 0.
    const request = { session: this.#gateway.drawSession(), number: 0, since: 0 };
    const inFlight = new Set<Promise<unknown>>();
    let offset = 0;
    let failure: { readonly error: unknown } | null = null;
    for await (const bytes of chunksOf(body, chunkBytes)) {
      check.update(bytes);
      await this.#permits.acquire();
      request.number++;
      const write = this.#gateway.files
        .write(file, { ...request }, offset, bytes)
        .catch((error: unknown) => {
          failure ??= { error };
        })
        .finally(() => {
          this.#permits.release();
          inFlight.delete(write);
        });
      inFlight.add(write);
      offset += bytes.length;
      if (inFlight.size >= IN_FLIGHT_MAX) await Promise.race(inFlight);
      throwFailure(failure);
    }
    await Promise.all(inFlight);
    throwFailure(failure);
    check.check();
    return offset;
  }

  #keep(inode: FileId): void {
    const untilNs = inUseUntilNs(this.#gateway.world.wallMs());
    this.#gateway.command({ kind: 'keep-orphan', inode, untilNs }).catch((error: unknown) => {
      // While the catalog is unavailable, the next renewal or the final `replace` fails too.
      if (!(error instanceof ServiceError)) throw error;
    });
  }
}

/** Yields whole chunks, the last one shorter. `keepsRest`: yields the rest of a body that breaks off, then throws. */
export async function* chunksOf(
  body: AsyncIterable<Buffer>,
  chunkBytes: number,
  { keepsRest } = { keepsRest: false },
): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let partsBytes = 0;
  try {
    for await (const data of body) {
      let rest = data;
      while (partsBytes + rest.length >= chunkBytes) {
        const taken = chunkBytes - partsBytes;
        parts.push(rest.subarray(0, taken));
        rest = rest.subarray(taken);
        yield Buffer.concat(parts, chunkBytes);
        parts = [];
        partsBytes = 0;
      }
      if (rest.length > 0) parts.push(rest);
      partsBytes += rest.length;
    }
  } catch (error) {
    if (keepsRest && partsBytes > 0) yield Buffer.concat(parts, partsBytes);
    throw error;
  }
  if (partsBytes > 0) yield Buffer.concat(parts, partsBytes);
}

/** Yields a body, and does not destroy it if its reader stops early: the connection must carry the answer. */
export async function* iterateBody(body: Readable): AsyncGenerator<Buffer> {
  try {
    for await (const data of body.iterator({ destroyOnReturn: false })) yield data as Buffer;
  } catch (cause) {
    // Of a decoder of the body.
    if (cause instanceof ServiceError) throw cause;
    throw new ServiceError(
      'bad-request',
      'The body is incomplete: the connection ended early; send the request again',
      {},
      { cause },
    );
  }
}

export function chunkBytesOf(objectBytes: number): number {
  const objects = Math.max(1, Math.floor(CHUNK_BYTES / objectBytes));
  return Math.min(WRITE_BYTES_MAX, objects * objectBytes);
}

/** Until when the catalog keeps a staged file written at `wallMs`, in nanoseconds since 1970. */
export function inUseUntilNs(wallMs: number): string {
  return (BigInt(wallMs + IN_USE_MS) * 1_000_000n).toString();
}

function changedSource(source: number): ServiceError {
  return new ServiceError('busy', `File ${source} was changed while it was copied: retry`);
}

function throwFailure(failure: { readonly error: unknown } | null): void {
  if (failure !== null) throw failure.error;
}

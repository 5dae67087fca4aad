import type { Attributes, Command } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { FileHandle } from '../cluster/file-handle.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { BoundedTransfers } from './bounded-transfers.ts';
import { entityTag } from './entity-tag.ts';
import { whoami } from './whoami.ts';

const PIECE_BYTES = 1024 * 1024;
const PIECES_IN_FLIGHT_MAX = 4;
const KEEP_PERIOD_MS = 30_000;

export interface UploadOptions extends CallOptions {
  /** What must be at the path for the upload to take its place; default: anything or nothing. */
  readonly expect?: Extract<Command, { kind: 'replace' }>['expect'];
  /** Of a new file; a replaced one passes on its own. */
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly onProgress?: (bytes: number) => void;
}

export interface Upload {
  readonly attributes: Attributes;
  readonly replaced: number | null;
  readonly sizeBytes: number;
  readonly etag: string;
}

/** Stores a stream as the file at `path`, atomically and durably, whichever server fails meanwhile. */
export async function uploadFile(
  client: ClusterClient,
  volume: string,
  path: string,
  source: AsyncIterable<Uint8Array>,
  options: UploadOptions = {},
): Promise<Upload> {
  const { mode = 0o644, uid = 0, gid = 0, expect = { kind: 'anything' } } = options;
  const orphan = await client.command(
    { kind: 'create-orphan', volume, place: { volume, path }, mode, uid, gid },
    options,
  );
  const { inode, replicas, policy } = orphan.attributes;
  const file = client.openFile(inode, { replicas, name: `${volume}:${path}` });
  const keeper = new OrphanKeeper(client, inode, options);
  try {
    const sizeBytes = await writePieces(file, source, options, () => keeper.keep());
    await (policy === 'read-only' ? file.seal(options) : file.flush(options));
    await file.settle(options);
    await keeper.last;
    const { attributes, replaced } = await client.command(
      { kind: 'replace', place: { volume, path }, inode, expect, by: whoami() },
      options,
    );
    return { attributes, replaced, sizeBytes, etag: entityTag(attributes) };
  } catch (error) {
    // The servers collect the orphan; the error that matters is why it got no name.
    await Promise.allSettled([keeper.last]);
    throw error;
  }
}

/** Postpones the deletion of an orphan, a file without a name, while it is uploaded. */
class OrphanKeeper {
  readonly #client: ClusterClient;
  readonly #inode: number;
  readonly #options: CallOptions;
  #atMs: number;
  last: Promise<unknown> = Promise.resolve();

  constructor(client: ClusterClient, inode: number, options: CallOptions) {
    this.#client = client;
    this.#atMs = client.world.nowMs() + KEEP_PERIOD_MS;
    this.#inode = inode;
    this.#options = options;
  }

  keep(): void {
    if (this.#client.world.nowMs() < this.#atMs) return;
    this.#atMs = this.#client.world.nowMs() + KEEP_PERIOD_MS;
    this.last = this.#client.command({ kind: 'keep-orphan', inode: this.#inode }, this.#options);
    // Checked before the file gets its name; until then a failure must not count as unhandled.
    this.last.catch(() => {});
  }
}

async function writePieces(
  file: FileHandle,
  source: AsyncIterable<Uint8Array>,
  options: UploadOptions,
  onPiece: () => void,
): Promise<number> {
  const writes = new BoundedTransfers(PIECES_IN_FLIGHT_MAX);
  let offset = 0;
  let acknowledgedBytes = 0;
  try {
    for await (const piece of inPieces(source)) {
      const at = offset;
      await writes.begin(async () => {
        await file.write(at, piece, options);
        acknowledgedBytes += piece.length;
        options.onProgress?.(acknowledgedBytes);
      });
      offset += piece.length;
      onPiece();
    }
  } finally {
    await writes.end();
  }
  return offset;
}

async function* inPieces(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  let piece = Buffer.allocUnsafe(PIECE_BYTES);
  let filled = 0;
  for await (const chunk of source) {
    let taken = 0;
    while (taken < chunk.length) {
      const count = Math.min(PIECE_BYTES - filled, chunk.length - taken);
      piece.set(chunk.subarray(taken, taken + count), filled);
      filled += count;
      taken += count;
      if (filled < PIECE_BYTES) continue;
      yield piece;
      piece = Buffer.allocUnsafe(PIECE_BYTES);
      filled = 0;
    }
  }
  if (filled > 0) yield piece.subarray(0, filled);
}

import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { FileState } from '../../wire/http-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { FileHandle } from '../cluster/file-handle.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { entityTag } from './entity-tag.ts';
import { prefetch } from './prefetch.ts';

const PIECE_BYTES = 1024 * 1024;
const PIECES_IN_FLIGHT_MAX = 4;

export interface Download {
  readonly attributes: Attributes;
  readonly sizeBytes: number;
  readonly etag: string;
  /** If the contents change in place meanwhile, it fails with `precondition-failed`: the bytes may be mixed. */
  readonly chunks: AsyncGenerator<Uint8Array, void, undefined>;
}

/** Begins to read the file at `path`; the bytes come from `chunks`. */
export async function downloadFile(
  client: ClusterClient,
  volume: string,
  path: string,
  options: CallOptions = {},
): Promise<Download> {
  const attributes = await client.resolve(volume, path, options);
  if (attributes.kind === 'directory') {
    throw new ServiceError('is-directory', `Cannot read ${volume}:${path}: it is a directory`);
  }
  if (attributes.kind !== 'file') {
    throw new ServiceError('bad-request', `Cannot read ${volume}:${path}: it is a ${attributes.kind}`);
  }
  const file = client.openFile(attributes.inode, { ...attributes, name: `${volume}:${path}` });
  const state = await file.state(options);
  return {
    attributes,
    sizeBytes: state.sizeBytes,
    etag: entityTag({ inode: attributes.inode, contents: state.contents }),
    chunks: readPieces(file, state, `${volume}:${path}`, options),
  };
}

async function* readPieces(
  file: FileHandle,
  before: FileState,
  name: string,
  options: CallOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  const offsets = function* (): Generator<number> {
    for (let offset = 0; offset < before.sizeBytes; offset += PIECE_BYTES) yield offset;
  };
  const lengthAt = (offset: number): number => Math.min(PIECE_BYTES, before.sizeBytes - offset);
  let yielded = 0;
  const pieces = prefetch(offsets(), PIECES_IN_FLIGHT_MAX, (offset) =>
    file.read(offset, lengthAt(offset), options),
  );
  for await (const { bytes } of pieces) {
    if (bytes.length !== lengthAt(yielded)) throw changed(name);
    yielded += bytes.length;
    yield bytes;
  }
  const after = await file.state(options);
  const { epoch, seq } = before.contents;
  if (after.contents.epoch !== epoch || after.contents.seq !== seq) throw changed(name);
}

function changed(name: string): ServiceError {
  return new ServiceError('precondition-failed', `Cannot read ${name}: it changed while it was being read`);
}

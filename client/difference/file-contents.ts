import type { Attributes } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { FileHandle } from '../cluster/file-handle.ts';
import { generalFailure } from '../terminal/failure.ts';
import { prefetch } from '../transfer/prefetch.ts';
import type { CallOptions } from '../transport/exchange.ts';
import type { ContentsPiece } from './difference-records.ts';

export const PIECE_BYTES = 1024 * 1024;
const PIECES_AHEAD = 4;

/** Yields the data of a file as a snapshot shows it, in order, without its holes. */
export async function* fileContents(
  client: ClusterClient,
  file: Attributes,
  call: CallOptions,
): AsyncGenerator<ContentsPiece, void, undefined> {
  const { inode, sizeBytes } = file;
  if (sizeBytes === 0) return;
  const handle = client.openFile(inode, file);
  const ranges =
    sizeBytes <= PIECE_BYTES ? [{ offset: 0, length: sizeBytes }] : dataRanges(handle, sizeBytes, call);
  yield* prefetch(piecesOf(ranges), PIECES_AHEAD, async ({ offset, length }) => {
    const { bytes } = await handle.read(offset, length, call);
    if (bytes.length === length) return { offset, bytes };
    throw generalFailure(
      `Cannot read file ${inode}: a server returned ${bytes.length} bytes instead of ${length}`,
    );
  });
}

interface Range {
  readonly offset: number;
  readonly length: number;
}

async function* dataRanges(
  handle: FileHandle,
  sizeBytes: number,
  call: CallOptions,
): AsyncGenerator<Range, void, undefined> {
  for (let at = 0; at < sizeBytes; ) {
    const { found: begin } = await handle.extent(at, 'data', call);
    if (begin === null || begin >= sizeBytes) return;
    const { found: hole } = await handle.extent(begin, 'hole', call);
    const end = Math.min(sizeBytes, hole === null || hole <= begin ? sizeBytes : hole);
    yield { offset: begin, length: end - begin };
    at = end;
  }
}

async function* piecesOf(
  ranges: AsyncIterable<Range> | Iterable<Range>,
): AsyncGenerator<Range, void, undefined> {
  for await (const { offset, length } of ranges)
    for (let at = 0; at < length; at += PIECE_BYTES)
      yield { offset: offset + at, length: Math.min(PIECE_BYTES, length - at) };
}

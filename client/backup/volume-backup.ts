import { ServiceError } from '../../base/errors.ts';
import type { Attributes, ContentVersion } from '../../wire/catalog-api.ts';
import type { AttachedAt } from '../../wire/junctions.ts';
import type { DataRange } from '../archive/archive-reader.ts';
import { type ArchiveEntry, type ArchiveKind, BLOCK_BYTES, headersOf, paddingOf } from '../archive/pax.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { FileHandle } from '../cluster/file-handle.ts';
import { prefetch } from '../transfer/prefetch.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { type Found, walk } from './walk.ts';

/** One read, all of one state. */
const PIECE_BYTES = 1024 * 1024;
const PIECES_AHEAD = 4;
const MEMBERS_AHEAD = 16;
const ATTEMPTS_MAX = 3;

export interface BackupReport {
  members: number;
  dataBytes: number;
  readAgain: number;
  /** Files that changed in each attempt: the archive has a mixture of several states. */
  readonly torn: string[];
  readonly leftOut: string[];
  /** The tree ends there: the archive has empty directories. */
  readonly junctions: AttachedAt[];
}

export function emptyReport(): BackupReport {
  return { members: 0, dataBytes: 0, readAgain: 0, torn: [], leftOut: [], junctions: [] };
}

type Prepared =
  | { readonly kind: 'removed' | 'socket'; readonly path: string }
  | { readonly kind: 'member'; readonly entry: ArchiveEntry; readonly data: Uint8Array }
  | { readonly kind: 'large'; readonly found: Found; readonly xattrs: ArchiveEntry['xattrs'] };

const KINDS: Readonly<Record<Exclude<Attributes['kind'], 'socket'>, ArchiveKind>> = {
  file: 'file',
  directory: 'directory',
  symlink: 'symlink',
  fifo: 'fifo',
  character: 'character',
  block: 'block',
};

/**
 * Archives a directory tree, in pieces. Each file is one version of itself: one that changed while it was read follows
 * once more, and the last of several members of one name counts, as in tar. Names are as of the listing of their
 * directory: the whole is one state only if nothing changes meanwhile, or if the source is a snapshot.
 */
export async function* backup(
  client: ClusterClient,
  top: Attributes,
  report: BackupReport,
  call: CallOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  const linked = new Map<number, string>();
  const found = prefetch(walk(client, top, call), MEMBERS_AHEAD, (one) => {
    const { path, attributes } = one;
    if (attributes.junction !== undefined)
      report.junctions.push({ path, volume: attributes.junction.volume });
    return prepare(client, one, linked, call);
  });
  for await (const prepared of found) {
    switch (prepared.kind) {
      case 'removed':
        break;
      case 'socket':
        report.leftOut.push(prepared.path);
        break;
      case 'member':
        report.members += 1;
        report.dataBytes += prepared.data.length;
        yield headersOf(prepared.entry);
        yield prepared.data;
        yield Buffer.alloc(paddingOf(prepared.data.length));
        break;
      case 'large':
        yield* largeFile(client, prepared.found, prepared.xattrs, report, call);
        break;
    }
  }
  yield Buffer.alloc(2 * BLOCK_BYTES);
}

/** Reads what an entry's member needs, ahead of its turn: of a small file, also the contents. */
async function prepare(
  client: ClusterClient,
  found: Found,
  linked: Map<number, string>,
  call: CallOptions,
): Promise<Prepared> {
  const { path, attributes } = found;
  const { kind, inode } = attributes;
  if (kind === 'socket') return { kind: 'socket', path };
  const empty = new Uint8Array(0);
  if (kind !== 'directory' && attributes.links > 1) {
    const first = linked.get(inode);
    if (first !== undefined) {
      if (attributes.snapshot === undefined && (await isRemoved(client, inode, call)))
        return { kind: 'removed', path };
      const entry = { ...entryFor(found, new Map(), 0), kind: 'link', target: first } as const;
      return { kind: 'member', entry, data: empty };
    }
    linked.set(inode, path);
  }
  try {
    const xattrs = await xattrsOf(client, attributes, call);
    if (kind !== 'file') return { kind: 'member', entry: entryFor(found, xattrs, 0), data: empty };
    if (attributes.sizeBytes > PIECE_BYTES) return { kind: 'large', found, xattrs };
    const file = client.openFile(inode, attributes);
    const { bytes, sizeBytes } = await file.read(0, PIECE_BYTES, call);
    if (sizeBytes > bytes.length) return { kind: 'large', found, xattrs };
    return { kind: 'member', entry: entryFor(found, xattrs, bytes.length), data: bytes };
  } catch (error) {
    // Removed since its directory was read, as if that had been read later.
    if (error instanceof ServiceError && error.code === 'not-found') return { kind: 'removed', path };
    throw error;
  }
}

async function isRemoved(client: ClusterClient, inode: number, call: CallOptions): Promise<boolean> {
  const { inodes } = await client.query({ kind: 'existing', inodes: [inode] }, call);
  return inodes.length === 0;
}

/** Archives a large file; again, as a further member, if it changed while it was read. */
async function* largeFile(
  client: ClusterClient,
  found: Found,
  xattrs: ArchiveEntry['xattrs'],
  report: BackupReport,
  call: CallOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  const file = client.openFile(found.attributes.inode, found.attributes);
  for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
    const before = await file.state(call);
    const ranges = await rangesOf(file, before.sizeBytes, call);
    const dense = ranges.length === 1 && ranges[0]?.length === before.sizeBytes;
    const map = dense ? Buffer.alloc(0) : mapOf(ranges, before.sizeBytes);
    const dataBytes = ranges.reduce((sum, { length }) => sum + length, map.length);
    report.members += 1;
    report.dataBytes += dataBytes - map.length;
    yield headersOf({
      ...entryFor(found, xattrs, dataBytes),
      modifiedNs: isSame(before.contents, found.attributes.contents)
        ? found.attributes.modifiedNs
        : before.modifiedNs,
      sparseBytes: dense ? null : before.sizeBytes,
    });
    yield map;
    for (const range of ranges) yield* dataOf(file, range, call);
    yield Buffer.alloc(paddingOf(dataBytes));
    const { contents } = await file.state(call);
    if (isSame(contents, before.contents)) return;
    if (attempt < ATTEMPTS_MAX) report.readAgain += 1;
  }
  report.torn.push(found.path);
}

function isSame(a: ContentVersion, b: ContentVersion): boolean {
  return a.epoch === b.epoch && a.seq === b.seq;
}

/** Yields exactly `length` bytes, zeros in place of those removed meanwhile: then the member is archived again. */
async function* dataOf(
  file: FileHandle,
  { offset, length }: DataRange,
  call: CallOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  function* pieceRanges(): Generator<DataRange, void, undefined> {
    for (let at = 0; at < length; at += PIECE_BYTES)
      yield { offset: offset + at, length: Math.min(PIECE_BYTES, length - at) };
  }
  const pieces = prefetch(pieceRanges(), PIECES_AHEAD, async (place) => {
    const { bytes } = await file.read(place.offset, place.length, call);
    return bytes.length === place.length
      ? bytes
      : Buffer.concat([bytes, Buffer.alloc(place.length - bytes.length)]);
  });
  yield* pieces;
}

async function rangesOf(file: FileHandle, sizeBytes: number, call: CallOptions): Promise<DataRange[]> {
  const ranges: DataRange[] = [];
  for (let at = 0; at < sizeBytes; ) {
    const { found: begin } = await file.extent(at, 'data', call);
    if (begin === null || begin >= sizeBytes) break;
    const { found: hole } = await file.extent(begin, 'hole', call);
    const end = Math.min(sizeBytes, hole === null || hole <= begin ? sizeBytes : hole);
    ranges.push({ offset: begin, length: end - begin });
    at = end;
  }
  return ranges;
}

/** Sparse map of GNU tar, format 1.0, which precedes the data; an empty range at the end gives the file's size. */
function mapOf(ranges: readonly DataRange[], sizeBytes: number): Buffer {
  const all = [...ranges, { offset: sizeBytes, length: 0 }];
  const numbers = [all.length, ...all.flatMap(({ offset, length }) => [offset, length])];
  const text = Buffer.from(numbers.map((one) => `${one}\n`).join(''));
  return Buffer.concat([text, Buffer.alloc(paddingOf(text.length))]);
}

function entryFor(
  { path, attributes }: Found,
  xattrs: ArchiveEntry['xattrs'],
  dataBytes: number,
): ArchiveEntry {
  const { kind, mode, uid, gid, modifiedNs, target, device } = attributes;
  if (kind === 'socket') throw new Error('A socket has no place in an archive');
  return {
    kind: KINDS[kind],
    path,
    ...{ mode, uid, gid, modifiedNs, target, device, dataBytes, xattrs },
    sparseBytes: null,
  };
}

async function xattrsOf(
  client: ClusterClient,
  { inode, snapshot }: Attributes,
  call: CallOptions,
): Promise<Map<string, Uint8Array>> {
  const scope = snapshot === undefined ? {} : { snapshot };
  const { names } = await client.query({ kind: 'xattrs', inode, ...scope }, call);
  const xattrs = new Map<string, Uint8Array>();
  for (const name of names) {
    const { value } = await client.query({ kind: 'xattr', inode, name, ...scope }, call);
    xattrs.set(name, Buffer.from(value, 'base64'));
  }
  return xattrs;
}

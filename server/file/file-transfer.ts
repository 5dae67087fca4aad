import { readEpoch, writeEpoch } from '../../replica/codec.ts';
import type { Position } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { ByteReader, ByteWriter, MalformedError } from '../../wire/bytes.ts';
import { SEALS, type Seal, viewFormat, viewParse } from '../../wire/file-operation.ts';
import { type Digest, type DigestNode, FAN_OUT, type Version } from '../storage/object-digests.ts';
import type { ObjectEntry } from '../storage/object-entry.ts';
import type { FetchedObject, FileAttributes } from '../storage/store.ts';

export const WANTED_MAX = 256;
/** A few milliseconds of work, also for the leaves that are examined. */
export const PAGE_ENTRIES_MAX = 2_048;
export const NODES_MAX = 256;
export const RANGES_MAX = 128;

/** `objects` depends on no state: it has exact versions. Decoders throw MalformedError. */
export const METHODS = {
  compare: 'compare',
  changes: 'changes',
  digests: 'digests',
  entries: 'entries',
  objects: 'objects',
} as const;

/** Entries in ascending order, and the object at which further results may begin; null if there are none. */
export interface EntryPage {
  readonly entries: readonly ObjectEntry[];
  readonly next: number | null;
}

/** A state at one instant, abridged for a replica that has most of it. */
export interface Comparison {
  readonly position: Position;
  readonly view: View;
  readonly sessions: Uint8Array;
  readonly attributes: FileAttributes;
  readonly total: Digest;
  readonly height: number;
  /** Objects that changed after the version that the asking replica has; only the first ones, if there are many. */
  readonly changes: EntryPage;
  readonly objects: readonly FetchedObject[];
}

export interface IndexRange {
  readonly first: number;
  readonly last: number;
}

export function encodeKnown({ epoch, seq }: Version): Uint8Array {
  return new ByteWriter(16).uint53(epoch).uint53(seq).finish();
}

export function decodeKnown(bytes: Uint8Array): Version {
  const reader = new ByteReader(bytes);
  const known = { epoch: reader.uint53(), seq: reader.uint53() };
  reader.end();
  return known;
}

export function encodeComparison(comparison: Comparison): Uint8Array {
  const { position, view, sessions, attributes, total, height, changes, objects } = comparison;
  const bytes = objects.reduce((sum, object) => sum + 16 + object.bytes.length, 0);
  const writer = new ByteWriter(512 + sessions.length + changes.entries.length * 16 + bytes);
  writeEpoch(writer, position.epoch).uint53(position.seq);
  writer.text(viewFormat(view)).bytes(sessions);
  writer.uint53(attributes.sizeBytes).text(attributes.modifiedNs.toString());
  writer.uint53(attributes.versionEpoch).uint53(attributes.versionSeq);
  writer.uint32(attributes.objectBytes).uint8(attributes.dead ? 1 : 0);
  writer.uint8(SEALS.indexOf(attributes.seal));
  writeDigest(writer, total).uint8(height);
  writePage(writer, changes);
  const places = new Map(changes.entries.map((entry, place) => [entry, place]));
  writer.varint(objects.length);
  for (const object of objects) {
    writer.varint(places.get(object.entry) as number).bytes(object.bytes);
  }
  return writer.finish();
}

export function decodeComparison(bytes: Uint8Array): Comparison {
  const reader = new ByteReader(bytes);
  const position = { epoch: readEpoch(reader), seq: reader.uint53() };
  const view = viewParse(reader.text()) as View;
  const sessions = reader.bytes().slice();
  const attributes: FileAttributes = {
    sizeBytes: reader.uint53(),
    modifiedNs: readNanoseconds(reader),
    versionEpoch: reader.uint53(),
    versionSeq: reader.uint53(),
    objectBytes: reader.uint32(),
    dead: reader.uint8() === 1,
    seal: readSeal(reader),
  };
  if (attributes.objectBytes === 0) throw new MalformedError('The object size is missing');
  const total = readDigest(reader);
  const height = reader.uint8();
  const changes = readPage(reader);
  const objects: FetchedObject[] = [];
  for (let left = reader.varint(); left > 0; left--) {
    const entry = changes.entries[reader.varint()];
    if (entry === undefined) throw new MalformedError('An object without an entry');
    objects.push({ entry, bytes: reader.bytes() });
  }
  reader.end();
  return { position, view, sessions, attributes, total, height, changes, objects };
}

export function encodeSince(known: Version, from: number): Uint8Array {
  return new ByteWriter(24).uint53(known.epoch).uint53(known.seq).uint53(from).finish();
}

export function decodeSince(bytes: Uint8Array): { readonly known: Version; readonly from: number } {
  const reader = new ByteReader(bytes);
  const asked = { known: { epoch: reader.uint53(), seq: reader.uint53() }, from: reader.uint53() };
  reader.end();
  return asked;
}

export function encodePage(page: EntryPage): Uint8Array {
  const writer = new ByteWriter(16 + page.entries.length * 16);
  writePage(writer, page);
  return writer.finish();
}

export function decodePage(bytes: Uint8Array): EntryPage {
  const reader = new ByteReader(bytes);
  const page = readPage(reader);
  reader.end();
  return page;
}

export function encodeNodes(level: number, numbers: readonly number[]): Uint8Array {
  const writer = new ByteWriter(8 + numbers.length * 4).uint8(level).varint(numbers.length);
  for (const number of numbers) writer.varint(number);
  return writer.finish();
}

export function decodeNodes(bytes: Uint8Array): DigestNode[] {
  const reader = new ByteReader(bytes);
  const level = reader.uint8();
  if (level === 0) throw new MalformedError('Children of a leaf were requested');
  const count = reader.varint();
  if (count > NODES_MAX) throw new MalformedError(`${count} nodes are asked for at once`);
  const nodes = Array.from({ length: count }, () => ({ level, number: reader.varint() }));
  reader.end();
  return nodes;
}

export function encodeDigests(digests: readonly Digest[]): Uint8Array {
  const writer = new ByteWriter(digests.length * 8);
  for (const digest of digests) writeDigest(writer, digest);
  return writer.finish();
}

export function decodeDigests(bytes: Uint8Array, nodeCount: number): Digest[] {
  const reader = new ByteReader(bytes);
  const digests = Array.from({ length: nodeCount * FAN_OUT }, () => readDigest(reader));
  reader.end();
  return digests;
}

export function encodeRanges(ranges: readonly IndexRange[]): Uint8Array {
  const writer = new ByteWriter(8 + ranges.length * 16).varint(ranges.length);
  for (const { first, last } of ranges) writer.varint(first).varint(last - first);
  return writer.finish();
}

export function decodeRanges(bytes: Uint8Array): IndexRange[] {
  const reader = new ByteReader(bytes);
  const count = reader.varint();
  if (count > RANGES_MAX) throw new MalformedError(`${count} ranges are asked for at once`);
  let before = -1;
  const ranges: IndexRange[] = [];
  for (let left = count; left > 0; left--) {
    const first = reader.varint();
    const last = first + reader.varint();
    if (first <= before || !Number.isSafeInteger(last)) throw new MalformedError('Ranges are out of order');
    ranges.push({ first, last });
    before = last;
  }
  reader.end();
  return ranges;
}

export function encodeWanted(entries: readonly ObjectEntry[]): Uint8Array {
  const writer = new ByteWriter(8 + entries.length * 16);
  writeEntries(writer, entries);
  return writer.finish();
}

export function decodeWanted(bytes: Uint8Array): ObjectEntry[] {
  const reader = new ByteReader(bytes);
  const entries = readEntries(reader, WANTED_MAX);
  reader.end();
  return entries;
}

/** Contents in the requested order; null if the object is not here in that version. */
export function encodeObjects(objects: readonly (Uint8Array | null)[]): Uint8Array {
  const size = objects.reduce((sum, bytes) => sum + 5 + (bytes?.length ?? 0), 0);
  const writer = new ByteWriter(size);
  for (const bytes of objects) {
    writer.uint8(bytes === null ? 0 : 1);
    if (bytes !== null) writer.bytes(bytes);
  }
  return writer.finish();
}

export function decodeObjects(bytes: Uint8Array, count: number): (Uint8Array | null)[] {
  const reader = new ByteReader(bytes);
  const objects = Array.from({ length: count }, () => (reader.uint8() === 1 ? reader.bytes() : null));
  reader.end();
  return objects;
}

function writePage(writer: ByteWriter, { entries, next }: EntryPage): void {
  writer.uint8(next === null ? 0 : 1);
  if (next !== null) writer.varint(next);
  writeEntries(writer, entries);
}

function readPage(reader: ByteReader): EntryPage {
  const next = reader.uint8() === 1 ? reader.varint() : null;
  return { next, entries: readEntries(reader, PAGE_ENTRIES_MAX) };
}

/** Indices are stored as differences between neighbors: about a dozen bytes an entry. */
function writeEntries(writer: ByteWriter, entries: readonly ObjectEntry[]): void {
  writer.varint(entries.length);
  let before = -1;
  for (const entry of entries) {
    writer
      .varint(entry.index - before - 1)
      .varint(entry.versionEpoch)
      .varint(entry.versionSeq);
    writer.varint(entry.length).uint32(entry.crc32);
    before = entry.index;
  }
}

function readEntries(reader: ByteReader, countMax: number): ObjectEntry[] {
  const count = reader.varint();
  if (count > countMax) throw new MalformedError(`${count} entries at once`);
  let before = -1;
  return Array.from({ length: count }, () => {
    const index = before + 1 + reader.varint();
    if (!Number.isSafeInteger(index)) throw new MalformedError('Object index out of range');
    before = index;
    return {
      index,
      versionEpoch: reader.varint(),
      versionSeq: reader.varint(),
      length: reader.varint(),
      crc32: reader.uint32(),
    };
  });
}

function writeDigest(writer: ByteWriter, { low, high }: Digest): ByteWriter {
  return writer.uint32(low).uint32(high);
}

function readDigest(reader: ByteReader): Digest {
  return { low: reader.uint32(), high: reader.uint32() };
}

function readSeal(reader: ByteReader): Seal {
  const code = reader.uint8();
  const seal = SEALS[code];
  if (seal === undefined) throw new MalformedError(`A seal of kind ${code}`);
  return seal;
}

function readNanoseconds(reader: ByteReader): bigint {
  const text = reader.text();
  if (!/^-?[0-9]{1,20}$/.test(text)) throw new MalformedError(`Invalid time "${text}"`);
  return BigInt(text);
}

import type { ReplicaRecord } from '../../replica/actions.ts';
import { readEpoch, writeEpoch } from '../../replica/codec.ts';
import { ByteReader, ByteWriter, MalformedError } from '../../wire/bytes.ts';
import { viewFormat, viewParse } from '../../wire/file-operation.ts';
import type { FetchedObject, FileAttributes, FileDescription, ObjectEntry } from '../storage/store.ts';

/** Bytes of one object entry in a description. */
const ENTRY_BYTES = 32;
/** Objects in one answer at the most. */
const WANTED_MAX = 1024;

/** Up to where contents are known already: a version as objects have it. */
export interface Known {
  readonly epoch: number;
  readonly seq: number;
}

/** The answer to `describe`: the beginning of the description, and newest objects with their bytes as of that instant. */
export interface Described {
  /** By this number the rest of the description is asked for. */
  readonly id: number;
  /** Bytes of the whole description. */
  readonly totalBytes: number;
  readonly piece: Uint8Array;
  readonly objects: readonly FetchedObject[];
}

export function encodeKnown({ epoch, seq }: Known): Uint8Array {
  return new ByteWriter(16).uint53(epoch).uint53(seq).finish();
}

/** @throws MalformedError */
export function decodeKnown(bytes: Uint8Array): Known {
  const reader = new ByteReader(bytes);
  const known = { epoch: reader.uint53(), seq: reader.uint53() };
  reader.end();
  return known;
}

export function encodeDescribed({ id, totalBytes, piece, objects }: Described): Uint8Array {
  const size = objects.reduce((sum, { bytes }) => sum + ENTRY_BYTES + 4 + bytes.length, 32 + piece.length);
  const writer = new ByteWriter(size).uint53(id).uint53(totalBytes).bytes(piece).uint32(objects.length);
  for (const { entry, bytes } of objects) {
    writeEntry(writer, entry);
    writer.bytes(bytes);
  }
  return writer.finish();
}

/** @throws MalformedError */
export function decodeDescribed(bytes: Uint8Array): Described {
  const reader = new ByteReader(bytes);
  const id = reader.uint53();
  const totalBytes = reader.uint53();
  const piece = reader.bytes();
  const objects: FetchedObject[] = [];
  for (let left = reader.uint32(); left > 0; left--) {
    objects.push({ entry: readEntry(reader), bytes: reader.bytes() });
  }
  reader.end();
  return { id, totalBytes, piece, objects };
}

/** Which part of a description is asked for. */
export function encodePiece(id: number, offset: number): Uint8Array {
  return new ByteWriter(16).uint53(id).uint53(offset).finish();
}

/** @throws MalformedError */
export function decodePiece(bytes: Uint8Array): { readonly id: number; readonly offset: number } {
  const reader = new ByteReader(bytes);
  const asked = { id: reader.uint53(), offset: reader.uint53() };
  reader.end();
  return asked;
}

/** A file's state at one instant, without the contents of its objects. */
export function encodeDescription(description: FileDescription): Uint8Array {
  const { record, attributes, objects } = description;
  const writer = new ByteWriter(256 + record.sessions.length + objects.length * ENTRY_BYTES);
  writer.text(viewFormat(record.view));
  writeEpoch(writer, record.promised);
  writeEpoch(writer, record.installed);
  writer.uint53(record.seq).bytes(record.sessions);
  writer.uint53(attributes.sizeBytes).text(attributes.modifiedNs.toString());
  writer.uint53(attributes.versionEpoch).uint53(attributes.versionSeq);
  writer.uint32(attributes.objectBytes).uint8(attributes.dead ? 1 : 0);
  writer.uint32(objects.length);
  for (const entry of objects) writeEntry(writer, entry);
  return writer.finish();
}

/** @throws MalformedError */
export function decodeDescription(bytes: Uint8Array): FileDescription {
  const reader = new ByteReader(bytes);
  const record: ReplicaRecord = {
    view: viewParse(reader.text()),
    promised: readEpoch(reader),
    installed: readEpoch(reader),
    seq: reader.uint53(),
    sessions: reader.bytes().slice(),
  };
  const attributes: FileAttributes = {
    sizeBytes: reader.uint53(),
    modifiedNs: readNanoseconds(reader),
    versionEpoch: reader.uint53(),
    versionSeq: reader.uint53(),
    objectBytes: reader.uint32(),
    dead: reader.uint8() === 1,
  };
  const count = reader.uint32();
  if (count * ENTRY_BYTES !== reader.remaining)
    throw new MalformedError(`${count} object entries do not fit`);
  const objects = Array.from({ length: count }, () => readEntry(reader));
  reader.end();
  return { record, attributes, objects };
}

/** Which objects are asked for, each in exactly one version. */
export function encodeWanted(entries: readonly ObjectEntry[]): Uint8Array {
  const writer = new ByteWriter(4 + entries.length * ENTRY_BYTES).uint32(entries.length);
  for (const entry of entries) writeEntry(writer, entry);
  return writer.finish();
}

/** @throws MalformedError */
export function decodeWanted(bytes: Uint8Array): ObjectEntry[] {
  const reader = new ByteReader(bytes);
  const count = reader.uint32();
  if (count > WANTED_MAX) throw new MalformedError(`${count} objects are asked for at once`);
  const entries = Array.from({ length: count }, () => readEntry(reader));
  reader.end();
  return entries;
}

/** Contents in the order they were asked for; null where the object no longer has that version. */
export function encodeObjects(objects: readonly (Uint8Array | null)[]): Uint8Array {
  const size = objects.reduce((sum, bytes) => sum + 5 + (bytes?.length ?? 0), 0);
  const writer = new ByteWriter(size);
  for (const bytes of objects) {
    writer.uint8(bytes === null ? 0 : 1);
    if (bytes !== null) writer.bytes(bytes);
  }
  return writer.finish();
}

/** @throws MalformedError */
export function decodeObjects(bytes: Uint8Array, count: number): (Uint8Array | null)[] {
  const reader = new ByteReader(bytes);
  const objects = Array.from({ length: count }, () => (reader.uint8() === 1 ? reader.bytes() : null));
  reader.end();
  return objects;
}

function writeEntry(writer: ByteWriter, entry: ObjectEntry): void {
  writer.uint53(entry.index).uint53(entry.versionEpoch).uint53(entry.versionSeq);
  writer.uint32(entry.length).uint32(entry.crc32);
}

function readEntry(reader: ByteReader): ObjectEntry {
  return {
    index: reader.uint53(),
    versionEpoch: reader.uint53(),
    versionSeq: reader.uint53(),
    length: reader.uint32(),
    crc32: reader.uint32(),
  };
}

function readNanoseconds(reader: ByteReader): bigint {
  const text = reader.text();
  if (!/^-?[0-9]{1,20}$/.test(text)) throw new MalformedError(`"${text}" is no time`);
  return BigInt(text);
}

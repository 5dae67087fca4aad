import { type FileId, isFileId, isServerId, type ServerId } from '../base/ids.ts';
import { ByteReader, ByteWriter, MalformedError } from './bytes.ts';

/** A change of a file's contents, resolved by its primary: the same bytes and times at every replica. */
export type FileOperation =
  /** Writes from `offset` on; extends the file if needed, with zeros in a gap. */
  | {
      readonly kind: 'write';
      readonly offset: number;
      readonly bytes: Uint8Array;
      readonly modifiedNs: bigint;
    }
  /** Writes several ranges in order, atomically for readers. */
  | { readonly kind: 'write-parts'; readonly parts: readonly WritePart[]; readonly modifiedNs: bigint }
  | { readonly kind: 'truncate'; readonly sizeBytes: number; readonly modifiedNs: bigint }
  /**
   * A hole from `from` to before `to`. The size stays, or with `grows` becomes at least `to`; an empty growing range
   * extends a file without a race with appends.
   */
  | {
      readonly kind: 'punch';
      readonly from: number;
      readonly to: number;
      readonly grows: boolean;
      readonly modifiedNs: bigint;
    }
  /** The file is deleted: no contents, no further change. */
  | { readonly kind: 'delete' }
  /**
   * Freezes the contents; only `delete` still has an effect. Sequenced twice: `final` once the first one survives power
   * loss at a majority. A replica with the final seal knows that no other contents can be acknowledged.
   */
  | { readonly kind: 'seal'; readonly final: boolean }
  /** The primary is about to report the size to the catalog; the next write must report first. */
  | { readonly kind: 'settling' }
  /** Keeps contents of this version for good as file `as`, on each replica without any of it. The file itself stays. */
  | { readonly kind: 'preserve'; readonly as: FileId; readonly contents: ContentVersion }
  /** These servers hold the replicas from here on. */
  | { readonly kind: 'view'; readonly view: SequencedView };

interface ContentVersion {
  readonly epoch: number;
  readonly seq: number;
}

export interface WritePart {
  readonly offset: number;
  readonly bytes: Uint8Array;
}

/** `final`: the contents cannot change, and every replica may rely on that alone. */
export type Seal = 'open' | 'sealed' | 'final';

export const SEALS: readonly Seal[] = ['open', 'sealed', 'final'];

const POLICIES = ['quorum', 'all', 'read-only'] as const;

export interface SequencedView {
  readonly number: number;
  readonly members: readonly ServerId[];
  readonly joint?: readonly ServerId[];
  readonly policy?: (typeof POLICIES)[number];
}

/** Bytes of one write operation. */
export const WRITE_BYTES_MAX = 4 * 1024 * 1024;

export const WRITE_PARTS_MAX = 256;

export const WRITE_PARTS_BYTES_MAX = WRITE_BYTES_MAX + 2 + 12 * WRITE_PARTS_MAX;

/** Largest file size: offsets and sizes stay exact numbers. */
export const FILE_BYTES_MAX = Number.MAX_SAFE_INTEGER;

const TAG_WRITE = 1;
const TAG_TRUNCATE = 2;
const TAG_DELETE = 3;
const TAG_VIEW = 4;
const TAG_SEAL = 5;
const TAG_SETTLING = 6;
const TAG_PUNCH = 7;
const TAG_WRITE_PARTS = 8;
const TAG_PRESERVE = 9;

/** Header of a write: tag, offset, time, length. */
export const WRITE_HEAD_BYTES = 1 + 8 + 12 + 4;
/** Memory of `allocateWriteBuffer` whose space for a header is unused: one operation takes it. */
const withUnusedHeader = new WeakSet<ArrayBufferLike>();

/** @returns uncleared memory for bytes to write, with space for the header before it, to save a copy */
export function allocateWriteBuffer(sizeBytes: number): Buffer {
  const whole = Buffer.allocUnsafeSlow(WRITE_HEAD_BYTES + sizeBytes);
  withUnusedHeader.add(whole.buffer);
  return whole.subarray(WRITE_HEAD_BYTES);
}

/** Encodes an operation; without a copy if its bytes are from `allocateWriteBuffer`. */
export function encodeFileOperation(operation: FileOperation): Uint8Array {
  switch (operation.kind) {
    case 'write': {
      const { bytes, offset, modifiedNs } = operation;
      const whole = takeHeaderSpace(bytes);
      const writer = new ByteWriter(WRITE_HEAD_BYTES + (whole === null ? bytes.length : 0));
      writeTime(writer.uint8(TAG_WRITE).uint53(offset), modifiedNs).uint32(bytes.length);
      if (whole === null) return writer.raw(bytes).finish();
      whole.set(writer.finish());
      return whole;
    }
    case 'write-parts': {
      const { parts, modifiedNs } = operation;
      const writer = new ByteWriter(32 + partsBytes(parts)).uint8(TAG_WRITE_PARTS);
      return putParts(writeTime(writer, modifiedNs), parts).finish();
    }
    case 'truncate': {
      const writer = new ByteWriter(32).uint8(TAG_TRUNCATE).uint53(operation.sizeBytes);
      return writeTime(writer, operation.modifiedNs).finish();
    }
    case 'punch': {
      const { from, to, grows, modifiedNs } = operation;
      const writer = new ByteWriter(32)
        .uint8(TAG_PUNCH)
        .uint53(from)
        .uint53(to)
        .uint8(grows ? 1 : 0);
      return writeTime(writer, modifiedNs).finish();
    }
    case 'delete':
      return Uint8Array.of(TAG_DELETE);
    case 'seal':
      return Uint8Array.of(TAG_SEAL, operation.final ? 1 : 0);
    case 'settling':
      return Uint8Array.of(TAG_SETTLING);
    case 'preserve': {
      const { as, contents } = operation;
      return new ByteWriter(32)
        .uint8(TAG_PRESERVE)
        .uint53(as)
        .uint53(contents.epoch)
        .uint53(contents.seq)
        .finish();
    }
    case 'view':
      return new ByteWriter(128).uint8(TAG_VIEW).text(viewFormat(operation.view)).finish();
  }
}

/** @returns the memory with the space for the header; null if the bytes have none, or not any more */
function takeHeaderSpace({ buffer, byteOffset, byteLength }: Uint8Array): Uint8Array | null {
  const isWhole = byteOffset === WRITE_HEAD_BYTES && byteOffset + byteLength === buffer.byteLength;
  return isWhole && withUnusedHeader.delete(buffer) ? new Uint8Array(buffer) : null;
}

/** @returns the ranges that the operation writes, in order */
export function partsWritten(operation: FileOperation): readonly WritePart[] {
  if (operation.kind === 'write') return [operation];
  return operation.kind === 'write-parts' ? operation.parts : [];
}

/** The body of a request that writes several ranges. */
export function encodeWriteParts(parts: readonly WritePart[]): Uint8Array {
  return putParts(new ByteWriter(partsBytes(parts)), parts).finish();
}

/** Decodes parts; their bytes are views into `encoded`. @throws MalformedError */
export function decodeWriteParts(encoded: Uint8Array): WritePart[] {
  const reader = new ByteReader(encoded);
  const parts = readParts(reader);
  reader.end();
  return parts;
}

function putParts(writer: ByteWriter, parts: readonly WritePart[]): ByteWriter {
  writer.uint16(parts.length);
  for (const { offset, bytes } of parts) writer.uint53(offset).bytes(bytes);
  return writer;
}

function partsBytes(parts: readonly WritePart[]): number {
  return parts.reduce((sum, { bytes }) => sum + 12 + bytes.length, 2);
}

function readParts(reader: ByteReader): WritePart[] {
  const count = reader.uint16();
  if (count === 0 || count > WRITE_PARTS_MAX) throw new MalformedError(`A write of ${count} parts`);
  const parts = Array.from({ length: count }, () => readPart(reader));
  const byteCount = parts.reduce((sum, { bytes }) => sum + bytes.length, 0);
  if (byteCount > WRITE_BYTES_MAX) throw new MalformedError(`A write of ${byteCount} bytes`);
  return parts;
}

function readPart(reader: ByteReader): WritePart {
  const offset = reader.uint53();
  return checkedPart({ offset, bytes: reader.bytes() });
}

function checkedPart(part: WritePart): WritePart {
  const { offset, bytes } = part;
  if (bytes.length === 0 || bytes.length > WRITE_BYTES_MAX) {
    throw new MalformedError(`A write of ${bytes.length} bytes`);
  }
  if (offset + bytes.length > FILE_BYTES_MAX) throw new MalformedError('A write beyond the largest file');
  return part;
}

export function viewFormat(view: SequencedView): string {
  return JSON.stringify(view);
}

/** Parses a view from JSON, and checks its form. @throws MalformedError */
export function viewParse(text: string): SequencedView {
  let view: unknown;
  try {
    view = JSON.parse(text);
  } catch (cause) {
    throw new MalformedError('A view is not JSON', { cause });
  }
  if (typeof view !== 'object' || view === null) throw new MalformedError('A view is no object');
  const { number, members, joint, policy } = view as Record<string, unknown>;
  if (!Number.isSafeInteger(number) || (number as number) < 0)
    throw new MalformedError('A view has no number');
  if (!areServers(members) || !(joint === undefined || areServers(joint)))
    throw new MalformedError('A view has no members');
  if (!(policy === undefined || POLICIES.some((known) => known === policy)))
    throw new MalformedError('A view has a policy that is unknown');
  return view as SequencedView;
}

function areServers(value: unknown): value is ServerId[] {
  return Array.isArray(value) && value.every((member) => typeof member === 'string' && isServerId(member));
}

/** Decodes an operation; a write's bytes are a view into `encoded`. @throws MalformedError */
export function decodeFileOperation(encoded: Uint8Array): FileOperation {
  const reader = new ByteReader(encoded);
  const operation = readOperation(reader);
  reader.end();
  return operation;
}

function readOperation(reader: ByteReader): FileOperation {
  const tag = reader.uint8();
  switch (tag) {
    case TAG_WRITE: {
      const offset = reader.uint53();
      const modifiedNs = readTime(reader);
      return { kind: 'write', ...checkedPart({ offset, bytes: reader.bytes() }), modifiedNs };
    }
    case TAG_WRITE_PARTS: {
      const modifiedNs = readTime(reader);
      return { kind: 'write-parts', parts: readParts(reader), modifiedNs };
    }
    case TAG_TRUNCATE:
      return { kind: 'truncate', sizeBytes: reader.uint53(), modifiedNs: readTime(reader) };
    case TAG_PUNCH: {
      const from = reader.uint53();
      const to = reader.uint53();
      if (from > to) throw new MalformedError(`A hole from ${from} to ${to}`);
      const grows = reader.uint8();
      if (grows > 1) throw new MalformedError(`A hole that grows the file ${grows} times`);
      return { kind: 'punch', from, to, grows: grows === 1, modifiedNs: readTime(reader) };
    }
    case TAG_DELETE:
      return { kind: 'delete' };
    case TAG_SEAL: {
      const final = reader.uint8();
      if (final > 1) throw new MalformedError(`A seal of kind ${final}`);
      return { kind: 'seal', final: final === 1 };
    }
    case TAG_SETTLING:
      return { kind: 'settling' };
    case TAG_PRESERVE: {
      const as = reader.uint53();
      if (!isFileId(as)) throw new MalformedError(`Contents are preserved as file ${as}`);
      return { kind: 'preserve', as, contents: { epoch: reader.uint53(), seq: reader.uint53() } };
    }
    case TAG_VIEW:
      return { kind: 'view', view: viewParse(reader.text()) };
    default:
      throw new MalformedError(`File operation tag ${tag} is unknown`);
  }
}

function writeTime(writer: ByteWriter, timeNs: bigint): ByteWriter {
  return writer.uint53(Number(timeNs / 1_000_000_000n)).uint32(Number(timeNs % 1_000_000_000n));
}

function readTime(reader: ByteReader): bigint {
  const seconds = BigInt(reader.uint53());
  const nanoseconds = reader.uint32();
  if (nanoseconds >= 1_000_000_000) throw new MalformedError('Nanoseconds of a whole second or more');
  return seconds * 1_000_000_000n + BigInt(nanoseconds);
}

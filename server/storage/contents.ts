import { assert, unreachable } from '../../base/assert.ts';
import { crc32 } from '../../platform/crc32.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { ReplicaRecord, Trust } from '../../replica/record.ts';
import type { View } from '../../replica/view.ts';
import { type FileOperation, partsWritten, type Seal } from '../../wire/file-operation.ts';
import type { ObjectEntry } from './object-entry.ts';
import type { FileAttributes, FileDifference, NewTrust } from './store.ts';

/** Everything about a replica but its objects. Immutable. */
export interface FileState {
  readonly record: ReplicaRecord;
  readonly attributes: FileAttributes;
  /** Epoch counter and sequence number of the last operation that changed the size. */
  readonly sizeEpoch: number;
  readonly sizeSeq: number;
  /** The file from whose container this one borrows objects; 0 if it borrows none. */
  readonly lender: number;
  /** Start counter of the folder when the base was installed here, or `LOST_START`; see `trustOf`. */
  readonly installedStart: number;
}

/** Bytes of a write within one object, at offset `at` in the object. */
export interface Piece {
  readonly index: number;
  readonly at: number;
  readonly bytes: Uint8Array;
}

/** Bytes that an operation removes; `to` is Infinity if the file ends at `from`. */
export interface Removed {
  readonly from: number;
  readonly to: number;
}

export const EPOCH_ZERO = { counter: 0, server: '', incarnation: 0 } as unknown as Epoch;

/** `installedStart` of a replica that may have replaced one of which nothing is left. */
export const LOST_START = -1;
/** `installedStart` of a replica that may have been lost with the power: any start before that. */
const MISSED_START = 0;

export function installedStartOfNew(trust: NewTrust, startCounter: number): number {
  return trust === 'lost' ? LOST_START : trust === 'suspect' ? MISSED_START : startCounter;
}

export function trustOf(installedStart: number, powerLossStart: number): Trust {
  if (installedStart === LOST_START) return 'lost';
  return installedStart < powerLossStart ? 'suspect' : 'intact';
}

export function fileStateNew(view: View, objectBytes: number, installedStart: number): FileState {
  assert(Number.isSafeInteger(objectBytes) && objectBytes > 0, 'Objects have a size');
  return {
    record: { view, promised: EPOCH_ZERO, installed: EPOCH_ZERO, seq: 0, sessions: new Uint8Array(0) },
    attributes: {
      sizeBytes: 0,
      modifiedNs: 0n,
      versionEpoch: 0,
      versionSeq: 0,
      objectBytes,
      dead: false,
      seal: 'open',
    },
    sizeEpoch: 0,
    sizeSeq: 0,
    lender: 0,
    installedStart,
  };
}

/**
 * State of the file that preserves another's contents: final, and at a position that follows from their version, so
 * that all replicas are equal. Its epoch is later than those of all objects.
 * @returns null if the contents have another version, or the members are changing: then nothing is preserved
 */
export function fileStatePreserved(
  { record, attributes, sizeEpoch, sizeSeq }: FileState,
  { contents }: Extract<FileOperation, { kind: 'preserve' }>,
  lender: number,
  startCounter: number,
): FileState | null {
  const isSameVersion = attributes.versionEpoch === contents.epoch && attributes.versionSeq === contents.seq;
  const [server] = record.view.members;
  if (!isSameVersion || attributes.dead || record.view.joint !== undefined || server === undefined)
    return null;
  const epoch: Epoch = { counter: contents.epoch + 1, server, incarnation: 1 as Epoch['incarnation'] };
  return {
    record: { view: record.view, promised: epoch, installed: epoch, seq: 1, sessions: new Uint8Array(0) },
    attributes: { ...attributes, seal: 'final' },
    sizeEpoch,
    sizeSeq,
    lender,
    installedStart: startCounter,
  };
}

/** State after operation `seq` of the installed epoch; one that does not apply (`operationApplies`) only counts. */
export function fileStateApply(
  state: FileState,
  seq: number,
  operation: FileOperation,
  sessions: Uint8Array,
): FileState {
  assert(seq === state.record.seq + 1, `Operation ${seq} follows operation ${state.record.seq}`);
  const record = { ...state.record, seq, sessions };
  const { attributes } = state;
  if (operation.kind === 'view') return { ...state, record: { ...record, view: operation.view } };
  if (operation.kind === 'seal') {
    const seal: Seal = operation.final || attributes.seal === 'final' ? 'final' : 'sealed';
    return { ...state, record, attributes: { ...attributes, seal } };
  }
  if (operation.kind === 'settling' || operation.kind === 'preserve') return { ...state, record };
  if (!operationApplies(attributes, operation)) return { ...state, record };
  const sizeBytes = sizeAfter(attributes.sizeBytes, operation);
  const versionEpoch = record.installed.counter;
  const next: FileAttributes = {
    sizeBytes,
    modifiedNs: operation.kind === 'delete' ? attributes.modifiedNs : operation.modifiedNs,
    versionEpoch,
    versionSeq: seq,
    objectBytes: attributes.objectBytes,
    dead: operation.kind === 'delete',
    seal: attributes.seal,
  };
  const resized = sizeBytes !== attributes.sizeBytes || partsWritten(operation).length === 0;
  return {
    record,
    attributes: next,
    sizeEpoch: resized ? versionEpoch : state.sizeEpoch,
    sizeSeq: resized ? seq : state.sizeSeq,
    lender: state.lender,
    installedStart: state.installedStart,
  };
}

/** State after an installation in `epoch`. @param base another replica's state; null if the replica keeps its own */
export function fileStateInstall(
  state: FileState,
  epoch: Epoch,
  seq: number,
  sessions: Uint8Array,
  base: Pick<FileDifference, 'record' | 'attributes'> | null,
  startCounter: number,
): FileState {
  const attributes = base?.attributes ?? state.attributes;
  assert(attributes.objectBytes === state.attributes.objectBytes, 'All replicas have the same object size');
  // The view is part of the sequence, and so of the base.
  const view = base?.record.view ?? state.record.view;
  return {
    record: { ...state.record, view, installed: epoch, seq, sessions },
    attributes,
    // A base does not say which operation changed the size last; it is at most the last change.
    sizeEpoch: base === null ? state.sizeEpoch : attributes.versionEpoch,
    sizeSeq: base === null ? state.sizeSeq : attributes.versionSeq,
    lender: state.lender,
    installedStart: startCounter,
  };
}

/** @returns whether the operation may change contents: in a dead or sealed file it only takes a sequence number */
export function operationApplies(attributes: FileAttributes, operation: FileOperation): boolean {
  return !attributes.dead && (attributes.seal === 'open' || operation.kind === 'delete');
}

export function sizeAfter(sizeBytes: number, operation: FileOperation): number {
  switch (operation.kind) {
    case 'write':
    case 'write-parts':
      return partsWritten(operation).reduce(
        (size, { offset, bytes }) => Math.max(size, offset + bytes.length),
        sizeBytes,
      );
    case 'truncate':
      return operation.sizeBytes;
    case 'punch':
      return operation.grows ? Math.max(sizeBytes, operation.to) : sizeBytes;
    case 'delete':
      return 0;
    // Operations that change no bytes.
    case 'seal':
    case 'settling':
    case 'preserve':
    case 'view':
      return sizeBytes;
    default:
      return unreachable(operation);
  }
}

/** @returns the bytes that the operation removes from a file of this size; null if it removes none */
export function removedBy(operation: FileOperation, sizeBytes: number): Removed | null {
  switch (operation.kind) {
    case 'delete':
      return { from: 0, to: Infinity };
    case 'truncate':
      return operation.sizeBytes < sizeBytes ? { from: operation.sizeBytes, to: Infinity } : null;
    case 'punch': {
      const { from, to } = operation;
      if (from >= Math.min(to, sizeBytes)) return null;
      // No object has bytes beyond the end, so a hole that reaches it removes the same bytes.
      return { from, to: to >= sizeBytes ? Infinity : to };
    }
    case 'write':
    case 'write-parts':
    case 'seal':
    case 'settling':
    case 'preserve':
    case 'view':
      return null;
    default:
      return unreachable(operation);
  }
}

/** @returns the objects that are removed whole, and those at the edges of which bytes may stay */
export function objectsRemoved(
  { from, to }: Removed,
  objectBytes: number,
): { readonly first: number; readonly last: number; readonly edges: readonly number[] } {
  const first = Math.ceil(from / objectBytes);
  const last = to === Infinity ? Number.MAX_SAFE_INTEGER : Math.floor(to / objectBytes) - 1;
  const edges = new Set<number>();
  if (from % objectBytes !== 0) edges.add(first - 1);
  if (to !== Infinity && to % objectBytes !== 0) edges.add(last + 1);
  return { first, last, edges: [...edges] };
}

/** @returns the removed part of an object, as offsets within it; empty if `from` is not below `to` */
export function removedWithin(
  { from, to }: Removed,
  index: number,
  length: number,
  objectBytes: number,
): Removed {
  const begin = index * objectBytes;
  return { from: Math.max(0, from - begin), to: Math.min(length, to - begin) };
}

/**
 * An object without some of its bytes: a removal at its end shortens it, elsewhere zeros replace the bytes. A function
 * of object and range alone, so that all replicas have the same bytes. @returns a copy
 */
export function bytesWithout(bytes: Uint8Array, removed: Removed): Uint8Array {
  // `slice` of a Buffer is a view, and the zeros would be in both.
  if (removed.to === bytes.length) return new Uint8Array(bytes.subarray(0, removed.from));
  return new Uint8Array(bytes).fill(0, removed.from, removed.to);
}

export function* writePieces(offset: number, bytes: Uint8Array, objectBytes: number): Generator<Piece> {
  assert(bytes.length > 0, 'A write has bytes');
  let index = Math.floor(offset / objectBytes);
  let at = offset - index * objectBytes;
  let from = 0;
  while (from < bytes.length) {
    const count = Math.min(objectBytes - at, bytes.length - from);
    yield { index, at, bytes: bytes.subarray(from, from + count) };
    from += count;
    index++;
    at = 0;
  }
}

export function sameObject(a: ObjectEntry, b: ObjectEntry): boolean {
  return (
    a.versionEpoch === b.versionEpoch &&
    a.versionSeq === b.versionSeq &&
    a.length === b.length &&
    a.crc32 === b.crc32
  );
}

/** @returns bytes of the entry's length that do not have its checksum, for an object whose bytes no replica has */
export function mismatchingBytes({ length, crc32: sum }: ObjectEntry): Uint8Array {
  const bytes = new Uint8Array(length);
  if (crc32(bytes) === sum) bytes.fill(0xff);
  return bytes;
}

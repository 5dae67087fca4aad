/**
 * One replica's copy of a small file, in objects of a few bytes with a checksum each. What operations do to its
 * attributes, and which of them still have an effect, the servers' own code decides; so it does for which bytes an
 * operation needs. Objects are replaced, never changed, and may rot.
 */
import { crc32 } from 'node:zlib';
import { assert } from '../../base/assert.ts';
import type { FileId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { Operation } from '../../replica/operation.ts';
import type { View } from '../../replica/view.ts';
import { crc32Of } from '../../server/storage/checksum.ts';
import {
  bytesWithout,
  type FileState,
  fileStateApply,
  fileStateNew,
  fileStatePreserved,
  operationApplies,
  type Removed,
  removedBy,
  removedWithin,
  writePieces,
} from '../../server/storage/contents.ts';
import { ObjectDraft } from '../../server/storage/object-draft.ts';
import type { ObjectEntry } from '../../server/storage/object-entry.ts';
import type { FileAttributes } from '../../server/storage/store.ts';
import {
  decodeFileOperation,
  type FileOperation,
  partsWritten,
  type Seal,
} from '../../wire/file-operation.ts';
import { type Contents, type Logged, operationRequest } from './system-contents.ts';

export const OBJECT_BYTES = 8;

/** Looks at the whole file; a number looks at one object. */
export const WHOLE_FILE = 'file';

const NO_SESSIONS = new Uint8Array();
const NO_VIEW = { number: 0, members: [] };

interface StoredObject {
  readonly entry: ObjectEntry;
  /** As they lie on the disk, and as they were written. */
  readonly bytes: Uint8Array;
  readonly written: Uint8Array;
}

/** The contents of the file as another's, final. */
export interface Preserved {
  readonly as: FileId;
  readonly state: FileState;
  /** What it is to show. */
  readonly text: string;
  /** What it shows, of objects that may rot. */
  readonly contents: FileContents;
}

export class FileContents implements Contents {
  readonly log: Logged[];
  #state: FileState;
  readonly #objects: Map<number, StoredObject>;

  constructor(of?: FileContents) {
    this.log = of?.log.slice() ?? [];
    this.#state = of === undefined ? fileStateNew(NO_VIEW, OBJECT_BYTES, 1) : of.#state;
    this.#objects = new Map(of === undefined ? [] : of.#objects);
  }

  get attributes(): FileAttributes {
    return this.#state.attributes;
  }

  get seal(): Seal {
    return this.attributes.seal;
  }

  copy(): FileContents {
    return new FileContents(this);
  }

  apply(operation: Operation, epoch: Epoch, seq: number): void {
    this.log.push({ request: operationRequest(operation), operation, epoch });
    const change = changeOf(operation);
    const before = this.attributes;
    const record = { ...this.#state.record, installed: epoch, seq: seq - 1 };
    this.#state = fileStateApply({ ...this.#state, record }, seq, change, NO_SESSIONS);
    if (!operationApplies(before, change)) return;
    const version = { versionEpoch: epoch.counter, versionSeq: seq };
    for (const draft of this.#drafts(change, version.versionSeq)) this.#write(draft, version);
    const removed = removedBy(change, before.sizeBytes);
    if (removed !== null) this.#remove(removed, version);
  }

  #write(draft: ObjectDraft, version: Pick<ObjectEntry, 'versionEpoch' | 'versionSeq'>): void {
    const { index } = draft;
    const base = this.#objects.get(index);
    if (base !== undefined && draft.needsBase) this.#assertSound(base);
    const { kind, buffers, length } = draft.finish(draft.needsBase ? (base?.bytes ?? null) : null);
    const begun = kind === 'append' ? base : undefined;
    const bytes = Buffer.concat([begun?.bytes ?? NO_SESSIONS, ...buffers]);
    assert(bytes.length === length, 'An object has the bytes that were drafted');
    const written = Buffer.concat([begun?.written ?? NO_SESSIONS, ...buffers]);
    const entry = { index, ...version, length, crc32: draft.checksum() };
    this.#objects.set(index, { entry, bytes, written });
  }

  /** The next version of each object that the operation writes: all that it has for it, put together. */
  #drafts(change: FileOperation, seq: number): ObjectDraft[] {
    const drafts = new Map<number, ObjectDraft>();
    const pieces = partsWritten(change).flatMap(({ offset, bytes }) => [
      ...writePieces(offset, bytes, OBJECT_BYTES),
    ]);
    for (const { index, at, bytes } of pieces) {
      const base = this.#objects.get(index);
      const draft =
        drafts.get(index) ?? new ObjectDraft(index, base === undefined ? null : { ...base.entry, slot: 0 });
      draft.add(at, bytes, seq);
      drafts.set(index, draft);
    }
    return [...drafts.values()];
  }

  #remove(removed: Removed, version: Pick<ObjectEntry, 'versionEpoch' | 'versionSeq'>): void {
    for (const { entry, bytes } of [...this.#objects.values()]) {
      const { index } = entry;
      const part = removedWithin(removed, index, entry.length, OBJECT_BYTES);
      if (part.from >= part.to) continue;
      if (part.from === 0 && part.to === entry.length) {
        this.#objects.delete(index);
        continue;
      }
      this.#assertSound(this.#objects.get(index) as StoredObject);
      const left = bytesWithout(bytes, part);
      const after = { index, ...version, length: left.length, crc32: crc32Of([left]) };
      this.#objects.set(index, { entry: after, bytes: left, written: left });
    }
  }

  /** Objects that lose some of their bytes to the operation, and keep others. */
  #cutBy(change: FileOperation): number[] {
    const removed = removedBy(change, this.attributes.sizeBytes);
    if (removed === null) return [];
    return this.indices.filter((index) => {
      const { length } = this.entry(index) as ObjectEntry;
      const { from, to } = removedWithin(removed, index, length, OBJECT_BYTES);
      return from < to && to - from < length;
    });
  }

  #assertSound({ entry, bytes }: StoredObject): void {
    assert(isSound(entry, bytes), 'Whoever applies an operation has seen to what it needs');
  }

  // Objects ----------------------------------------------------------------------------------------

  get indices(): number[] {
    return [...this.#objects.keys()];
  }

  entry(index: number): ObjectEntry | null {
    return this.#objects.get(index)?.entry ?? null;
  }

  /** Whether exactly this object is here, whole or not. */
  has(wanted: ObjectEntry): boolean {
    const entry = this.entry(wanted.index);
    return entry !== null && isSame(entry, wanted);
  }

  /** @returns the bytes of exactly this object, or null where it is not here, or not whole */
  soundBytes(wanted: ObjectEntry): Uint8Array | null {
    const object = this.#objects.get(wanted.index);
    if (object === undefined || !isSame(object.entry, wanted)) return null;
    return isSound(object.entry, object.bytes) ? object.bytes : null;
  }

  isDamaged(index: number): boolean {
    const entry = this.entry(index);
    return entry !== null && this.soundBytes(entry) === null;
  }

  /** Of the object nothing but its entry is here. */
  lose(index: number): void {
    if (!this.isDamaged(index)) this.rot(index);
  }

  /** A bit of the object flips. */
  rot(index: number): void {
    const object = this.#objects.get(index);
    if (object === undefined) return;
    // A copy: `slice` would copy nothing where these bytes are a Buffer.
    const bytes = new Uint8Array(object.written);
    bytes[0] = (bytes[0] as number) ^ 1;
    this.#objects.set(index, { ...object, bytes });
  }

  /** What was written is there again. */
  restore(index: number): void {
    const object = this.#objects.get(index);
    if (object !== undefined) this.#objects.set(index, { ...object, bytes: object.written });
  }

  /** Another replica's bytes take the place of those that are here. */
  repair(entry: ObjectEntry, bytes: Uint8Array): void {
    assert(this.has(entry) && isSound(entry, bytes), 'An object is repaired by its own bytes');
    this.#objects.set(entry.index, { entry, bytes, written: bytes });
  }

  /** Of what is here as well as there, the bytes are those from there, rotten or not. */
  keepBytesOf(other: FileContents, isKept: (index: number) => boolean = () => true): void {
    for (const [index, object] of other.#objects) {
      if (this.has(object.entry) && isKept(index)) this.#objects.set(index, object);
    }
  }

  /** @returns a copy in which nothing has rotted */
  asWritten(): FileContents {
    const copy = this.copy();
    for (const index of copy.indices) copy.restore(index);
    return copy;
  }

  /** Objects whose bytes the operation needs, because it changes a part of them. */
  neededBy(operation: Operation): number[] {
    const change = changeOf(operation);
    if (!operationApplies(this.attributes, change)) return [];
    const drafts = this.#drafts(change, 0);
    if (drafts.length === 0) return this.#cutBy(change);
    return drafts.filter(({ needsBase }) => needsBase).map(({ index }) => index);
  }

  /** Objects that the answer to a look shows. */
  shownBy(what: string): number[] {
    return what === WHOLE_FILE ? this.indices : this.indices.filter((index) => index === Number(what));
  }

  // What is seen -----------------------------------------------------------------------------------

  /** By what the objects are to be, rotten or not. */
  digest(): number {
    const { sizeBytes, seal } = this.attributes;
    let digest = crc32(`${sizeBytes} ${seal}`);
    for (const index of this.indices.sort((a, b) => a - b)) {
      const entry = this.entry(index);
      digest = crc32(`${index} ${entry?.versionSeq} ${entry?.length} ${entry?.crc32}`, digest);
    }
    return digest;
  }

  /** @returns what the operation makes of the contents as they are now; null where nothing is preserved */
  preservedBy(operation: Operation, view: View): Preserved | null {
    if (operation.view !== undefined) return null;
    const change = decodeFileOperation(operation.body);
    if (change.kind !== 'preserve') return null;
    const record = { ...this.#state.record, view };
    const state = fileStatePreserved({ ...this.#state, record }, change, 0, 1);
    if (state === null) return null;
    return { as: change.as, state, text: this.asWritten().look(WHOLE_FILE), contents: this.copy() };
  }

  look(what: string): string {
    const begin = what === WHOLE_FILE ? 0 : Number(what) * OBJECT_BYTES;
    const end = what === WHOLE_FILE ? this.attributes.sizeBytes : begin + OBJECT_BYTES;
    const bytes = new Uint8Array(end - begin);
    for (const index of this.shownBy(what)) {
      bytes.set(this.#objects.get(index)?.bytes ?? NO_SESSIONS, index * OBJECT_BYTES - begin);
    }
    return Buffer.from(bytes).toString('latin1');
  }

  dependsOn(what: string, counter: number): number {
    // An object that is not there has no number that would tell of the hole: the last change of the size stands for it.
    let seq = this.#state.sizeEpoch === counter ? this.#state.sizeSeq : 0;
    for (const index of this.shownBy(what)) {
      const entry = this.entry(index);
      if (entry?.versionEpoch === counter) seq = Math.max(seq, entry.versionSeq);
    }
    return seq;
  }
}

function changeOf({ body, view }: Operation): FileOperation {
  return view === undefined ? decodeFileOperation(body) : { kind: 'view', view };
}

function isSound(entry: ObjectEntry, bytes: Uint8Array): boolean {
  return bytes.length === entry.length && crc32(bytes) === entry.crc32;
}

function isSame(a: ObjectEntry, b: ObjectEntry): boolean {
  return (
    a.versionEpoch === b.versionEpoch &&
    a.versionSeq === b.versionSeq &&
    a.length === b.length &&
    a.crc32 === b.crc32
  );
}

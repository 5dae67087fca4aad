import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import { crc32 } from '../../platform/crc32.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { epochEqual, POSITION_ZERO } from '../../replica/epoch.ts';
import type { ReplicaRecord, Trust } from '../../replica/record.ts';
import type { View } from '../../replica/view.ts';
import {
  bytesWithout,
  type FileState,
  fileStateApply,
  fileStateInstall,
  fileStateNew,
  fileStatePreserved,
  installedStartOfNew,
  mismatchingBytes,
  operationApplies,
  type Removed,
  removedBy,
  removedWithin,
  sameObject,
  trustOf,
  writePieces,
} from '../../server/storage/contents.ts';
import { ObjectDigests } from '../../server/storage/object-digests.ts';
import type { ObjectEntry } from '../../server/storage/object-entry.ts';
import { RecordChanges } from '../../server/storage/record-changes.ts';
import type {
  FetchedObject,
  FileAttributes,
  FileDifference,
  FileStore,
  FirstState,
  NewReplica,
  NewTrust,
  StoreSpace,
} from '../../server/storage/store.ts';
import { type FileOperation, partsWritten } from '../../wire/file-operation.ts';

/** An object is never changed, only replaced: so a reader keeps what it saw, for as long as it likes. */
interface MemoryObject {
  readonly entry: ObjectEntry;
  readonly bytes: Uint8Array;
}

interface MemoryFile {
  state: FileState;
  objects: Map<number, MemoryObject>;
  /** Indices in ascending order; null while they are unknown. */
  ordered: readonly number[] | null;
  digests: ObjectDigests;
  readonly staged: Map<number, MemoryObject>;
  /** Settles when the last call made so far has taken effect. */
  tail: Promise<void>;
}

/** A store without a disk, for tests: the same interface, the same order of effects, nothing survives. */
export class MemoryStore implements FileStore {
  readonly failure = null;
  readonly recordChanges = new RecordChanges();
  readonly #files = new Map<FileId, MemoryFile>();
  #closed = false;

  record(file: FileId): ReplicaRecord | null {
    return this.#find(file)?.state.record ?? null;
  }

  trust(file: FileId): Trust {
    return trustOf(this.#need(file).state.installedStart, 1);
  }

  list(after: FileId, countMax: number): FileId[] {
    this.#check();
    return [...this.#files.keys()]
      .filter((file) => file > after)
      .sort((a, b) => a - b)
      .slice(0, countMax);
  }

  filesWithViewAfter(number: number): FileId[] {
    const files = [...this.#files].filter(([, held]) => held.state.record.view.number > number);
    return files.map(([file]) => file);
  }

  create(file: FileId, view: View, objectBytes: number, trust: NewTrust = 'intact'): void {
    if (this.#find(file) !== null) return;
    this.#files.set(file, {
      state: fileStateNew(view, objectBytes, installedStartOfNew(trust, 1)),
      objects: new Map(),
      ordered: [],
      digests: new ObjectDigests(),
      staged: new Map(),
      tail: Promise.resolve(),
    });
    this.recordChanges.report(file, true);
  }

  async createWithContents(
    births: readonly NewReplica[],
    epoch: Epoch,
    view: View,
    objectBytes: number,
  ): Promise<(Error | null)[]> {
    const none = new Uint8Array(0);
    const borne = births.map(async ({ file, operations }) => {
      this.create(file, view, objectBytes);
      const steps = [this.promise(file, epoch), this.install(file, epoch, 0, none, null)];
      for (const [place, operation] of operations.entries())
        steps.push(this.apply(file, epoch, place + 1, operation, none));
      await Promise.all(steps);
      return null;
    });
    return Promise.all(borne);
  }

  async createWithState(
    file: FileId,
    { view, epoch, attributes }: FirstState,
    objects: AsyncIterable<FetchedObject>,
  ): Promise<void> {
    const changes = new Map<number, ObjectEntry>();
    const found: FetchedObject[] = [];
    for await (const object of objects) found.push(object);
    this.create(file, view, attributes.objectBytes);
    await this.promise(file, epoch);
    for (const object of found) {
      await this.stage(file, object);
      changes.set(object.entry.index, object.entry);
    }
    const record = { ...(this.record(file) as ReplicaRecord), installed: epoch, seq: 1 };
    await this.install(file, epoch, 1, record.sessions, { record, attributes, from: POSITION_ZERO, changes });
  }

  promise(file: FileId, epoch: Epoch): Promise<void> {
    return this.#change(file, (held) => {
      held.state = { ...held.state, record: { ...held.state.record, promised: epoch } };
    });
  }

  apply(
    file: FileId,
    epoch: Epoch,
    seq: number,
    operation: FileOperation,
    sessions: Uint8Array,
  ): Promise<void> {
    return this.#change(file, (held) => {
      assert(epochEqual(epoch, held.state.record.installed), 'Operations belong to the installed epoch');
      const before = held.state.attributes;
      if (operation.kind === 'preserve') this.#preserve(held, operation);
      held.state = fileStateApply(held.state, seq, operation, sessions);
      if (!operationApplies(before, operation)) return;
      for (const { offset, bytes } of partsWritten(operation)) applyWrite(held, seq, offset, bytes);
      const removed = removedBy(operation, before.sizeBytes);
      if (removed !== null) remove(held, seq, removed);
    });
  }

  async flushIndex(): Promise<void> {}

  flush(file: FileId): Promise<void> {
    return this.#change(file, () => undefined);
  }

  holeBytes(file: FileId): number {
    const { state, objects } = this.#need(file);
    return [...objects.values()].reduce((left, { entry }) => left - entry.length, state.attributes.sizeBytes);
  }

  async whenHolesCounted(file: FileId): Promise<void> {
    this.#need(file);
  }

  attributes(file: FileId): FileAttributes {
    return this.#need(file).state.attributes;
  }

  readDependsOn(file: FileId, offset: number, length: number): number {
    const { state, objects } = this.#need(file);
    const { counter } = state.record.installed;
    const { objectBytes, sizeBytes } = state.attributes;
    let newest = state.sizeEpoch === counter ? state.sizeSeq : 0;
    const end = Math.min(offset + length, sizeBytes);
    for (let index = Math.floor(offset / objectBytes); index * objectBytes < end; index++) {
      const entry = objects.get(index)?.entry;
      if (entry?.versionEpoch === counter) newest = Math.max(newest, entry.versionSeq);
    }
    return newest;
  }

  async read(file: FileId, offset: number, length: number): Promise<Uint8Array> {
    const { state, objects } = this.#need(file);
    const { objectBytes, sizeBytes } = state.attributes;
    const end = Math.min(offset + length, sizeBytes);
    if (offset >= end) return new Uint8Array(0);
    const out = new Uint8Array(end - offset);
    for (let index = Math.floor(offset / objectBytes); index * objectBytes < end; index++) {
      const object = objects.get(index);
      if (object === undefined) continue;
      const begin = index * objectBytes;
      const from = Math.max(begin, offset);
      const to = Math.min(begin + object.entry.length, end);
      const bytes = checked(file, object);
      if (from < to) out.set(bytes.subarray(from - begin, to - begin), from - offset);
    }
    return out;
  }

  locate(): null {
    return null;
  }

  entries(file: FileId, first: number, last: number, countMax: number): ObjectEntry[] {
    const held = this.#need(file);
    if (first === last) {
      const entry = held.objects.get(first)?.entry;
      return entry === undefined ? [] : [entry];
    }
    held.ordered ??= [...held.objects.keys()].sort((a, b) => a - b);
    const found: ObjectEntry[] = [];
    for (let at = placeOf(held.ordered, first); at < held.ordered.length && found.length < countMax; at++) {
      const index = held.ordered[at] as number;
      if (index > last) break;
      found.push((held.objects.get(index) as MemoryObject).entry);
    }
    return found;
  }

  async digests(file: FileId): Promise<ObjectDigests> {
    return this.#need(file).digests;
  }

  async readObject(
    file: FileId,
    index: number,
    versionEpoch: number,
    versionSeq: number,
  ): Promise<Uint8Array | null> {
    const object = this.#need(file).objects.get(index);
    if (object?.entry.versionEpoch !== versionEpoch || object.entry.versionSeq !== versionSeq) return null;
    return checked(file, object).slice();
  }

  repair(file: FileId, object: FetchedObject): Promise<void> {
    const { entry } = object;
    const bytes = object.bytes.slice();
    return this.#change(file, (held) => {
      const mine = held.objects.get(entry.index);
      if (mine === undefined || !sameObject(mine.entry, entry)) return;
      checked(file, { entry, bytes });
      held.objects.set(entry.index, { entry, bytes });
    });
  }

  stage(file: FileId, object: FetchedObject): Promise<void> {
    const { entry } = object;
    const bytes = object.bytes.slice();
    return this.#change(file, (held) => {
      const fits = bytes.length === entry.length && bytes.length <= held.state.attributes.objectBytes;
      if (!fits || crc32(bytes) !== entry.crc32) {
        const what = `Object ${entry.index} of file ${file}, fetched from another replica,`;
        throw new ServiceError('integrity', `${what} does not match its checksum`);
      }
      held.staged.set(entry.index, { entry, bytes });
    });
  }

  stageLost(file: FileId, entry: ObjectEntry): Promise<void> {
    return this.#change(file, (held) => {
      held.staged.set(entry.index, { entry, bytes: mismatchingBytes(entry) });
    });
  }

  staged(file: FileId, index: number): ObjectEntry | null {
    return this.#need(file).staged.get(index)?.entry ?? null;
  }

  unstage(file: FileId, keeps: (entry: ObjectEntry) => boolean = () => false): void {
    void this.#change(file, (held) => {
      for (const [index, { entry }] of [...held.staged]) if (!keeps(entry)) held.staged.delete(index);
    });
  }

  install(
    file: FileId,
    epoch: Epoch,
    seq: number,
    sessions: Uint8Array,
    base: FileDifference | null,
  ): Promise<void> {
    return this.#change(file, (held) => {
      const next = fileStateInstall(held.state, epoch, seq, sessions, base, 1);
      if (base !== null) {
        const { installed, seq: ownSeq } = held.state.record;
        assert(
          epochEqual(base.from.epoch, installed) && base.from.seq === ownSeq,
          'A difference is to the state that is here',
        );
        for (const [index, entry] of base.changes) {
          setObject(held, index, entry === null ? null : stagedObjectOf(held, entry));
        }
      }
      held.staged.clear();
      held.state = next;
    });
  }

  async remove(file: FileId): Promise<void> {
    if (this.#find(file) === null) return;
    await this.#change(file, () => {
      this.#files.delete(file);
    });
    this.recordChanges.report(file, false);
  }

  async space(): Promise<StoreSpace> {
    this.#check();
    return { totalBytes: 2 ** 40, freeBytes: 2 ** 40 };
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#files.values()].map(({ tail }) => tail));
  }

  /** Flips a bit of an object, as a bad disk does: for tests. */
  damage(file: FileId, index: number): void {
    const held = this.#need(file);
    const object = held.objects.get(index);
    assert(object !== undefined && object.bytes.length > 0, 'There is an object to damage');
    const bytes = object.bytes.slice();
    bytes[0] = (bytes[0] as number) ^ 1;
    held.objects.set(index, { entry: object.entry, bytes });
  }

  #check(): void {
    if (this.#closed) throw new ServiceError('storage', 'Cannot use the store: it is closed');
  }

  #find(file: FileId): MemoryFile | null {
    this.#check();
    return this.#files.get(file) ?? null;
  }

  #need(file: FileId): MemoryFile {
    const held = this.#find(file);
    if (held === null) throw new ServiceError('not-found', `This server has no replica of file ${file}`);
    return held;
  }

  #preserve(held: MemoryFile, operation: Extract<FileOperation, { kind: 'preserve' }>): void {
    const state = fileStatePreserved(held.state, operation, 0, 1);
    if (state === null || this.#files.has(operation.as)) return;
    const digests = new ObjectDigests();
    for (const { entry } of held.objects.values()) digests.replace(null, entry);
    const objects = new Map(held.objects);
    this.#files.set(operation.as, {
      state,
      objects,
      ordered: null,
      digests,
      staged: new Map(),
      tail: Promise.resolve(),
    });
    this.recordChanges.report(operation.as, true);
  }

  /** Effects follow the call's return, one after the other, as those of a disk do. */
  async #change(file: FileId, effect: (held: MemoryFile) => void): Promise<void> {
    const held = this.#need(file);
    const done = held.tail.then(() => {
      if (this.#files.get(file) !== held) {
        throw new ServiceError('not-found', `This server has no replica of file ${file}`);
      }
      const before = held.state.record;
      effect(held);
      const { record } = held.state;
      if (record !== before) this.recordChanges.report(file, record.view !== before.view);
    });
    held.tail = done.then(
      () => undefined,
      () => undefined,
    );
    await done;
  }
}

function applyWrite(held: MemoryFile, seq: number, offset: number, bytes: Uint8Array): void {
  for (const piece of writePieces(offset, bytes, held.state.attributes.objectBytes)) {
    const before = held.objects.get(piece.index)?.bytes ?? new Uint8Array(0);
    const after = new Uint8Array(Math.max(before.length, piece.at + piece.bytes.length));
    after.set(before);
    after.set(piece.bytes, piece.at);
    put(held, piece.index, seq, after);
  }
}

function remove(held: MemoryFile, seq: number, removed: Removed): void {
  const { objectBytes } = held.state.attributes;
  for (const [index, { bytes }] of held.objects) {
    const part = removedWithin(removed, index, bytes.length, objectBytes);
    if (part.from >= part.to) continue;
    if (part.from === 0 && part.to === bytes.length) setObject(held, index, null);
    else put(held, index, seq, bytesWithout(bytes, part));
  }
}

function put(held: MemoryFile, index: number, seq: number, bytes: Uint8Array): void {
  const versionEpoch = held.state.record.installed.counter;
  const entry = { index, versionEpoch, versionSeq: seq, length: bytes.length, crc32: crc32(bytes) };
  setObject(held, index, { entry, bytes });
}

function setObject(held: MemoryFile, index: number, object: MemoryObject | null): void {
  const before = held.objects.get(index)?.entry ?? null;
  held.digests.replace(before, object?.entry ?? null);
  if ((before === null) !== (object === null)) held.ordered = null;
  if (object === null) held.objects.delete(index);
  else held.objects.set(index, object);
}

/** @returns the index of the first of the ascending numbers that is not below `wanted` */
function placeOf(ascending: readonly number[], wanted: number): number {
  let low = 0;
  let high = ascending.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ascending[middle] as number) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

function stagedObjectOf(held: MemoryFile, entry: ObjectEntry): MemoryObject {
  const staged = held.staged.get(entry.index);
  assert(
    staged !== undefined && sameObject(staged.entry, entry),
    `Object ${entry.index} of the difference is staged`,
  );
  return staged;
}

function checked(file: FileId, object: MemoryObject): Uint8Array {
  if (crc32(object.bytes) !== object.entry.crc32) {
    throw new ServiceError(
      'integrity',
      `Cannot read object ${object.entry.index} of file ${file}: its bytes do not match their checksum`,
    );
  }
  return object.bytes;
}

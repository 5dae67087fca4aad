/**
 * A small file in memory, as the subject of the system simulation. Objects 0 to 2 hold 8 bytes each
 * and are written whole, as registers; behind them a log grows by appends and is cut by truncates.
 */
import { crc32 } from 'node:zlib';
import { assert } from '../../base/assert.ts';
import type { Epoch, Operation, RequestId } from '../../replica/actions.ts';
import { decodeFileOperation, encodeFileOperation, type FileOperation } from '../../wire/file-operation.ts';
import {
  type FileEntry,
  type RegisterOperation,
  registerViolation,
  sequenceViolation,
} from './linearizable.ts';
import {
  type Contents,
  type History,
  type Logged,
  type Orderer,
  operationRequest,
  type Resolved,
  type Subject,
  type Wish,
} from './system-contents.ts';

export const OBJECT_BYTES = 8;
export const REGISTERS = 3;
export const REGISTERS_BYTES = OBJECT_BYTES * REGISTERS;
const SUBJECT_BYTES_MAX = 4096;

/** Looks at the whole file; a number looks at one register. */
export const WHOLE_FILE = 'file';

/** What a client wants. The primary resolves it: the place of an append, the bytes of a truncate. */
export type FileWish =
  | { readonly kind: 'write'; readonly object: number; readonly value: string }
  | { readonly kind: 'append'; readonly value: string }
  | { readonly kind: 'truncate'; readonly recordsBytes: number };

/** Epoch counter and sequence number of the operation that wrote something. */
interface Version {
  readonly epoch: number;
  readonly seq: number;
}

/** One replica's copy of the file. */
export class FileContents implements Contents {
  readonly log: Logged[];
  /** Bytes from `size` on are zeros, so that a longer file reads zeros there. */
  readonly buffer: Uint8Array;
  size: number;
  readonly #objects: Map<number, Version>;
  #sizeVersion: Version = { epoch: 0, seq: 0 };

  constructor(of?: FileContents) {
    this.log = of?.log.slice() ?? [];
    this.buffer = of?.buffer.slice() ?? new Uint8Array(SUBJECT_BYTES_MAX);
    this.size = of?.size ?? 0;
    this.#objects = new Map(of === undefined ? [] : of.#objects);
    if (of !== undefined) this.#sizeVersion = of.#sizeVersion;
  }

  copy(): FileContents {
    return new FileContents(this);
  }

  apply(operation: Operation, epoch: Epoch, seq: number): void {
    this.log.push({ request: operationRequest(operation), operation, epoch });
    if (operation.view === undefined) {
      this.#change(decodeFileOperation(operation.body), { epoch: epoch.counter, seq });
    }
  }

  #change(operation: FileOperation, version: Version): void {
    const sizeBefore = this.size;
    switch (operation.kind) {
      case 'write': {
        const end = operation.offset + operation.bytes.length;
        this.buffer.set(operation.bytes, operation.offset);
        this.size = Math.max(this.size, end);
        for (let at = operation.offset; at < end; at += OBJECT_BYTES) this.#touch(at, version);
        this.#touch(end - 1, version);
        break;
      }
      case 'truncate':
        this.size = operation.sizeBytes;
        this.buffer.fill(0, operation.sizeBytes);
        for (let at = Math.min(sizeBefore, this.size); at < sizeBefore; at++) this.#touch(at, version);
        break;
      case 'delete':
      case 'view':
        throw new Error('Nobody deletes here, and members change beside the contents');
    }
    if (this.size !== sizeBefore) this.#sizeVersion = version;
  }

  #touch(at: number, version: Version): void {
    this.#objects.set(Math.floor(at / OBJECT_BYTES), version);
  }

  digest(): number {
    return crc32(this.buffer.subarray(0, this.size), this.size);
  }

  look(what: string): string {
    if (what === WHOLE_FILE) return Buffer.from(this.buffer.subarray(0, this.size)).toString('latin1');
    const at = Number(what) * OBJECT_BYTES;
    return Buffer.from(this.buffer.subarray(at, at + OBJECT_BYTES)).toString('latin1');
  }

  dependsOn(what: string, counter: number): number {
    const inEpoch = (version: Version | undefined) => (version?.epoch === counter ? version.seq : 0);
    if (what !== WHOLE_FILE) return inEpoch(this.#objects.get(Number(what)));
    let seq = inEpoch(this.#sizeVersion);
    for (const version of this.#objects.values()) seq = Math.max(seq, inEpoch(version));
    return seq;
  }
}

/** The next append goes behind the last operation that was sequenced. */
class FileOrderer implements Orderer {
  readonly #contents: FileContents | null;
  #orderedSize: number;

  /** @param applied `last`: operations are resolved against what is applied, one at a time */
  constructor(contents: FileContents, applied: 'first' | 'last') {
    this.#contents = applied === 'last' ? contents : null;
    this.#orderedSize = contents.size;
  }

  resolve(_request: RequestId, wish: Wish): Resolved {
    const sizeBytes = this.#contents?.size ?? this.#orderedSize;
    return { body: encodeFileOperation(resolve(wish as FileWish, sizeBytes)), answer: '' };
  }

  noteOrdered(operation: Operation): void {
    if (operation.view !== undefined) return;
    const resolved = decodeFileOperation(operation.body);
    if (resolved.kind === 'truncate') this.#orderedSize = resolved.sizeBytes;
    if (resolved.kind === 'write') {
      this.#orderedSize = Math.max(this.#orderedSize, resolved.offset + resolved.bytes.length);
    }
  }
}

function resolve(wish: FileWish, sizeBytes: number): FileOperation {
  const modifiedNs = 0n;
  switch (wish.kind) {
    case 'write':
      return { kind: 'write', offset: wish.object * OBJECT_BYTES, bytes: valueBytes(wish.value), modifiedNs };
    case 'append':
      return {
        kind: 'write',
        offset: Math.max(sizeBytes, REGISTERS_BYTES),
        bytes: valueBytes(wish.value),
        modifiedNs,
      };
    case 'truncate':
      return { kind: 'truncate', sizeBytes: REGISTERS_BYTES + wish.recordsBytes, modifiedNs };
  }
}

function valueBytes(value: string): Uint8Array {
  assert(value.length === OBJECT_BYTES, 'Values fill an object');
  return new TextEncoder().encode(value);
}

/** @param appliesAtPrimary when a primary has an operation on its own disk */
export function fileSubject(appliesAtPrimary: 'first' | 'last'): Subject {
  return {
    appliesAtPrimary,
    keepsSessions: false,
    empty: () => new FileContents(),
    orderer: (contents) => new FileOrderer(contents as FileContents, appliesAtPrimary),
    judge,
  };
}

/** A second, simpler implementation of the operations, to judge the first by. */
export function textApply(text: string, operation: FileOperation): string {
  switch (operation.kind) {
    case 'write': {
      const bytes = Buffer.from(operation.bytes).toString('latin1');
      const padded = text.padEnd(operation.offset, '\0');
      return padded.slice(0, operation.offset) + bytes + padded.slice(operation.offset + bytes.length);
    }
    case 'truncate':
      return text.slice(0, operation.sizeBytes).padEnd(operation.sizeBytes, '\0');
    case 'delete':
      return '';
    case 'seal':
    case 'view':
      return text;
  }
}

/** By object, as registers; and the file as a whole, by the sequence of its operations. */
function judge({ entries, sequence, baseSeq }: History): string | null {
  const states = [''];
  for (const { operation } of sequence) {
    const before = states.at(-1) as string;
    const isView = operation.view !== undefined;
    states.push(isView ? before : textApply(before, decodeFileOperation(operation.body)));
  }
  const base = states[baseSeq] as string;
  const survived = new Set(sequence.slice(0, baseSeq).map(({ request }) => request));
  const registers: RegisterOperation[][] = Array.from({ length: REGISTERS }, () => []);
  const files: FileEntry[] = [];
  const last = sequence[baseSeq - 1];
  if (last !== undefined) {
    files.push({ kind: 'change', request: last.request, callMs: -2, returnMs: -1, seq: baseSeq });
  }
  for (const entry of entries) {
    const { callMs, returnMs } = entry;
    if (entry.kind === 'look') {
      if (entry.what === WHOLE_FILE) files.push({ kind: 'read', content: entry.shown, callMs, returnMs });
      else registers[Number(entry.what)]?.push({ kind: 'read', value: entry.shown, callMs, returnMs });
      continue;
    }
    // What was there at the beginning was not called later, however late its client heard of it.
    if (survived.has(entry.request)) continue;
    const { request, seq } = entry;
    files.push({ kind: 'change', request, callMs, returnMs, seq });
    const wish = entry.wish as FileWish;
    if (wish.kind === 'write') {
      registers[wish.object]?.push({ kind: 'write', value: wish.value, callMs, returnMs });
    }
  }
  for (const [object, history] of registers.entries()) {
    const at = object * OBJECT_BYTES;
    const initial = base.slice(at, at + OBJECT_BYTES).padEnd(OBJECT_BYTES, '\0');
    const violation = registerViolation(history, initial);
    if (violation !== null) return `Object ${object}: ${JSON.stringify(violation)}`;
  }
  const requests = sequence.map(({ request }) => request);
  const violation = sequenceViolation(requests, states, files);
  return violation === null ? null : `The file: ${violation}`;
}

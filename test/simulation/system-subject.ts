/**
 * The subject of the system simulation: a small file in memory. Objects 0 to 2 hold 8 bytes each
 * and are written whole, as registers; behind them a log grows by appends and is cut by truncates.
 */
import type { ReplicaRecord } from '../../replica/actions.ts';
import type { FileOperation } from '../../wire/file-operation.ts';

export const OBJECT_BYTES = 8;
export const REGISTERS = 3;
export const REGISTERS_BYTES = OBJECT_BYTES * REGISTERS;
const SUBJECT_BYTES_MAX = 4096;

/** Epoch counter and sequence number of the operation that wrote something. */
interface Version {
  readonly epoch: number;
  readonly seq: number;
}

/** What survives the death of a process. */
export interface Contents {
  /** Bytes from `size` on are zeros, so that a longer file reads zeros there. */
  readonly buffer: Uint8Array;
  size: number;
  readonly objects: Map<number, Version>;
  sizeVersion: Version;
  /** Every operation applied; the simulation's own knowledge. */
  readonly log: Logged[];
}

/** An operation as it was resolved, and the request it came from. */
export interface Logged {
  readonly request: string;
  readonly operation: FileOperation;
}

export interface Disk {
  record: ReplicaRecord;
  contents: Contents;
}

export function contentsEmpty(): Contents {
  return {
    buffer: new Uint8Array(SUBJECT_BYTES_MAX),
    size: 0,
    objects: new Map(),
    sizeVersion: { epoch: 0, seq: 0 },
    log: [],
  };
}

export function contentsCopy(contents: Contents): Contents {
  const { buffer, size, objects, sizeVersion, log } = contents;
  return { buffer: buffer.slice(), size, objects: new Map(objects), sizeVersion, log: [...log] };
}

export function contentsApply(
  contents: Contents,
  operation: FileOperation,
  version: Version,
  request: string,
): void {
  contents.log.push({ request, operation });
  const sizeBefore = contents.size;
  switch (operation.kind) {
    case 'write': {
      const end = operation.offset + operation.bytes.length;
      contents.buffer.set(operation.bytes, operation.offset);
      contents.size = Math.max(contents.size, end);
      for (let at = operation.offset; at < end; at += OBJECT_BYTES) touch(contents, at, version);
      touch(contents, end - 1, version);
      break;
    }
    case 'truncate':
      contents.size = operation.sizeBytes;
      contents.buffer.fill(0, operation.sizeBytes);
      for (let at = Math.min(sizeBefore, contents.size); at < sizeBefore; at++) touch(contents, at, version);
      break;
    case 'delete':
      throw new Error('Nobody deletes here');
  }
  if (contents.size !== sizeBefore) contents.sizeVersion = version;
}

function touch(contents: Contents, at: number, version: Version): void {
  contents.objects.set(Math.floor(at / OBJECT_BYTES), version);
}

/** @returns one register's value */
export function contentsRegister(contents: Contents, object: number): string {
  const { buffer } = contents;
  return Buffer.from(buffer.subarray(object * OBJECT_BYTES, (object + 1) * OBJECT_BYTES)).toString('latin1');
}

export function contentsText(contents: Contents): string {
  return Buffer.from(contents.buffer.subarray(0, contents.size)).toString('latin1');
}

/** @returns the newest operation of the installed epoch that the answer shows; `object` null for all */
export function contentsDependsOn(contents: Contents, epoch: number, object: number | null): number {
  const inEpoch = (version: Version | undefined) => (version?.epoch === epoch ? version.seq : 0);
  if (object !== null) return Math.max(inEpoch(contents.objects.get(object)));
  let seq = inEpoch(contents.sizeVersion);
  for (const version of contents.objects.values()) seq = Math.max(seq, inEpoch(version));
  return seq;
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
    case 'view':
      return text;
  }
}

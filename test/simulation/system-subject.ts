/**
 * A small file as the subject of the system simulation. Objects 0 to 2 are written whole, as
 * registers; behind them a log grows by appends and is cut by truncates. Punches make holes in both.
 */
import { assert } from '../../base/assert.ts';
import type { Operation, RequestId } from '../../replica/operation.ts';
import {
  decodeFileOperation,
  encodeFileOperation,
  type FileOperation,
  partsWritten,
  type WritePart,
} from '../../wire/file-operation.ts';
import {
  type FileEntry,
  type RegisterOperation,
  registerViolation,
  sequenceViolation,
} from './linearizable.ts';
import {
  type History,
  type Orderer,
  type Resolved,
  type Subject,
  sealOf,
  type Wish,
} from './system-contents.ts';
import { FileContents, OBJECT_BYTES, WHOLE_FILE } from './system-file.ts';

export const REGISTERS = 3;
export const REGISTERS_BYTES = OBJECT_BYTES * REGISTERS;
/** Written and overwritten by one operation: nobody finds it. */
const UNSEEN = 0x3f;

/** What a client wants. The primary resolves it: the place of an append, the bytes of a truncate. */
export type FileWish =
  | { readonly kind: 'write'; readonly object: number; readonly value: string }
  | { readonly kind: 'append'; readonly value: string }
  /** Changes a few bytes of the log, and leaves others of the same objects. */
  | { readonly kind: 'patch'; readonly at: number; readonly value: string }
  | { readonly kind: 'truncate'; readonly recordsBytes: number }
  /** Makes a hole anywhere, in registers and in the log. */
  | { readonly kind: 'punch'; readonly from: number; readonly to: number; readonly grows: boolean };

/** The next append goes behind the last operation that was sequenced. */
class FileOrderer implements Orderer {
  readonly #contents: FileContents | null;
  #orderedSize: number;

  /** @param applied `last`: operations are resolved against what is applied, one at a time */
  constructor(contents: FileContents, applied: 'first' | 'last') {
    this.#contents = applied === 'last' ? contents : null;
    this.#orderedSize = contents.attributes.sizeBytes;
  }

  resolve(_request: RequestId, wish: Wish): Resolved {
    const sizeBytes = this.#contents?.attributes.sizeBytes ?? this.#orderedSize;
    return { body: encodeFileOperation(resolve(wish as FileWish, sizeBytes)), answer: '' };
  }

  noteOrdered(operation: Operation): void {
    if (operation.view !== undefined) return;
    const resolved = decodeFileOperation(operation.body);
    if (resolved.kind === 'truncate') this.#orderedSize = resolved.sizeBytes;
    if (resolved.kind === 'punch' && resolved.grows) {
      this.#orderedSize = Math.max(this.#orderedSize, resolved.to);
    }
    for (const { offset, bytes } of partsWritten(resolved)) {
      this.#orderedSize = Math.max(this.#orderedSize, offset + bytes.length);
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
    case 'patch': {
      const bytes = new TextEncoder().encode(wish.value);
      const offset = Math.min(REGISTERS_BYTES + wish.at, Math.max(sizeBytes, REGISTERS_BYTES));
      // The later part counts: whoever applies but one of them, or turns them around, shows the other.
      const before = { offset, bytes: new Uint8Array(bytes.length).fill(UNSEEN) };
      return { kind: 'write-parts', parts: [before, { offset, bytes }], modifiedNs };
    }
    case 'truncate':
      return { kind: 'truncate', sizeBytes: REGISTERS_BYTES + wish.recordsBytes, modifiedNs };
    case 'punch':
      return { ...wish, modifiedNs };
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
    case 'write':
      return textWritten(text, operation);
    case 'write-parts':
      return operation.parts.reduce(textWritten, text);
    case 'truncate':
      return text.slice(0, operation.sizeBytes).padEnd(operation.sizeBytes, '\0');
    case 'punch': {
      const { from, to, grows } = operation;
      const sized = grows ? text.padEnd(to, '\0') : text;
      const end = Math.max(from, Math.min(to, sized.length));
      return sized.slice(0, from) + '\0'.repeat(end - from) + sized.slice(end);
    }
    case 'delete':
      return '';
    case 'seal':
    case 'settling':
    case 'preserve':
    case 'view':
      return text;
  }
}

function textWritten(text: string, { offset, bytes }: WritePart): string {
  const padded = text.padEnd(offset, '\0');
  return (
    padded.slice(0, offset) + Buffer.from(bytes).toString('latin1') + padded.slice(offset + bytes.length)
  );
}

/** What a look may show of a file with these contents, as the sequence of operations gives them. */
function looksAt(text: string): string[] {
  const objects = Array.from({ length: REGISTERS }, (_, object) => {
    const at = object * OBJECT_BYTES;
    return lookText(String(object), text.slice(at, at + OBJECT_BYTES).padEnd(OBJECT_BYTES, '\0'));
  });
  return [lookText(WHOLE_FILE, text), ...objects];
}

function lookText(what: string, shown: string): string {
  return `${what} ${shown}`;
}

/**
 * The file as a whole and each object of it, by the sequence of operations; and objects in which nobody wants a hole
 * as registers besides, which no sequence has a say in: zeros are no value that is written once.
 */
function judge({ entries, sequence, baseSeq }: History): string | null {
  const states = [''];
  let sealed = false;
  for (const logged of sequence) {
    const before = states.at(-1) as string;
    const { view, body } = logged.operation;
    sealed ||= sealOf(logged) !== null;
    states.push(view !== undefined || sealed ? before : textApply(before, decodeFileOperation(body)));
  }
  const base = states[baseSeq] as string;
  const survived = new Set(sequence.slice(0, baseSeq).map(({ request }) => request));
  const registers: RegisterOperation[][] = Array.from({ length: REGISTERS }, () => []);
  const files: FileEntry[] = [];
  const last = sequence[baseSeq - 1];
  if (last !== undefined) {
    files.push({ kind: 'change', request: last.request, callMs: -2, returnMs: -1, seq: baseSeq });
  }
  const punched = new Set<number>();
  for (const entry of entries) {
    const { callMs, returnMs } = entry;
    if (entry.kind === 'change') {
      for (const object of objectsPunched(entry.wish as FileWish)) punched.add(object);
    }
    if (entry.kind === 'look') {
      const { what, shown } = entry;
      files.push({ kind: 'read', content: lookText(what, shown), callMs, returnMs });
      if (what !== WHOLE_FILE)
        registers[Number(what)]?.push({ kind: 'read', value: shown, callMs, returnMs });
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
    if (punched.has(object)) continue;
    const at = object * OBJECT_BYTES;
    const initial = base.slice(at, at + OBJECT_BYTES).padEnd(OBJECT_BYTES, '\0');
    const violation = registerViolation(history, initial);
    if (violation !== null) return `Object ${object}: ${JSON.stringify(violation)}`;
  }
  const requests = sequence.map(({ request }) => request);
  const violation = sequenceViolation(requests, states.map(looksAt), files);
  return violation === null ? null : `The file: ${violation}`;
}

/** Registers of which the wish takes bytes away. */
function objectsPunched(wish: FileWish): number[] {
  if (wish.kind !== 'punch') return [];
  const objects = Array.from({ length: REGISTERS }, (_, object) => object);
  return objects.filter((object) => {
    const at = object * OBJECT_BYTES;
    return wish.from < at + OBJECT_BYTES && at < wish.to;
  });
}

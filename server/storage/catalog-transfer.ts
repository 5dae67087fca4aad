import { readEpoch, writeEpoch } from '../../replica/codec.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { ByteReader, ByteWriter } from '../../wire/bytes.ts';
import { viewFormat, viewParse } from '../../wire/file-operation.ts';

/** The last operation of a replica's state, and the epoch that sequenced it: equal positions mean equal states. */
export interface LogPosition {
  readonly seq: number;
  readonly epoch: Epoch;
}

export interface CatalogDescription {
  readonly position: Position;
  readonly last: LogPosition;
}

export interface LogEntry extends LogPosition {
  /** A batch of commands; empty if the operation changes the view. */
  readonly body: Uint8Array;
  readonly view: View | null;
}

export interface CatalogTail {
  readonly installed: Epoch;
  readonly entries: readonly LogEntry[];
  /** More entries follow the last one: ask again from there. */
  readonly more: boolean;
}

export interface CatalogSnapshot {
  readonly id: number;
  readonly bytes: number;
  readonly position: Position;
}

/** Another replica's state, checked and stored beside the local one until `install` or `unstage`. */
export type StagedCatalog =
  | {
      readonly kind: 'tail';
      readonly position: Position;
      readonly view: View;
      readonly entries: readonly LogEntry[];
      /** The source's log has more. */
      readonly isPart: boolean;
    }
  | { readonly kind: 'snapshot'; readonly position: Position; readonly view: View; readonly file: string };

export function encodeDescription(installed: Epoch, last: LogPosition): Uint8Array {
  return writeLogPosition(writeEpoch(new ByteWriter(128), installed), last).finish();
}

export function decodeDescription(bytes: Uint8Array): CatalogDescription {
  const reader = new ByteReader(bytes);
  const installed = readEpoch(reader);
  const last = readLogPosition(reader);
  reader.end();
  return { position: { epoch: installed, seq: last.seq }, last };
}

export function encodeTail(tail: CatalogTail): Uint8Array {
  const writer = writeEpoch(new ByteWriter(4096), tail.installed);
  writer.uint8(tail.more ? 1 : 0).uint32(tail.entries.length);
  for (const entry of tail.entries) {
    writeLogPosition(writer, entry).bytes(entry.body);
    writer.text(entry.view === null ? '' : viewFormat(entry.view));
  }
  return writer.finish();
}

export function decodeTail(bytes: Uint8Array): CatalogTail {
  const reader = new ByteReader(bytes);
  const installed = readEpoch(reader);
  const more = reader.uint8() === 1;
  const entries: LogEntry[] = [];
  for (let remaining = reader.uint32(); remaining > 0; remaining--) {
    const position = readLogPosition(reader);
    const body = reader.bytes();
    const view = reader.text();
    entries.push({ ...position, body, view: view === '' ? null : viewParse(view) });
  }
  reader.end();
  return { installed, entries, more };
}

/** A request to compare consecutive ranges of a snapshot. */
export interface PageComparison {
  readonly id: number;
  readonly firstRange: number;
  readonly hashes: Uint8Array;
}

export function encodeComparison({ id, firstRange, hashes }: PageComparison): Uint8Array {
  return new ByteWriter(32 + hashes.length).uint53(id).uint53(firstRange).bytes(hashes).finish();
}

export function decodeComparison(bytes: Uint8Array): PageComparison {
  const reader = new ByteReader(bytes);
  const comparison = { id: reader.uint53(), firstRange: reader.uint53(), hashes: reader.bytes() };
  reader.end();
  return comparison;
}

/** @param ranges for each range null if it is equal, else the hashes of its pages */
export function encodeCompared(ranges: readonly (Uint8Array | null)[]): Uint8Array {
  const writer = new ByteWriter(4096).uint32(ranges.length);
  for (const hashes of ranges) writer.bytes(hashes ?? NO_BYTES);
  return writer.finish();
}

export function decodeCompared(bytes: Uint8Array): readonly (Uint8Array | null)[] {
  const reader = new ByteReader(bytes);
  const ranges: (Uint8Array | null)[] = [];
  for (let remaining = reader.uint32(); remaining > 0; remaining--) {
    const hashes = reader.bytes();
    ranges.push(hashes.length === 0 ? null : hashes);
  }
  reader.end();
  return ranges;
}

export function encodePageNumbers(id: number, pages: readonly number[]): Uint8Array {
  const writer = new ByteWriter(16 + 8 * pages.length).uint53(id).uint32(pages.length);
  for (const page of pages) writer.uint53(page);
  return writer.finish();
}

export function decodePageNumbers(bytes: Uint8Array): {
  readonly id: number;
  readonly pages: readonly number[];
} {
  const reader = new ByteReader(bytes);
  const id = reader.uint53();
  const pages: number[] = [];
  for (let remaining = reader.uint32(); remaining > 0; remaining--) pages.push(reader.uint53());
  reader.end();
  return { id, pages };
}

const NO_BYTES = new Uint8Array(0);

function writeLogPosition(writer: ByteWriter, { seq, epoch }: LogPosition): ByteWriter {
  return writeEpoch(writer.uint53(seq), epoch);
}

function readLogPosition(reader: ByteReader): LogPosition {
  const seq = reader.uint53();
  return { seq, epoch: readEpoch(reader) };
}

/** What replicas of the catalog tell each other of their state, and its bytes: where they stand, pieces of the log, copies of the database. */

import { readEpoch, writeEpoch } from '../../replica/codec.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { ByteReader, ByteWriter } from '../../wire/bytes.ts';
import { viewFormat, viewParse } from '../../wire/file-operation.ts';

/** The last operation of a replica's state, and the epoch that sequenced it: equal ones, equal states. */
export interface LogPosition {
  readonly seq: number;
  readonly epoch: Epoch;
}

/** What a replica tells another of its state. */
export interface CatalogDescription {
  /** Where the replica stands: its installed epoch, and its last operation. */
  readonly position: Position;
  readonly last: LogPosition;
}

/** An operation of the log. */
export interface LogEntry extends LogPosition {
  /** A batch of commands; empty where the operation changes the view. */
  readonly body: Uint8Array;
  /** The view from here on; null where it stays. */
  readonly view: View | null;
}

/** What follows a position in the log. */
export interface CatalogTail {
  /** Installed epoch of the replica that tells it. */
  readonly installed: Epoch;
  readonly entries: readonly LogEntry[];
  /** More follow the last entry: ask again from there. */
  readonly more: boolean;
}

/** A copy of a replica's whole state, to be read in pieces. */
export interface CatalogSnapshot {
  readonly id: number;
  readonly bytes: number;
  readonly position: Position;
}

/** Another replica's state, checked and lying beside the own one until `install` or `unstage`. */
export type StagedCatalog =
  | {
      readonly kind: 'tail';
      readonly position: Position;
      readonly view: View;
      readonly entries: readonly LogEntry[];
    }
  | { readonly kind: 'snapshot'; readonly position: Position; readonly view: View; readonly file: string };

/** @returns what `decodeDescription` reads */
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

/** The bodies are views into `bytes`. */
export function decodeTail(bytes: Uint8Array): CatalogTail {
  const reader = new ByteReader(bytes);
  const installed = readEpoch(reader);
  const more = reader.uint8() === 1;
  const entries: LogEntry[] = [];
  for (let left = reader.uint32(); left > 0; left--) {
    const position = readLogPosition(reader);
    const body = reader.bytes();
    const view = reader.text();
    entries.push({ ...position, body, view: view === '' ? null : viewParse(view) });
  }
  reader.end();
  return { installed, entries, more };
}

function writeLogPosition(writer: ByteWriter, { seq, epoch }: LogPosition): ByteWriter {
  return writeEpoch(writer.uint53(seq), epoch);
}

function readLogPosition(reader: ByteReader): LogPosition {
  const seq = reader.uint53();
  return { seq, epoch: readEpoch(reader) };
}

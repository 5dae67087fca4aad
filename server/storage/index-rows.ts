import { assert } from '../../base/assert.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { SEALS, type Seal } from '../../wire/file-operation.ts';
import type { FileState } from './contents.ts';
import type { ObjectEntry } from './object-entry.ts';

/** A negative slot is slot `-1 - slot` of the lender's container. */
export interface ObjectRow extends ObjectEntry {
  readonly slot: number;
}

export interface ObjectLengths {
  readonly count: number;
  readonly bytes: number;
  /** Index of the last of the objects; −1 for none. */
  readonly last: number;
}

/** The slot of an object that a generation has. */
export interface UndoSlot {
  readonly generation: number;
  readonly index: number;
  readonly slot: number;
}

/**
 * Objects `first` to `last`, which an applied operation has removed although the index still has their rows: reads
 * ignore these, and slices delete them, in ascending order.
 */
export interface PendingRemoval {
  readonly first: number;
  readonly last: number;
  /** The generation whose state still has the objects; −1 once that is not restored any more. */
  readonly generation: number;
  /** Objects that operations after `seq` of the epoch wrote are not part of that state. */
  readonly epoch: number;
  readonly seq: number;
}

/** A state of a file that a loss of power may restore; see FORMAT.md, "Loss of power". */
export interface Generation {
  readonly number: number;
  readonly state: FileState;
}

export interface FileRow {
  readonly view: string;
  readonly promised: string;
  readonly installed: string;
  readonly seq: number;
  readonly sessions: Buffer;
  readonly objectBytes: number;
  readonly sizeBytes: number;
  readonly modifiedS: number;
  readonly modifiedNs: number;
  readonly versionEpoch: number;
  readonly versionSeq: number;
  readonly sizeEpoch: number;
  readonly sizeSeq: number;
  readonly dead: number;
  readonly seal: number;
  readonly lender: number;
  readonly installedStart: number;
}

export function stateValues(state: FileState): unknown[] {
  const { record, attributes } = state;
  return [
    JSON.stringify(record.view),
    record.seq,
    record.sessions,
    attributes.sizeBytes,
    Number(attributes.modifiedNs / 1_000_000_000n),
    Number(attributes.modifiedNs % 1_000_000_000n),
    attributes.versionEpoch,
    attributes.versionSeq,
    state.sizeEpoch,
    state.sizeSeq,
    attributes.dead ? 1 : 0,
    SEALS.indexOf(attributes.seal),
  ];
}

export function stateOf(row: FileRow): FileState {
  return {
    record: {
      view: JSON.parse(row.view) as View,
      promised: JSON.parse(row.promised) as Epoch,
      installed: JSON.parse(row.installed) as Epoch,
      seq: row.seq,
      sessions: new Uint8Array(row.sessions.buffer, row.sessions.byteOffset, row.sessions.length),
    },
    attributes: {
      sizeBytes: row.sizeBytes,
      modifiedNs: BigInt(row.modifiedS) * 1_000_000_000n + BigInt(row.modifiedNs),
      versionEpoch: row.versionEpoch,
      versionSeq: row.versionSeq,
      objectBytes: row.objectBytes,
      dead: row.dead !== 0,
      seal: sealOf(row.seal),
    },
    sizeEpoch: row.sizeEpoch,
    sizeSeq: row.sizeSeq,
    lender: row.lender,
    installedStart: row.installedStart,
  };
}

function sealOf(code: number): Seal {
  const seal = SEALS[code];
  assert(seal !== undefined, 'The index has the seals that we know');
  return seal;
}

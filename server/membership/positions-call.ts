import { type FileId, isFileId, isServerId, type ServerId } from '../../base/ids.ts';
import type { Position } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { jsonOf } from '../../wire/json.ts';

/** Asks a peer which of its replicas lack operations up to these positions. */
export const POSITIONS_CALL = 'positions';

/** Positions of one call. */
export const POSITIONS_MAX = 1_000;

/** Earlier releases send no view, and ignore it. */
type PositionRow = readonly [
  file: number,
  counter: number,
  server: string,
  incarnation: number,
  seq: number,
  view?: number,
  members?: readonly string[],
];
export interface ReplicaToCompare {
  readonly file: FileId;
  readonly position: Position;
  readonly view?: View;
}
/** A file, and the last operation there; null if there is no replica. */
export type Behind = readonly [file: number, seq: number | null];

export function encodeAsked(asked: readonly ReplicaToCompare[]): Uint8Array {
  const rows = asked.map(({ file, position: { epoch, seq }, view }): PositionRow => {
    const position = [file, epoch.counter, epoch.server, epoch.incarnation, seq] as const;
    return view === undefined || view.joint !== undefined
      ? position
      : [...position, view.number, view.members];
  });
  return Buffer.from(JSON.stringify(rows));
}

export function encodeBehind(behind: readonly Behind[]): Uint8Array {
  return Buffer.from(JSON.stringify(behind));
}

/** @throws MalformedError */
export function decodeAsked(payload: Uint8Array): ReplicaToCompare[] {
  return parseRows(payload).map((row) => {
    const [file, counter, server, incarnation, seq, number, members] = row;
    if (
      typeof file !== 'number' ||
      !isFileId(file) ||
      !isCount(counter) ||
      typeof server !== 'string' ||
      !isServerId(server) ||
      !isCount(incarnation) ||
      !isCount(seq)
    ) {
      throw new MalformedError('A position has not its five fields');
    }
    const epoch: Position['epoch'] = {
      counter,
      server,
      incarnation: incarnation as Position['epoch']['incarnation'],
    };
    const position = { epoch, seq };
    if (number === undefined) return { file, position };
    if (!isCount(number) || !areServers(members)) throw new MalformedError('A view has no members');
    return { file, position, view: { number, members } };
  });
}

function areServers(value: unknown): value is ServerId[] {
  return Array.isArray(value) && value.every((each) => typeof each === 'string' && isServerId(each));
}

/** @throws MalformedError */
export function decodeBehind(payload: Uint8Array): [FileId, number | null][] {
  return parseRows(payload).map(([file, seq]) => {
    if (typeof file !== 'number' || !isFileId(file) || !(seq === null || isCount(seq))) {
      throw new MalformedError('A replica that is behind has not its two fields');
    }
    return [file, seq];
  });
}

function parseRows(payload: Uint8Array): unknown[][] {
  const rows = jsonOf(payload, 'Positions are');
  if (!Array.isArray(rows) || rows.length > POSITIONS_MAX || !rows.every((row) => Array.isArray(row))) {
    throw new MalformedError('Positions are no list');
  }
  return rows;
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

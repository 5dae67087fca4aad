import type { Incarnation, ServerId } from '../base/ids.ts';
import { serverIdCompare } from '../base/ids.ts';

/** One term of a primary, promised by a majority and on disk. Not from a clock: lease faults cannot affect writes. */
export interface Epoch {
  readonly counter: number;
  readonly server: ServerId;
  readonly incarnation: Incarnation;
}

/** A replica's log position: the epoch whose base it installed, and the last operation applied. */
export interface Position {
  readonly epoch: Epoch;
  readonly seq: number;
}

/** Promised and installed before the first epoch. */
export const EPOCH_ZERO: Epoch = { counter: 0, server: '' as ServerId, incarnation: 0 as Incarnation };

export const POSITION_ZERO: Position = { epoch: EPOCH_ZERO, seq: 0 };

/** Counter, server, incarnation. The latter two keep epochs distinct even if leases do not exclude each other. */
export function epochCompare(a: Epoch, b: Epoch): -1 | 0 | 1 {
  if (a.counter !== b.counter) return a.counter < b.counter ? -1 : 1;
  const servers = serverIdCompare(a.server, b.server);
  if (servers !== 0) return servers;
  return a.incarnation < b.incarnation ? -1 : a.incarnation > b.incarnation ? 1 : 0;
}

export function epochEqual(a: Epoch, b: Epoch): boolean {
  return epochCompare(a, b) === 0;
}

/** Epoch first: an old epoch's long tail may be uncommitted, while a newer epoch's base has all that was committed. */
export function positionCompare(a: Position, b: Position): -1 | 0 | 1 {
  const epochs = epochCompare(a.epoch, b.epoch);
  if (epochs !== 0) return epochs;
  return a.seq < b.seq ? -1 : a.seq > b.seq ? 1 : 0;
}

/** For traces and tests: `3@a`, and `0` before the first epoch. */
export function epochFormat(epoch: Epoch): string {
  return epoch.counter === 0 ? '0' : `${epoch.counter}@${epoch.server}`;
}

export function positionFormat(position: Position): string {
  return `${epochFormat(position.epoch)}/${position.seq}`;
}

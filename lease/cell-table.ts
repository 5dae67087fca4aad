import { assert } from '../base/assert.ts';
import type { CellId, Incarnation, ServerId } from '../base/ids.ts';
import { BALLOT_ZERO, type Ballot } from './ballot.ts';
import { type Group, GroupTable, NO_MEMBERS } from './group.ts';
import type { Claim, Lease } from './lease.ts';
import { LIVES_MAX, LifeTable } from './lives.ts';
import { REGISTER_EMPTY, type Register } from './register.ts';
import type { WheelLinks } from './wheel.ts';

const NONE = 0xffff_ffff;
const ROWS_MIN = 64;
/** Rows are added by an eighth, so that at most that share of the memory is idle. */
const GROWTH = 1.125;
/** Share of the index that is in use at most, and right after it has grown. */
const INDEX_LOAD_MAX = 0.75;
const INDEX_LOAD_MIN = 0.5;

/** Bits of `flags`. */
const OPEN = 1;
const RELEASED = 2;

/** A lease that this server believes in: its own, or one that it heard of. */
export interface Belief {
  readonly holder: ServerId;
  readonly incarnation: Incarnation;
  readonly untilMs: number;
  readonly uid: Ballot;
}

/**
 * All cells of a server at rest: one row each, in columns of numbers, 81 bytes and an index of five to eight.
 * A million cells are a million rows and not ten million objects for the garbage collector to visit.
 * Values (registers, leases, ballots) are made when a row is read and unmade when it is written.
 */
export class CellTable {
  readonly #lives = new LifeTable();
  readonly #groups = new GroupTable();
  readonly #claims = new Map<number, Claim>();

  #cell = new Float64Array(ROWS_MIN);
  #flags = new Uint8Array(ROWS_MIN);
  #group = new Uint32Array(ROWS_MIN);
  // The acceptor: what was promised, what was written, and with which ballot.
  #readInterval = new Uint32Array(ROWS_MIN);
  #readRound = new Uint32Array(ROWS_MIN);
  #readLife = new Uint16Array(ROWS_MIN);
  #writeInterval = new Uint32Array(ROWS_MIN);
  #writeRound = new Uint32Array(ROWS_MIN);
  #writeLife = new Uint16Array(ROWS_MIN);
  #leaseUntilMs = new Float64Array(ROWS_MIN);
  #leaseInterval = new Uint32Array(ROWS_MIN);
  #leaseRound = new Uint32Array(ROWS_MIN);
  #leaseLife = new Uint16Array(ROWS_MIN);
  // The proposer: the own lease, or the one known of another.
  #beliefUntilMs = new Float64Array(ROWS_MIN);
  #beliefInterval = new Uint32Array(ROWS_MIN);
  #beliefRound = new Uint32Array(ROWS_MIN);
  #beliefLife = new Uint16Array(ROWS_MIN);
  /** Chains of the timing wheel; `next` also chains the free rows. */
  readonly links: WheelLinks = {
    next: new Uint32Array(ROWS_MIN),
    previous: new Uint32Array(ROWS_MIN),
    due: new Uint32Array(ROWS_MIN),
  };

  /** Open addressing: row + 1, or 0. */
  #index = new Uint32Array(ROWS_MIN / INDEX_LOAD_MIN);
  #rows = 0;
  #freeRow = NONE;
  #size = 0;

  /** Number of cells. */
  get size(): number {
    return this.#size;
  }

  /** @returns the row of a cell, or null */
  find(cell: CellId): number | null {
    const row = this.#index[this.#placeOf(cell)] as number;
    return row === 0 ? null : row - 1;
  }

  /** Adds an empty row for a cell that has none. */
  add(cell: CellId): number {
    const row = this.#rowTake();
    this.#cell[row] = cell;
    this.#flags[row] = 0;
    this.#group[row] = this.#groups.take(0, NO_MEMBERS, undefined);
    this.setRegister(row, REGISTER_EMPTY);
    this.setBelief(row, null);
    this.#index[this.#placeOf(cell)] = row + 1;
    this.#size++;
    return row;
  }

  /** Removes a row, which the wheel has let go. */
  remove(row: number): void {
    this.#indexRemove(this.#placeOf(this.cell(row)));
    this.#groups.leave(this.#group[row] as number);
    this.#claims.delete(row);
    this.links.next[row] = this.#freeRow;
    this.#freeRow = row;
    this.#cell[row] = -1;
    this.#size--;
  }

  /** Rows in use, in no order that means anything. */
  *rows(): Generator<number> {
    for (let row = 0; row < this.#rows; row++) if ((this.#cell[row] as number) >= 0) yield row;
  }

  cell(row: number): CellId {
    return this.#cell[row] as CellId;
  }

  isOpen(row: number): boolean {
    return ((this.#flags[row] as number) & OPEN) !== 0;
  }

  setOpen(row: number, open: boolean): void {
    this.#flag(row, OPEN, open);
  }

  group(row: number): Group {
    return this.#groups.at(this.#group[row] as number);
  }

  setGroup(
    row: number,
    view: number,
    members: readonly ServerId[],
    joint: readonly ServerId[] | undefined,
  ): void {
    const before = this.#group[row] as number;
    this.#group[row] = this.#groups.take(view, members, joint);
    this.#groups.leave(before);
  }

  register(row: number): Register {
    const readRound = this.#readRound[row] as number;
    const writeRound = this.#writeRound[row] as number;
    if (readRound === 0 && writeRound === 0) return REGISTER_EMPTY;
    const readBallot = this.#ballot(
      this.#readInterval[row] as number,
      readRound,
      this.#readLife[row] as number,
    );
    if (writeRound === 0) return { readBallot, writeBallot: BALLOT_ZERO, lease: null };
    const writeInterval = this.#writeInterval[row] as number;
    const writeLife = this.#writeLife[row] as number;
    const writeBallot =
      writeRound === readRound &&
      writeInterval === readBallot.interval &&
      writeLife === (this.#readLife[row] as number)
        ? readBallot
        : this.#ballot(writeInterval, writeRound, writeLife);
    return { readBallot, writeBallot, lease: this.#lease(row, writeBallot) };
  }

  setRegister(row: number, register: Register): void {
    const { readBallot, writeBallot, lease } = register;
    this.#readInterval[row] = readBallot.interval;
    this.#readRound[row] = readBallot.round;
    this.#readLife[row] = this.#lifeOf(readBallot);
    this.#writeInterval[row] = writeBallot.interval;
    this.#writeRound[row] = writeBallot.round;
    this.#writeLife[row] = this.#lifeOf(writeBallot);
    if (lease === null) {
      this.#leaseRound[row] = 0;
      this.#flag(row, RELEASED, false);
      return;
    }
    const { uid } = lease;
    this.#leaseUntilMs[row] = lease.untilMs;
    this.#leaseInterval[row] = uid.interval;
    this.#leaseRound[row] = uid.round;
    this.#leaseLife[row] = this.#lifeOf(uid);
    this.#flag(row, RELEASED, lease.released);
    if (lease.claim !== null) this.#claims.set(row, lease.claim);
    else if (this.#claims.size > 0) this.#claims.delete(row);
  }

  /** When the believed lease ends; -Infinity without one. */
  beliefUntilMs(row: number): number {
    return (this.#beliefRound[row] as number) === 0 ? -Infinity : (this.#beliefUntilMs[row] as number);
  }

  belief(row: number): Belief | null {
    const round = this.#beliefRound[row] as number;
    if (round === 0) return null;
    const uid = this.#ballot(this.#beliefInterval[row] as number, round, this.#beliefLife[row] as number);
    const { server: holder, incarnation } = uid;
    return { holder, incarnation, untilMs: this.#beliefUntilMs[row] as number, uid };
  }

  /** Whether the believed lease was set by a given life. */
  beliefIsOf(row: number, server: ServerId, incarnation: Incarnation): boolean {
    if ((this.#beliefRound[row] as number) === 0) return false;
    const life = this.#lives.at(this.#beliefLife[row] as number);
    return life.incarnation === incarnation && life.server === server;
  }

  setBelief(row: number, belief: Belief | null): void {
    if (belief === null) {
      this.#beliefRound[row] = 0;
      return;
    }
    const { uid } = belief;
    this.#beliefUntilMs[row] = belief.untilMs;
    this.#beliefInterval[row] = uid.interval;
    this.#beliefRound[row] = uid.round;
    this.#beliefLife[row] = this.#lifeOf(uid);
  }

  // Values ---------------------------------------------------------------------------------------

  #ballot(interval: number, round: number, life: number): Ballot {
    if (round === 0) return BALLOT_ZERO;
    const { server, incarnation } = this.#lives.at(life);
    return { interval, round, server, incarnation };
  }

  #lease(row: number, writeBallot: Ballot): Lease | null {
    const round = this.#leaseRound[row] as number;
    if (round === 0) return null;
    const interval = this.#leaseInterval[row] as number;
    const life = this.#lives.at(this.#leaseLife[row] as number);
    // Most leases were set by the ballot that wrote them: one object for both.
    const shared =
      round === writeBallot.round &&
      interval === writeBallot.interval &&
      life.incarnation === writeBallot.incarnation &&
      life.server === writeBallot.server;
    const uid = shared
      ? writeBallot
      : { interval, round, server: life.server, incarnation: life.incarnation };
    return {
      holder: uid.server,
      incarnation: uid.incarnation,
      untilMs: this.#leaseUntilMs[row] as number,
      uid,
      released: ((this.#flags[row] as number) & RELEASED) !== 0,
      claim: this.#claims.size === 0 ? null : (this.#claims.get(row) ?? null),
    };
  }

  #lifeOf(k: Ballot): number {
    if (k.round === 0) return 0;
    const { server, incarnation } = k;
    const number = this.#lives.number(server, incarnation);
    if (number !== null) return number;
    this.#sweepLives();
    const swept = this.#lives.number(server, incarnation);
    assert(swept !== null, 'Cells do not name more lives at a time than a row can number');
    return swept;
  }

  #sweepLives(): void {
    const used = new Uint8Array(LIVES_MAX + 1);
    for (const row of this.rows()) {
      if (this.#readRound[row] !== 0) used[this.#readLife[row] as number] = 1;
      if (this.#writeRound[row] !== 0) used[this.#writeLife[row] as number] = 1;
      if (this.#leaseRound[row] !== 0) used[this.#leaseLife[row] as number] = 1;
      if (this.#beliefRound[row] !== 0) used[this.#beliefLife[row] as number] = 1;
    }
    this.#lives.sweep(used);
  }

  #flag(row: number, bit: number, set: boolean): void {
    const flags = this.#flags[row] as number;
    this.#flags[row] = set ? flags | bit : flags & ~bit;
  }

  // Rows and their index -------------------------------------------------------------------------

  #rowTake(): number {
    const row = this.#freeRow;
    if (row !== NONE) {
      this.#freeRow = this.links.next[row] as number;
      return row;
    }
    if (this.#rows === this.#cell.length) this.#grow();
    return this.#rows++;
  }

  #grow(): void {
    const rows = Math.ceil(this.#rows * GROWTH);
    const flags = new Uint8Array(rows);
    flags.set(this.#flags);
    this.#flags = flags;
    this.#cell = wide(rows, this.#cell);
    this.#leaseUntilMs = wide(rows, this.#leaseUntilMs);
    this.#beliefUntilMs = wide(rows, this.#beliefUntilMs);
    this.#group = whole(rows, this.#group);
    this.#readInterval = whole(rows, this.#readInterval);
    this.#readRound = whole(rows, this.#readRound);
    this.#writeInterval = whole(rows, this.#writeInterval);
    this.#writeRound = whole(rows, this.#writeRound);
    this.#leaseInterval = whole(rows, this.#leaseInterval);
    this.#leaseRound = whole(rows, this.#leaseRound);
    this.#beliefInterval = whole(rows, this.#beliefInterval);
    this.#beliefRound = whole(rows, this.#beliefRound);
    this.#readLife = half(rows, this.#readLife);
    this.#writeLife = half(rows, this.#writeLife);
    this.#leaseLife = half(rows, this.#leaseLife);
    this.#beliefLife = half(rows, this.#beliefLife);
    this.links.next = whole(rows, this.links.next);
    this.links.previous = whole(rows, this.links.previous);
    this.links.due = whole(rows, this.links.due);
    if (rows <= this.#index.length * INDEX_LOAD_MAX) return;
    this.#index = new Uint32Array(Math.ceil(rows / INDEX_LOAD_MIN));
    for (let row = 0; row < this.#rows; row++) this.#index[this.#placeOf(this.cell(row))] = row + 1;
  }

  /** Where a cell stands in the index, or the empty place where it would. */
  #placeOf(cell: CellId): number {
    const { length } = this.#index;
    let place = this.#homeOf(cell);
    for (;;) {
      const row = this.#index[place] as number;
      if (row === 0 || this.#cell[row - 1] === cell) return place;
      place = place + 1 === length ? 0 : place + 1;
    }
  }

  /** Spreads the cells, which may be numbered one after the other, over the index. */
  #homeOf(cell: CellId): number {
    const high = Math.floor(cell / 0x1_0000_0000);
    let hash = Math.imul((cell ^ Math.imul(high, 0x9e3779b1)) | 0, 0x85ebca6b);
    hash ^= hash >>> 15;
    hash = Math.imul(hash, 0xc2b2ae35);
    hash ^= hash >>> 16;
    return Math.floor(((hash >>> 0) * this.#index.length) / 0x1_0000_0000);
  }

  /** Closes the gap, so that no search stops too early: whoever stands past its home may move up. */
  #indexRemove(place: number): void {
    const { length } = this.#index;
    let gap = place;
    for (let at = gap; ; ) {
      at = at + 1 === length ? 0 : at + 1;
      const row = this.#index[at] as number;
      if (row === 0) break;
      const home = this.#homeOf(this.cell(row - 1));
      const past = (at - home + length) % length;
      if (past >= (at - gap + length) % length) {
        this.#index[gap] = row;
        gap = at;
      }
    }
    this.#index[gap] = 0;
  }
}

function wide(rows: number, column: Float64Array) {
  const grown = new Float64Array(rows);
  grown.set(column);
  return grown;
}

function whole(rows: number, column: Uint32Array) {
  const grown = new Uint32Array(rows);
  grown.set(column);
  return grown;
}

function half(rows: number, column: Uint16Array) {
  const grown = new Uint16Array(rows);
  grown.set(column);
  return grown;
}

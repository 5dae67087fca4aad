import { assert } from '../base/assert.ts';
import type { CellId, Incarnation, ServerId } from '../base/ids.ts';
import { BALLOT_ZERO, type Ballot } from './ballot.ts';
import { CellIndex } from './cell-index.ts';
import { CellPage, PAGE_ROWS } from './cell-page.ts';
import { type Group, GroupTable, NO_MEMBERS } from './group.ts';
import { INCARNATIONS_MAX, IncarnationTable } from './incarnations.ts';
import type { Claim, Lease } from './lease.ts';
import { REGISTER_EMPTY, type Register } from './register.ts';
import type { WheelLinks } from './timing-wheel.ts';

const NONE = 0xffff_ffff;
const ROWS_MIN = 64;
const PAGE_BITS = Math.log2(PAGE_ROWS);
const OFFSET_MASK = PAGE_ROWS - 1;

const NO_CELL = -1 as CellId;

/** Most incarnations that one message can add: its ballot's, two of its lease, and this server's. */
const INCARNATIONS_PER_MESSAGE = 4;
/** While the numbers of incarnations are used up, one message in this many starts a sweep. */
const SWEEP_EVERY = 4096;

const OPEN = 1;
const RELEASED = 2;

/** The lease that this server knows: its own, or another server's that it learned of. */
export interface KnownLease {
  readonly holder: ServerId;
  readonly incarnation: Incarnation;
  readonly untilMs: number;
  readonly uid: Ballot;
}

/**
 * All idle cells: a row each, 81 bytes in columns of numbers, plus six to nine for the index. So a million cells are
 * not ten million objects for the garbage collector. Registers, leases and ballots are objects only while in use.
 */
export class CellTable implements WheelLinks {
  readonly #incarnations = new IncarnationTable();
  readonly #groups = new GroupTable();
  readonly #claims = new Map<number, Claim>();
  readonly #index = new CellIndex((row) => this.cell(row));
  readonly #pages: CellPage[] = [new CellPage(ROWS_MIN)];
  #rows = 0;
  #freeRow = NONE;
  #size = 0;
  /** The row of the last `find` or `add`; of no meaning once it was removed. */
  #lastRow = 0;
  /** The register of the row that was read or set last: one event reads it several times. */
  #register: Register = REGISTER_EMPTY;
  #registerRow = NONE;
  #refused = 0;

  get size(): number {
    return this.#size;
  }

  /** Tries the last row and the one after it first: most series of messages have the order of the rows. */
  find(cell: CellId): number | null {
    const last = this.#lastRow;
    if (last < this.#rows && this.cell(last) === cell) return last;
    const next = last + 1;
    const row = next < this.#rows && this.cell(next) === cell ? next : this.#index.find(cell);
    if (row !== null) this.#lastRow = row;
    return row;
  }

  add(cell: CellId): number {
    const row = this.#takeRow();
    const page = this.#page(row);
    const at = row & OFFSET_MASK;
    page.cell[at] = cell;
    page.flags[at] = 0;
    page.group[at] = this.#groups.addReference(0, NO_MEMBERS, undefined);
    this.setRegister(row, REGISTER_EMPTY);
    this.setKnownLease(row, null);
    this.#index.add(cell, row);
    this.#size++;
    this.#lastRow = row;
    return row;
  }

  /** Removes a row that the wheel no longer contains. */
  remove(row: number): void {
    const page = this.#page(row);
    const at = row & OFFSET_MASK;
    this.#index.remove(this.cell(row));
    this.#groups.removeReference(page.group[at] as number);
    this.#claims.delete(row);
    if (row === this.#registerRow) this.#registerRow = NONE;
    page.next[at] = this.#freeRow;
    page.cell[at] = NO_CELL;
    this.#freeRow = row;
    this.#size--;
  }

  *rows(): Generator<number> {
    for (let row = 0; row < this.#rows; row++) if (this.cell(row) !== NO_CELL) yield row;
  }

  cell(row: number): CellId {
    return this.#page(row).cell[row & OFFSET_MASK] as CellId;
  }

  isOpen(row: number): boolean {
    return ((this.#page(row).flags[row & OFFSET_MASK] as number) & OPEN) !== 0;
  }

  setOpen(row: number, open: boolean): void {
    this.#flag(row, OPEN, open);
  }

  group(row: number): Group {
    return this.#groups.at(this.#page(row).group[row & OFFSET_MASK] as number);
  }

  setGroup(
    row: number,
    view: number,
    members: readonly ServerId[],
    joint: readonly ServerId[] | undefined,
  ): void {
    const { group } = this.#page(row);
    const before = group[row & OFFSET_MASK] as number;
    group[row & OFFSET_MASK] = this.#groups.addReference(view, members, joint);
    this.#groups.removeReference(before);
  }

  register(row: number): Register {
    if (row === this.#registerRow) return this.#register;
    const register = this.#readRegister(row);
    this.#register = register;
    this.#registerRow = row;
    return register;
  }

  /** Whether a RELEASE can change the register: an acceptor's lease that is not released. */
  hasUnreleasedLease(row: number): boolean {
    const page = this.#page(row);
    const at = row & OFFSET_MASK;
    return page.leaseRound[at] !== 0 && ((page.flags[at] as number) & RELEASED) === 0;
  }

  #readRegister(row: number): Register {
    const page = this.#page(row);
    const at = row & OFFSET_MASK;
    const readRound = page.readRound[at] as number;
    const writeRound = page.writeRound[at] as number;
    if (readRound === 0 && writeRound === 0) return REGISTER_EMPTY;
    const readBallot = this.#ballot(
      page.readInterval[at] as number,
      readRound,
      page.readIncarnation[at] as number,
    );
    if (writeRound === 0) return { readBallot, writeBallot: BALLOT_ZERO, lease: null };
    const writeInterval = page.writeInterval[at] as number;
    const writeIncarnation = page.writeIncarnation[at] as number;
    const writeBallot =
      writeRound === readRound &&
      writeInterval === readBallot.interval &&
      writeIncarnation === (page.readIncarnation[at] as number)
        ? readBallot
        : this.#ballot(writeInterval, writeRound, writeIncarnation);
    return { readBallot, writeBallot, lease: this.#lease(row, writeBallot) };
  }

  setRegister(row: number, register: Register): void {
    const page = this.#page(row);
    const at = row & OFFSET_MASK;
    const { readBallot, writeBallot, lease } = register;
    this.#register = register;
    this.#registerRow = row;
    page.readInterval[at] = readBallot.interval;
    page.readRound[at] = readBallot.round;
    page.readIncarnation[at] = this.#incarnationNumber(readBallot);
    page.writeInterval[at] = writeBallot.interval;
    page.writeRound[at] = writeBallot.round;
    page.writeIncarnation[at] = this.#incarnationNumber(writeBallot);
    if (lease === null) {
      page.leaseRound[at] = 0;
      this.#flag(row, RELEASED, false);
      return;
    }
    const { uid } = lease;
    page.leaseUntilMs[at] = lease.untilMs;
    page.leaseInterval[at] = uid.interval;
    page.leaseRound[at] = uid.round;
    page.leaseIncarnation[at] = this.#incarnationNumber(uid);
    this.#flag(row, RELEASED, lease.released);
    if (lease.claim !== null) this.#claims.set(row, lease.claim);
    else if (this.#claims.size > 0) this.#claims.delete(row);
  }

  /** End of the known lease; -Infinity without one. */
  knownUntilMs(row: number): number {
    const page = this.#page(row);
    const at = row & OFFSET_MASK;
    return (page.knownRound[at] as number) === 0 ? -Infinity : (page.knownUntilMs[at] as number);
  }

  knownLease(row: number): KnownLease | null {
    const page = this.#page(row);
    const at = row & OFFSET_MASK;
    const round = page.knownRound[at] as number;
    if (round === 0) return null;
    const uid = this.#ballot(page.knownInterval[at] as number, round, page.knownIncarnation[at] as number);
    const { server: holder, incarnation } = uid;
    return { holder, incarnation, untilMs: page.knownUntilMs[at] as number, uid };
  }

  knownLeaseIsOf(row: number, server: ServerId, incarnation: Incarnation): boolean {
    const page = this.#page(row);
    const at = row & OFFSET_MASK;
    if ((page.knownRound[at] as number) === 0) return false;
    const found = this.#incarnations.at(page.knownIncarnation[at] as number);
    return found.incarnation === incarnation && found.server === server;
  }

  setKnownLease(row: number, lease: KnownLease | null): void {
    const page = this.#page(row);
    const at = row & OFFSET_MASK;
    if (lease === null) {
      page.knownRound[at] = 0;
      return;
    }
    const { uid } = lease;
    page.knownUntilMs[at] = lease.untilMs;
    page.knownInterval[at] = uid.interval;
    page.knownRound[at] = uid.round;
    page.knownIncarnation[at] = this.#incarnationNumber(uid);
  }

  next(row: number): number {
    return this.#page(row).next[row & OFFSET_MASK] as number;
  }

  setNext(row: number, next: number): void {
    this.#page(row).next[row & OFFSET_MASK] = next;
  }

  previous(row: number): number {
    return this.#page(row).previous[row & OFFSET_MASK] as number;
  }

  setPrevious(row: number, previous: number): void {
    this.#page(row).previous[row & OFFSET_MASK] = previous;
  }

  due(row: number): number {
    return this.#page(row).due[row & OFFSET_MASK] as number;
  }

  setDue(row: number, due: number): void {
    this.#page(row).due[row & OFFSET_MASK] = due;
  }

  #ballot(interval: number, round: number, number: number): Ballot {
    if (round === 0) return BALLOT_ZERO;
    const { server, incarnation } = this.#incarnations.at(number);
    return { interval, round, server, incarnation };
  }

  #lease(row: number, writeBallot: Ballot): Lease | null {
    const page = this.#page(row);
    const at = row & OFFSET_MASK;
    const round = page.leaseRound[at] as number;
    if (round === 0) return null;
    const interval = page.leaseInterval[at] as number;
    const { server, incarnation } = this.#incarnations.at(page.leaseIncarnation[at] as number);
    // Most leases were set by the ballot that wrote them: share one object.
    const shared =
      round === writeBallot.round &&
      interval === writeBallot.interval &&
      incarnation === writeBallot.incarnation &&
      server === writeBallot.server;
    const uid = shared ? writeBallot : { interval, round, server, incarnation };
    return {
      holder: uid.server,
      incarnation: uid.incarnation,
      untilMs: page.leaseUntilMs[at] as number,
      uid,
      released: ((page.flags[at] as number) & RELEASED) !== 0,
      claim: this.#claims.size === 0 ? null : (this.#claims.get(row) ?? null),
    };
  }

  #incarnationNumber(k: Ballot): number {
    if (k.round === 0) return 0;
    const { server, incarnation } = k;
    const number = this.#incarnations.number(server, incarnation);
    if (number !== null) return number;
    this.#sweepIncarnations();
    const swept = this.#incarnations.number(server, incarnation);
    assert(swept !== null, 'Rows refer to fewer incarnations than a row can number');
    return swept;
  }

  /** False if only a message without new incarnations fits: a peer that invents them used up the numbers. */
  canAddIncarnations(): boolean {
    if (this.#incarnations.freeCount >= INCARNATIONS_PER_MESSAGE) return true;
    // Sweeps rarely, so that a flood costs little.
    if (this.#refused++ % SWEEP_EVERY !== 0) return false;
    this.#sweepIncarnations();
    return this.#incarnations.freeCount >= INCARNATIONS_PER_MESSAGE;
  }

  #sweepIncarnations(): void {
    const used = new Uint8Array(INCARNATIONS_MAX + 1);
    for (const row of this.rows()) {
      const page = this.#page(row);
      const at = row & OFFSET_MASK;
      if (page.readRound[at] !== 0) used[page.readIncarnation[at] as number] = 1;
      if (page.writeRound[at] !== 0) used[page.writeIncarnation[at] as number] = 1;
      if (page.leaseRound[at] !== 0) used[page.leaseIncarnation[at] as number] = 1;
      if (page.knownRound[at] !== 0) used[page.knownIncarnation[at] as number] = 1;
    }
    this.#incarnations.sweep(used);
  }

  #flag(row: number, bit: number, set: boolean): void {
    const { flags } = this.#page(row);
    const before = flags[row & OFFSET_MASK] as number;
    flags[row & OFFSET_MASK] = set ? before | bit : before & ~bit;
  }

  #page(row: number): CellPage {
    return this.#pages[row >>> PAGE_BITS] as CellPage;
  }

  #takeRow(): number {
    const row = this.#freeRow;
    if (row !== NONE) {
      this.#freeRow = this.next(row);
      return row;
    }
    const last = this.#pages.length - 1;
    const page = this.#pages[last] as CellPage;
    if (this.#rows === last * PAGE_ROWS + page.rows) {
      if (page.rows < PAGE_ROWS) this.#pages[last] = page.grown(Math.min(page.rows * 2, PAGE_ROWS));
      else this.#pages.push(new CellPage(PAGE_ROWS));
    }
    return this.#rows++;
  }
}

import type { CellId } from '../base/ids.ts';
import type { Prng } from '../base/prng.ts';
import type { Acceptor } from './acceptor.ts';
import type { LeaseAction, LeaseMark } from './actions.ts';
import type { AttemptLimit } from './attempt-limit.ts';
import type { BallotSequence } from './ballot.ts';
import type { CellTable } from './cell-table.ts';
import { CellWorks } from './cell-works.ts';
import type { ClockMonitor } from './clock-monitor.ts';
import type { Group } from './group.ts';
import type { LeaseParameters } from './parameters.ts';
import type { LeaseRules } from './rules.ts';
import type { ServerBidder } from './server-bidder.ts';
import type { TimingWheel } from './timing-wheel.ts';
import { type CellWork, workBegin } from './work.ts';

export interface CellContext {
  readonly parameters: LeaseParameters;
  readonly rules: LeaseRules;
  readonly ballots: BallotSequence;
  readonly acceptor: Acceptor;
  readonly serverBidder: ServerBidder;
  readonly attemptLimit: AttemptLimit;
  readonly monitor: ClockMonitor;
  readonly prng: Prng;
  readonly table: CellTable;
  readonly wheel: TimingWheel;
}

/** Points to one cell: a row of the table, and its `CellWork` while an attempt, release or order is under way. */
export class CellCursor {
  readonly #context: CellContext;
  readonly #works = new CellWorks();
  #row = -1;
  #work: CellWork | null = null;

  constructor(context: CellContext) {
    this.#context = context;
  }

  moveTo(row: number): void {
    this.#row = row;
    this.#work = this.#works.get(row);
  }

  get row(): number {
    return this.#row;
  }

  get id(): CellId {
    return this.#context.table.cell(this.#row);
  }

  get work(): CellWork | null {
    return this.#work;
  }

  get group(): Group {
    return this.#context.table.group(this.#row);
  }

  get isOpen(): boolean {
    return this.#context.table.isOpen(this.#row);
  }

  /** The known lease belongs to this incarnation of this server. */
  get isOwn(): boolean {
    const { self, incarnation } = this.#context.parameters;
    return this.#context.table.knownLeaseIsOf(this.#row, self, incarnation);
  }

  workOrNew(): CellWork {
    if (this.#work !== null) return this.#work;
    const { wheel } = this.#context;
    const work = workBegin(this.isOpen ? wheel.dueMs(this.#row) : Infinity);
    this.#works.add(this.#row, work);
    this.#work = work;
    return work;
  }

  dropWork(): void {
    if (this.#work === null) return;
    this.#works.delete(this.#row);
    this.#work = null;
  }

  endAttempt(work: CellWork): void {
    if (work.attempt === null) return;
    work.attempt = null;
    this.#context.attemptLimit.end();
  }

  trace(out: LeaseAction[], mark: LeaseMark, detail: string): void {
    out.push({ kind: 'trace', mark, cell: this.id, detail });
  }
}

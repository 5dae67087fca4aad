import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import type { LeaseAction, LeaseMark } from './actions.ts';
import { ballotText } from './ballot.ts';
import type { CellTable } from './cell-table.ts';
import { type Group, NO_MEMBERS } from './group.ts';
import type {
  AckReadMessage,
  AckWriteMessage,
  LearnMessage,
  NackMessage,
  QueryMessage,
  ReadMessage,
  RefusedMessage,
  ReleaseMessage,
  WriteMessage,
  WrongViewMessage,
} from './messages.ts';
import type { LeaseTiming } from './parameters.ts';
import { type Register, registerRead, registerRelease, registerWrite } from './register.ts';
import type { LeaseRules } from './rules.ts';

export type AcceptorReply =
  | AckReadMessage
  | AckWriteMessage
  | NackMessage
  | RefusedMessage
  | WrongViewMessage;

const FIRST_VIEW = 1;

/** The voter's part of each cell: its register, and the newest view of requests. [Flease] Alg. 1, [PaxosLease] §4. */
export class Acceptor {
  readonly #rules: LeaseRules;
  readonly #table: CellTable;
  /**
   * A request's view that is newer than this server's own. Kept as long as a lease decided by it can run: a peer that
   * uses it asks again, and a view that only a failed peer had must not block the cell.
   */
  readonly #newerViews = new Map<number, { readonly view: number; readonly untilMs: number }>();
  readonly #newerViewMs: number;

  constructor(rules: LeaseRules, table: CellTable, { leaseMs, clockSkewMaxMs }: LeaseTiming) {
    this.#rules = rules;
    this.#table = table;
    this.#newerViewMs = leaseMs + 2 * clockSkewMaxMs;
  }

  accept(
    row: number,
    message: ReadMessage | WriteMessage | QueryMessage,
    nowMs: number,
    out: LeaseAction[],
  ): AcceptorReply {
    const { cell, ballot, view } = message;
    const rules = this.#rules;
    assert(nowMs >= rules.recovery.untilMs, 'An acceptor that may have forgotten something keeps silent');
    const newest = this.#newestView(row, nowMs);
    if (view < newest) {
      this.#trace(row, out, 'wrong-view', `${view} < ${newest}`);
      return { kind: 'wrong-view', cell, view: newest, ballot };
    }
    if (view > newest || this.#isNewerView(row, view)) this.#noteNewerView(row, view, nowMs);
    const register = this.#table.register(row);
    if (message.kind === 'query') return this.#reportWrite(register, message, nowMs);
    const reason =
      rules.ballotRefusal(ballot, nowMs) ??
      (message.kind === 'write' ? rules.writeRefusal(register, message, nowMs) : null);
    if (reason !== null) {
      this.#trace(row, out, `refused-${reason}`, ballotText(ballot));
      const kind = message.kind === 'read' ? 'refused-read' : 'refused-write';
      return { kind, cell, view, ballot, reason };
    }
    return message.kind === 'read'
      ? this.#read(row, register, message, nowMs)
      : this.#write(row, register, message, nowMs);
  }

  /** Takes in a decided lease, like a WRITE without an answer. @returns false if its view or its time is wrong */
  learn(row: number, message: LearnMessage, nowMs: number): boolean {
    const { ballot, lease } = message;
    const rules = this.#rules;
    if (message.view < this.#newestView(row, nowMs)) return false;
    if (rules.ballotRefusal(ballot, nowMs) !== null || rules.isTooLong(lease, nowMs)) return false;
    // In PaxosLease only the holder's own WRITE may set an end: other servers cannot tell when the lease ends.
    if (rules.helps) this.#replace(row, (register) => registerWrite(register, ballot, lease)[0]);
    return true;
  }

  release(row: number, uid: ReleaseMessage['uid']): void {
    if (this.#table.hasUnreleasedLease(row)) this.#replace(row, (register) => registerRelease(register, uid));
  }

  /** Sets the cell's view and members; a newer view of a request stays the newest. */
  regroup(
    row: number,
    view: number,
    members: readonly ServerId[],
    joint: readonly ServerId[] | undefined,
  ): Group {
    this.#table.setGroup(row, view, members, joint);
    const newer = this.#newerViews.size === 0 ? undefined : this.#newerViews.get(row);
    if (newer !== undefined && newer.view <= view) this.#newerViews.delete(row);
    return this.#table.group(row);
  }

  forget(row: number): void {
    this.#newerViews.delete(row);
  }

  #read(row: number, register: Register, { cell, view, ballot }: ReadMessage, nowMs: number): AcceptorReply {
    const [promised, reply] = registerRead(register, ballot);
    if (promised !== register) this.#table.setRegister(row, promised);
    if (reply.kind === 'nack-read') return { ...reply, cell, view };
    return this.#reportWrite(register, { cell, view, ballot }, nowMs);
  }

  #reportWrite(
    { writeBallot: written, lease }: Register,
    { cell, view, ballot }: Pick<QueryMessage, 'cell' | 'view' | 'ballot'>,
    nowMs: number,
  ): AckReadMessage {
    const reported = lease === null ? null : this.#rules.leaseToSend(lease, nowMs);
    return { kind: 'ack-read', cell, view, ballot, written, lease: reported };
  }

  #write(row: number, register: Register, message: WriteMessage, nowMs: number): AcceptorReply {
    const { cell, view, ballot } = message;
    const kept = this.#rules.leaseToStore(message.lease, register.lease, nowMs);
    const [accepted, reply] = registerWrite(register, ballot, kept);
    if (accepted !== register) this.#table.setRegister(row, accepted);
    if (reply.kind === 'ack-write') return { kind: 'ack-write', cell, view, ballot };
    return { kind: 'nack-write', cell, view, ballot, largestBallot: reply.largestBallot };
  }

  #replace(row: number, change: (register: Register) => Register): void {
    const register = this.#table.register(row);
    const changed = change(register);
    if (changed !== register) this.#table.setRegister(row, changed);
  }

  #newestView(row: number, nowMs: number): number {
    const newer = this.#newerViews.size === 0 ? undefined : this.#newerViews.get(row);
    if (newer === undefined) return this.#table.group(row).view;
    if (nowMs < newer.untilMs) return newer.view;
    this.#newerViews.delete(row);
    return this.#table.group(row).view;
  }

  /** Whether a request has the noted newer view, which is then kept longer. */
  #isNewerView(row: number, view: number): boolean {
    return this.#newerViews.size > 0 && this.#newerViews.get(row)?.view === view;
  }

  /** Remembers the newer view of a request for a while; in the row if it is the first, which nearly all cells keep. */
  #noteNewerView(row: number, view: number, nowMs: number): void {
    const hasNoMembers = this.#table.group(row).voters.length === 0;
    if (hasNoMembers && view === FIRST_VIEW) this.#table.setGroup(row, view, NO_MEMBERS, undefined);
    else this.#newerViews.set(row, { view, untilMs: nowMs + this.#newerViewMs });
  }

  #trace(row: number, out: LeaseAction[], mark: LeaseMark, detail: string): void {
    out.push({ kind: 'trace', mark, cell: this.#table.cell(row), detail });
  }
}

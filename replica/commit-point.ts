import type { ServerId } from '../base/ids.ts';
import type { MemberChange } from './member-change.ts';
import type { OrderContext } from './order-context.ts';
import { viewReachedByMajority } from './view.ts';

/** How far the operations of an epoch are applied here, committed and answered. */
export class CommitPoint {
  readonly #context: OrderContext;
  readonly #members: MemberChange;
  #committedSeq: number;
  /** The last operation answered to clients; with policy `all` it may lag behind the commit point. */
  #answeredSeq: number;
  /** Since when a commit waits for a read lease holder only; Infinity if none waits. */
  #waitsForReaderSinceMs = Infinity;

  constructor(context: OrderContext, members: MemberChange) {
    this.#context = context;
    this.#members = members;
    this.#committedSeq = context.base.seq;
    this.#answeredSeq = context.base.seq;
  }

  get committedSeq(): number {
    return this.#committedSeq;
  }

  get answeredSeq(): number {
    return this.#answeredSeq;
  }

  /** How long a commit has waited for a read lease holder only; −Infinity if none waits. */
  waitedForReaderMs(nowMs: number): number {
    return nowMs - this.#waitsForReaderSinceMs;
  }

  /** When a commit may be possible without a message: the end of a read lease that it waits for. */
  nextCommitMs(nowMs: number): number {
    return this.#waitsForReaderSinceMs === Infinity ? Infinity : this.#context.grants.nextEndMs(nowMs);
  }

  /** @returns whether operations were committed or answered */
  advance(nowMs: number): boolean {
    const committedSeq = this.#committedSeq;
    const answeredSeq = this.#answeredSeq;
    this.#applyOwn(nowMs);
    this.#commit(nowMs);
    this.#answer();
    return this.#committedSeq > committedSeq || this.#answeredSeq > answeredSeq;
  }

  /** Applies operations at this replica. `first`: at once. `last`: after the others of a majority, which commits. */
  #applyOwn(nowMs: number): void {
    const { state, log, config } = this.#context;
    while (state.issuedSeq < log.lastSeq) {
      const seq = state.issuedSeq + 1;
      if (config.appliesAtPrimary === 'last' && this.#committableSeq(Infinity, nowMs) < seq) break;
      const { operation, sessions } = log.get(seq);
      state.apply(operation, sessions, false);
    }
  }

  /**
   * Commits what a majority, this replica included, and all read lease holders applied in this epoch. Acks are
   * cumulative: the k-th largest gives it. Acks of older epochs never get here: there a number is another operation.
   */
  #commit(nowMs: number): void {
    const { state, out, log, grants, peers, epoch } = this.#context;
    const committedSeq = Math.min(this.#committableSeq(state.seq, nowMs), state.seq);
    if (committedSeq <= this.#committedSeq) return;
    const from = this.#committedSeq + 1;
    this.#committedSeq = committedSeq;
    out.push({ kind: 'advanced', committedSeq });
    for (let seq = from; seq <= committedSeq; seq++) {
      const { view } = log.get(seq).operation;
      if (view === undefined) continue;
      this.#members.committed(view);
      state.reportView();
    }
    for (const server of grants.holders(nowMs)) {
      // Holders of read leases cannot serve an operation before they know that it is committed.
      if (peers.has(server)) out.send(server, { kind: 'commit', epoch, committedSeq });
    }
  }

  /** Answers committed operations; with policy `all` those that every member has. Reads need not wait for that. */
  #answer(): void {
    const { state, out, log, peers } = this.#context;
    const { view, countedView } = this.#members;
    let answeredSeq = this.#committedSeq;
    // Members change by majorities even with policy `all`: a failed member must be replaceable.
    if (view.policy === 'all' && countedView.joint === undefined) {
      const ackedSeq = (server: ServerId): number => peers.ackedSeq(server, state.seq);
      answeredSeq = Math.min(answeredSeq, viewReachedByMajority(countedView, ackedSeq, true));
    }
    while (this.#answeredSeq < answeredSeq) {
      this.#answeredSeq++;
      const sequenced = log.get(this.#answeredSeq);
      const { result } = sequenced.operation;
      const seq = this.#answeredSeq;
      for (const ticket of sequenced.tickets) out.push({ kind: 'committed', ticket, seq, result });
      sequenced.tickets = [];
    }
  }

  /** The last operation that a majority and all read lease holders have, if this replica has all up to `ownSeq`. */
  #committableSeq(ownSeq: number, nowMs: number): number {
    const { config, peers, log, out, grants } = this.#context;
    const { self } = config;
    const ackedSeq = (server: ServerId): number => peers.ackedSeq(server, ownSeq);
    const reached = viewReachedByMajority(this.#members.countedView, ackedSeq);
    let atReaders = reached;
    for (const server of grants.holders(nowMs)) {
      if (server !== self) atReaders = Math.min(atReaders, Math.max(this.#committedSeq, ackedSeq(server)));
    }
    const waits = atReaders < reached && atReaders < log.lastSeq && reached > this.#committedSeq;
    if (waits && this.#waitsForReaderSinceMs === Infinity) {
      out.trace('waited-for-reader', `at operation ${reached}`);
      this.#waitsForReaderSinceMs = nowMs;
    } else if (!waits) {
      this.#waitsForReaderSinceMs = Infinity;
    }
    return Math.min(atReaders, this.#members.lastJointSeq);
  }
}

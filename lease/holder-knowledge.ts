import type { LeaseAction, LeaseView } from './actions.ts';
import type { AttemptTiming } from './attempt-timing.ts';
import { ballotCompare } from './ballot.ts';
import type { CellContext, CellCursor } from './cell-cursor.ts';
import type { KnownLease } from './cell-table.ts';
import type { Lease } from './lease.ts';
import type { LearnMessage } from './messages.ts';

/** What this server knows of a cell's holder: itself, or another server named by a message. */
export class HolderKnowledge {
  readonly #context: CellContext;
  readonly #cursor: CellCursor;
  readonly #timing: AttemptTiming;

  constructor(context: CellContext, cursor: CellCursor, timing: AttemptTiming) {
    this.#context = context;
    this.#cursor = cursor;
    this.#timing = timing;
  }

  /** @returns the holder as far as this server knows; null if it knows no valid lease. `own`: it is this process */
  view(nowMs: number): LeaseView {
    const known = this.#context.table.knownLease(this.#cursor.row);
    if (known === null) return { holder: null, own: false, remainingMs: 0 };
    const { holder, untilMs } = known;
    if (this.#cursor.isOwn) {
      if (nowMs < untilMs) return { holder, own: true, remainingMs: untilMs - nowMs };
    } else if (nowMs <= untilMs) {
      // A lease of this server's earlier incarnation runs out unused: redirect no client to it.
      const redirectTo = holder === this.#context.parameters.self ? null : holder;
      return { holder: redirectTo, own: false, remainingMs: untilMs - nowMs };
    }
    return { holder: null, own: false, remainingMs: 0 };
  }

  receiveDecided(message: LearnMessage, nowMs: number, out: LeaseAction[]): void {
    const { acceptor, rules } = this.#context;
    if (!acceptor.learn(this.#cursor.row, message, nowMs)) return;
    const { lease } = message;
    if (lease.claim !== null) out.push({ kind: 'claimed', cell: this.#cursor.id });
    else this.learn(rules.leaseReceived(lease, nowMs), nowMs, out);
  }

  /** Notes another server's decided lease, which ends on the local clock; postpones an own attempt until after it. */
  learn(lease: Lease, nowMs: number, out: LeaseAction[]): void {
    const { serverBidder, table } = this.#context;
    if (lease.claim !== null || lease.released || nowMs > lease.untilMs) return;
    if (serverBidder.isMine(lease)) return;
    // Reports of others do not end this server's running lease; the clocks decide.
    const held = this.#cursor.isOwn;
    const known = table.knownLease(this.#cursor.row);
    // An ended lease is replaced by any: without common clocks the next holder's ballots may be smaller.
    const isRunning = known !== null && nowMs <= known.untilMs;
    if (isRunning && !held && ballotCompare(lease.uid, known.uid) <= 0) return;
    this.announce(lease, out);
    if (held) return;
    table.setKnownLease(this.#cursor.row, lease);
    const work = this.#cursor.work;
    if (work?.attempt?.phase === 'writing' || !table.isOpen(this.#cursor.row)) return;
    const begun = this.#cursor.workOrNew();
    this.#cursor.endAttempt(begun);
    begun.attemptAtMs = this.#timing.afterEndMs(lease.untilMs, nowMs);
  }

  announce(lease: KnownLease, out: LeaseAction[]): void {
    const { holder, incarnation, untilMs } = lease;
    if (holder === this.#context.parameters.self) return;
    out.push({ kind: 'learned', cell: this.#cursor.id, holder, incarnation, untilMs });
  }

  /** Notices that the own lease ended. `lost` may go out late if no event came before; `Cell.holds` is never late. */
  expire(nowMs: number, out: LeaseAction[]): void {
    const { table } = this.#context;
    if (nowMs < table.knownUntilMs(this.#cursor.row) || !this.#cursor.isOwn) return;
    table.setKnownLease(this.#cursor.row, null);
    this.#cursor.trace(out, 'expired', '');
    out.push({ kind: 'lost', cell: this.#cursor.id });
  }
}

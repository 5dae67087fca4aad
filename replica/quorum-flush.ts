import type { ServerId } from '../base/ids.ts';
import type { MemberChange } from './member-change.ts';
import type { OrderContext } from './order-context.ts';
import { viewReachedByMajority } from './view.ts';

interface PendingFlush {
  readonly ticket: number;
  readonly seq: number;
}

/** Clients that wait until a majority has operations safe from power loss. */
export class QuorumFlush {
  readonly #context: OrderContext;
  readonly #members: MemberChange;
  #pending: PendingFlush[] = [];

  constructor(context: OrderContext, members: MemberChange) {
    this.#context = context;
    this.#members = members;
  }

  get isIdle(): boolean {
    return this.#pending.length === 0;
  }

  /** The last operation waited for; −1: none. */
  get wantedSeq(): number {
    return this.#pending.at(-1)?.seq ?? -1;
  }

  /** @param seq the last committed operation */
  wait(ticket: number, seq: number): void {
    this.#pending.push({ ticket, seq });
    this.#context.localFlush.want(seq);
  }

  /** Answers the clients whose operations a majority, this replica included, has synced. */
  advance(): void {
    if (this.#pending.length === 0) return;
    const { localFlush, config, peers, out } = this.#context;
    const ownSeq = localFlush.flushedSeq;
    const flushedSeq = (server: ServerId): number =>
      server === config.self ? ownSeq : (peers.find(server)?.flushedSeq ?? -1);
    const reached = Math.min(ownSeq, viewReachedByMajority(this.#members.countedView, flushedSeq));
    const waiting: PendingFlush[] = [];
    for (const flush of this.#pending) {
      if (reached >= flush.seq) out.push({ kind: 'flushed', ticket: flush.ticket });
      else waiting.push(flush);
    }
    this.#pending = waiting;
  }

  abandon(): void {
    for (const { ticket } of this.#pending) this.#context.out.unknown(ticket);
    this.#pending = [];
  }
}

import { assert } from '../base/assert.ts';
import type { Epoch } from './epoch.ts';
import type { ReplicaMessage } from './messages.ts';
import type { Operation, RequestId } from './operation.ts';
import type { Outbox } from './outbox.ts';
import { sessionsAfter } from './replica-state.ts';
import type { SessionLookup, SessionTable } from './sessions.ts';

/** Memory of an operation beside its bytes. */
const OPERATION_OVERHEAD_BYTES = 128;

/** An operation with its number, and the session table after it. */
export interface Sequenced {
  readonly operation: Operation;
  readonly sessions: SessionTable;
  readonly message: ReplicaMessage;
  /** Bytes of all operations of this epoch up to this one. */
  readonly bytesEnd: number;
  readonly numberedMs: number;
  tickets: readonly number[];
}

/** The kept operations of one epoch, up to the last numbered one. */
export class OperationLog {
  readonly #epoch: Epoch;
  readonly #out: Outbox;
  readonly #retainedBytesMax: number;
  readonly #operations = new Map<number, Sequenced>();
  #firstSeq: number;
  #lastSeq: number;
  #sessions: SessionTable;
  /** `bytesEnd` of the last operation, and of the last one dropped. */
  #bytesEnd = 0;
  #bytesDropped = 0;

  /** @param baseSeq the epoch begins after this operation, with `sessions` */
  constructor(epoch: Epoch, out: Outbox, retainedBytesMax: number, baseSeq: number, sessions: SessionTable) {
    this.#epoch = epoch;
    this.#out = out;
    this.#retainedBytesMax = retainedBytesMax;
    this.#firstSeq = baseSeq + 1;
    this.#lastSeq = baseSeq;
    this.#sessions = sessions;
  }

  get firstSeq(): number {
    return this.#firstSeq;
  }

  get lastSeq(): number {
    return this.#lastSeq;
  }

  find(request: RequestId): SessionLookup {
    return this.#sessions.find(request);
  }

  append(tickets: readonly number[], operation: Operation, committedSeq: number, nowMs: number): number {
    const seq = this.#lastSeq + 1;
    this.#sessions = sessionsAfter(this.#sessions, seq, operation);
    this.#bytesEnd += operation.body.length + operation.result.length + OPERATION_OVERHEAD_BYTES;
    const epoch = this.#epoch;
    this.#operations.set(seq, {
      operation,
      sessions: this.#sessions,
      message: this.#out.message({ kind: 'write', epoch, seq, committedSeq, operation }),
      bytesEnd: this.#bytesEnd,
      numberedMs: nowMs,
      tickets,
    });
    this.#lastSeq = seq;
    return seq;
  }

  get(seq: number): Sequenced {
    const sequenced = this.#operations.get(seq);
    assert(sequenced !== undefined, 'Operations are kept until they are committed and applied');
    return sequenced;
  }

  findKept(seq: number): Sequenced | undefined {
    return this.#operations.get(seq);
  }

  /** @returns bytes of all operations of the epoch up to `seq`, or of the dropped ones if it was dropped */
  bytesUpTo(seq: number): number {
    return this.#operations.get(seq)?.bytesEnd ?? this.#bytesDropped;
  }

  /**
   * Drops operations up to `neededSeq`, which no reachable peer lacks, and, beyond the byte limit, also those that
   * lagging peers lack: they fetch the state.
   * @param doneSeq the last operation answered and applied here; later ones are never dropped
   */
  drop(neededSeq: number, doneSeq: number): void {
    while (this.#firstSeq <= neededSeq) this.#dropFirst();
    if (!this.#isOverfull) return;
    const firstSeq = this.#firstSeq;
    while (this.#firstSeq <= doneSeq && this.#isOverfull) this.#dropFirst();
    if (this.#firstSeq > firstSeq)
      this.#out.trace('retained-dropped', `up to operation ${this.#firstSeq - 1}`);
  }

  get #isOverfull(): boolean {
    return this.#bytesEnd - this.#bytesDropped > this.#retainedBytesMax;
  }

  #dropFirst(): void {
    this.#bytesDropped = this.get(this.#firstSeq).bytesEnd;
    this.#operations.delete(this.#firstSeq);
    this.#firstSeq++;
  }

  clear(): void {
    this.#operations.clear();
  }
}

import { assert } from '../base/assert.ts';
import type { Epoch } from './epoch.ts';
import { epochEqual } from './epoch.ts';
import type { Outbox } from './outbox.ts';
import type { ReplicaState } from './replica-state.ts';

/** Makes operations survive power loss here. One flush at a time serves all that wait. */
export class LocalFlush {
  readonly #out: Outbox;
  readonly #state: ReplicaState;
  /** Requested in the installed epoch; −1: none. */
  #wantedSeq = -1;
  #running: { readonly epoch: Epoch; readonly seq: number } | null = null;
  /** The last operation in `#epoch` that survives; −1: none known. */
  #flushedSeq = -1;
  #epoch: Epoch;

  constructor(out: Outbox, state: ReplicaState) {
    this.#out = out;
    this.#state = state;
    this.#epoch = state.installed;
  }

  get flushedSeq(): number {
    this.#resetIfNewEpoch();
    return this.#flushedSeq;
  }

  want(seq: number): void {
    this.#resetIfNewEpoch();
    this.#wantedSeq = Math.max(this.#wantedSeq, seq);
  }

  /** Starts a flush if one is wanted and all its operations are applied. */
  advance(): void {
    this.#resetIfNewEpoch();
    if (this.#running !== null || this.#wantedSeq <= this.#flushedSeq) return;
    if (this.#state.seq < this.#wantedSeq) return;
    this.#running = { epoch: this.#epoch, seq: this.#state.seq };
    this.#out.push({ kind: 'flush-local' });
  }

  /** @returns whether more survives than before, in the installed epoch */
  done(seq: number): boolean {
    this.#resetIfNewEpoch();
    const running = this.#running;
    assert(running !== null, 'What is flushed was ordered');
    this.#running = null;
    // The flush says nothing about a state installed since.
    if (!epochEqual(running.epoch, this.#epoch)) return false;
    assert(seq >= running.seq, 'A flush covers what was applied when it began');
    const before = this.#flushedSeq;
    // The store may be ahead: operations after a change of view count as applied only once it is synced.
    this.#flushedSeq = Math.max(before, Math.min(seq, this.#state.seq));
    return this.#flushedSeq > before;
  }

  /** Forgets sequence numbers of an earlier epoch: in the installed one they are other operations. */
  #resetIfNewEpoch(): void {
    if (epochEqual(this.#epoch, this.#state.installed)) return;
    this.#epoch = this.#state.installed;
    this.#flushedSeq = -1;
    this.#wantedSeq = -1;
  }
}

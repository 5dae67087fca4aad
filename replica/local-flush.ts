import { assert } from '../base/assert.ts';
import type { Epoch } from './epoch.ts';
import { epochEqual } from './epoch.ts';
import type { Outbox } from './outbox.ts';
import type { ReplicaState } from './replica-state.ts';

/** Makes operations survive power loss here. One flush at a time serves all that wait. */
export class LocalFlush {
  readonly #out: Outbox;
  readonly #standing: ReplicaState;
  /** Requested in the installed epoch; −1: none. */
  #wantedSeq = -1;
  #running: { readonly epoch: Epoch; readonly seq: number } | null = null;
  /** The last operation in `#epoch` that survives; −1: none known. */
  #flushedSeq = -1;
  #epoch: Epoch;

  constructor(out: Outbox, standing: ReplicaState) {
    this.#out = out;
    this.#standing = standing;
    this.#epoch = standing.installed;
  }

  get flushedSeq(): number {
    this.#follow();
    return this.#flushedSeq;
  }

  want(seq: number): void {
    this.#follow();
    this.#wantedSeq = Math.max(this.#wantedSeq, seq);
  }

  /** Starts a flush if one is wanted and all its operations are applied. */
  advance(): void {
    this.#follow();
    if (this.#running !== null || this.#wantedSeq <= this.#flushedSeq) return;
    if (this.#standing.seq < this.#wantedSeq) return;
    this.#running = { epoch: this.#epoch, seq: this.#standing.seq };
    this.#out.push({ kind: 'flush-local' });
  }

  /** @returns whether more survives than before, in the installed epoch */
  done(seq: number): boolean {
    this.#follow();
    const running = this.#running;
    assert(running !== null, 'What is flushed was ordered');
    this.#running = null;
    // The flush says nothing about a state installed since.
    if (!epochEqual(running.epoch, this.#epoch)) return false;
    assert(seq >= running.seq, 'A flush covers what was applied when it began');
    const before = this.#flushedSeq;
    // The store may be ahead: operations after a change of view count as applied only once it is synced.
    this.#flushedSeq = Math.max(before, Math.min(seq, this.#standing.seq));
    return this.#flushedSeq > before;
  }

  /** Starts afresh with each installed epoch: its numbers are other operations. */
  #follow(): void {
    if (epochEqual(this.#epoch, this.#standing.installed)) return;
    this.#epoch = this.#standing.installed;
    this.#flushedSeq = -1;
    this.#wantedSeq = -1;
  }
}

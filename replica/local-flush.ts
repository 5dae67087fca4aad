import { assert } from '../base/assert.ts';
import type { Epoch } from './epoch.ts';
import { epochEqual } from './epoch.ts';
import type { Outbox } from './outbox.ts';
import type { Standing } from './standing.ts';

/** Makes operations survive loss of power at this replica. One flush at a time serves all who wait. */
export class LocalFlush {
  readonly #out: Outbox;
  readonly #standing: Standing;
  /** Wanted in the installed epoch; −1 for nothing. */
  #wantedSeq = -1;
  #running: { readonly epoch: Epoch; readonly seq: number } | null = null;
  /** What survives, as a position in `#epoch`; −1 where nothing is known to. */
  #flushedSeq = -1;
  #epoch: Epoch;

  constructor(out: Outbox, standing: Standing) {
    this.#out = out;
    this.#standing = standing;
    this.#epoch = standing.installed;
  }

  /** The last operation of the installed epoch known to survive, or −1. */
  get flushedSeq(): number {
    this.#follow();
    return this.#flushedSeq;
  }

  want(seq: number): void {
    this.#follow();
    this.#wantedSeq = Math.max(this.#wantedSeq, seq);
  }

  /** Starts a flush if one is wanted and everything it is for has been applied. */
  advance(): void {
    this.#follow();
    if (this.#running !== null || this.#wantedSeq <= this.#flushedSeq) return;
    if (this.#standing.seq < this.#wantedSeq) return;
    this.#running = { epoch: this.#epoch, seq: this.#standing.seq };
    this.#out.push({ kind: 'flush-local' });
  }

  /** @returns whether more than before survives, in the installed epoch */
  done(seq: number): boolean {
    this.#follow();
    const running = this.#running;
    assert(running !== null, 'What is flushed was ordered');
    this.#running = null;
    // Between order and report another state may have been installed, of which this says nothing.
    if (!epochEqual(running.epoch, this.#epoch)) return false;
    assert(seq >= running.seq, 'A flush covers what was applied when it began');
    const before = this.#flushedSeq;
    // The store may be ahead: what follows a change of view counts as applied only once the change is synced.
    this.#flushedSeq = Math.max(before, Math.min(seq, this.#standing.seq));
    return this.#flushedSeq > before;
  }

  /** Begins anew with each installed epoch: its numbers name other operations. */
  #follow(): void {
    if (epochEqual(this.#epoch, this.#standing.installed)) return;
    this.#epoch = this.#standing.installed;
    this.#flushedSeq = -1;
    this.#wantedSeq = -1;
  }
}

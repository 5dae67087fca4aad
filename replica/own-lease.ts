import type { LeaseReading } from './order-context.ts';

/** This server's lease. Compared with the clock at every step and read, never by a timer. */
export class OwnLease implements LeaseReading {
  #untilMs = 0;
  #view = 0;
  #decisions = 0;

  get untilMs(): number {
    return this.#untilMs;
  }

  get view(): number {
    return this.#view;
  }

  get decisions(): number {
    return this.#decisions;
  }

  get isHeld(): boolean {
    return this.#untilMs !== 0;
  }

  /** Strictly before its end: at the end itself another server may begin. */
  isValid(nowMs: number): boolean {
    return nowMs < this.#untilMs;
  }

  /** @param view number of the view whose voters decided it; 0 if it was decided before */
  extend(untilMs: number, view: number): void {
    this.#untilMs = untilMs;
    this.#view = Math.max(this.#view, view);
    if (view > 0) this.#decisions++;
  }

  end(): void {
    this.#untilMs = 0;
    this.#view = 0;
  }
}

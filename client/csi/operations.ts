import { CallFailure } from './call-failure.ts';

/**
 * Calls in progress, one at a time for each volume. A call continues when its caller has gone, so that a long copy ends
 * although each attempt to wait for it times out; until then a repetition is refused.
 */
export class Operations {
  readonly #running = new Set<string>();
  readonly #repairs = new Map<string, Promise<unknown>>();

  /** Waits for a repair that has one of the keys. @throws CallFailure `ABORTED` while another call has one */
  async run<Value>(keys: readonly string[], work: () => Promise<Value>): Promise<Value> {
    const taken = keys.find((key) => this.#running.has(key));
    if (taken !== undefined)
      throw new CallFailure('ABORTED', `Another call for ${taken} is in progress: repeat it later`);
    for (const key of keys) this.#running.add(key);
    try {
      await Promise.allSettled(keys.map((key) => this.#repairs.get(key)));
      return await work();
    } finally {
      for (const key of keys) this.#running.delete(key);
    }
  }

  /** Repairs unless a call has the key: it looks itself. */
  async repair(key: string, work: () => Promise<void>): Promise<void> {
    if (this.#running.has(key)) return;
    const repair = work();
    this.#repairs.set(key, repair);
    try {
      await repair;
    } finally {
      this.#repairs.delete(key);
    }
  }
}

import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import type { CallOptions } from '../../client/transport/exchange.ts';

/** The time limit of a request while the catalog is unavailable, in milliseconds. */
const SHORT_MS = 500;
/** Between two probes, if the first one failed at once. */
const PAUSE_MS = 250;

type Limits = Pick<CallOptions, 'timeoutMs'>;

/**
 * Whether the catalog is unavailable: a request has reached its time limit, and none was answered since.
 * The kernel serializes calls on one directory. If each took a whole limit, the last of many programs would wait for
 * all of them. So later requests fail soon, until a probe, which is repeated all the time, is answered.
 */
export class CatalogAvailability {
  readonly #world: World;
  readonly #probe: () => Promise<unknown>;
  #isUnavailable = false;
  #answeredMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  constructor(world: World, probe: () => Promise<unknown>) {
    this.#world = world;
    this.#probe = probe;
  }

  get isUnavailable(): boolean {
    return this.#isUnavailable;
  }

  /** Sends a request, with a short time limit while the catalog is unavailable; its outcome shows whether it is. */
  async request<Value>(ask: (limits: Limits) => Promise<Value>): Promise<Value> {
    const beganMs = this.#world.nowMs();
    try {
      const value = await ask(this.#isUnavailable ? { timeoutMs: SHORT_MS } : {});
      this.#answered();
      return value;
    } catch (error) {
      if (!isTimeout(error)) this.#answered();
      else if (!this.#isUnavailable && beganMs > this.#answeredMs) this.#becameUnavailable();
      throw error;
    }
  }

  close(): void {
    this.#isClosed = true;
  }

  #answered(): void {
    this.#answeredMs = this.#world.nowMs();
    this.#isUnavailable = false;
  }

  #becameUnavailable(): void {
    this.#isUnavailable = true;
    void this.#probeUntilAnswered();
  }

  async #probeUntilAnswered(): Promise<void> {
    while (this.#isUnavailable && !this.#isClosed) {
      try {
        await this.#probe();
        this.#answered();
      } catch (error) {
        // A refusal is an answer.
        if (!isTimeout(error)) this.#answered();
        else await this.#world.sleep(PAUSE_MS, { unref: true });
      }
    }
  }
}

/** The time limit passed before any final answer. */
function isTimeout(error: unknown): boolean {
  return error instanceof ServiceError && error.remedy === 'retry';
}

import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import type { CallOptions } from '../../client/exchange.ts';

/** How long a question may take while the catalog is out of reach, in milliseconds. */
const SHORT_MS = 500;
/** Between two looks at whether it is back, where the first one failed at once. */
const PAUSE_MS = 250;

type Limits = Pick<CallOptions, 'timeoutMs'>;

/**
 * Whether the catalog is out of reach: somebody has asked it for a whole time limit in vain, and nobody was answered since.
 *
 * The kernel has changes of one directory made one after the other, and looks for names in it meanwhile, too. If each of them took a whole limit, the
 * last of many programs would wait for as many limits as there are programs. So the first one finds out, and those that come after it are refused soon,
 * until the catalog, which is asked all the time from then on, is back.
 */
export class CatalogReach {
  readonly #world: World;
  readonly #look: () => Promise<unknown>;
  #isAway = false;
  #answeredMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  /** @param look asks the catalog for something, for as long as questions usually may take */
  constructor(world: World, look: () => Promise<unknown>) {
    this.#world = world;
    this.#look = look;
  }

  get isAway(): boolean {
    return this.#isAway;
  }

  /**
   * @param ask is to take no longer than the limits that it is given
   * @throws what `ask` throws
   */
  async ask<Value>(ask: (limits: Limits) => Promise<Value>): Promise<Value> {
    const beganMs = this.#world.nowMs();
    try {
      const value = await ask(this.#isAway ? { timeoutMs: SHORT_MS } : {});
      this.#answered();
      return value;
    } catch (error) {
      if (!isSilence(error)) this.#answered();
      else if (!this.#isAway && beganMs > this.#answeredMs) this.#began();
      throw error;
    }
  }

  close(): void {
    this.#isClosed = true;
  }

  #answered(): void {
    this.#answeredMs = this.#world.nowMs();
    this.#isAway = false;
  }

  #began(): void {
    this.#isAway = true;
    void this.#watch();
  }

  async #watch(): Promise<void> {
    while (this.#isAway && !this.#isClosed) {
      try {
        await this.#look();
        this.#answered();
      } catch (error) {
        // A refusal is an answer.
        if (!isSilence(error)) this.#answered();
        else await this.#world.sleep(PAUSE_MS, { unref: true });
      }
    }
  }
}

/** Time was over before anybody answered for good. */
function isSilence(error: unknown): boolean {
  return error instanceof ServiceError && error.remedy === 'retry';
}

import { ServiceError } from '../base/errors.ts';
import type { World } from '../base/world.ts';
import { inTime, type WaitLimits } from './in-time.ts';

/** A server keeps the results of this many requests of a session; older numbers are refused. */
export const REQUEST_WINDOW = 64;

/**
 * Numbers 1, 2, 3 … for the requests of one session. No number is given out while one that is `REQUEST_WINDOW`
 * smaller is still in use, so that a slow request's retry is never too old to be answered.
 */
export class RequestWindow {
  readonly session: number;
  readonly #world: World;
  /** What the cluster names as `since` when the session begins; servers of an earlier release name nothing. */
  readonly since: number | undefined;
  /** The newest epoch of the catalog that was known when the session began; 0 before any. */
  readonly epoch: number;
  #next = 1;
  readonly #inUse = new Set<number>();
  readonly #waiting: ((number: number) => void)[] = [];

  constructor(world: World, since?: number | null, epoch = 0) {
    this.#world = world;
    this.session = drawSession(world);
    this.since = since ?? undefined;
    this.epoch = epoch;
  }

  /**
   * @returns the next number, as soon as the window has room; first come, first served
   * @throws ServiceError `no-majority` where it has none in time, or the reason of the signal
   */
  async acquire(limits: WaitLimits): Promise<number> {
    if (this.#waiting.length === 0 && this.#hasRoom()) return this.#take();
    const { promise, resolve } = Promise.withResolvers<number>();
    this.#waiting.push(resolve);
    const why = `A request sent before has no answer, and no more than ${REQUEST_WINDOW} can follow it`;
    try {
      return await inTime(this.#world, promise, limits, () => new ServiceError('no-majority', why));
    } catch (error) {
      const at = this.#waiting.indexOf(resolve);
      if (at === -1) this.release(await promise);
      else this.#waiting.splice(at, 1);
      throw error;
    }
  }

  /** All numbers up to this one were released: their results will not be asked for any more. */
  get answered(): number {
    // Numbers are given out in order and a Set keeps it, so the first one is the smallest.
    const [oldest] = this.#inUse;
    return (oldest ?? this.#next) - 1;
  }

  release(number: number): void {
    this.#inUse.delete(number);
    while (this.#waiting.length > 0 && this.#hasRoom()) this.#waiting.shift()?.(this.#take());
  }

  #take(): number {
    const number = this.#next++;
    this.#inUse.add(number);
    return number;
  }

  #hasRoom(): boolean {
    return this.#next - this.answered <= REQUEST_WINDOW;
  }
}

/** @returns a random integer from 1 to 2^53 − 1 */
export function drawSession(world: World): number {
  const bytes = world.randomBytes(8);
  const high = bytes.readUInt32BE(0) & 0x1f_ffff;
  return high * 0x1_0000_0000 + bytes.readUInt32BE(4) || 1;
}

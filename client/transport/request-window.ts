import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { inTime, type WaitLimits } from './in-time.ts';

/** A server keeps the results of this many requests of a session; it refuses older numbers. */
export const REQUEST_WINDOW = 64;

/**
 * Numbers 1, 2, 3 … for the requests of one session. A number is given out only when the one `REQUEST_WINDOW` below it
 * is released, so that the retry of a slow request is never too old to be answered.
 */
export class RequestWindow {
  readonly session: number;
  readonly #world: World;
  /** Sent as `since` when the session begins; servers of an earlier release report no value. */
  readonly since: number | undefined;
  /** The newest known epoch of the catalog when the session began; 0 before any. */
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

  /** @returns a number, in the order of the calls @throws ServiceError `no-majority` if none is free in time */
  async acquire(limits: WaitLimits): Promise<number> {
    if (this.#waiting.length === 0 && this.#isOpen()) return this.#take();
    const { promise, resolve } = Promise.withResolvers<number>();
    this.#waiting.push(resolve);
    const why = `An earlier request has no answer yet, and at most ${REQUEST_WINDOW} later ones may be sent`;
    try {
      return await inTime(this.#world, promise, limits, () => new ServiceError('no-majority', why));
    } catch (error) {
      const at = this.#waiting.indexOf(resolve);
      if (at === -1) this.release(await promise);
      else this.#waiting.splice(at, 1);
      throw error;
    }
  }

  /** All numbers up to this one were released: no retry will need their results. */
  get answered(): number {
    // A Set keeps the order of insertion, so the first number is the smallest.
    const [oldest] = this.#inUse;
    return (oldest ?? this.#next) - 1;
  }

  release(number: number): void {
    this.#inUse.delete(number);
    while (this.#waiting.length > 0 && this.#isOpen()) this.#waiting.shift()?.(this.#take());
  }

  #take(): number {
    const number = this.#next++;
    this.#inUse.add(number);
    return number;
  }

  #isOpen(): boolean {
    return this.#next - this.answered <= REQUEST_WINDOW;
  }
}

/** @returns a random integer from 1 to 2^53 − 1 */
export function drawSession(world: World): number {
  const bytes = world.randomBytes(8);
  const high = bytes.readUInt32BE(0) & 0x1f_ffff;
  return high * 0x1_0000_0000 + bytes.readUInt32BE(4) || 1;
}

import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import { succeedsWithin } from '../process/bounded.ts';
import type { Clock } from '../process/clock.ts';
import type { ReplicaHost } from './replica-host.ts';

/** Longest wait for the operations in progress when a primary releases a file. */
const STOP_MS_MAX = 2_000;
/** Other servers have this long to become primary of a file for which there is no space here. */
const TAKEOVER_MS = 1_000;

interface ReleasedFilesParts {
  readonly world: World;
  readonly clock: Clock;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
}

/** Files that this server left to others for lack of disk space. */
export class ReleasedFiles {
  readonly #parts: ReleasedFilesParts;
  readonly #releasing = new Map<ReplicaDriver, Promise<void>>();
  readonly #released = new WeakMap<ReplicaDriver, { readonly untilMs: number; readonly error: unknown }>();

  constructor(parts: ReleasedFilesParts) {
    this.#parts = parts;
  }

  /**
   * Ends the epoch, then releases the lease. Concurrent writes wait for the same end.
   * @param error with which requests are refused until other servers had time to become primary
   */
  async release(driver: ReplicaDriver, error: unknown): Promise<void> {
    const { world, clock, lease } = this.#parts;
    this.#released.set(driver, { untilMs: clock.nowMs() + TAKEOVER_MS, error });
    let leaving = this.#releasing.get(driver);
    if (leaving === undefined) {
      leaving = succeedsWithin(world, driver.stop(), STOP_MS_MAX).then((stopped) => {
        this.#releasing.delete(driver);
        if (!stopped) return;
        lease.release(driver.file);
        lease.close(driver.file);
      });
      this.#releasing.set(driver, leaving);
    }
    await leaving;
  }

  assertNotReleased(file: FileId): void {
    const driver = this.#parts.host.loaded(file);
    if (driver === null || driver.isPrimary) return;
    const released = this.#released.get(driver);
    if (released !== undefined && this.#parts.clock.nowMs() < released.untilMs) throw released.error;
  }
}

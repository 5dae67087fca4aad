import type { Logger } from 'pino';
import { viewVoters } from '../../replica/view.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { WakeQueue } from '../drivers/wake-queue.ts';
import type { Clock } from '../process/clock.ts';

/** For this time, a server with a damaged replica does not compete for the lease; then it serves what it can. */
const OTHERS_FIRST_MS = 30_000;

export interface CatalogReplacementParts {
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly log: Logger;
  readonly lease: Pick<LeaseDriver, 'open' | 'close' | 'release'>;
  readonly driver: ReplicaDriver;
  reportReplica(news: 'damaged' | 'replaced'): void;
}

/** Takes a damaged replica of the catalog out of service, until a copy of another server's replica has replaced it. */
export class CatalogReplacement {
  readonly #parts: CatalogReplacementParts;
  #othersFirstUntilMs = -Infinity;

  constructor(parts: CatalogReplacementParts) {
    this.#parts = parts;
  }

  get hasOtherReplica(): boolean {
    return viewVoters(this.#parts.driver.view).length > 1;
  }

  /** Whether this server still does not compete for the lease, or another one has it and sends its state. */
  get #isUnderWay(): boolean {
    const { driver, clock } = this.#parts;
    if (clock.nowMs() < this.#othersFirstUntilMs) return true;
    return driver.role === 'backup' && driver.status().trust === 'damaged';
  }

  /** The store found a damaged page: fails the replica, which restarts as `damaged`, and releases the lease. */
  startReplacement(reason: string): void {
    const { driver, lease, clock, wakes, log } = this.#parts;
    if (driver.closed || this.#isUnderWay) return;
    if (!this.hasOtherReplica) {
      log.error({ reason }, 'the catalog has a damaged page, and no other server has a replica of it');
      return;
    }
    log.error({ reason }, 'the catalog has a damaged page: replacing this replica by a copy of another one');
    this.#parts.reportReplica('damaged');
    if (driver.role !== 'failed') driver.step({ kind: 'storage-failed', reason });
    lease.close(driver.file);
    lease.release(driver.file);
    this.#othersFirstUntilMs = clock.nowMs() + OTHERS_FIRST_MS;
    wakes.at(this.#othersFirstUntilMs, () => {
      if (clock.nowMs() >= this.#othersFirstUntilMs) this.#compete();
    });
  }

  endReplacement(): void {
    this.#parts.log.info('replaced the damaged catalog replica');
    this.#parts.reportReplica('replaced');
    this.#compete();
  }

  #compete(): void {
    const { driver, lease } = this.#parts;
    this.#othersFirstUntilMs = -Infinity;
    if (!driver.closed) lease.open(driver.file, driver.view);
  }
}

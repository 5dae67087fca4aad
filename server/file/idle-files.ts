import type { Logger } from 'pino';
import { CATALOG_CELL } from '../../base/ids.ts';
import { within } from '../bounded.ts';
import type { Clock } from '../clock.ts';
import type { LeaseDriver } from '../lease-driver.ts';
import type { ReplicaDriver } from '../replica-driver.ts';
import type { ReplicaHost } from '../replica-host.ts';
import type { LocalFileService } from './file-service.ts';

/** What is under way in a file that is given back has this long to end. */
const STOP_MS_MAX = 5_000;
/** How often unused files are looked for. */
const PERIOD_MS = 1_000;

export interface IdleFilesParts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly files: LocalFileService;
  /** A file that nobody used for this long gives its lease back, in milliseconds. */
  readonly idleMs: number;
}

/** Gives back the leases of files that nobody uses, and forgets their replicas until they are used again. */
export class IdleFiles {
  readonly #parts: IdleFilesParts;
  readonly #timer: NodeJS.Timeout;
  readonly #leaving = new Set<ReplicaDriver>();

  constructor(parts: IdleFilesParts) {
    this.#parts = parts;
    this.#timer = setInterval(() => this.#sweep(), PERIOD_MS);
  }

  /**
   * Orderly end of this server: every lease is given back, so that others need not wait for its end.
   * What takes longer than `limitMs` is left to the leases' ends.
   */
  async releaseAll(limitMs: number): Promise<void> {
    clearInterval(this.#timer);
    const drivers = this.#parts.host.all().filter((driver) => driver.file !== CATALOG_CELL);
    await within(Promise.all(drivers.map((driver) => this.#leave(driver, 'ending'))), limitMs);
  }

  /** This server is being drained: files that another server can serve get their primary there at once. */
  async handOver(mayLeave: (driver: ReplicaDriver) => boolean): Promise<void> {
    const drivers = this.#parts.host.all().filter(({ file }) => file !== CATALOG_CELL);
    await Promise.all(
      drivers
        .filter((driver) => driver.leads && mayLeave(driver))
        .map((driver) => this.#leave(driver, 'ending')),
    );
  }

  #sweep(): void {
    const idleSinceMs = this.#parts.clock.nowMs() - this.#parts.idleMs;
    for (const driver of this.#parts.host.all()) {
      if (driver.role === 'failed') {
        this.#giveUp(driver);
        continue;
      }
      if (driver.file === CATALOG_CELL) continue;
      if (driver.usedAtMs > idleSinceMs || !driver.idle) continue;
      void this.#leave(driver, 'idle');
    }
  }

  /**
   * A replica whose disk refused something acknowledges nothing more. It is forgotten, so that the next
   * message finds a new one, which begins from what the disk holds and fetches the rest: perhaps there is room now.
   */
  #giveUp(driver: ReplicaDriver): void {
    if (driver.file === CATALOG_CELL) {
      // The catalog's stays loaded, and its lease wanted.
      if (driver.idle) driver.renew();
      return;
    }
    this.#parts.lease.close(driver.file);
    if (driver.idle) this.#parts.host.unload(driver);
  }

  async #leave(driver: ReplicaDriver, why: 'idle' | 'ending'): Promise<void> {
    const { host, lease, files, log } = this.#parts;
    if (this.#leaving.has(driver)) return;
    this.#leaving.add(driver);
    try {
      if (driver.role === 'active') {
        const usedAtMs = driver.usedAtMs;
        const settling = files.settleBeforeRelease(driver);
        // A file that was not settled stays live: its next primary is asked, and settles it.
        if (why === 'ending') await Promise.allSettled([settling]);
        else await settling;
        driver.usedAtMs = Math.min(driver.usedAtMs, usedAtMs);
        // What cannot be committed would hold the file for ever: then the lease runs out, and others decide.
        if (await within(driver.stop(), STOP_MS_MAX)) lease.release(driver.file);
      }
      lease.close(driver.file);
      // What is still under way to the disk would surprise the next core: the next sweep looks again.
      if (driver.idle) host.unload(driver);
    } catch (error) {
      // The file stays open here; the next sweep tries again, and until then its lease is renewed.
      log.info({ file: driver.file, err: error }, 'an unused file could not be given back yet');
    } finally {
      this.#leaving.delete(driver);
    }
  }
}

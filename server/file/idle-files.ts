import type { Logger } from 'pino';
import { CATALOG_CELL } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import { within } from '../bounded.ts';
import type { Clock } from '../clock.ts';
import type { LeaseDriver } from '../lease-driver.ts';
import type { ReplicaDriver } from '../replica-driver.ts';
import type { ReplicaHost } from '../replica-host.ts';
import { FailedReplicas } from './failed-replicas.ts';
import type { FileSettling } from './file-settling.ts';
import { SUCCESSION_MS_MAX, type Succession } from './succession.ts';

/** What is under way in a file that is given back has this long to end. */
const STOP_MS_MAX = 5_000;
/** How often unused files are looked for. */
const PERIOD_MS = 300;
/**
 * A file that was written and settled, and that nobody used since, is given back after this part of the time: programs make
 * files by the thousand, and few of them are wanted again soon. By default that is a fifth of a lease, so that a file
 * which is settled right after it was made is gone before its first renewal, at a third.
 */
const SETTLED_PART = 1 / 15;
/** Who used a file so recently is expected to go on, and should not wait for more than the next primary. */
const IN_USE_MS = 1_000;

export interface IdleFilesParts {
  readonly world: World;
  readonly clock: Clock;
  readonly log: Logger;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly settling: FileSettling;
  readonly succession: Succession;
  /** A file that nobody used for this long gives its lease back, in milliseconds. */
  readonly idleMs: number;
}

/** Gives back the leases of files that nobody uses, and forgets their replicas until they are used again. */
export class IdleFiles {
  readonly #parts: IdleFilesParts;
  readonly #timer: Timer;
  readonly #leaving = new Set<ReplicaDriver>();
  readonly #failed = new FailedReplicas();

  constructor(parts: IdleFilesParts) {
    this.#parts = parts;
    this.#timer = parts.world.every(PERIOD_MS, () => this.#sweep());
  }

  /**
   * Orderly end of this server: every lease is given back, so that others need not wait for its end.
   * What takes longer than `limitMs` is left to the leases' ends.
   */
  async releaseAll(limitMs: number): Promise<void> {
    this.#timer.cancel();
    const drivers = this.#parts.host.all().filter((driver) => driver.file !== CATALOG_CELL);
    await within(this.#parts.world, this.#leaveAll(drivers), limitMs);
  }

  /** This server is being drained: files that another server can serve get their primary there at once. */
  async handOver(mayLeave: (driver: ReplicaDriver) => boolean): Promise<void> {
    const drivers = this.#parts.host.all().filter(({ file }) => file !== CATALOG_CELL);
    await this.#leaveAll(drivers.filter((driver) => driver.leads && mayLeave(driver)));
  }

  /** @returns a line for each file in use here, with what keeps it in use */
  inUse(): string[] {
    const { clock, host, settling } = this.#parts;
    const drivers = host.all().filter(({ file }) => file !== CATALOG_CELL);
    return drivers.map((driver) => {
      const { file, role, epoch, usedAtMs, underWay } = driver;
      return [
        `file ${file} as ${role} in epoch ${epoch.counter}, used ${Math.round(clock.nowMs() - usedAtMs)} ms ago`,
        ...(underWay.length > 0 ? [`under way: ${underWay.join(', ')}`] : []),
        ...(settling.isDone(driver) ? ['settled'] : []),
        ...(this.#leaving.has(driver) ? ['being given back'] : []),
      ].join('; ');
    });
  }

  #sweep(): void {
    const { clock, idleMs, settling } = this.#parts;
    const nowMs = clock.nowMs();
    for (const driver of this.#parts.host.all()) {
      if (driver.role === 'failed') {
        this.#giveUp(driver);
        continue;
      }
      if (driver.file === CATALOG_CELL) continue;
      const limitMs = settling.isDone(driver) ? idleMs * SETTLED_PART : idleMs;
      if (driver.usedAtMs > nowMs - limitMs || !driver.idle) continue;
      void this.#leave(driver, 'idle');
    }
  }

  /**
   * A replica whose disk refused something acknowledges nothing more. It is forgotten, so that the next
   * message finds a new one, which begins from what the disk holds and fetches the rest: perhaps there is room by then.
   */
  #giveUp(driver: ReplicaDriver): void {
    // The catalog's stays loaded, and its lease wanted.
    if (driver.file !== CATALOG_CELL) this.#parts.lease.close(driver.file);
    if (!driver.idle || !this.#failed.begins(driver.file, this.#parts.clock.nowMs())) return;
    if (driver.file === CATALOG_CELL) driver.renew();
    else this.#parts.host.unload(driver);
  }

  /** The disk has room again, where it had none. */
  hasRoom(): void {
    this.#failed.forget();
  }

  async #leaveAll(drivers: readonly ReplicaDriver[]): Promise<void> {
    const { succession } = this.#parts;
    const wanted = () =>
      drivers.filter((driver) => driver.leads && this.#isInUse(driver) && !this.#leaving.has(driver));
    if (wanted().length > 0) await succession.prepare();
    const succeeded = succession.announce(wanted());
    await Promise.all(drivers.map((driver) => this.#leave(driver, 'ending')));
    // Until others lead, this server's vote and its quiet are worth more to them than its end.
    await within(this.#parts.world, succeeded, SUCCESSION_MS_MAX);
  }

  #isInUse(driver: ReplicaDriver): boolean {
    return this.#parts.clock.nowMs() - driver.usedAtMs < IN_USE_MS;
  }

  async #leave(driver: ReplicaDriver, why: 'idle' | 'ending'): Promise<void> {
    const { host, lease, settling, log } = this.#parts;
    if (this.#leaving.has(driver)) return;
    this.#leaving.add(driver);
    try {
      if (driver.role === 'active' || driver.role === 'beginning' || driver.orders) {
        const usedAtMs = driver.usedAtMs;
        const inUse = this.#isInUse(driver);
        // A file that was not settled stays live: its next primary is asked, and settles it.
        if (why === 'idle') await settling.settleBeforeRelease(driver);
        else if (!inUse) await Promise.allSettled([settling.settleBeforeRelease(driver)]);
        driver.usedAtMs = Math.min(driver.usedAtMs, usedAtMs);
        const hasLease = lease.view(driver.file).own;
        // What cannot be committed would hold the file for ever: then the lease runs out, and others decide.
        if ((await within(this.#parts.world, driver.stop(), STOP_MS_MAX)) && hasLease)
          lease.release(driver.file);
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

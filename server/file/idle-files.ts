import type { Logger } from 'pino';
import { isCatalogCell } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import { succeedsWithin } from '../process/bounded.ts';
import type { Clock } from '../process/clock.ts';
import { FailedReplicas } from './failed-replicas.ts';
import type { FileSettling } from './file-settling.ts';
import type { ReplicaHost } from './replica-host.ts';
import { SUCCESSION_MS_MAX, type Succession } from './succession.ts';

/** Longest wait for the operations in progress when a file is released. */
const STOP_MS_MAX = 5_000;
const PERIOD_MS = 300;
/**
 * A file that was settled, and not used since, is released after this part of the idle time: programs create thousands
 * of files, and use few of them again soon. By default this is a fifth of a lease, before the first renewal at a third.
 */
const SETTLED_PART = 1 / 15;
/** A file that was used this recently is in use: its clients should not wait for more than the next primary. */
const IN_USE_MS = 1_000;

export interface IdleFilesParts {
  readonly world: World;
  readonly clock: Clock;
  readonly log: Logger;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly settling: FileSettling;
  readonly succession: Succession;
  readonly idleMs: number;
}

/** Releases the leases of unused files, and unloads their replicas until they are used again. */
export class IdleFiles {
  readonly #parts: IdleFilesParts;
  readonly #timer: Timer;
  readonly #releasing = new Set<ReplicaDriver>();
  readonly #restartWaits = new FailedReplicas();

  constructor(parts: IdleFilesParts) {
    this.#parts = parts;
    this.#timer = parts.world.every(PERIOD_MS, () => this.#sweep());
  }

  /** This server shuts down: releases all files within `limitMs`, so that no server waits for leases to expire. */
  async releaseAll(limitMs: number): Promise<void> {
    this.#timer.cancel();
    const drivers = this.#parts.host.all().filter((driver) => !isCatalogCell(driver.file));
    await succeedsWithin(this.#parts.world, this.#releaseDrivers(drivers), limitMs);
  }

  /** This server is being drained: files that another server can serve get their primary there at once. */
  async handOver(mayRelease: (driver: ReplicaDriver) => boolean): Promise<void> {
    const drivers = this.#parts.host.all().filter(({ file }) => !isCatalogCell(file));
    await this.#releaseDrivers(drivers.filter((driver) => driver.isPrimary && mayRelease(driver)));
  }

  /** Releases a file that no client uses. */
  release(driver: ReplicaDriver): Promise<void> {
    return this.#release(driver, 'idle');
  }

  inUse(): string[] {
    const { clock, host, settling } = this.#parts;
    const drivers = host.all().filter(({ file }) => !isCatalogCell(file));
    return drivers.map((driver) => {
      const { file, role, epoch, usedAtMs, underWay } = driver;
      return [
        `file ${file} as ${role} in epoch ${epoch.counter}, used ${Math.round(clock.nowMs() - usedAtMs)} ms ago`,
        ...(underWay.length > 0 ? [`under way: ${underWay.join(', ')}`] : []),
        ...(settling.isSettledAndUnused(driver) ? ['settled'] : []),
        ...(this.#releasing.has(driver) ? ['being released'] : []),
      ].join('; ');
    });
  }

  #sweep(): void {
    const { clock, idleMs, settling } = this.#parts;
    const nowMs = clock.nowMs();
    for (const driver of this.#parts.host.all()) {
      if (driver.role === 'failed') {
        this.#unloadFailed(driver);
        continue;
      }
      if (isCatalogCell(driver.file)) continue;
      if (driver.usedAtMs > nowMs - idleMs * SETTLED_PART || !driver.idle) continue;
      const isOver = settling.isSettledAndUnused(driver) || this.#isBackupWithoutPrimary(driver);
      if (!isOver && driver.usedAtMs > nowMs - idleMs) continue;
      void this.#release(driver, 'idle');
    }
  }

  /**
   * The primary has ended its epoch in good order, or there was none: the next one loads the replica again. A request
   * that waits here for the lease needs the replica, and a quiet primary's next heartbeat would load it again.
   */
  #isBackupWithoutPrimary(driver: ReplicaDriver): boolean {
    const { lease } = this.#parts;
    if (driver.role !== 'backup' || !driver.isUnbound) return false;
    return !lease.isOpen(driver.file) && lease.view(driver.file).holder === null;
  }

  /**
   * Unloads a failed replica, which acknowledges nothing more. The next message loads a new one, which starts from the
   * disk's state and fetches the rest: there may be free space by then. Repeated failures wait (`FailedReplicas`).
   */
  #unloadFailed(driver: ReplicaDriver): void {
    // The catalog's replica stays loaded, and keeps requesting its lease.
    if (!isCatalogCell(driver.file)) this.#parts.lease.close(driver.file);
    if (!driver.idle || !this.#restartWaits.mayRestart(driver.file, this.#parts.clock.nowMs())) return;
    if (isCatalogCell(driver.file)) driver.restartFailed();
    else this.#parts.host.unload(driver);
  }

  resetRestartWaits(): void {
    this.#restartWaits.resetWaits();
  }

  async #releaseDrivers(drivers: readonly ReplicaDriver[]): Promise<void> {
    const { succession } = this.#parts;
    const wanted = () =>
      drivers.filter((driver) => driver.isPrimary && this.#isInUse(driver) && !this.#releasing.has(driver));
    if (wanted().length > 0) await succession.prepare();
    const succeeded = succession.announce(wanted());
    await Promise.all(drivers.map((driver) => this.#release(driver, 'ending')));
    // Until the successors are primary, they need this server's vote, and a machine that is not busy with the shutdown.
    await succeedsWithin(this.#parts.world, succeeded, SUCCESSION_MS_MAX);
  }

  #isInUse(driver: ReplicaDriver): boolean {
    return this.#parts.clock.nowMs() - driver.usedAtMs < IN_USE_MS;
  }

  /** Settles the file, stops the replica, releases the lease, unloads it; after a failure, again in the next sweep. */
  async #release(driver: ReplicaDriver, why: 'idle' | 'ending'): Promise<void> {
    const { host, lease, settling, log } = this.#parts;
    if (this.#releasing.has(driver)) return;
    this.#releasing.add(driver);
    try {
      if (driver.role === 'active' || driver.role === 'beginning' || driver.orders) {
        const usedAtMs = driver.usedAtMs;
        const inUse = this.#isInUse(driver);
        // Otherwise the file stays live: the catalog asks its next primary, which settles it.
        if (why === 'idle') await settling.settleBeforeRelease(driver);
        else if (!inUse) await Promise.allSettled([settling.settleBeforeRelease(driver)]);
        driver.usedAtMs = Math.min(driver.usedAtMs, usedAtMs);
        const hasLease = lease.view(driver.file).own;
        // An operation that cannot be committed would keep the file forever: then the lease expires, and others decide.
        if ((await succeedsWithin(this.#parts.world, driver.stop(), STOP_MS_MAX)) && hasLease)
          lease.release(driver.file);
      }
      lease.close(driver.file);
      // Writes in progress would confuse the next core: the next sweep tries again.
      if (driver.idle) host.unload(driver);
    } catch (error) {
      log.info({ file: driver.file, err: error }, 'cannot release the lease of an idle file yet');
    } finally {
      this.#releasing.delete(driver);
    }
  }
}

import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import { viewHasMajority, viewVoters } from '../../replica/view.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import { bounded } from '../process/bounded.ts';
import type { Clock } from '../process/clock.ts';

/** A request fails once no majority has been reachable for this long. */
const PATIENCE_MS = 1_000;
/** Without an observation for this long, the time without a majority is counted from 0 again. */
const OBSERVATION_VALID_MS = 1_000;
/** Connections may change without a change of lease or role: a waiting request checks them this often. */
const CHECK_MS = 100;

export interface PrimaryWaiterParts {
  readonly self: ServerId;
  readonly world: World;
  readonly clock: Clock;
  readonly lease: LeaseDriver;
  readonly operationTimeoutMs: number;
  isConnected(server: ServerId): boolean;
  isDiskFull?(server: ServerId): boolean;
}

/** For this long after a holder has announced the end of its lease, requests wait for the next primary. */
const RELEASE_MS_MAX = 1_000;

interface WithoutMajority {
  readonly sinceMs: number;
  readonly seenMs: number;
}

/** Waits, within bounds, until a replica here is primary; else it reports the primary, or why there can be none. */
export class PrimaryWaiter {
  readonly #parts: PrimaryWaiterParts;
  readonly #withoutMajority = new WeakMap<ReplicaDriver, WithoutMajority>();
  readonly #announcedReleases = new WeakMap<
    ReplicaDriver,
    { readonly holder: ServerId; readonly untilMs: number }
  >();

  constructor(parts: PrimaryWaiterParts) {
    this.#parts = parts;
  }

  /**
   * Waits until the replica is primary, or `isEnough` holds; fails as soon as that is not to be expected here.
   * @param subject for messages: "file 12"
   * @param competes whether this server requests the lease, only during this call
   * @param isEnough the awaited condition; by default, that the replica is primary
   * @throws ServiceError `not-primary` (with the primary, if there is one; also if the replica here has failed, which
   * another may not have), `no-majority`, `recovering` or `clock-fault`
   */
  async primary(
    driver: ReplicaDriver,
    subject: string,
    competes: boolean,
    isEnough: () => boolean = () => driver.isPrimary,
  ): Promise<void> {
    const { self, lease, clock, operationTimeoutMs, isConnected } = this.#parts;
    const deadlineMs = clock.nowMs() + operationTimeoutMs;
    while (!isEnough()) {
      if (driver.closed)
        throw new ServiceError('not-primary', `This server has just released ${subject}: retry`);
      const { own, holder, remainingMs } = lease.view(driver.file);
      const hasPrimary = !own && holder !== null && remainingMs > 0 && isConnected(holder);
      if (hasPrimary && !this.#willRelease(driver, holder)) {
        if (competes) lease.close(driver.file);
        throw new ServiceError('not-primary', `Server ${holder} is the primary of ${subject}`, {
          primary: holder,
        });
      }
      if (driver.role === 'failed')
        throw new ServiceError('not-primary', `The replica of ${subject} has failed on this server`);
      lease.assertUsable();
      const nowMs = clock.nowMs();
      // The members may have changed during the wait.
      const { view } = driver;
      if (!viewVoters(view).includes(self))
        throw new ServiceError('not-primary', `This server no longer has a replica of ${subject}`);
      if (this.#withoutMajorityMs(driver, view, nowMs) > PATIENCE_MS || nowMs > deadlineMs)
        throw this.noMajority(view, subject);
      if (competes) {
        lease.open(driver.file, view);
        if (holder !== null && this.#willRelease(driver, holder)) lease.succeed(driver.file, holder);
      }
      await this.#nextChange(driver);
    }
  }

  /** The holder announced that it will release the lease: requests here then wait for the next primary. */
  expectRelease(driver: ReplicaDriver, holder: ServerId): void {
    this.#announcedReleases.set(driver, { holder, untilMs: this.#parts.clock.nowMs() + RELEASE_MS_MAX });
  }

  /** Bounds the wait by the operation time-out, whatever the other servers do. */
  bounded<Value>(work: Promise<Value>, view: View, subject: string): Promise<Value> {
    return bounded(this.#parts.world, work, this.#parts.operationTimeoutMs, () =>
      this.noMajority(view, subject),
    );
  }

  noMajority(view: View, subject: string): ServiceError {
    const unreachable = this.#unreachable(view);
    const full = this.#withFullDisk(view);
    const missing = [
      ...(unreachable.length > 0 ? [`cannot reach ${unreachable.join(', ')}`] : []),
      ...(full.length > 0 ? [`no space on the disk of ${full.join(', ')}`] : []),
    ];
    const why = missing.length > 0 ? missing.join(', and ') : 'no answer in time';
    return new ServiceError('no-majority', `No majority of the servers of ${subject} is available: ${why}`, {
      unreachable,
      retryAfterMs: 1_000,
    });
  }

  #willRelease(driver: ReplicaDriver, holder: ServerId): boolean {
    const ending = this.#announcedReleases.get(driver);
    return ending?.holder === holder && this.#parts.clock.nowMs() < ending.untilMs;
  }

  /** Records whether a majority is reachable now. @returns for how long it has not been; 0 if it is */
  #withoutMajorityMs(driver: ReplicaDriver, view: View, nowMs: number): number {
    const isReachable = (member: ServerId): boolean =>
      member === this.#parts.self || this.#parts.isConnected(member);
    if (viewHasMajority(view, isReachable)) {
      this.#withoutMajority.delete(driver);
      return 0;
    }
    const before = this.#withoutMajority.get(driver);
    const continued = before !== undefined && nowMs - before.seenMs <= OBSERVATION_VALID_MS;
    const sinceMs = continued ? before.sinceMs : nowMs;
    this.#withoutMajority.set(driver, { sinceMs, seenMs: nowMs });
    return nowMs - sinceMs;
  }

  #unreachable(view: View): ServerId[] {
    return viewVoters(view).filter(
      (member) => member !== this.#parts.self && !this.#parts.isConnected(member),
    );
  }

  /** Connected members without disk space, which acknowledge nothing until they have space again. */
  #withFullDisk(view: View): ServerId[] {
    const { self, isConnected, isDiskFull = () => false } = this.#parts;
    return viewVoters(view).filter((member) => member !== self && isConnected(member) && isDiskFull(member));
  }

  /** Resolves at the next change of role or lease, or after `CHECK_MS`. */
  #nextChange(driver: ReplicaDriver): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel();
        offRole();
        offLease();
        resolve();
      };
      const timer = this.#parts.world.after(CHECK_MS, done);
      const offRole = driver.onRole(done);
      const offLease = this.#parts.lease.onChange(driver.file, done);
    });
  }
}

import { ServiceError } from '../base/errors.ts';
import type { ServerId } from '../base/ids.ts';
import type { World } from '../base/world.ts';
import type { View } from '../replica/view.ts';
import { viewHasMajority, viewVoters } from '../replica/view.ts';
import { bounded } from './bounded.ts';
import type { Clock } from './clock.ts';
import type { LeaseDriver } from './lease-driver.ts';
import type { ReplicaDriver } from './replica-driver.ts';

/** Without a majority in reach for this long, nobody is kept waiting for one. */
const PATIENCE_MS = 1_000;
/** What was seen longer ago than this says nothing about the time between. */
const FORGOTTEN_MS = 1_000;
/** A connection may have come or gone without a change of lease or role: this often somebody looks. */
const LOOK_MS = 100;

export interface PrimaryWaiterParts {
  readonly self: ServerId;
  readonly world: World;
  readonly clock: Clock;
  readonly lease: LeaseDriver;
  readonly operationTimeoutMs: number;
  isConnected(server: ServerId): boolean;
  /** Whether another server has said of late that it has no room. */
  isDiskFull?(server: ServerId): boolean;
}

/** A primary that said it would let go has so long to do it. */
const ENDING_MS_MAX = 1_000;

/** Since when no majority was in reach, and when that was last seen. */
interface Alone {
  readonly sinceMs: number;
  readonly seenMs: number;
}

/** Waits, within bounds, until a replica of this server is primary, or says who is or why nobody can be. */
export class PrimaryWaiter {
  readonly #parts: PrimaryWaiterParts;
  readonly #alone = new WeakMap<ReplicaDriver, Alone>();
  /** Primaries that are about to let go, and until when that is waited for. */
  readonly #endings = new WeakMap<ReplicaDriver, { readonly holder: ServerId; readonly untilMs: number }>();

  constructor(parts: PrimaryWaiterParts) {
    this.#parts = parts;
  }

  /**
   * @param subject for messages: "file 12"
   * @param competes whether this server shall try to get the lease, and for as long only as it is asked
   * @param isEnough what is waited for; by itself, that the replica leads
   * @throws ServiceError `not-primary` (naming the primary, if there is one; also where the replica here has failed, which
   *   others may not have), `no-majority`, `recovering` or `clock-fault`
   */
  async primary(
    driver: ReplicaDriver,
    subject: string,
    competes: boolean,
    isEnough: () => boolean = () => driver.leads,
  ): Promise<void> {
    const { self, lease, clock, operationTimeoutMs, isConnected } = this.#parts;
    const deadlineMs = clock.nowMs() + operationTimeoutMs;
    while (!isEnough()) {
      if (driver.closed) throw new ServiceError('not-primary', `This server has just closed ${subject}`);
      const { own, holder, remainingMs } = lease.view(driver.file);
      const isLed = !own && holder !== null && remainingMs > 0 && isConnected(holder);
      if (isLed && !this.#isEnding(driver, holder)) {
        if (competes) lease.close(driver.file);
        throw new ServiceError('not-primary', `Server ${holder} is the primary of ${subject}`, {
          primary: holder,
        });
      }
      if (driver.role === 'failed')
        throw new ServiceError('not-primary', `The replica of ${subject} has failed on this server`);
      lease.assertUsable();
      const nowMs = clock.nowMs();
      // The members may have changed while this waited.
      const { view } = driver;
      if (!viewVoters(view).includes(self))
        throw new ServiceError('not-primary', `This server holds no replica of ${subject} any more`);
      if (this.#aloneMs(driver, view, nowMs) > PATIENCE_MS || nowMs > deadlineMs)
        throw this.noMajority(view, subject);
      if (competes) {
        lease.open(driver.file, view);
        if (holder !== null && this.#isEnding(driver, holder)) lease.succeed(driver.file, holder);
      }
      await this.#change(driver);
    }
  }

  /** The lease's holder is about to let go of it: whoever asks here meanwhile waits for what comes then. */
  expectEnd(driver: ReplicaDriver, holder: ServerId): void {
    this.#endings.set(driver, { holder, untilMs: this.#parts.clock.nowMs() + ENDING_MS_MAX });
  }

  /** Nobody waits longer than the operation time-out, whatever the other servers do. */
  bounded<Value>(work: Promise<Value>, view: View, subject: string): Promise<Value> {
    return bounded(this.#parts.world, work, this.#parts.operationTimeoutMs, () =>
      this.noMajority(view, subject),
    );
  }

  noMajority(view: View, subject: string): ServiceError {
    const unreachable = this.#unreachable(view);
    const full = this.#full(view);
    const missing = [
      ...(unreachable.length > 0 ? [`cannot reach ${unreachable.join(', ')}`] : []),
      ...(full.length > 0 ? [`no room on the disk of ${full.join(', ')}`] : []),
    ];
    const why = missing.length > 0 ? missing.join(', and ') : 'no answer in time';
    return new ServiceError('no-majority', `There is no majority of the servers of ${subject}: ${why}`, {
      unreachable,
      retryAfterMs: 1_000,
    });
  }

  #isEnding(driver: ReplicaDriver, holder: ServerId): boolean {
    const ending = this.#endings.get(driver);
    return ending?.holder === holder && this.#parts.clock.nowMs() < ending.untilMs;
  }

  /** @returns for how long no majority has been connected, as far as somebody looked */
  #aloneMs(driver: ReplicaDriver, view: View, nowMs: number): number {
    const isThere = (member: ServerId): boolean =>
      member === this.#parts.self || this.#parts.isConnected(member);
    if (viewHasMajority(view, isThere)) {
      this.#alone.delete(driver);
      return 0;
    }
    const before = this.#alone.get(driver);
    const continued = before !== undefined && nowMs - before.seenMs <= FORGOTTEN_MS;
    const sinceMs = continued ? before.sinceMs : nowMs;
    this.#alone.set(driver, { sinceMs, seenMs: nowMs });
    return nowMs - sinceMs;
  }

  #unreachable(view: View): ServerId[] {
    return viewVoters(view).filter(
      (member) => member !== this.#parts.self && !this.#parts.isConnected(member),
    );
  }

  /** What has a place in the order before they say so is stored there when there is room again. */
  #full(view: View): ServerId[] {
    const { self, isConnected, isDiskFull = () => false } = this.#parts;
    return viewVoters(view).filter((member) => member !== self && isConnected(member) && isDiskFull(member));
  }

  #change(driver: ReplicaDriver): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel();
        offRole();
        offLease();
        resolve();
      };
      const timer = this.#parts.world.after(LOOK_MS, done);
      const offRole = driver.onRole(done);
      const offLease = this.#parts.lease.onChange(driver.file, done);
    });
  }
}

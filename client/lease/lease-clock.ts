import type { World } from '../../base/world.ts';

/**
 * A moment on both clocks of this machine. The monotonic one never steps, but stops while the machine sleeps; the wall
 * clock continues, but may be set. A lease is over as soon as one of them says so. All processes of the machine share
 * both.
 */
export interface LeaseMoment {
  readonly monotonicMs: number;
  readonly wallMs: number;
}

export function leaseMomentNow(world: World): LeaseMoment {
  return { monotonicMs: world.nowMs(), wallMs: world.wallMs() };
}

export function leaseMomentAfter({ monotonicMs, wallMs }: LeaseMoment, spanMs: number): LeaseMoment {
  return { monotonicMs: monotonicMs + spanMs, wallMs: wallMs + spanMs };
}

/** The time until `moment` in milliseconds, by the clock that is nearer to it; negative after it. */
export function leaseRemainingMs(world: World, moment: LeaseMoment): number {
  const now = leaseMomentNow(world);
  return Math.min(moment.monotonicMs - now.monotonicMs, moment.wallMs - now.wallMs);
}

export function leaseMomentEarlier(world: World, a: LeaseMoment, b: LeaseMoment): LeaseMoment {
  return leaseRemainingMs(world, a) < leaseRemainingMs(world, b) ? a : b;
}

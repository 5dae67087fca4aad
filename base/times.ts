import type { World } from './world.ts';

/** Moments as the protocols carry them: nanoseconds since 1970 in decimal, negative before. */

/** @returns the present by the wall clock, in nanoseconds since 1970 */
export function nowNs(world: Pick<World, 'wallMs'>): bigint {
  return BigInt(world.wallMs()) * 1_000_000n;
}

/** @returns whether `a` is later than `b` */
export function isLater(a: string, b: string): boolean {
  // Of as many digits, as nearly all of them have, the texts are in the same order.
  const isPlain = a.length === b.length && !a.startsWith('-') && !b.startsWith('-');
  return isPlain ? a > b : BigInt(a) > BigInt(b);
}

export function laterNs(a: string, b: string): string {
  return isLater(a, b) ? a : b;
}

export function earlierNs(a: string, b: string): string {
  return isLater(b, a) ? a : b;
}

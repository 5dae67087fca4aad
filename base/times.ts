import type { World } from './world.ts';

/** Times as protocols carry them: decimal nanoseconds since 1970, negative before. */

export function nowNs(world: Pick<World, 'wallMs'>): bigint {
  return BigInt(world.wallMs()) * 1_000_000n;
}

export function isLater(a: string, b: string): boolean {
  // Texts of equal length, nearly all of them, have the numbers' order.
  const isPlain = a.length === b.length && !a.startsWith('-') && !b.startsWith('-');
  return isPlain ? a > b : BigInt(a) > BigInt(b);
}

export function laterNs(a: string, b: string): string {
  return isLater(a, b) ? a : b;
}

export function earlierNs(a: string, b: string): string {
  return isLater(b, a) ? a : b;
}

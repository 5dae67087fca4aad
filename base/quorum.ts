import { assert } from './assert.ts';

/**
 * Size of a majority, ⌊n/2⌋ + 1. ([Flease] calls ⌈(n+1)/2⌉ the number of tolerated *failures*; that is this size.
 * ⌊(n−1)/2⌋ are tolerated.) @param count members, at least 1
 */
export function majority(count: number): number {
  assert(Number.isInteger(count) && count >= 1, 'A view has at least one member');
  return Math.floor(count / 2) + 1;
}

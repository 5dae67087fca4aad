import { assert } from './assert.ts';

/**
 * Size of a majority, ⌊n/2⌋ + 1. ([Flease] names ⌈(n+1)/2⌉ as the number of *failures* tolerated;
 * that is this size. Tolerated are ⌊(n−1)/2⌋.)
 *
 * @param count number of members, at least 1
 */
export function majority(count: number): number {
  assert(Number.isInteger(count) && count >= 1, 'A view has at least one member');
  return Math.floor(count / 2) + 1;
}

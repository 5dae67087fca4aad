import { assert } from './assert.ts';

/** ⌊n/2⌋ + 1 of at least 1 member. ([Flease] calls ⌈(n+1)/2⌉ the tolerated *failures*; tolerated are ⌊(n−1)/2⌋.) */
export function majority(count: number): number {
  assert(Number.isInteger(count) && count >= 1, 'A view has at least one member');
  return Math.floor(count / 2) + 1;
}

import assert from 'node:assert/strict';

/** More than a correct catalog needs. */
const STEPS_MAX = 10_000;

/**
 * Repeats a step until nothing is left.
 * @param step returns whether more is left
 * @throws AssertionError if it never ends
 */
export function everyStep(step: () => boolean): void {
  let count = 0;
  while (step()) assert.ok(++count < STEPS_MAX, `More is left after ${STEPS_MAX} steps`);
}

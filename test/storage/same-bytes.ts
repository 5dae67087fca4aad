import assert from 'node:assert/strict';

/** As `deepEqual`, which compares long buffers that differ for up to minutes in order to print them. */
export function assertSameBytes(actual: Uint8Array, expected: Uint8Array, message = ''): void {
  const differs = actual.findIndex((byte, at) => byte !== expected[at]);
  const same = differs < 0 && actual.length === expected.length;
  const at = differs < 0 ? Math.min(actual.length, expected.length) : differs;
  assert.ok(
    same,
    `${message} byte ${at} is ${actual[at]} instead of ${expected[at]}; length ${actual.length}, ${expected.length}`,
  );
}

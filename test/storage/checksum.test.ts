import assert from 'node:assert/strict';
import { randomFillSync } from 'node:crypto';
import { test } from 'node:test';
import { crc32 as crc32OfZlib } from 'node:zlib';
import { crc32, trustedCrc32 } from '../../platform/crc32.ts';
import { crc32Joined, crc32Of, crc32Replaced } from '../../server/storage/checksum.ts';

/**
 * Goal: what one release stores on one system is valid for every other.
 * Method: the checksum, by whichever code computes it here, is compared with zlib's.
 */
const BYTES = randomFillSync(Buffer.alloc(300_000));

test("a checksum equals zlib's, wherever in memory the bytes begin and end", () => {
  for (let length = 0; length <= 600; length++) {
    for (const at of [0, 1, 7, 16]) {
      const bytes = BYTES.subarray(at, at + length);
      assert.equal(crc32(bytes), crc32OfZlib(bytes), `${length} bytes from ${at}`);
      assert.equal(
        crc32(bytes, 0xffff_ffff),
        crc32OfZlib(bytes, 0xffff_ffff),
        `${length} bytes after others`,
      );
    }
  }
  for (const length of [4_095, 65_536, 131_072, 262_145]) {
    const bytes = BYTES.subarray(3, 3 + length);
    assert.equal(crc32(bytes), crc32OfZlib(bytes), `${length} bytes`);
  }
});

test("the pieces' checksums combine to that of the whole, and so do those of bytes that were partly replaced", () => {
  const pieces = [BYTES.subarray(0, 17), BYTES.subarray(17, 17), BYTES.subarray(17, 9_000)];
  assert.equal(crc32Of(pieces), crc32OfZlib(BYTES.subarray(0, 9_000)));
  const after = randomFillSync(Buffer.alloc(512));
  const changed = Buffer.concat([BYTES.subarray(0, 4_096), after, BYTES.subarray(4_608, 131_072)]);
  const before = crc32(BYTES.subarray(0, 131_072));
  const replaced = crc32Replaced(before, [BYTES.subarray(4_096, 4_608)], after, 131_072 - 4_608);
  assert.equal(replaced, crc32OfZlib(changed));
});

test('the checksum of two parts follows from those of both', () => {
  for (const [from, at, to] of [
    [0, 1, 2],
    [5, 5, 70],
    [0, 65_536, 131_072],
    [3, 4_100, 131_072],
  ] as const) {
    const joined = crc32Joined(crc32(BYTES.subarray(from, at)), crc32(BYTES.subarray(at, to)), to - at);
    assert.equal(joined, crc32OfZlib(BYTES.subarray(from, to)));
  }
});

test('code that computes another checksum is not used', () => {
  assert.equal(trustedCrc32(crc32OfZlib), crc32OfZlib);
  assert.equal(trustedCrc32(null), null);
  assert.equal(
    trustedCrc32((bytes) => crc32OfZlib(bytes)),
    null,
    'one that ignores the earlier bytes',
  );
  const wrongWhenLong = (bytes: Uint8Array, crc?: number): number =>
    crc32OfZlib(bytes.subarray(0, 4_096), crc);
  assert.equal(trustedCrc32(wrongWhenLong), null);
});

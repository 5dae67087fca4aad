import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { checksumOf } from '../../server/s3/checksums.ts';
import { combinedCrc } from '../../server/s3/crc-combine.ts';

/** Of "123456789": the check values of the catalogue of CRC algorithms. */
const CHECKS = { CRC32: 'cbf43926', CRC32C: 'e3069283', CRC64NVME: 'ae8b14860a799888' } as const;
const ALGORITHMS = ['CRC32', 'CRC32C', 'CRC64NVME'] as const;

for (const algorithm of ALGORITHMS) {
  const crc = (bytes: Uint8Array): Buffer => Buffer.from(checksumOf(algorithm, bytes), 'base64');

  test(`${algorithm}: the check value, also from two halves`, () => {
    const parts = ['1234', '56789'].map((text) => Buffer.from(text));
    assert.equal(crc(Buffer.concat(parts)).toString('hex'), CHECKS[algorithm]);
    const combined = combinedCrc(
      algorithm,
      parts.map((part) => ({ crc: crc(part), sizeBytes: part.length })),
    );
    assert.equal(combined.toString('hex'), CHECKS[algorithm]);
  });

  test(`${algorithm}: CRCs of parts combine to that of the whole`, () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 300 }), { minLength: 1, maxLength: 6 }), (parts) => {
        const combined = combinedCrc(
          algorithm,
          parts.map((part) => ({ crc: crc(part), sizeBytes: part.length })),
        );
        assert.deepEqual(combined, crc(Buffer.concat(parts)));
      }),
      { numRuns: 100 },
    );
  });

  // 2^33 bytes are 64 doublings of a part of 128 MiB; here each doubling is computed from the one before.
  test(`${algorithm}: sizes above 2^32 count`, () => {
    const byte = Buffer.from([0]);
    let [doubled, sizeBytes] = [crc(byte), 1];
    for (; sizeBytes < 2 ** 40; sizeBytes *= 2)
      doubled = combinedCrc(algorithm, [
        { crc: doubled, sizeBytes },
        { crc: doubled, sizeBytes },
      ]);
    const more = combinedCrc(algorithm, [
      { crc: crc(Buffer.from('begin')), sizeBytes: 5 },
      { crc: doubled, sizeBytes },
    ]);
    const halves = combinedCrc(algorithm, [
      { crc: crc(Buffer.from('begin')), sizeBytes: 5 },
      ...[0, 1].map(() => ({ crc: halfOf(sizeBytes / 2), sizeBytes: sizeBytes / 2 })),
    ]);
    assert.deepEqual(more, halves);

    function halfOf(size: number): Buffer {
      let value = crc(byte);
      for (let at = 1; at < size; at *= 2)
        value = combinedCrc(algorithm, [
          { crc: value, sizeBytes: at },
          { crc: value, sizeBytes: at },
        ]);
      return value;
    }
  });
}

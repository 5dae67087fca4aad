import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MalformedError } from '../../wire/bytes.ts';
import { containerName, decodeLocations, encodeLocations, type FileLocations } from '../../wire/locations.ts';

const LOCATIONS: FileLocations = {
  sizeBytes: 5_000_000_000,
  end: 4_000_000_000,
  extents: [
    { begin: 0, length: 1_048_576, container: 7, position: 65_536, crc32: 0xffff_ffff },
    { begin: 3_999_000_000, length: 65_536, container: 2 ** 40, position: 2 ** 50, crc32: 0 },
  ],
};

test('decoding locations returns what was encoded', () => {
  assert.deepEqual(decodeLocations(encodeLocations(LOCATIONS)), LOCATIONS);
  const none = { sizeBytes: 0, end: 0, extents: [] };
  assert.deepEqual(decodeLocations(encodeLocations(none)), none);
});

test('impossible locations are refused', () => {
  const [first, second] = LOCATIONS.extents;
  assert.ok(first !== undefined && second !== undefined);
  const wrong: FileLocations[] = [
    { ...LOCATIONS, end: 6_000_000_000 },
    { ...LOCATIONS, extents: [second, first] },
    { ...LOCATIONS, extents: [first, first] },
    { ...LOCATIONS, extents: [{ ...first, length: 0 }] },
    { ...LOCATIONS, extents: [{ ...first, length: 5 * 1024 * 1024 }] },
    { ...LOCATIONS, extents: [{ ...first, container: 0 }] },
    { ...LOCATIONS, extents: [{ ...second, begin: LOCATIONS.end }] },
  ];
  for (const one of wrong) assert.throws(() => decodeLocations(encodeLocations(one)), MalformedError);
  const encoded = encodeLocations(LOCATIONS);
  for (let length = 0; length < encoded.length; length++)
    assert.throws(() => decodeLocations(encoded.subarray(0, length)), MalformedError);
  assert.throws(() => decodeLocations(Buffer.concat([encoded, Buffer.alloc(1)])), MalformedError);
});

test('containers are spread over folders by the last byte of their number', () => {
  assert.equal(containerName(1_234), 'd2/1234.dat');
  assert.equal(containerName(2 ** 40 + 3), '03/1099511627779.dat');
});

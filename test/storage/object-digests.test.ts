import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  digestEqual,
  digestXor,
  entryDigest,
  FAN_OUT,
  NOTHING,
  nodeRange,
  ObjectDigests,
} from '../../server/storage/object-digests.ts';
import type { ObjectEntry } from '../../server/storage/object-entry.ts';

const index = fc.oneof(fc.nat(40), fc.nat(5_000), fc.nat(2 ** 31), fc.nat(Number.MAX_SAFE_INTEGER));
const entry: fc.Arbitrary<ObjectEntry> = fc.record({
  index,
  versionEpoch: fc.integer({ min: 1, max: 4 }),
  versionSeq: fc.integer({ min: 1, max: 50 }),
  length: fc.integer({ min: 1, max: 9 }),
  crc32: fc.nat(0xffff_ffff),
});

test('a digest of any range depends on its entries only, in whatever order they were added and removed', () => {
  fc.assert(
    fc.property(
      fc.array(entry, { maxLength: 60 }),
      fc.array(index, { maxLength: 20 }),
      (entries, removed) => {
        const digests = new ObjectDigests();
        const map = new Map<number, ObjectEntry>();
        for (const next of entries) {
          digests.replace(map.get(next.index) ?? null, next);
          map.set(next.index, next);
        }
        for (const gone of [...removed, ...[...map.keys()].slice(0, 5)]) {
          digests.replace(map.get(gone) ?? null, null);
          map.delete(gone);
        }
        const over = (first: number, last: number) =>
          [...map.values()]
            .filter((held) => held.index >= first && held.index <= last)
            .reduce((sum, held) => digestXor(sum, entryDigest(held)), NOTHING);
        assert.deepEqual(digests.total, over(0, Number.MAX_SAFE_INTEGER));
        for (const { index: wanted } of entries) {
          for (let level = 0; level <= digests.height; level++) {
            const number = Math.floor(wanted / FAN_OUT ** (level + 1));
            const { first, last } = nodeRange({ level, number });
            assert.ok(first <= wanted && wanted <= last);
            assert.deepEqual(digests.digest(level, number), over(first, last), `${level}, ${number}`);
          }
        }
      },
    ),
  );
});

test('leaves that changed since a version are all found, in order, some at a time', () => {
  fc.assert(
    fc.property(
      fc.array(entry, { maxLength: 60 }),
      fc.record({ epoch: fc.nat(5), seq: fc.nat(50) }),
      index,
      fc.integer({ min: 1, max: 9 }),
      (entries, since, from, countMax) => {
        const digests = new ObjectDigests();
        for (const next of entries) digests.replace(null, next);
        const wanted = new Set(
          entries
            .filter((held) => (held.versionEpoch - since.epoch || held.versionSeq - since.seq) > 0)
            .map((held) => Math.floor(held.index / FAN_OUT))
            .filter((leaf) => leaf >= Math.floor(from / FAN_OUT)),
        );
        assert.deepEqual(
          digests.leavesSince(since, from, countMax),
          [...wanted].sort((a, b) => a - b).slice(0, countMax),
        );
      },
    ),
  );
});

test('every field of an entry, in all of its bits, is part of its digest', () => {
  const known: ObjectEntry = { index: 77, versionEpoch: 5, versionSeq: 9, length: 4_096, crc32: 0x1234_5678 };
  const fields = ['index', 'versionEpoch', 'versionSeq', 'length', 'crc32'] as const;
  const seen = [entryDigest(known)];
  for (const field of fields) {
    const bits = field === 'length' || field === 'crc32' ? 32 : 53;
    for (let bit = 0; bit < bits; bit++) {
      const flipped = Number(BigInt(known[field]) ^ (1n << BigInt(bit)));
      seen.push(entryDigest({ ...known, [field]: flipped }));
    }
  }
  for (const [at, digest] of seen.entries()) {
    for (const other of seen.slice(at + 1)) assert.ok(!digestEqual(digest, other));
  }
});

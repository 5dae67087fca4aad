import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { crc32Replaced } from '../../server/storage/checksum.ts';
import { ObjectDraft } from '../../server/storage/object-draft.ts';

const OBJECT_BYTES = 300;

const pieces = fc.array(
  fc
    .record({ at: fc.nat(OBJECT_BYTES - 1), bytes: fc.uint8Array({ minLength: 1, maxLength: OBJECT_BYTES }) })
    .map(({ at, bytes }) => ({ at, bytes: bytes.subarray(0, OBJECT_BYTES - at) })),
  { minLength: 1, maxLength: 12 },
);
const base = fc.option(fc.uint8Array({ minLength: 1, maxLength: OBJECT_BYTES }));

/** What the object has to be: the pieces, one after the other, over the base and zeros. */
function written(before: Uint8Array, all: readonly { at: number; bytes: Uint8Array }[]): Buffer {
  const end = Math.max(before.length, ...all.map(({ at, bytes }) => at + bytes.length));
  const image = Buffer.alloc(end);
  image.set(before);
  for (const { at, bytes } of all) image.set(bytes, at);
  return image;
}

describe('object draft', () => {
  test('is the base with the pieces in their order, and has the checksum of that', () => {
    fc.assert(
      fc.property(base, pieces, (before, all) => {
        const row = { index: 3, versionEpoch: 1, versionSeq: 1, slot: 0 };
        const draft = new ObjectDraft(
          3,
          before === null ? null : { ...row, length: before.length, crc32: crc32(before) },
        );
        for (const [seq, { at, bytes }] of all.entries()) draft.add(at, bytes, seq);
        const kept = before === null ? null : Buffer.from(before);
        const { kind, buffers, length } = draft.finish(draft.needsBase ? before : null);
        const begun = kind === 'append' ? (before ?? new Uint8Array(0)) : new Uint8Array(0);
        const expected = written(before ?? new Uint8Array(0), all);
        assert.deepEqual(Buffer.concat([begun, ...buffers]), expected);
        assert.equal(length, expected.length);
        assert.equal(draft.checksum(), crc32(expected));
        // They may be on their way to another replica, or to a reader.
        if (before !== null) assert.deepEqual(Buffer.from(before), kept, 'the bytes of the base stay');
      }),
    );
  });

  test('copies no bytes of an object of which a little is overwritten', () => {
    const before = Buffer.alloc(OBJECT_BYTES, 1);
    const row = { index: 0, versionEpoch: 1, versionSeq: 1, slot: 0, length: before.length };
    const draft = new ObjectDraft(0, { ...row, crc32: crc32(before) });
    const bytes = Buffer.alloc(10, 2);
    draft.add(100, bytes, 2);
    const { buffers } = draft.finish(before);
    assert.deepEqual(
      buffers.map((buffer) => buffer.buffer),
      [before.buffer, bytes.buffer, before.buffer],
    );
  });
});

describe('checksum of a partly replaced object', () => {
  test('is that of the whole, however much follows the replaced part', () => {
    const sizes = fc.oneof(fc.nat(20), fc.nat(300_000));
    fc.assert(
      fc.property(sizes, fc.uint8Array({ minLength: 1, maxLength: 64 }), sizes, (ahead, after, behind) => {
        const whole = Buffer.alloc(ahead + after.length + behind, 7);
        const before = whole.subarray(ahead, ahead + after.length);
        const crc = crc32Replaced(crc32(whole), [before.subarray(0, 1), before.subarray(1)], after, behind);
        whole.set(after, ahead);
        assert.equal(crc, crc32(whole));
      }),
      { numRuns: 50 },
    );
  });
});

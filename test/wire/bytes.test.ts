import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { ServerId } from '../../base/ids.ts';
import { ByteReader, ByteWriter, MalformedError } from '../../wire/bytes.ts';
import {
  allocateWriteBuffer,
  decodeFileOperation,
  encodeFileOperation,
  type FileOperation,
  WRITE_BYTES_MAX,
  WRITE_PARTS_MAX,
} from '../../wire/file-operation.ts';

type Field =
  | { kind: 'uint8' | 'uint16' | 'uint32' | 'uint53' | 'float64'; value: number }
  | { kind: 'text'; value: string }
  | { kind: 'bytes'; value: Uint8Array };

const field: fc.Arbitrary<Field> = fc.oneof(
  fc.nat({ max: 0xff }).map((value): Field => ({ kind: 'uint8', value })),
  fc.nat({ max: 0xffff }).map((value): Field => ({ kind: 'uint16', value })),
  fc.nat({ max: 0xffff_ffff }).map((value): Field => ({ kind: 'uint32', value })),
  fc.nat({ max: Number.MAX_SAFE_INTEGER }).map((value): Field => ({ kind: 'uint53', value })),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((value): Field => ({ kind: 'float64', value })),
  fc.string({ unit: 'grapheme' }).map((value): Field => ({ kind: 'text', value })),
  fc.uint8Array().map((value): Field => ({ kind: 'bytes', value })),
);

test('decoding fields returns what was written, from whatever capacity the buffer grew', () => {
  fc.assert(
    fc.property(fc.array(field), fc.integer({ min: 1, max: 8 }), (fields, capacityBytes) => {
      const writer = new ByteWriter(capacityBytes);
      for (const { kind, value } of fields) writer[kind](value as never);
      const reader = new ByteReader(writer.finish());
      for (const { kind, value } of fields) assert.deepEqual(reader[kind](), value);
      reader.end();
    }),
  );
});

test('texts of any length are read as they were written, with any characters at any place', () => {
  for (const sign of ['a', '\0', '\x7f', 'é', '€', '😀']) {
    for (let length = 0; length <= 40; length++) {
      for (const text of [
        sign.repeat(length),
        `${'s'.repeat(length)}${sign}`,
        `${sign}${'s'.repeat(length)}`,
      ]) {
        const bytes = new ByteWriter(1).uint8(7).text(text).text('s1').finish();
        assert.equal(bytes.length, 1 + 2 + Buffer.byteLength(text) + 2 + 2);
        const reader = new ByteReader(bytes);
        assert.deepEqual([reader.uint8(), reader.text(), reader.text()], [7, text, 's1']);
        reader.end();
      }
    }
  }
});

test('missing bytes, a wrong length and extra bytes are refused', () => {
  assert.throws(() => new ByteReader(Uint8Array.of(1)).uint16(), MalformedError);
  assert.throws(() => new ByteReader(Uint8Array.of(0xff, 0xff, 0xff, 0xff, 1)).bytes(), MalformedError);
  assert.throws(() => new ByteReader(Uint8Array.of(2, 0, 0xc3, 0x28)).text(), MalformedError);
  assert.throws(() => new ByteReader(new Uint8Array(8).fill(0xff)).uint53(), MalformedError);
  assert.throws(() => new ByteReader(new Uint8Array(8).fill(0xff)).float64(), MalformedError);
  assert.throws(() => new ByteReader(Uint8Array.of(1)).end(), MalformedError);
});

const servers = fc.array(fc.constantFrom('s1', 's2', 's3') as fc.Arbitrary<ServerId>);

test('decoding file operations returns what was encoded', () => {
  const modifiedNs = fc.bigInt({ min: 0n, max: 4_000_000_000n * 1_000_000_000n });
  const part = fc.record(
    { offset: fc.nat(), bytes: fc.uint8Array({ minLength: 1 }) },
    { noNullPrototype: true },
  );
  const operation: fc.Arbitrary<FileOperation> = fc.oneof(
    fc
      .tuple(fc.nat(), fc.uint8Array({ minLength: 1 }), modifiedNs)
      .map(([offset, bytes, at]): FileOperation => ({ kind: 'write', offset, bytes, modifiedNs: at })),
    fc
      .tuple(fc.array(part, { minLength: 1, maxLength: 5 }), modifiedNs)
      .map(([parts, at]): FileOperation => ({ kind: 'write-parts', parts, modifiedNs: at })),
    fc
      .tuple(fc.nat(), modifiedNs)
      .map(([sizeBytes, at]): FileOperation => ({ kind: 'truncate', sizeBytes, modifiedNs: at })),
    fc.tuple(fc.nat(), fc.nat(), fc.boolean(), modifiedNs).map(([from, length, grows, at]): FileOperation => {
      return { kind: 'punch', from, to: from + length, grows, modifiedNs: at };
    }),
    fc.constant<FileOperation>({ kind: 'delete' }),
    fc.constant<FileOperation>({ kind: 'settling' }),
    fc.boolean().map((final): FileOperation => ({ kind: 'seal', final })),
    fc
      .record(
        { number: fc.nat(), members: servers, joint: servers, policy: fc.constantFrom('quorum', 'all') },
        { requiredKeys: ['number', 'members'], noNullPrototype: true },
      )
      .map((view): FileOperation => ({ kind: 'view', view })),
  );
  fc.assert(
    fc.property(operation, (sent) => {
      assert.deepEqual(decodeFileOperation(encodeFileOperation(sent)), sent);
    }),
  );
});

test('file operations out of bounds, and invalid bytes, are refused', () => {
  const empty = { kind: 'write', offset: 0, bytes: new Uint8Array(0), modifiedNs: 0n } as const;
  assert.throws(() => decodeFileOperation(encodeFileOperation(empty)), MalformedError);
  const large = { ...empty, bytes: new Uint8Array(WRITE_BYTES_MAX + 1) };
  assert.throws(() => decodeFileOperation(encodeFileOperation(large)), MalformedError);
  const far = { ...empty, offset: Number.MAX_SAFE_INTEGER, bytes: Uint8Array.of(1) };
  assert.throws(() => decodeFileOperation(encodeFileOperation(far)), MalformedError);
  const parts = (list: { offset: number; bytes: Uint8Array }[]) =>
    encodeFileOperation({ kind: 'write-parts', parts: list, modifiedNs: 0n });
  const one = { offset: 0, bytes: Uint8Array.of(1) };
  const half = { offset: 0, bytes: new Uint8Array(WRITE_BYTES_MAX / 2 + 1) };
  for (const list of [[], [one, empty], [half, half], [one, far], Array(WRITE_PARTS_MAX + 1).fill(one)]) {
    assert.throws(() => decodeFileOperation(parts(list)), MalformedError);
  }
  const inverted = { kind: 'punch', from: 2, to: 1, grows: false, modifiedNs: 0n } as const;
  assert.throws(() => decodeFileOperation(encodeFileOperation(inverted)), MalformedError);
  const view = (text: string) => new ByteWriter(64).uint8(4).text(text).finish();
  for (const text of [
    '',
    '7',
    '{"members":[]}',
    '{"number":1,"members":["/"]}',
    '{"number":1,"members":[],"policy":"x"}',
  ])
    assert.throws(() => decodeFileOperation(view(text)), MalformedError, text);
  fc.assert(
    fc.property(fc.uint8Array(), (bytes) => {
      try {
        decodeFileOperation(bytes);
      } catch (error) {
        assert.ok(error instanceof MalformedError, String(error));
      }
    }),
  );
});

test('a write whose bytes have free space before them becomes an operation in place, once', () => {
  const bytes = allocateWriteBuffer(5_000);
  for (let at = 0; at < bytes.length; at++) bytes[at] = (at * 167) & 0xff;
  const write = {
    kind: 'write',
    offset: 2 ** 40 + 3,
    bytes,
    modifiedNs: 1_700_000_000_123_456_789n,
  } as const;
  const elsewhere = encodeFileOperation({ ...write, bytes: Uint8Array.from(bytes) });
  const inPlace = encodeFileOperation(write);
  assert.equal(inPlace.buffer, bytes.buffer);
  assert.deepEqual(Buffer.from(inPlace), Buffer.from(elsewhere));
  const again = encodeFileOperation({ ...write, offset: 7 });
  assert.notEqual(again.buffer, bytes.buffer, 'the first operation may be on its way');
  assert.deepEqual(Buffer.from(inPlace), Buffer.from(elsewhere));
  const part = allocateWriteBuffer(100).fill(1).subarray(1);
  assert.notEqual(encodeFileOperation({ ...write, bytes: part }).buffer, part.buffer);
  const decoded = decodeFileOperation(again);
  assert.ok(decoded.kind === 'write' && decoded.offset === 7 && Buffer.from(bytes).equals(decoded.bytes));
});

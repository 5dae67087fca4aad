import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { IN_HEADER_BYTES, OPCODE } from '../../../fuse/kernel/protocol.ts';
import { decodeHeader, decodeRequest, type Request } from '../../../fuse/kernel/requests.ts';

/** A request as the kernel frames it. */
function request(opcode: number, node: number, ...parts: readonly (Buffer | string)[]): Buffer {
  const body = Buffer.concat(
    parts.map((part) => (typeof part === 'string' ? Buffer.from(`${part}\0`) : part)),
  );
  const header = Buffer.alloc(IN_HEADER_BYTES);
  header.writeUInt32LE(header.length + body.length, 0);
  header.writeUInt32LE(opcode, 4);
  header.writeBigUInt64LE(6n, 8);
  header.writeBigUInt64LE(BigInt(node), 16);
  header.writeUInt32LE(1000, 24);
  header.writeUInt32LE(100, 28);
  header.writeUInt32LE(4711, 32);
  return Buffer.concat([header, body]);
}

function words(...numbers: readonly number[]): Buffer {
  const bytes = Buffer.alloc(numbers.length * 4);
  for (const [index, number] of numbers.entries()) bytes.writeUInt32LE(number >>> 0, index * 4);
  return bytes;
}

function longs(...numbers: readonly (number | bigint)[]): Buffer {
  const bytes = Buffer.alloc(numbers.length * 8);
  for (const [index, number] of numbers.entries())
    bytes.writeBigUInt64LE(BigInt.asUintN(64, BigInt(number)), index * 8);
  return bytes;
}

function decoded(bytes: Buffer): Request {
  const header = decodeHeader(bytes);
  assert.ok(header !== null);
  return decodeRequest(header, bytes);
}

test('a lookup is decoded byte by byte', () => {
  const bytes = Buffer.from(
    '2c000000010000000800000000000000050000000000000000000000000000002a0000000000000061626300',
    'hex',
  );
  const header = decodeHeader(bytes);
  assert.deepEqual(header, { opcode: 1, unique: 8, node: 5, uid: 0, gid: 0, pid: 42 });
  assert.deepEqual(decodeRequest(header, bytes), { kind: 'lookup', name: 'abc' });
});

test('each call is decoded with its fields', () => {
  const cases: readonly (readonly [Buffer, Request])[] = [
    [request(OPCODE.forget, 9, longs(3)), { kind: 'forget', forgotten: [{ node: 9, lookups: 3 }] }],
    [
      request(OPCODE.batchForget, 0, words(2, 0), longs(7, 1, 8, 4)),
      {
        kind: 'forget',
        forgotten: [
          { node: 7, lookups: 1 },
          { node: 8, lookups: 4 },
        ],
      },
    ],
    [request(OPCODE.interrupt, 0, longs(44)), { kind: 'interrupt', unique: 44 }],
    [request(OPCODE.symlink, 1, 'name', 'to/there'), { kind: 'symlink', name: 'name', target: 'to/there' }],
    [
      request(OPCODE.mknod, 1, words(0o20644, 0x103, 0, 0), 'null'),
      { kind: 'make-node', name: 'null', mode: 0o20644, umask: 0, device: 0x103 },
    ],
    [
      request(OPCODE.mkdir, 1, words(0o755, 0o22), 'd'),
      { kind: 'make-directory', name: 'd', mode: 0o755, umask: 0o22 },
    ],
    [
      request(OPCODE.rename, 1, longs(5), 'a', 'b'),
      { kind: 'rename', name: 'a', toParent: 5, toName: 'b', flags: 0 },
    ],
    [
      request(OPCODE.rename2, 1, longs(5), words(2, 0), 'a', 'b'),
      { kind: 'rename', name: 'a', toParent: 5, toName: 'b', flags: 2 },
    ],
    [request(OPCODE.statx, 7, longs(0, 0, 0)), { kind: 'attributes', withCreation: true }],
    [request(OPCODE.link, 1, longs(77), 'l'), { kind: 'link', of: 77, name: 'l' }],
    [request(OPCODE.open, 3, words(0x8001, 1)), { kind: 'open', flags: 0x8001, killsPrivileges: true }],
    [
      request(OPCODE.create, 1, words(0x41, 0o100644, 0o22, 0), 'new'),
      { kind: 'create', name: 'new', mode: 0o100644, umask: 0o22, flags: 0x41, killsPrivileges: false },
    ],
    [
      request(OPCODE.tmpfile, 1, words(0x410002, 0o100600, 0o77, 1), '/'),
      { kind: 'tmpfile', mode: 0o100600, umask: 0o77, flags: 0x410002, killsPrivileges: true },
    ],
    [
      request(OPCODE.read, 3, longs(11, 4096), words(512, 0), longs(0), words(0, 0)),
      { kind: 'read', handle: 11, offset: 4096, length: 512 },
    ],
    [
      request(OPCODE.release, 3, longs(11), words(0, 2), longs(0xfeed_beef_0000_0001n)),
      { kind: 'release', handle: 11 },
    ],
    [request(OPCODE.release, 3, longs(11), words(0, 0), longs(1)), { kind: 'release', handle: 11 }],
    [request(OPCODE.fsyncdir, 1, longs(2), words(0, 0)), { kind: 'persist-directory', handle: 2 }],
    [request(OPCODE.flush, 3, longs(11), words(0, 0), longs(9)), { kind: 'flush', handle: 11, owner: 9n }],
    [
      request(OPCODE.setxattr, 3, words(3, 1, 1, 0), 'user.a', Buffer.from([1, 0, 2])),
      { kind: 'set-xattr', name: 'user.a', value: Uint8Array.of(1, 0, 2), flags: 1, clearsSetgid: true },
    ],
    [
      request(OPCODE.ioctl, 3, longs(9), words(0, 0x40086602), longs(0), words(4, 0, 0x30)),
      { kind: 'ioctl', command: 0x40086602, bytes: Buffer.from([0x30, 0, 0, 0]) },
    ],
    [request(OPCODE.getxattr, 3, words(64, 0), 'user.a'), { kind: 'xattr', name: 'user.a', bytesMax: 64 }],
    [
      request(OPCODE.readdir, 1, longs(2, 130), words(4096, 0), longs(0), words(0, 0)),
      { kind: 'read-directory', handle: 2, offset: 130, bytesMax: 4096, plus: false },
    ],
    [
      request(OPCODE.readdirplus, 1, longs(2, 130), words(4096, 0), longs(0), words(0, 0)),
      { kind: 'read-directory', handle: 2, offset: 130, bytesMax: 4096, plus: true },
    ],
    [
      request(OPCODE.fallocate, 3, longs(11, 10, 20), words(3, 0)),
      { kind: 'allocate', handle: 11, mode: 3, offset: 10, length: 20 },
    ],
    [
      request(OPCODE.lseek, 3, longs(11, 10), words(4, 0)),
      { kind: 'seek', handle: 11, offset: 10, whence: 4 },
    ],
    [
      request(OPCODE.copyFileRange, 3, longs(11, 1, 4, 13, 2, 100, 0)),
      { kind: 'copy-range', from: 11, fromOffset: 1, to: 13, toOffset: 2, length: 100, flags: 0 },
    ],
    [
      request(OPCODE.setlkw, 3, longs(11, 9, 5, 0x7fff_ffff_ffff_ffffn), words(1, 77, 0, 0)),
      {
        kind: 'lock',
        handle: 11,
        waits: true,
        lock: {
          kind: 'posix',
          type: 'exclusive',
          start: 5n,
          end: 0x7fff_ffff_ffff_ffffn,
          owner: 9n,
          pid: 77,
        },
      },
    ],
    [
      request(OPCODE.setlk, 3, longs(11, 9, 0, 99), words(2, 77, 1, 0)),
      {
        kind: 'lock',
        handle: 11,
        waits: false,
        lock: { kind: 'flock', type: 'unlock', start: 0n, end: 99n, owner: 9n, pid: 77 },
      },
    ],
    [request(9999, 1), { kind: 'unknown' }],
  ];
  for (const [bytes, expected] of cases) {
    const found = decoded(bytes);
    if (found.kind === 'set-xattr') assert.deepEqual({ ...found }, expected);
    else assert.deepEqual(found, expected);
  }
});

test('set-attributes has the attributes whose bits are set, and no others', () => {
  const body = (valid: number): Buffer =>
    Buffer.concat([
      words(valid, 0),
      longs(0, 1234, 0, 100, -6, 0),
      words(5, 500_000_000, 0, 0o100640, 0, 12, 34, 0),
    ]);
  assert.deepEqual(decoded(request(OPCODE.setattr, 3, body(0))), {
    kind: 'set-attributes',
    isOpen: false,
    killsPrivileges: false,
    changes: {},
  });
  assert.deepEqual(decoded(request(OPCODE.setattr, 3, body(0b1000_0011_1111))), {
    kind: 'set-attributes',
    sizeBytes: 1234,
    isOpen: false,
    killsPrivileges: true,
    changes: {
      mode: 0o100640,
      uid: 12,
      gid: 34,
      accessed: { kind: 'time', ns: 100_000_000_005n },
      modified: { kind: 'time', ns: -5_500_000_000n },
    },
  });
  assert.deepEqual(decoded(request(OPCODE.setattr, 3, body(0b1_1111_0000))), {
    kind: 'set-attributes',
    isOpen: true,
    killsPrivileges: false,
    changes: { accessed: { kind: 'now' }, modified: { kind: 'now' } },
  });
});

test('a write refers to its bytes in the request', () => {
  const contents = Buffer.from('contents');
  const bytes = request(
    OPCODE.write,
    3,
    longs(11, 2 ** 40),
    words(contents.length, 4),
    longs(0),
    words(0, 0),
    contents,
  );
  const write = decoded(bytes);
  assert.ok(write.kind === 'write');
  assert.deepEqual([write.handle, write.offset, write.killsPrivileges], [11, 2 ** 40, true]);
  assert.equal(Buffer.from(write.bytes).toString(), 'contents');
  assert.equal(write.bytes.buffer, bytes.buffer);
});

test('lock ranges are exact, also beyond 2^53', () => {
  for (const start of [2n ** 53n - 1n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n]) {
    const asked = decoded(request(OPCODE.setlk, 3, longs(11, 9, start, start), words(1, 77, 0, 0)));
    assert.ok(asked.kind === 'lock');
    assert.deepEqual([asked.lock.start, asked.lock.end], [start, start]);
  }
});

test('names that are not UTF-8, and offsets beyond the largest file, are refused', () => {
  assert.throws(() => decoded(request(OPCODE.lookup, 1, Buffer.from([0x61, 0xff, 0]))), { errno: 'EILSEQ' });
  const far = request(OPCODE.read, 3, longs(11, 2n ** 60n), words(1, 0), longs(0), words(0, 0));
  assert.throws(() => decoded(far), { errno: 'EFBIG' });
  const sought = request(OPCODE.lseek, 3, longs(11, 2n ** 60n), words(3, 0));
  assert.throws(() => decoded(sought), { errno: 'ENXIO' }, 'No data follows beyond the largest file');
});

test('any bytes are decoded as a request or refused', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...Object.values(OPCODE)),
      fc.uint8Array({ maxLength: 200 }),
      (opcode, bytes) => {
        const whole = request(opcode, 1, Buffer.from(bytes));
        try {
          assert.ok(decoded(whole).kind !== 'unknown' || opcode === OPCODE.notifyReply);
        } catch (error) {
          assert.equal((error as Error).name, 'ErrnoError', String(error));
        }
      },
    ),
    { numRuns: 2000 },
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 100 }), (bytes) => {
      const header = decodeHeader(Buffer.from(bytes));
      assert.ok(header === null || bytes.length >= IN_HEADER_BYTES);
    }),
  );
});

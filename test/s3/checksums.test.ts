import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { crc32c, crc32cOfTable } from '../../platform/crc32c.ts';
import { ALGORITHMS, checksumOf, claimedChecksum, PayloadCheck } from '../../server/s3/checksums.ts';
import { Crc64Nvme } from '../../server/s3/crc64nvme.ts';

/** The contents of which catalogues of checksums name the check value. */
const CHECK = Buffer.from('123456789');

function crc64(...parts: readonly Uint8Array[]): string {
  const crc = new Crc64Nvme();
  for (const part of parts) crc.update(part);
  return crc.digest().toString('hex').toUpperCase();
}

test('CRC-64/NVME has the published check value', () => {
  assert.equal(crc64(CHECK), 'AE8B14860A799888');
  assert.equal(crc64(), '0000000000000000');
});

/** One bit at a time, as the specification describes it. */
function crc64Slow(bytes: Uint8Array): string {
  let crc = 0xffff_ffff_ffff_ffffn;
  for (const byte of bytes) {
    crc ^= BigInt(byte);
    for (let bit = 0; bit < 8; bit++)
      crc = (crc & 1n) === 1n ? (crc >> 1n) ^ 0x9a6c_9329_ac4b_c9b5n : crc >> 1n;
  }
  return (crc ^ 0xffff_ffff_ffff_ffffn).toString(16).toUpperCase().padStart(16, '0');
}

test('CRC-64/NVME of any length, in any pieces, is that of one bit at a time', () => {
  const bytes = Uint8Array.from({ length: 300 }, (_, at) => (at * 73 + (at >>> 3)) & 0xff);
  for (let length = 0; length <= 40; length++)
    assert.equal(crc64(bytes.subarray(3, 3 + length)), crc64Slow(bytes.subarray(3, 3 + length)));
  for (let cut = 0; cut <= bytes.length; cut += 7)
    assert.equal(crc64(bytes.subarray(0, cut), bytes.subarray(cut)), crc64Slow(bytes));
});

test('CRC-32C has the published check values', () => {
  for (const crc of [crc32c, crc32cOfTable]) {
    assert.equal(crc(CHECK), 0xe306_9283);
    // RFC 3720, B.4.
    assert.equal(crc(Buffer.alloc(32)), 0x8a91_36aa);
    assert.equal(crc(Buffer.alloc(32, 0xff)), 0x62a8_ab43);
    assert.equal(crc(Uint8Array.from({ length: 32 }, (_, at) => at)), 0x46dd_794e);
    for (let cut = 0; cut <= CHECK.length; cut++)
      assert.equal(crc(CHECK.subarray(cut), crc(CHECK.subarray(0, cut))), 0xe306_9283);
  }
});

test('each algorithm has its check value in base64', () => {
  assert.deepEqual(
    ALGORITHMS.map((algorithm) => checksumOf(algorithm, CHECK)),
    [
      ...['y/Q5Jg==', '4waSgw==', 'rosUhgp5mIg='],
      ...['98O8HYCOBHMq32eZZczDTKeuNEE=', 'FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU='],
    ],
  );
});

test('one checksum of the right length is claimed', () => {
  const claim = claimedChecksum({ 'x-amz-checksum-crc32': ' y/Q5Jg== ' });
  assert.deepEqual(claim, { algorithm: 'CRC32', value: 'y/Q5Jg==' });
  assert.equal(claimedChecksum({ 'x-amz-checksum-mode': 'ENABLED' }), null);
  for (const value of ['', 'y/Q5Jg=', 'y/Q5Jg', 'y_Q5Jg==', 'y/Q5Jg==A', '4waSgw==4waSgw=='])
    assert.throws(() => claimedChecksum({ 'x-amz-checksum-crc32': value }), { s3: 'BadDigest' });
});

function checkOf(
  bytes: Buffer,
  expected: Partial<ConstructorParameters<typeof PayloadCheck>[0]>,
): PayloadCheck {
  const check = new PayloadCheck({
    ...{ md5: null, sha256: null, algorithm: null, claimed: () => null },
    ...expected,
  });
  check.update(bytes);
  return check;
}

test('a body of another digest is refused', () => {
  const other = (algorithm: string): Buffer => createHash(algorithm).update('other').digest();
  assert.throws(() => checkOf(CHECK, { md5: other('md5') }).check(), { s3: 'BadDigest' });
  assert.throws(() => checkOf(CHECK, { sha256: other('sha256') }).check(), {
    s3: 'XAmzContentSHA256Mismatch',
  });
  const claimed = () => ({ algorithm: 'CRC32C', value: 'AAAAAA==' }) as const;
  assert.throws(() => checkOf(CHECK, { algorithm: 'CRC32C', claimed }).check(), { s3: 'BadDigest' });
  // Claimed, but by an algorithm that was not announced.
  assert.throws(() => checkOf(CHECK, { claimed }).check(), { s3: 'BadDigest' });
});

test('what was computed is there after the check', () => {
  const check = checkOf(CHECK, { algorithm: 'CRC64NVME' });
  assert.throws(() => check.digests, { s3: 'IncompleteBody' });
  check.check();
  const { md5, checksum } = check.digests;
  assert.equal(md5.toString('hex'), '25f9e794323b453885f5181f1b624d0b');
  assert.deepEqual(checksum, { algorithm: 'CRC64NVME', value: 'rosUhgp5mIg=', type: 'FULL_OBJECT' });
});

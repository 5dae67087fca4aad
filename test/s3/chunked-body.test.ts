import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ChunkSignatures, signingKey } from '../../platform/s3-signature.ts';
import { decodeChunks } from '../../server/s3/chunked-body.ts';
import { chunkedBody, chunkSigner, type Header } from './sign.ts';

const SECRET = 'secret';
const SCOPE = { amzDate: '20261130T000000Z', region: 'us-east-1', service: 's3' };
const SEED = 'a'.repeat(64);
const DATA = Buffer.from('0123456789abcdef'.repeat(8));
const TRAILERS: readonly Header[] = [['x-amz-checksum-crc32', 'AAAAAA==']];

function signatures(): ChunkSignatures {
  const scope = { date: '20261130', region: 'us-east-1', service: 's3' };
  return new ChunkSignatures(signingKey(SECRET, scope), SCOPE.amzDate, scope, SEED);
}

function encoded(isSigned: boolean, trailers: readonly Header[] = []): Buffer {
  const chunks = [DATA.subarray(0, 100), DATA.subarray(100)];
  return chunkedBody(chunks, isSigned ? chunkSigner(SECRET, SCOPE, SEED) : null, trailers);
}

async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

interface Decoded {
  readonly data: Buffer;
  readonly trailers: ReadonlyMap<string, string>;
}

async function decoded(
  bytes: Buffer,
  {
    signed,
    size = bytes.length,
    announced = DATA.length,
  }: { signed: boolean; size?: number; announced?: number },
): Promise<Decoded> {
  const { body, trailers } = decodeChunks(inPieces(bytes, size), signed ? signatures() : null, announced);
  const parts: Buffer[] = [];
  for await (const part of body) parts.push(part);
  return { data: Buffer.concat(parts), trailers };
}

test('chunks are decoded from pieces of any size', async () => {
  for (const signed of [true, false])
    for (let size = 1; size < 40; size++) {
      const { data, trailers } = await decoded(encoded(signed, TRAILERS), { signed, size });
      assert.deepEqual(data, DATA);
      assert.deepEqual([...trailers], TRAILERS);
    }
});

test('a body that ends anywhere before its trailers is refused', async () => {
  const bytes = encoded(true, TRAILERS);
  const last = bytes.indexOf('x-amz-checksum-crc32');
  // The end of the last line may be missing: some clients do not send it.
  for (let end = 0; end < bytes.length - 2; end++) {
    const result = await decoded(bytes.subarray(0, end), { signed: true }).catch((error: { s3?: string }) => {
      assert.match(error.s3 ?? String(error), /^(?:IncompleteBody|SignatureDoesNotMatch)$/);
      return null;
    });
    // All data without trailers: the caller knows which are announced.
    if (result !== null) assert.deepEqual([end, result.trailers.size], [last, 0]);
  }
});

test('a change of any byte of signed chunks is refused, or changes no data', async () => {
  const bytes = encoded(true, TRAILERS);
  for (let at = 0; at < bytes.length; at++) {
    const changed = Buffer.from(bytes);
    changed[at] = (changed[at] as number) ^ 1;
    const result = await decoded(changed, { signed: true }).catch((error: { s3?: string }) => {
      assert.match(
        error.s3 ?? String(error),
        /^(?:IncompleteBody|SignatureDoesNotMatch|MalformedTrailerError)$/,
      );
      return null;
    });
    if (result === null) continue;
    assert.deepEqual(result.data, DATA);
    assert.deepEqual([...result.trailers], TRAILERS);
  }
});

test('a chunk without its signature is refused', async () => {
  await assert.rejects(decoded(encoded(false), { signed: true }), { s3: 'SignatureDoesNotMatch' });
});

test('trailers without their signature are refused', async () => {
  const bytes = encoded(true);
  const trailers = Buffer.from('x-amz-checksum-crc32:AAAAAA==\r\n\r\n');
  const unsigned = Buffer.concat([bytes.subarray(0, -2), trailers]);
  await assert.rejects(decoded(unsigned, { signed: true }), { s3: 'SignatureDoesNotMatch' });
});

test('the data has the announced length', async () => {
  for (const announced of [0, DATA.length - 1, DATA.length + 1])
    await assert.rejects(decoded(encoded(false), { signed: false, announced }), { s3: 'IncompleteBody' });
});

test('no more is stored than was announced', async () => {
  const { body } = decodeChunks(inPieces(encoded(false), 7), null, 100);
  let bytes = 0;
  const read = async (): Promise<void> => {
    for await (const part of body) bytes += part.length;
  };
  await assert.rejects(read(), { s3: 'IncompleteBody' });
  assert.equal(bytes, 100);
});

test('lines and trailers are bounded', async () => {
  const long = Buffer.concat([Buffer.from(`64;${'a'.repeat(5_000)}\r\n`), encoded(false)]);
  for (const size of [1_000, 100_000])
    await assert.rejects(decoded(long, { signed: false, size }), { s3: 'IncompleteBody' });
  const many = Array.from({ length: 100 }, (_, index): Header => [`a${index}`, 'b']);
  await assert.rejects(decoded(encoded(false, many), { signed: false }), { s3: 'MalformedTrailerError' });
});

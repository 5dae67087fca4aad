/** Goal: a sealed stream is read as it was written, or not at all, whatever an attacker does with its chunks. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Prng } from '../../base/prng.ts';
import { readSealedHeader, SealedStreamError, sealStream } from '../../client/backup/sealed-stream.ts';
import { systemWorld } from '../../world/system-world.ts';

const CHUNK_BYTES = 64 * 1024;
const SECRET = Buffer.from('a secret of some length');
const random = (count: number): Buffer => systemWorld.randomBytes(count);

async function* pieces(bytes: Buffer, length: number): AsyncGenerator<Buffer, void, undefined> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

async function sealed(plain: Buffer, secret: Buffer | null, pieceBytes = 10_000): Promise<Buffer> {
  const header = { id: random(16).toString('hex'), base: null };
  const all: Buffer[] = [];
  for await (const piece of sealStream(header, secret, pieces(plain, pieceBytes), random)) all.push(piece);
  return Buffer.concat(all);
}

async function opened(bytes: Buffer, secret: Buffer | null): Promise<Buffer> {
  const stream = await readSealedHeader(pieces(bytes, 7_777));
  const all: Buffer[] = [];
  for await (const piece of stream.open(secret)) all.push(piece);
  return Buffer.concat(all);
}

interface Parts {
  readonly header: Buffer;
  /** Each with its length and tag. */
  readonly chunks: readonly Buffer[];
}

function partsOf(bytes: Buffer): Parts {
  let end = 0;
  for (let lines = 0; lines < 3; lines++) end = bytes.indexOf('\n', end) + 1;
  const chunks: Buffer[] = [];
  for (let at = end; at < bytes.length; ) {
    const length = 4 + (bytes.readUInt32BE(at) % 2 ** 31) + 16;
    chunks.push(bytes.subarray(at, at + length));
    at += length;
  }
  return { header: bytes.subarray(0, end), chunks };
}

function flagged(chunk: Buffer, isLast: boolean): Buffer {
  const copy = Buffer.from(chunk);
  copy[0] = ((copy[0] as number) & 0x7f) | (isLast ? 0x80 : 0);
  return copy;
}

for (const [name, secret] of [
  ['with a key', SECRET],
  ['without a key', null],
] as const) {
  test(`all that is sealed ${name} is read again`, async () => {
    for (const length of [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 300_000]) {
      const plain = random(length);
      assert.ok((await opened(await sealed(plain, secret, 50_001), secret)).equals(plain), `${length} bytes`);
    }
  });

  test(`chunks that were sealed ${name} are read in their order, up to the last, from their own stream`, async () => {
    const bytes = await sealed(random(3 * CHUNK_BYTES + 100), secret);
    const { header, chunks } = partsOf(bytes);
    const [a, b, c, d] = chunks as [Buffer, Buffer, Buffer, Buffer];
    const other = partsOf(await sealed(random(3 * CHUNK_BYTES + 100), secret));
    const forged: readonly (readonly [string, readonly Buffer[]])[] = [
      ['truncated', [a, b, c]],
      ['truncated with a new end', [a, b, flagged(c, true)]],
      ['reordered', [b, a, c, d]],
      ['repeated', [a, a, b, c, d]],
      ['shortened', [a, c, d]],
      ['extended', [a, b, c, flagged(d, false), d]],
      ['continued after its end', [a, b, c, d, d]],
      ['of another stream', [a, other.chunks[1] as Buffer, c, d]],
      ['all of another stream', other.chunks],
      ['empty', []],
    ];
    for (const [what, given] of forged)
      await assert.rejects(opened(Buffer.concat([header, ...given]), secret), SealedStreamError, what);
    await opened(Buffer.concat([header, a, b, c, d]), secret);
  });

  test(`any bit that is changed in a stream ${name} is noticed`, async () => {
    const bytes = await sealed(random(CHUNK_BYTES + 100), secret);
    const prng = new Prng(5);
    for (let turn = 0; turn < 40; turn++) {
      const copy = Buffer.from(bytes);
      // Half of them in the header, with its key.
      const at = prng.integer(0, turn % 2 === 0 ? 300 : bytes.length - 1);
      copy[at] = (copy[at] as number) ^ (1 << prng.integer(0, 7));
      await assert.rejects(opened(copy, secret), SealedStreamError, `byte ${at}`);
    }
  });
}

test('a stream that is not encrypted is refused if there is a secret: another writer may have put it there', async () => {
  await assert.rejects(opened(await sealed(random(100), null), SECRET), SealedStreamError);
});

test('another secret, or none, opens nothing', async () => {
  const bytes = await sealed(random(100), SECRET);
  await assert.rejects(
    opened(bytes, Buffer.from('another secret of some length')),
    /key or passphrase is another one/,
  );
  await assert.rejects(opened(bytes, null), /it is encrypted/);
});

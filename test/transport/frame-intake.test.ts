import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { isPageAligned } from '../../base/page-memory.ts';
import { Prng } from '../../base/prng.ts';
import { PAYLOAD_LARGE_BYTES } from '../../server/transport/frame.ts';
import { FrameIntake } from '../../server/transport/frame-intake.ts';
import { decodeFileOperation, encodeFileOperation } from '../../wire/file-operation.ts';

/**
 * Goal: large messages are taken out of a connection whole, in their place among the others, and all else passes
 * unchanged.
 * Method: random streams of frames, cut anywhere, over a real connection; what passes and what is delivered is compared
 * with what was sent.
 */
const HANDSHAKE = Buffer.from('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n');

type Sent =
  | { readonly kind: 'passes'; readonly bytes: Buffer }
  | { readonly kind: 'delivered'; readonly bytes: Buffer; readonly fragments: readonly Buffer[] };

function frame(first: number, payload: Uint8Array): Buffer {
  const head =
    payload.length < 126
      ? Buffer.of(first, payload.length)
      : payload.length < 65_536
        ? Buffer.of(first, 126, payload.length >> 8, payload.length & 0xff)
        : Buffer.concat([Buffer.of(first, 127), Buffer.alloc(8)]);
  if (payload.length >= 65_536) head.writeBigUInt64BE(BigInt(payload.length), 2);
  return Buffer.concat([head, payload]);
}

function drawn(prng: Prng): Sent {
  const bytes = (size: number): Buffer => Buffer.alloc(size, prng.integer(0, 255));
  const small = bytes(prng.integer(0, 300));
  const large = bytes(PAYLOAD_LARGE_BYTES + prng.integer(0, 200_000));
  const begins = frame(0x02, small);
  switch (prng.integer(0, 7)) {
    case 0:
      return { kind: 'passes', bytes: frame(0x82, small) };
    case 1:
      return { kind: 'passes', bytes: frame(0x8a, bytes(3)) };
    case 2:
      return { kind: 'passes', bytes: frame(0x82, large) };
    // Begins as a large message, and continues in another way: it is small, has a third part, or begins again.
    case 3:
      return { kind: 'passes', bytes: Buffer.concat([begins, frame(0x80, bytes(200))]) };
    case 4:
      return { kind: 'passes', bytes: Buffer.concat([begins, frame(0x00, large), frame(0x80, small)]) };
    case 5:
      return { kind: 'passes', bytes: Buffer.concat([begins, frame(0x82, small)]) };
    default:
      return {
        kind: 'delivered',
        bytes: Buffer.concat([begins, frame(0x80, large)]),
        fragments: [small, large],
      };
  }
}

/** What arrives at the other end, in its order. */
async function received(sent: Buffer, cut: () => number): Promise<(Buffer | readonly Uint8Array[])[]> {
  const server = createServer(async (socket) => {
    socket.setNoDelay(true);
    for (let at = 0; at < sent.length; ) {
      const end = Math.min(sent.length, at + cut());
      socket.write(sent.subarray(at, end));
      at = end;
      await turn();
    }
    socket.end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const out: (Buffer | readonly Uint8Array[])[] = [];
  const intake = new FrameIntake();
  intake.deliver = (fragments) => out.push(fragments);
  const { port } = server.address() as AddressInfo;
  const socket = intake.connector(false)({ host: '127.0.0.1', port });
  socket.on('data', (bytes: Buffer) => {
    const last = out.at(-1);
    if (Buffer.isBuffer(last)) out[out.length - 1] = Buffer.concat([last, bytes]);
    else out.push(bytes);
  });
  await once(socket, 'end');
  server.close();
  return out;
}

const given = process.env.SEED;
for (const seed of given === undefined ? [1, 2, 3, 4, 5, 6, 7, 8] : [Number(given)]) {
  test(`what is sent arrives once, whole and in its order, however it is cut (SEED=${seed})`, async () => {
    const prng = new Prng(seed);
    const sent = Array.from({ length: 40 }, () => drawn(prng));
    const expected: (Buffer | readonly Uint8Array[])[] = [HANDSHAKE];
    for (const one of sent) {
      const last = expected.at(-1);
      if (one.kind === 'delivered') expected.push(one.fragments);
      else if (Buffer.isBuffer(last)) expected[expected.length - 1] = Buffer.concat([last, one.bytes]);
      else expected.push(one.bytes);
    }
    const cuts = [() => prng.integer(1, 9_000), () => prng.integer(1, 200_000), () => 2 ** 30];
    const cut = cuts[seed % cuts.length] ?? (() => 1);
    const out = await received(Buffer.concat([HANDSHAKE, ...sent.map(({ bytes }) => bytes)]), cut);
    assert.deepEqual(
      out.map((one) => (Buffer.isBuffer(one) ? `passed ${one.length}` : one.map(({ length }) => length))),
      expected.map((one) =>
        Buffer.isBuffer(one) ? `passed ${one.length}` : one.map(({ length }) => length),
      ),
    );
    for (const [at, one] of out.entries()) {
      const wanted = expected[at] ?? [];
      const whole = (parts: Buffer | readonly Uint8Array[]): Buffer =>
        Buffer.isBuffer(parts) ? parts : Buffer.concat(parts);
      assert.ok(whole(one).equals(whole(wanted)), `the ${at}th`);
    }
    assert.ok(sent.some(({ kind }) => kind === 'delivered'));
  });
}

test('frames may arrive one byte at a time', async () => {
  const large = Buffer.alloc(PAYLOAD_LARGE_BYTES, 9);
  const pong = frame(0x8a, Buffer.alloc(0));
  const sent = Buffer.concat([
    HANDSHAKE,
    pong,
    frame(0x02, Buffer.from('begin')),
    pong,
    frame(0x80, large),
    pong,
  ]);
  const slowUntil = sent.length - large.length - pong.length;
  let at = 0;
  const out = await received(sent, () => (++at < slowUntil ? 1 : 2 ** 30));
  // Control frames may arrive between the frames of a message.
  assert.deepEqual(
    out.map((one) => one.length),
    [HANDSHAKE.length + 2 * pong.length, 2, pong.length],
  );
});

test('the bytes of a large write begin at a page', async () => {
  const bytes = Buffer.alloc(2 * 1024 * 1024, 7);
  const operation = encodeFileOperation({ kind: 'write', offset: 3, bytes, modifiedNs: 1n });
  const sent = Buffer.concat([HANDSHAKE, frame(0x02, Buffer.from('head')), frame(0x80, operation)]);
  const [, delivered] = await received(sent, () => 2 ** 30);
  assert.ok(Array.isArray(delivered));
  const arrived = decodeFileOperation(delivered[1]);
  assert.ok(arrived.kind === 'write' && isPageAligned(arrived.bytes) && bytes.equals(arrived.bytes));
});

test('a handshake that is refused passes as a whole, whatever follows', async () => {
  const refusal = Buffer.from('HTTP/1.1 403 Forbidden\r\n\r\n\x02\x01x\x80\x7f\0\0\0\0\0\x01\0\0');
  const [all, ...more] = await received(refusal, () => 5);
  assert.deepEqual([all, more], [refusal, []]);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import { BALLOT_ZERO, type Ballot } from '../../lease/ballot.ts';
import { decodeLeaseFrame, encodeLeaseFrame, LeaseFrameWriter } from '../../lease/codec.ts';
import type { Lease } from '../../lease/lease.ts';
import type { LeaseEnvelope, LeaseMessage } from '../../lease/messages.ts';
import { MalformedError } from '../../wire/bytes.ts';

/** Records as the decoder makes them: plain objects. */
function record<T>(fields: { [K in keyof T]: fc.Arbitrary<T[K]> }): fc.Arbitrary<T> {
  return fc.record(fields, { noNullPrototype: true }) as fc.Arbitrary<T>;
}

const natural = fc.oneof(fc.nat(300), fc.maxSafeNat());
const clock = fc.double({ noNaN: true, noDefaultInfinity: true });
const server = fc.constantFrom('a', 'b', 'osd-17', 'x'.repeat(32)) as fc.Arbitrary<ServerId>;
const incarnation = natural as fc.Arbitrary<Incarnation>;
const cell = natural as fc.Arbitrary<CellId>;

const ballot: fc.Arbitrary<Ballot> = record({
  interval: fc.nat(0xffff_fffe),
  round: fc.integer({ min: 1, max: 0xffff_ffff }),
  server,
  incarnation,
});
const standing = fc.oneof(fc.constant(BALLOT_ZERO), ballot);
const claim = record({ session: natural, token: natural, note: fc.string({ maxLength: 40 }) });
const lease: fc.Arbitrary<Lease> = record({
  untilMs: clock,
  uid: ballot,
  released: fc.boolean(),
  claim: fc.option(claim, { nil: null }),
}).map(leaseOf);

/** The ballot that set a lease names its holder. */
function leaseOf(parts: Omit<Lease, 'holder' | 'incarnation'>): Lease {
  return { ...parts, holder: parts.uid.server, incarnation: parts.uid.incarnation };
}

function message(kind: LeaseMessage['kind']): fc.Arbitrary<LeaseMessage> {
  const base = { cell, view: natural };
  switch (kind) {
    case 'read':
    case 'query':
    case 'ack-write':
    case 'wrong-view':
      return record({ kind: fc.constant(kind), ...base, ballot });
    case 'write':
      return record({ kind: fc.constant(kind), ...base, ballot, lease, acquires: fc.boolean() });
    case 'ack-read':
      return record({ kind: fc.constant(kind), ...base, ballot, written: standing, lease }).map((ack) =>
        ack.written === BALLOT_ZERO ? { ...ack, lease: null } : ack,
      );
    case 'nack-read':
    case 'nack-write':
      return record({ kind: fc.constant(kind), ...base, ballot, largestBallot: standing });
    case 'refused-read':
    case 'refused-write': {
      const reason = fc.constantFrom('old' as const, 'future' as const, 'still-valid' as const);
      return record({ kind: fc.constant(kind), ...base, ballot, reason });
    }
    case 'learn':
      return record({ kind: fc.constant(kind), ...base, ballot, lease, shared: fc.boolean() }).map(
        ({ shared, ...learn }) =>
          shared ? { ...learn, lease: leaseOf({ ...learn.lease, uid: learn.ballot }) } : learn,
      );
    case 'release':
      return record({ kind: fc.constant(kind), ...base, uid: ballot });
  }
}

const KINDS: readonly LeaseMessage['kind'][] = [
  'read',
  'write',
  'ack-read',
  'ack-write',
  'nack-read',
  'nack-write',
  'refused-read',
  'refused-write',
  'wrong-view',
  'learn',
  'release',
  'query',
];
const messages = fc.array(fc.oneof(...KINDS.map(message)), { maxLength: 20 });
const envelope: fc.Arbitrary<LeaseEnvelope> = record({
  incarnation,
  startedMs: clock,
  parametersHash: fc.nat(0xffff_ffff),
  clockMs: clock,
  echoMs: clock,
});

test('decoding returns what was encoded', () => {
  fc.assert(
    fc.property(envelope, messages, (sent, list) => {
      assert.deepEqual(decodeLeaseFrame(encodeLeaseFrame(sent, list)), { envelope: sent, messages: list });
    }),
    { numRuns: 500 },
  );
});

test('a writer is empty after each frame, and changes no frame that it finished', () => {
  fc.assert(
    fc.property(envelope, fc.array(messages, { maxLength: 5 }), (sent, lists) => {
      const writer = new LeaseFrameWriter();
      const frames = lists.map((list) => {
        for (const each of list) writer.add(each);
        return writer.finish(sent);
      });
      for (const [index, list] of lists.entries())
        assert.deepEqual(decodeLeaseFrame(frames[index] as Uint8Array), { envelope: sent, messages: list });
    }),
    { numRuns: 200 },
  );
});

test('bytes of no frame are refused, without another effect', () => {
  const tryDecode = (bytes: Uint8Array) => {
    try {
      decodeLeaseFrame(bytes);
    } catch (error) {
      assert.ok(error instanceof MalformedError, String(error));
    }
  };
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => tryDecode(bytes)),
    { numRuns: 500 },
  );
  fc.assert(
    fc.property(
      envelope,
      messages,
      fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 }),
      (sent, list, changes) => {
        const bytes = encodeLeaseFrame(sent, list).slice();
        for (const [at, value] of changes) bytes[at % bytes.length] = value;
        tryDecode(bytes);
      },
    ),
    { numRuns: 1000 },
  );
});

test('a truncated or extended frame is refused', () => {
  fc.assert(
    fc.property(envelope, messages, fc.nat(), (sent, list, cut) => {
      const bytes = encodeLeaseFrame(sent, list);
      assert.throws(() => decodeLeaseFrame(bytes.subarray(0, cut % bytes.length)), MalformedError);
      const longer = new Uint8Array(bytes.length + 1);
      longer.set(bytes);
      assert.throws(() => decodeLeaseFrame(longer), MalformedError);
    }),
    { numRuns: 300 },
  );
});

test('a READ takes at most 16 bytes, whatever fields it has', () => {
  const sent: LeaseEnvelope = {
    incarnation: (2 ** 52) as Incarnation,
    startedMs: 1.7e12,
    parametersHash: 1,
    clockMs: 1.7e12,
    echoMs: 1.7e12,
  };
  const reads = Array.from({ length: 1000 }, (_, i): LeaseMessage => {
    const k = { interval: 5.8e8, round: 100_000 + i, server: 'a' as ServerId, incarnation: sent.incarnation };
    return { kind: 'read', cell: (1_000_000 + i) as CellId, view: 1, ballot: k };
  });
  const bytes = encodeLeaseFrame(sent, reads);
  assert.ok(bytes.length / 1000 <= 16, `${bytes.length / 1000} bytes per READ`);
});

/** Goal: every message survives the wire, and bytes from outside raise only `MalformedError`. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import {
  BODY_APART_BYTES_MIN,
  decodeReplicaMessage,
  encodeReplicaMessage,
  encodeReplicaPieces,
  MEMBERS_MAX,
  OPERATION_BYTES_MAX,
  RESULT_BYTES_MAX,
} from '../../replica/codec.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { EPOCH_ZERO, epochCompare } from '../../replica/epoch.ts';
import type { ReplicaMessage, ReplicaMessageBody } from '../../replica/messages.ts';
import type { Operation, RequestId } from '../../replica/operation.ts';
import type { Trust } from '../../replica/record.ts';
import type { Policy, View } from '../../replica/view.ts';
import { MalformedError } from '../../wire/bytes.ts';

const record = <Fields extends object>(fields: { [Key in keyof Fields]: fc.Arbitrary<Fields[Key]> }) =>
  fc.record(fields, { noNullPrototype: true });
const uint53 = fc.maxSafeNat();
const positive = fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
const server = fc.constantFrom('a', 'b', 'server-1', 'z'.repeat(32)) as fc.Arbitrary<ServerId>;
const incarnation = uint53 as fc.Arbitrary<Incarnation>;
const epoch: fc.Arbitrary<Epoch> = record({ counter: positive, server, incarnation });
const position = record({ epoch: fc.oneof(epoch, fc.constant(EPOCH_ZERO)), seq: uint53 });
const members = fc.uniqueArray(server, { minLength: 1, maxLength: 4 });
/** The usual policy is not written out. */
const policy = fc.constantFrom<Policy>('all', 'read-only');
const view: fc.Arbitrary<View> = fc.record(
  { number: uint53, members, joint: members, policy },
  { noNullPrototype: true, requiredKeys: ['number', 'members'] },
);
const trust = fc.constantFrom<Trust>('intact', 'damaged', 'suspect', 'lost');
const request = fc
  .tuple(uint53, positive, uint53, fc.nat())
  .map(([session, number, since, back]): RequestId => {
    const answered = Math.max(0, number - 1 - back);
    return { session, number, since, ...(answered > 0 && { answered }) };
  });
const operation: fc.Arbitrary<Operation> = fc.record(
  {
    request: fc.option(request),
    view,
    result: fc.uint8Array({ maxLength: 40 }),
    body: fc.uint8Array({ maxLength: 200 }),
  },
  { noNullPrototype: true, requiredKeys: ['request', 'result', 'body'] },
);
const kind = <Kind extends string>(name: Kind) => fc.constant(name);
const bodies: { [Kind in ReplicaMessageBody['kind']]: fc.Arbitrary<ReplicaMessageBody & { kind: Kind }> } = {
  prepare: record({ kind: kind('prepare'), epoch, view }),
  promise: record({ kind: kind('promise'), epoch, position, view, trust }),
  refuse: record({ kind: kind('refuse'), epoch, promised: epoch }),
  install: record({
    kind: kind('install'),
    epoch,
    view,
    base: position,
    to: incarnation,
    urgent: fc.boolean(),
  }),
  begin: record({ kind: kind('begin'), epoch, view }),
  installed: record({ kind: kind('installed'), epoch, seq: uint53 }),
  write: record({ kind: kind('write'), epoch, seq: positive, committedSeq: uint53, operation }),
  ack: record({ kind: kind('ack'), epoch, seq: uint53 }),
  resend: record({ kind: kind('resend'), epoch, fromSeq: positive }),
  'need-state': record({ kind: kind('need-state'), epoch, position }),
  heartbeat: record({
    kind: kind('heartbeat'),
    epoch,
    view,
    committedSeq: uint53,
    sentSeq: uint53,
    beat: uint53,
    guardMs: uint53,
  }),
  'heartbeat-ack': record({ kind: kind('heartbeat-ack'), epoch, position, beat: uint53, trust }),
  commit: record({ kind: kind('commit'), epoch, committedSeq: uint53 }),
  'read-request': record({ kind: kind('read-request'), epoch, nonce: uint53 }),
  'read-grant': record({
    kind: kind('read-grant'),
    epoch,
    nonce: uint53,
    durationMs: uint53,
    startSeq: uint53,
  }),
  'read-revoke': record({ kind: kind('read-revoke'), epoch }),
  'read-returned': record({ kind: kind('read-returned'), epoch }),
  yield: record({ kind: kind('yield'), epoch }),
  flush: record({ kind: kind('flush'), epoch, seq: uint53 }),
  flushed: record({ kind: kind('flushed'), epoch, seq: uint53 }),
};
const message = (of: fc.Arbitrary<ReplicaMessageBody>): fc.Arbitrary<ReplicaMessage> =>
  fc.tuple(of, incarnation).map(([fields, life]) => ({ incarnation: life, ...fields }));
const anyMessage = message(fc.oneof(...Object.values(bodies)));
const file = uint53 as fc.Arbitrary<FileId>;

for (const [name, body] of Object.entries(bodies)) {
  test(`decoding returns what was encoded: ${name}`, () => {
    fc.assert(
      fc.property(file, message(body), (id, sent) => {
        assert.deepEqual(decodeReplicaMessage(encodeReplicaMessage(id, sent)), { file: id, message: sent });
      }),
    );
  });
}

test('a truncated frame, or one with a changed byte, is refused or decodes to another message', () => {
  fc.assert(
    fc.property(file, anyMessage, fc.nat(), fc.integer({ min: 0, max: 255 }), (id, sent, at, byte) => {
      const frame = encodeReplicaMessage(id, sent);
      const cut = frame.slice(0, at % frame.length);
      assert.throws(() => decodeReplicaMessage(cut), MalformedError);
      const changed = frame.slice();
      changed[at % frame.length] = byte;
      try {
        decodeReplicaMessage(changed);
      } catch (error) {
        assert.ok(error instanceof MalformedError);
      }
    }),
    { numRuns: 500 },
  );
});

test('the bytes of an operation are a view into the frame', () => {
  const operationLarge = {
    request: null,
    result: new Uint8Array(),
    body: new Uint8Array(4 * 1024 * 1024).fill(7),
  };
  const frame = encodeReplicaMessage(1 as FileId, {
    kind: 'write',
    incarnation: 1 as Incarnation,
    epoch: { counter: 1, server: 'a' as ServerId, incarnation: 1 as Incarnation },
    seq: 1,
    committedSeq: 0,
    operation: operationLarge,
  });
  const decoded = decodeReplicaMessage(frame).message;
  assert.ok(decoded.kind === 'write');
  assert.equal(decoded.operation.body.buffer, frame.buffer);
  assert.equal(decoded.operation.body.length, operationLarge.body.length);
});

test('a large body follows its message, and is copied on neither side', () => {
  const writeOf = (bodyBytes: number): ReplicaMessage => ({
    kind: 'write',
    incarnation: 1 as Incarnation,
    epoch: { counter: 1, server: 'a' as ServerId, incarnation: 1 as Incarnation },
    seq: 1,
    committedSeq: 0,
    operation: { request: null, result: Uint8Array.of(1, 2), body: new Uint8Array(bodyBytes).fill(7) },
  });
  const id = 1 as FileId;
  const small = writeOf(BODY_APART_BYTES_MIN - 1);
  assert.deepEqual(encodeReplicaPieces(id, small), { frame: encodeReplicaMessage(id, small) });

  const large = writeOf(BODY_APART_BYTES_MIN);
  assert.ok(large.kind === 'write');
  const { frame, tail } = encodeReplicaPieces(id, large);
  assert.equal(tail, large.operation.body);
  assert.ok(
    Buffer.concat([frame, tail]).equals(encodeReplicaMessage(id, large)),
    'Together they are the message',
  );
  const { message } = decodeReplicaMessage(frame, tail);
  assert.deepEqual(message, large);
  assert.ok(message.kind === 'write' && message.operation.body === tail);

  assert.throws(() => decodeReplicaMessage(frame, tail.subarray(1)), MalformedError);
  assert.throws(() => decodeReplicaMessage(frame), MalformedError);
  const { epoch: of, incarnation: life } = large;
  const ack = encodeReplicaMessage(id, { kind: 'ack', incarnation: life, epoch: of, seq: 1 });
  assert.throws(() => decodeReplicaMessage(ack, tail), MalformedError);
});

test('messages that no server sends are refused', () => {
  const [a, b] = ['a', 'b'] as ServerId[] as [ServerId, ServerId];
  const life = { incarnation: 1 as Incarnation };
  const of: Epoch = { counter: 1, server: a, incarnation: 1 as Incarnation };
  const prepare = (by: View): ReplicaMessage => {
    return { ...life, kind: 'prepare', epoch: of, view: by };
  };
  const many = Array.from({ length: MEMBERS_MAX + 1 }, (_, index) => `s${index}` as ServerId);
  const nothing = new Uint8Array(0);
  const write = (operationOf: Operation): ReplicaMessage => {
    return { ...life, kind: 'write', epoch: of, seq: 1, committedSeq: 0, operation: operationOf };
  };
  const refused: Record<string, ReplicaMessage> = {
    'a view without members': prepare({ number: 1, members: [] }),
    'a view of too many': prepare({ number: 1, members: many }),
    'a member twice': prepare({ number: 1, members: [a, a] }),
    'a member to come twice': prepare({ number: 1, members: [a], joint: [b, b] }),
    'a member without a name': prepare({ number: 1, members: ['' as ServerId] }),
    'a policy of tomorrow': prepare({ number: 1, members: [a], policy: 'some' as Policy }),
    'a trust of tomorrow': {
      ...life,
      kind: 'heartbeat-ack',
      epoch: of,
      position: { epoch: of, seq: 1 },
      beat: 1,
      trust: 'half' as Trust,
    },
    'no epoch': { ...life, kind: 'yield', epoch: EPOCH_ZERO },
    'operation 0': { ...write({ request: null, result: nothing, body: nothing }), seq: 0 } as ReplicaMessage,
    'request 0': write({ request: { session: 1, number: 0, since: 0 }, result: nothing, body: nothing }),
    'a result that is too large': write({
      request: null,
      result: new Uint8Array(RESULT_BYTES_MAX + 1),
      body: nothing,
    }),
    'an operation that is too large': write({
      request: null,
      result: nothing,
      body: new Uint8Array(OPERATION_BYTES_MAX + 1),
    }),
  };
  for (const [name, sent] of Object.entries(refused)) {
    assert.throws(() => decodeReplicaMessage(encodeReplicaMessage(1 as FileId, sent)), MalformedError, name);
  }
  const longer = new Uint8Array([
    ...encodeReplicaMessage(1 as FileId, { ...life, kind: 'yield', epoch: of }),
    0,
  ]);
  assert.throws(() => decodeReplicaMessage(longer), MalformedError, 'A byte too many');
});

test('epochs have one order: counter, server, incarnation', () => {
  fc.assert(
    fc.property(epoch, epoch, (a, b) => {
      assert.equal(epochCompare(a, b), -epochCompare(b, a) + 0);
      assert.equal(epochCompare(EPOCH_ZERO, a), -1);
      if (a.counter < b.counter) assert.equal(epochCompare(a, b), -1);
    }),
  );
});

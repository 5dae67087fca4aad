/**
 * Goal: every message survives the wire, and no bytes from outside do more than raise `MalformedError`.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import type { Epoch, Operation } from '../../replica/actions.ts';
import { decodeReplicaMessage, encodeReplicaMessage } from '../../replica/codec.ts';
import { EPOCH_ZERO, epochCompare } from '../../replica/epoch.ts';
import type { ReplicaMessage, ReplicaMessageBody } from '../../replica/messages.ts';
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
const request = record({ session: uint53, number: positive, since: uint53 });
const operation: fc.Arbitrary<Operation> = record({
  request: fc.option(request),
  result: fc.uint8Array({ maxLength: 40 }),
  body: fc.uint8Array({ maxLength: 200 }),
});
const kind = <Kind extends string>(name: Kind) => fc.constant(name);
const body: fc.Arbitrary<ReplicaMessageBody> = fc.oneof(
  record({ kind: kind('prepare'), epoch, members }),
  record({ kind: kind('promise'), epoch, position }),
  record({ kind: kind('refuse'), epoch, promised: epoch }),
  record({ kind: kind('install'), epoch, members, base: position }),
  record({ kind: kind('installed'), epoch, seq: uint53 }),
  record({ kind: kind('write'), epoch, seq: positive, committedSeq: uint53, operation }),
  record({ kind: kind('ack'), epoch, seq: uint53 }),
  record({ kind: kind('resend'), epoch, fromSeq: positive }),
  record({ kind: kind('need-state'), epoch, position }),
  record({ kind: kind('heartbeat'), epoch, members, committedSeq: uint53, sentSeq: uint53 }),
  record({ kind: kind('heartbeat-ack'), epoch, position }),
  record({ kind: kind('flush'), epoch, seq: uint53 }),
  record({ kind: kind('flushed'), epoch, seq: uint53 }),
);
const message = fc
  .tuple(body, uint53, incarnation)
  .map(([fields, view, life]): ReplicaMessage => ({ view, incarnation: life, ...fields }));
const file = uint53 as fc.Arbitrary<FileId>;

test('what is read is what was written', () => {
  fc.assert(
    fc.property(file, message, (id, sent) => {
      assert.deepEqual(decodeReplicaMessage(encodeReplicaMessage(id, sent)), { file: id, message: sent });
    }),
    { numRuns: 500 },
  );
});

test('a frame cut short or with a changed byte is refused or another message, and nothing else', () => {
  fc.assert(
    fc.property(file, message, fc.nat(), fc.integer({ min: 0, max: 255 }), (id, sent, at, byte) => {
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
    view: 1,
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

test('epochs are in one order: counter, server, incarnation', () => {
  fc.assert(
    fc.property(epoch, epoch, (a, b) => {
      assert.equal(epochCompare(a, b), -epochCompare(b, a) + 0);
      assert.equal(epochCompare(EPOCH_ZERO, a), -1);
      if (a.counter < b.counter) assert.equal(epochCompare(a, b), -1);
    }),
  );
});

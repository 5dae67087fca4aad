import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { decodeStateTransferCall, encodeStateTransferCall } from '../../server/drivers/state-call.ts';
import {
  type Comparison,
  decodeComparison,
  decodeDigests,
  decodeKnown,
  decodeNodes,
  decodeObjects,
  decodePage,
  decodeRanges,
  decodeSince,
  decodeWanted,
  encodeComparison,
  encodeDigests,
  encodeKnown,
  encodeNodes,
  encodeObjects,
  encodePage,
  encodeRanges,
  encodeSince,
  encodeWanted,
} from '../../server/file/file-transfer.ts';
import { decodeWriteOutcome, encodeWriteOutcome } from '../../server/file/write-outcome.ts';
import { FAN_OUT } from '../../server/storage/object-digests.ts';
import { MalformedError } from '../../wire/bytes.ts';

const plain = <Model>(model: { [Key in keyof Model]: fc.Arbitrary<Model[Key]> }): fc.Arbitrary<Model> =>
  fc.record(model, { noNullPrototype: true }) as fc.Arbitrary<Model>;
const count = fc.nat({ max: Number.MAX_SAFE_INTEGER });
const word = fc.nat({ max: 0xffff_ffff });
const entry = plain({ index: count, versionEpoch: count, versionSeq: count, length: word, crc32: word });
const epoch = plain({
  counter: fc.integer({ min: 1, max: 2 ** 40 }),
  server: fc.constantFrom('s1' as ServerId, 'b-2' as ServerId),
  incarnation: fc.integer({ min: 1 }).map((drawn) => drawn as Incarnation),
});
const entries = fc
  .uniqueArray(entry, { selector: ({ index }) => index, maxLength: 20 })
  .map((drawn) => drawn.sort((a, b) => a.index - b.index));
const page = plain({ entries, next: fc.option(count) });
const digest = plain({ low: word, high: word });
const comparison: fc.Arbitrary<Comparison> = plain({
  position: plain({ epoch, seq: count }),
  view: plain({ number: word, members: fc.constant(['s1', 's2', 's3'] as ServerId[]) }),
  sessions: fc.uint8Array(),
  attributes: plain({
    sizeBytes: count,
    modifiedNs: fc.bigInt({ min: -(10n ** 18n), max: 10n ** 19n }),
    versionEpoch: count,
    versionSeq: count,
    objectBytes: fc.integer({ min: 1, max: 2 ** 30 }),
    dead: fc.boolean(),
    seal: fc.constantFrom('open' as const, 'sealed' as const, 'final' as const),
  }),
  total: digest,
  height: fc.nat({ max: 13 }),
  changes: page,
  objects: fc.constant([]),
});

test('a comparison survives its encoding', () => {
  fc.assert(
    fc.property(comparison, fc.uint8Array(), (drawn, bytes) => {
      const objects = drawn.changes.entries.slice(-2).map((entry) => ({ entry, bytes }));
      const sent = { ...drawn, objects };
      const arrived = decodeComparison(encodeComparison(sent));
      assert.deepEqual(
        {
          ...arrived,
          objects: arrived.objects.map((object) => ({ ...object, bytes: Uint8Array.from(object.bytes) })),
        },
        sent,
      );
    }),
  );
});

test('requests and answers of a comparison survive their encoding', () => {
  const numbers = fc.array(count, { maxLength: 20 });
  fc.assert(
    fc.property(page, numbers, fc.integer({ min: 1, max: 13 }), digest, (sent, drawn, level, one) => {
      assert.deepEqual(decodePage(encodePage(sent)), sent);
      const nodes = drawn.map((number) => ({ level, number }));
      assert.deepEqual(decodeNodes(encodeNodes(level, drawn)), nodes);
      const digests = Array.from({ length: drawn.length * FAN_OUT }, () => one);
      assert.deepEqual(decodeDigests(encodeDigests(digests), drawn.length), digests);
      const ranges = sent.entries.map(({ index }) => ({ first: index, last: index }));
      assert.deepEqual(decodeRanges(encodeRanges(ranges)), ranges);
    }),
  );
  fc.assert(
    fc.property(count, count, count, (known, seq, from) => {
      assert.deepEqual(decodeKnown(encodeKnown({ epoch: known, seq })), { epoch: known, seq });
      assert.deepEqual(decodeSince(encodeSince({ epoch: known, seq }, from)), {
        known: { epoch: known, seq },
        from,
      });
    }),
  );
});

test('wanted objects, their contents, requests and outcomes survive their encoding', () => {
  fc.assert(
    fc.property(entries, fc.array(fc.option(fc.uint8Array())), (wanted, contents) => {
      assert.deepEqual(decodeWanted(encodeWanted(wanted)), wanted);
      const objects = decodeObjects(encodeObjects(contents), contents.length);
      assert.deepEqual(
        objects.map((bytes) => bytes && Uint8Array.from(bytes)),
        contents,
      );
    }),
  );
  fc.assert(
    fc.property(count, epoch, fc.uint8Array(), (file, asked, payload) => {
      const request = decodeStateTransferCall(
        encodeStateTransferCall(file as never, asked, 'describe', payload),
      );
      assert.deepEqual(
        { ...request, payload: Uint8Array.from(request.payload) },
        {
          file,
          epoch: asked,
          method: 'describe',
          payload,
        },
      );
    }),
  );
  fc.assert(
    fc.property(count, count, fc.bigInt({ min: 0n, max: 10n ** 24n }), (offset, sizeBytes, modifiedNs) => {
      const outcome = { offset, sizeBytes, modifiedNs };
      assert.deepEqual(decodeWriteOutcome(encodeWriteOutcome(outcome)), outcome);
    }),
  );
});

test('other bytes are refused', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      for (const decode of [
        decodeComparison,
        decodeKnown,
        decodeNodes,
        decodePage,
        decodeRanges,
        decodeSince,
        decodeStateTransferCall,
        decodeWanted,
      ]) {
        try {
          decode(bytes);
        } catch (error) {
          assert.ok(error instanceof MalformedError, String(error));
        }
      }
    }),
    { numRuns: 2_000 },
  );
});

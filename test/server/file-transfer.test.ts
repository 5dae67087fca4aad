import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import {
  decodeDescribed,
  decodeDescription,
  decodeKnown,
  decodeObjects,
  decodePiece,
  decodeWanted,
  encodeDescription,
  encodeObjects,
  encodeWanted,
} from '../../server/file/file-transfer.ts';
import { decodeWriteOutcome, encodeWriteOutcome } from '../../server/file/write-outcome.ts';
import { decodeStateRequest, encodeStateRequest } from '../../server/state-call.ts';
import type { FileDescription } from '../../server/storage/store.ts';
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
const description: fc.Arbitrary<FileDescription> = plain({
  record: plain({
    view: plain({ number: word, members: fc.constant(['s1', 's2', 's3'] as ServerId[]) }),
    promised: epoch,
    installed: epoch,
    seq: count,
    sessions: fc.uint8Array(),
  }),
  attributes: plain({
    sizeBytes: count,
    modifiedNs: fc.bigInt({ min: -(10n ** 18n), max: 10n ** 19n }),
    versionEpoch: count,
    versionSeq: count,
    objectBytes: word,
    dead: fc.boolean(),
  }),
  objects: fc.array(entry, { maxLength: 20 }),
});

test('a description arrives as it was sent', () => {
  fc.assert(
    fc.property(description, (sent) => {
      assert.deepEqual(decodeDescription(encodeDescription(sent)), sent);
    }),
  );
});

test('wanted objects, their contents, requests and outcomes arrive as they were sent', () => {
  fc.assert(
    fc.property(
      fc.array(entry, { maxLength: 10 }),
      fc.array(fc.option(fc.uint8Array())),
      (entries, contents) => {
        assert.deepEqual(decodeWanted(encodeWanted(entries)), entries);
        const objects = decodeObjects(encodeObjects(contents), contents.length);
        assert.deepEqual(
          objects.map((bytes) => bytes && Uint8Array.from(bytes)),
          contents,
        );
      },
    ),
  );
  fc.assert(
    fc.property(count, epoch, fc.uint8Array(), (file, asked, payload) => {
      const request = decodeStateRequest(encodeStateRequest(file as never, asked, 'describe', payload));
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

test('bytes that are something else are refused, not believed', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      for (const decode of [
        decodeDescribed,
        decodeDescription,
        decodeKnown,
        decodePiece,
        decodeStateRequest,
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

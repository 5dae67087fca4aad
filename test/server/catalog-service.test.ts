import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServerId } from '../../base/ids.ts';
import { type CatalogServiceParts, LocalCatalogService } from '../../server/catalog/catalog-service.ts';
import { Clock } from '../../server/clock.ts';
import { PAYLOAD_BYTES_MAX } from '../../server/transport/frame.ts';
import type { Command, CommandRequest } from '../../wire/catalog-api.ts';

test('a batch fits one message, however large its commands are', async () => {
  const batches: Uint8Array[] = [];
  let done = 0;
  const parts = {
    self: 'a' as ServerId,
    view: { number: 1, members: ['a' as ServerId] },
    clock: new Clock(),
    operationTimeoutMs: 5_000,
    placement: () => [],
    isConnected: () => true,
    driver: {
      leads: true,
      orderedSeq: 0,
      status: () => ({ seq: 0 }),
      onRole: () => () => undefined,
      submit: async ({ body }: { body: Uint8Array }) => {
        batches.push(body);
        await new Promise((resolve) => setImmediate(resolve));
        return { seq: batches.length, result: new Uint8Array(0) };
      },
    },
    subject: {
      ready: () => Promise.resolve(),
      record: () => ({ view: { number: 1, members: ['a' as ServerId] } }),
      execute: (requests: readonly CommandRequest[]) => ({
        body: Buffer.from(JSON.stringify(requests)),
        outcomes: requests.map(() => ({ kind: 'done', result: {} })),
      }),
      abandon: () => undefined,
    },
  } as unknown as CatalogServiceParts;
  const service = new LocalCatalogService(parts);
  const command = {
    kind: 'set-xattr',
    inode: 2,
    name: 'user.large',
    value: 'A'.repeat(80_000),
    mode: 'any',
  } as unknown as Command;
  const requests = Array.from({ length: 300 }, (_, index) => ({ session: 1, number: index + 1, command }));
  await Promise.all(requests.map((request) => service.execute(request).then(() => done++)));
  assert.equal(done, requests.length);
  assert.ok(batches.length > 2);
  for (const body of batches) assert.ok(body.length < PAYLOAD_BYTES_MAX - 1024, `${body.length} bytes`);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServerId } from '../../base/ids.ts';
import type { Outcome } from '../../catalog/sessions.ts';
import { type CatalogServiceParts, LocalCatalogService } from '../../server/catalog/catalog-service.ts';
import { Clock } from '../../server/clock.ts';
import { PAYLOAD_BYTES_MAX } from '../../server/transport/frame.ts';
import type { Command, CommandRequest } from '../../wire/catalog-api.ts';

type Executed = ReturnType<CatalogServiceParts['subject']['execute']>;

/** A service of a primary that commits whatever is executed. */
function serviceOf(execute: (requests: readonly CommandRequest[]) => Executed, batches: Uint8Array[] = []) {
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
    recaller: { isHeld: () => false, block: () => undefined, release: () => undefined },
    subject: {
      ready: () => Promise.resolve(),
      record: () => ({ view: { number: 1, members: ['a' as ServerId] } }),
      execute,
      abandon: () => undefined,
    },
  } as unknown as CatalogServiceParts;
  return new LocalCatalogService(parts);
}

test('a file is made by one call, and told before that is answered', async () => {
  const result = { created: true, attributes: { inode: 7 } };
  let executions = 0;
  const service = serviceOf((requests) => {
    // Who retries is given the answer of before, and nothing is touched.
    const touched = executions++ === 0 ? [1, 7] : [];
    const outcome = { kind: 'done', result } as unknown as Outcome;
    return { body: Buffer.from('x'), outcomes: requests.map(() => outcome), touched: [touched] };
  });
  const told: string[] = [];
  const request = { session: 1, number: 1, command: { kind: 'create-file' } as unknown as Command };
  for (const attempt of ['first', 'retry']) {
    await service.execute(request, ({ inode }) => told.push(`${attempt} made ${inode}`));
    told.push(`${attempt} answered`);
  }
  assert.deepEqual(told, ['first made 7', 'first answered', 'retry answered']);
});

test('a batch fits one message, however large its commands are', async () => {
  const batches: Uint8Array[] = [];
  let done = 0;
  const service = serviceOf(
    (requests) => ({
      body: Buffer.from(JSON.stringify(requests)),
      outcomes: requests.map(() => ({ kind: 'done', result: {} }) as unknown as Outcome),
      touched: requests.map(() => []),
    }),
    batches,
  );
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

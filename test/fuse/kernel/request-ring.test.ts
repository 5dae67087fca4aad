import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { RequestRing } from '../../../fuse/kernel/request-ring.ts';

const CAPACITY = 1024;

test('requests are taken in order and whole, also around the end of the memory', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ minLength: 1, maxLength: 300 }), { maxLength: 60 }), (requests) => {
      const memory = RequestRing.memory(CAPACITY);
      const [producer, consumer] = [new RequestRing(memory), new RequestRing(memory)];
      const waiting: Uint8Array[] = [];
      let bytes = 0;
      const take = (): void => {
        const expected = waiting.shift();
        assert.ok(expected !== undefined);
        assert.deepEqual(Uint8Array.from(consumer.take() ?? []), expected);
        bytes -= expected.length + 16;
      };
      for (const request of requests) {
        // Keeps enough free space for one request, wherever the end of the memory is.
        while (bytes + request.length > CAPACITY - 700) take();
        producer.put(request);
        waiting.push(request);
        bytes += request.length + 16;
      }
      while (waiting.length > 0) take();
      assert.equal(consumer.take(), null);
    }),
  );
});

test('a consumer that waits is notified of the next request', async () => {
  const memory = RequestRing.memory(CAPACITY);
  const [producer, consumer] = [new RequestRing(memory), new RequestRing(memory)];
  const more = consumer.more();
  assert.ok(more !== undefined);
  producer.put(Uint8Array.of(1));
  await more;
  assert.equal(consumer.more(), undefined, 'There is a request');
  assert.deepEqual(Uint8Array.from(consumer.take() ?? []), Uint8Array.of(1));
});

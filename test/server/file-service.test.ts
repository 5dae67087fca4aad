import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServiceError } from '../../base/errors.ts';
import { FILE_BYTES_MAX } from '../../wire/file-operation.ts';
import { FILE, requestOf, SmallCluster } from './small-cluster.ts';

test('an append beyond the largest file is refused, and the replicas live on', async (t) => {
  const cluster = new SmallCluster(['a']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [{ files }] = cluster.servers as [(typeof cluster.servers)[0]];
  await files.truncate(FILE, requestOf(1), FILE_BYTES_MAX - 1);
  await assert.rejects(
    files.write(FILE, requestOf(2), 'append', Uint8Array.of(1, 2)),
    (error: ServiceError) => error.code === 'too-large',
  );
  const written = await files.write(FILE, requestOf(3), 0, Uint8Array.of(1));
  assert.equal(written.sizeBytes, FILE_BYTES_MAX - 1);
  assert.deepEqual(cluster.fatal, []);
});

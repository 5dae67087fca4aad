import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServiceError } from '../../base/errors.ts';
import { FILE_BYTES_MAX } from '../../wire/file-operation.ts';
import { FILE, requestOf, SmallCluster, type SmallServer } from './small-cluster.ts';

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

test('a replica that was away catches up while the primary takes one append after the other', async (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  let number = 0;
  const append = (length: number) =>
    a.files.write(FILE, requestOf(++number), 'append', new Uint8Array(length).fill(number));
  await append(10);
  for (const other of [a, b]) cluster.network.cut(other.id, c.id);
  // More than a primary keeps for replicas that lag: c has to fetch the state.
  for (let times = 0; times < 20; times++) await append(1024 * 1024);
  cluster.network.heal();
  while ((c.store.record(FILE)?.seq ?? 0) < 21 && number < 300) await append(100);
  assert.ok(number < 300, 'It has caught up before so many appends');
  assert.deepEqual(cluster.fatal, []);
});

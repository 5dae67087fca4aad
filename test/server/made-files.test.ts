/**
 * A file that this server has created as the catalog's primary: it becomes the file's primary before a request needs
 * one.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { FILE, OBJECT_BYTES, requestOf, SmallCluster, type SmallServer } from './small-cluster.ts';

async function started(
  t: { after(work: () => void): void },
  told: string[] = [],
  timing: ConstructorParameters<typeof SmallCluster>[2] = {},
) {
  const command = async ({ kind }: { readonly kind: string }) => void told.push(kind);
  // Long enough for a busy machine: a lease that ends makes another epoch.
  const cluster = new SmallCluster(['a', 'b', 'c'], { command }, { leaseMs: LEASE_MS, ...timing });
  t.after(() => {
    cluster.close();
    assert.deepEqual(cluster.fatal, []);
  });
  await cluster.ready();
  return { cluster, servers: cluster.servers as [SmallServer, SmallServer, SmallServer] };
}

function attributesAt(replicas: readonly ServerId[], inode = FILE): Attributes {
  const made = { inode, kind: 'file', live: true, view: 1, replicas, objectBytes: OBJECT_BYTES };
  return made as unknown as Attributes;
}

const LEASE_MS = 2_000;
const BYTES = Uint8Array.of(1, 2, 3);

test('the server that created a file writes to it in the first epoch, and the catalog need not be notified', async (t) => {
  const told: string[] = [];
  const { cluster, servers } = await started(t, told);
  const [a, b, c] = servers;
  a.files.created(attributesAt(cluster.view.members));
  const { epoch, seq } = await a.files.write(FILE, requestOf(1), 0, BYTES);
  assert.deepEqual({ epoch, seq }, { epoch: 1, seq: 1 });
  assert.deepEqual((await a.files.read(FILE, 0, 3)).bytes, BYTES);
  assert.deepEqual(told, []);
  await a.files.settle(FILE);
  assert.deepEqual(told, ['settle']);
  assert.ok([b, c].some(({ store }) => store.record(FILE)?.promised.counter === 1));
});

test('the lease of a file is acquired while it is created', async (t) => {
  const { cluster, servers } = await started(t);
  const [a] = servers;
  const attributes = attributesAt(cluster.view.members);
  a.files.creating(attributes);
  while (!a.lease.view(FILE).own) await delay(1);
  assert.equal(a.host.loaded(FILE), null);
  a.files.created(attributes);
  const { epoch } = await a.files.write(FILE, requestOf(1), 0, BYTES);
  assert.equal(epoch, 1);
});

test('the lease of a file that was not created after all is released', async (t) => {
  const { cluster, servers } = await started(t);
  const [a, b] = servers;
  const attributes = attributesAt(cluster.view.members);
  a.files.creating(attributes);
  while (!a.lease.view(FILE).own) await delay(1);
  a.files.notCreated(attributes);
  assert.equal(a.lease.view(FILE).own, false);
  // Another file that has the same number, by the next primary of the catalog.
  b.files.creating(attributes);
  b.files.created(attributes);
  assert.equal((await b.files.write(FILE, requestOf(1), 0, BYTES)).primary, b.id);
});

test('others receive nothing of it before it is written, read or locked', async (t) => {
  const { cluster, servers } = await started(t);
  const [a, b, c] = servers;
  a.files.created(attributesAt(cluster.view.members));
  while (a.host.loaded(FILE)?.orders !== true) await delay(1);
  assert.equal(a.host.loaded(FILE)?.isPrimary, false, 'A later primary might not know of it');
  assert.equal((await a.files.state(FILE)).sizeBytes, 0);
  assert.equal(a.host.loaded(FILE)?.isPrimary, true);
  assert.ok([b, c].some(({ store }) => store.record(FILE)?.installed.counter === 1));
});

test('a file that was created and never written gets another primary, which knows that there was one', async (t) => {
  const told: string[] = [];
  const { cluster, servers } = await started(t, told);
  const [a, b, c] = servers;
  a.files.created(attributesAt(cluster.view.members));
  await a.files.settle(FILE);
  assert.deepEqual(told, ['settle']);
  for (const other of [b, c]) cluster.network.cut(a.id, other.id);
  const written = async (): Promise<void> => {
    for (;;) {
      try {
        await b.files.write(FILE, requestOf(1), 0, BYTES);
        return;
      } catch {
        // The lease of the first primary is still valid.
        await delay(10);
      }
    }
  };
  await written();
  assert.deepEqual(told, ['settle', 'open-for-write'], 'The catalog asks for the size again');
  assert.equal(b.host.loaded(FILE)?.isFirstPrimary, false);
});

test('the server that created a file and does not write to it becomes its primary without waiting for a heartbeat', async (t) => {
  // None arrives within the time limit of an operation.
  const { cluster, servers } = await started(t, [], { heartbeatMs: 60_000 });
  const [a] = servers;
  a.files.created(attributesAt(cluster.view.members));
  assert.equal((await a.files.becomePrimary(FILE)).epoch, 1);
});

test('a file that was written and settled is released before one that is not', async (t) => {
  const other = (FILE + 1) as FileId;
  const { cluster, servers } = await started(t, [], { idleMs: 30_000 });
  const [a] = servers;
  for (const file of [FILE, other]) {
    a.files.created(attributesAt(cluster.view.members, file));
    await a.files.write(file, requestOf(1), 0, BYTES);
  }
  await a.files.settle(FILE);
  while (a.host.loaded(FILE) !== null) await delay(10);
  assert.notEqual(a.host.loaded(other), null);
});

test('a server that has no replica of the file that it created leaves it to others', async (t) => {
  const { servers } = await started(t);
  const [a, b, c] = servers;
  a.files.created(attributesAt([b.id, c.id]));
  assert.equal(a.host.loaded(FILE), null);
  const { epoch } = await b.files.write(FILE, requestOf(1), 0, BYTES);
  assert.equal(epoch, 2);
});

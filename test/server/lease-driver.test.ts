/** Leases of servers in one process: which servers may acquire them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type CatalogNumber, type CellId, catalogCell } from '../../base/ids.ts';
import { delay, FILE, SmallCluster, type SmallServer } from './small-cluster.ts';

const LEASE_MS = 500;

/** Resolves when the server holds the lease of the file. */
function held({ lease }: SmallServer, cell: CellId = FILE): Promise<void> {
  return new Promise((resolve) => {
    const look = (): void => {
      if (!lease.view(cell).own) return;
      off();
      resolve();
    };
    const off = lease.onChange(cell, look);
    look();
  });
}

test('a server that may not acquire a lease does not get it, votes, and renews one that it has', async (t) => {
  let isBarred = true;
  const mayAcquire = (_: unknown, peer: string): boolean => peer !== 'c' || !isBarred;
  const cluster = new SmallCluster(['a', 'b', 'c'], {}, { leaseMs: LEASE_MS, mayAcquire });
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  const { view } = cluster;
  c.lease.open(FILE, view);
  await delay(LEASE_MS);
  assert.equal(c.lease.view(FILE).own, false);
  // Of three servers one is down, so the vote of the excluded one is needed.
  await b.transport.close();
  a.lease.open(FILE, view);
  await held(a);

  a.lease.close(FILE);
  a.lease.release(FILE);
  isBarred = false;
  await held(c);
  isBarred = true;
  await delay(3 * LEASE_MS);
  assert.equal(c.lease.view(FILE).own, true);
  assert.deepEqual(cluster.fatal, []);
});

test('the first member that is there acquires the lease of a catalog of a volume', async (t) => {
  // A twentieth of it is longer than pauses of this process.
  const cluster = new SmallCluster(['a', 'b', 'c'], {}, { leaseMs: 8 * LEASE_MS });
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  const cells = [1, 2, 3, 4, 5, 6].map((number) => catalogCell(number as CatalogNumber));
  for (const { lease } of [c, b, a]) for (const cell of cells) lease.open(cell, cluster.view);
  await Promise.all(cells.map((cell) => held(a, cell)));

  for (const cell of cells) {
    a.lease.close(cell);
    a.lease.release(cell);
  }
  await Promise.all(cells.map((cell) => held(b, cell)));
  assert.deepEqual(cluster.fatal, []);
});

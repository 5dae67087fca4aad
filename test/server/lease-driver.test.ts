/** Leases of servers in one process: which servers may acquire them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { delay, FILE, SmallCluster, type SmallServer } from './small-cluster.ts';

const LEASE_MS = 500;

/** Resolves when the server holds the lease of the file. */
function held({ lease }: SmallServer): Promise<void> {
  return new Promise((resolve) => {
    const look = (): void => {
      if (!lease.view(FILE).own) return;
      off();
      resolve();
    };
    const off = lease.onChange(FILE, look);
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

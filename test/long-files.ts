/**
 * Test files that `npm test` leaves to `npm run test:long`, with the tests that show their rules in `npm test`. Each
 * starts a cluster of processes; the simulated clusters run the same programs through more faults.
 */
const CLUSTER = 'test/simulation/cluster/cluster.test.ts';
const SCHEDULES = 'test/simulation/cluster/schedules.test.ts';

export const LONG_FILES: Readonly<Record<string, readonly string[]>> = {
  'test/cluster/clock-set-back.test.ts': ['test/named/driver.test.ts', 'test/storage/data-folder.test.ts'],
  // The demo kills a primary, compares every byte, and bounds the time without writes.
  'test/cluster/failover.test.ts': ['test/client/dev.test.ts', 'test/nemesis/nemesis.test.ts'],
  'test/cluster/forgotten-sessions.test.ts': [
    'test/http/exactly-once.test.ts',
    'test/catalog/sessions.test.ts',
  ],
  'test/cluster/growing-catalog.test.ts': [
    'test/membership/steward.test.ts',
    'test/simulation/cluster/wholes.test.ts',
  ],
  'test/cluster/growing-voters.test.ts': [
    'test/membership/voters-keeper.test.ts',
    'test/simulation/claim.test.ts',
  ],
  'test/cluster/joined-servers.test.ts': [
    'test/client/server-search.test.ts',
    'test/cluster/membership.test.ts',
  ],
  'test/cluster/member-sets.test.ts': [SCHEDULES, CLUSTER],
  'test/cluster/mount-exclusive.test.ts': [SCHEDULES, 'test/cluster/mount-births.test.ts'],
  'test/cluster/mount-unknown-outcomes.test.ts': [SCHEDULES, 'test/fuse/own-names.test.ts'],
  'test/cluster/quota-recount.test.ts': ['test/catalog/property.test.ts', 'test/cluster/mount-quota.test.ts'],
  'test/cluster/restart-all.test.ts': ['test/cluster/power-loss-of-all.test.ts', CLUSTER],
  'test/nemesis/names.test.ts': [CLUSTER, 'test/nemesis/nemesis.test.ts'],
  'test/nemesis/schedules.test.ts': [SCHEDULES],
};

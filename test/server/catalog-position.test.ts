/** Goal: the position of the catalog that a server reports begins no session too late. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CATALOG_CELL, type ServerId } from '../../base/ids.ts';
import { Gateway } from '../../server/routing/gateway.ts';
import type { CatalogStatus, Services } from '../../server/routing/service-interfaces.ts';
import { patientWorld } from '../patient-world.ts';

const BACKUP: CatalogStatus = {
  ...{ primary: 's2' as ServerId, epoch: 3, seq: 9, committedSeq: 7 },
  ...{ members: ['s1', 's2'] as ServerId[], invitesQueries: true },
};

function gatewayOf(catalog: CatalogStatus): Gateway {
  const services = {
    catalogs: { at: () => ({ status: () => catalog }) },
    status: { id: 's1', urls: new Map(), operationTimeoutMs: 1_000 },
  } as unknown as Services;
  return new Gateway({ world: patientWorld, services, founders: [], copyAt: async () => 'not-needed' });
}

test('a backup reports committed operations only, the primary all that it has applied', () => {
  assert.deepEqual(gatewayOf(BACKUP).root.position, { seq: 7, epoch: 3 });
  const primary = { ...BACKUP, primary: 's1' as ServerId, invitesQueries: false };
  assert.deepEqual(gatewayOf(primary).root.position, { seq: 9, epoch: 3 });
});

test('a backup names itself for further queries; another server the primary', () => {
  assert.equal(gatewayOf(BACKUP).root.reader, 's1');
  assert.equal(gatewayOf({ ...BACKUP, invitesQueries: false }).root.reader, 's2');
});

test('a server without a catalog replica names no server before a member has answered', () => {
  const gateway = gatewayOf({ ...BACKUP, members: ['s2' as ServerId], invitesQueries: false });
  assert.equal(gateway.root.reader, null);
  gateway.router.assumeReader(CATALOG_CELL, 's3' as ServerId);
  assert.equal(gateway.root.reader, 's3');
});

test('before a backup knows any committed operation, none is reported', () => {
  assert.equal(gatewayOf({ ...BACKUP, committedSeq: 0 }).root.position.seq, null);
});

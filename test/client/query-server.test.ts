/** Goal: a client stays at the server that answers its queries only for a while, however often that names itself. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CatalogSubject } from '../../client/cluster/catalog-subject.ts';
import { QueryServer } from '../../client/cluster/query-server.ts';
import type { Endpoints } from '../../client/transport/endpoints.ts';
import { ZonePolicy } from '../../client/transport/zone-policy.ts';

test('a named server is used for a while, whatever it says; then the client chooses', () => {
  let nowMs = 0;
  const world = { nowMs: () => nowMs } as never;
  const zone = new ZonePolicy(world, null, () => true);
  const endpoints = { zone, near: () => ({ id: 's2' }) } as unknown as Endpoints;
  const server = new QueryServer(world, new CatalogSubject(null, () => undefined), endpoints, 7);
  assert.equal(server.primary, 's2');
  server.primary = 's1';
  for (; nowMs < 5_000; nowMs += 500) {
    assert.equal(server.primary, 's1');
    server.primary = 's1';
  }
  assert.equal(server.primary, 's2');
});

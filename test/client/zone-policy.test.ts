/** Goal: a client asks servers of its zone first for as long as they answer, and only for what they can answer. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CatalogSubject } from '../../client/cluster/catalog-subject.ts';
import { NearReads } from '../../client/cluster/near-reads.ts';
import { QueryServer } from '../../client/cluster/query-server.ts';
import type { Endpoints } from '../../client/transport/endpoints.ts';
import type { Subject } from '../../client/transport/exchange.ts';
import { QUERIES, ZonePolicy } from '../../client/transport/zone-policy.ts';

const FILE = 7;
const REPLICAS = ['a1', 'b1', 'b2'];
const FORWARDED = { 'leasehold-served': 'forwarded' };

/** Servers a1 and a2 in zone a, b1 and b2 in zone b, and c1 without a zone. */
class Zones {
  nowMs = 0;
  readonly away = new Set<string>();
  readonly policy: ZonePolicy;

  constructor(zone: string | null) {
    this.policy = new ZonePolicy({ nowMs: () => this.nowMs }, zone, (server) => !this.away.has(server));
    this.policy.learn(
      ['a1', 'a2', 'b1', 'b2', 'c1'].map((id) => ({ id, zone: id === 'c1' ? '' : (id[0] ?? '') })),
    );
  }

  reads(primary: string | null): { readonly reads: NearReads; readonly subject: Subject } {
    const subject: Subject = { primary };
    return { reads: new NearReads(subject, this.policy, FILE, REPLICAS), subject };
  }

  queryServer(): QueryServer {
    const endpoints = { zone: this.policy, near: () => ({ id: 'a1' }) } as unknown as Endpoints;
    const catalog = new CatalogSubject(null, () => undefined);
    return new QueryServer({ nowMs: () => this.nowMs } as never, catalog, endpoints, 0);
  }
}

/** An answer of `server` to a query, which names the one for further queries. */
function answered(queries: QueryServer, server: string, named: string): void {
  queries.primary = named;
  queries.received({ 'leasehold-primary': named }, server);
}

test('a client without a zone prefers no server', () => {
  const { policy } = new Zones(null);
  assert.equal(policy.first(FILE, REPLICAS), null);
  assert.equal(policy.isNear('a1'), false);
});

test('servers without a zone are in no zone, and a zone without servers has none', () => {
  assert.equal(new Zones('').policy.first(QUERIES, ['a1', 'c1']), null);
  assert.equal(new Zones('d').policy.first(QUERIES, ['a1', 'b1', 'c1']), null);
});

test('a read goes to a replica of the zone, unless the primary is in the zone', () => {
  const zones = new Zones('b');
  assert.equal(zones.reads('a1').reads.near, 'b1');
  assert.equal(zones.reads('b2').reads.near, null, 'The primary is asked, which needs no read lease');
  assert.equal(zones.reads(null).reads.near, 'b1');
  zones.away.add('b1');
  assert.equal(zones.reads('a1').reads.near, 'b2');
  zones.away.add('b2');
  assert.equal(zones.reads('a1').reads.near, null);
  assert.equal(zones.reads('b2').reads.near, null);
});

test('a replica that forwards a read is not asked first for a while, for that file', () => {
  const zones = new Zones('b');
  const { reads } = zones.reads('a1');
  reads.received(FORWARDED, 'b1');
  assert.equal(reads.near, 'b2');
  reads.received(FORWARDED, 'b2');
  assert.equal(reads.near, null);
  const other = new NearReads({ primary: 'a1' }, zones.policy, FILE + 1, REPLICAS);
  assert.equal(other.near, 'b1');
  zones.nowMs += 250;
  assert.equal(reads.near, 'b1');
  reads.received({ 'leasehold-served': 'local' }, 'b1');
  assert.equal(reads.near, 'b1');
});

test('answers to reads name the primary for changes', () => {
  const { reads, subject } = new Zones('b').reads('a1');
  reads.primary = 'a2';
  assert.equal(subject.primary, 'a2');
  assert.equal(reads.primary, 'a2');
});

test('queries go to a server of the zone while it invites them', () => {
  const zones = new Zones('b');
  const queries = zones.queryServer();
  assert.equal(queries.near, 'b1');
  for (; zones.nowMs < 20_000; zones.nowMs += 1_000) {
    answered(queries, 'b1', 'b1');
    assert.equal(queries.near, 'b1');
  }
});

test('a server of the zone that names another one is left for a while: the next of the zone, then the named one', () => {
  const zones = new Zones('b');
  const queries = zones.queryServer();
  answered(queries, 'b1', 'a2');
  assert.equal(queries.near, 'b2');
  answered(queries, 'b2', 'a2');
  assert.deepEqual([queries.near, queries.primary], [null, 'a2']);
  answered(queries, 'a2', 'a2');
  assert.deepEqual([queries.near, queries.primary], [null, 'a2']);
  zones.nowMs += 5_000;
  assert.equal(queries.near, 'b1');
});

test('queries are as without a zone while none of its servers can be asked', () => {
  const zones = new Zones('b');
  const queries = zones.queryServer();
  for (const id of ['b1', 'b2']) zones.away.add(id);
  assert.deepEqual([queries.near, queries.primary], [null, 'a1']);
  answered(queries, 'a1', 'a2');
  assert.deepEqual([queries.near, queries.primary], [null, 'a2']);
  zones.away.delete('b2');
  assert.equal(queries.near, 'b2');
});

test('a server that had no answer is asked first for nothing, for a while', () => {
  const zones = new Zones('b');
  const queries = zones.queryServer();
  const { reads } = zones.reads('a1');
  zones.policy.failed('b1');
  assert.deepEqual([queries.near, reads.near], ['b2', 'b2']);
  zones.policy.failed('b2');
  assert.deepEqual([queries.near, reads.near], [null, null]);
  assert.equal(zones.reads('b2').reads.near, null);
  zones.nowMs += 10_000;
  assert.deepEqual([queries.near, reads.near], ['b1', 'b1']);
});

/**
 * Goal: a server has exactly the replicas that the list of catalogs says, whatever the order of lists and restarts.
 * Method: servers with real databases, and lists of the test.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { CatalogNumber, ServerId } from '../../base/ids.ts';
import type { CommandOf, QueryResults } from '../../wire/catalog-api.ts';
import { patientWorld } from '../patient-world.ts';
import { CatalogCluster, type CatalogServer, listOf, ONE, rowOf } from './catalog-cluster.ts';

const [A, B, C, D] = ['a', 'b', 'c', 'd'] as [ServerId, ServerId, ServerId, ServerId];
const TWO = 2 as CatalogNumber;
/** Its keeper has nothing to do. */
const READY = { state: 'ready' } as const;

function beginning(number = ONE): CommandOf<'catalog-begin'> {
  const settings = { replicas: 1, objectBytes: 65_536 };
  const servers = [A, B, C, D].map((id) => ({
    ...{ id, url: `http://${id}:7400`, zone: '', since: 0, storageId: `store of ${id}` },
    state: 'in' as const,
  }));
  return { kind: 'catalog-begin', number, name: 'projects', settings, servers };
}

function clusterOf(t: TestContext): CatalogCluster {
  const cluster = new CatalogCluster();
  t.after(async () => {
    await cluster.close();
    assert.deepEqual(cluster.fatal, []);
  });
  return cluster;
}

async function untilPrimary(servers: readonly CatalogServer[], number = ONE): Promise<CatalogServer> {
  for (let waits = 0; waits < 1_000; waits++) {
    const primary = servers.find((server) => server.service(number).status().primary === server.id);
    if (primary !== undefined) return primary;
    await patientWorld.sleep(10);
  }
  throw new Error(`Catalog ${number} gets no primary`);
}

test('the members of a new catalog open empty replicas that count, and elect a primary', async (t) => {
  const cluster = clusterOf(t);
  const servers = [await cluster.start(A), await cluster.start(B), await cluster.start(C)];
  const other = await cluster.start(D);
  const list = listOf(2, rowOf([A, B, C]));
  // Two of three are enough: an empty replica of a new catalog has lost nothing.
  for (const server of [...servers.slice(1), other]) await server.adopt(list);
  const primary = await untilPrimary(servers.slice(1));
  await primary.service().execute({ session: 1, number: 1, command: beginning() });
  await servers[0]?.adopt(list);
  assert.equal(other.service().view(), null);
  assert.deepEqual(other.service().status().members, [A, B, C]);
  await assert.rejects(other.service().query({ kind: 'volumes' }), { code: 'not-primary' });
  assert.ok(!existsSync(other.path()));
  assert.deepEqual([...primary.attended.keys(), ...other.attended.keys()], [ONE]);
});

test('of a catalog that an earlier disk may have had, a new replica counts once it is caught up', async (t) => {
  const cluster = clusterOf(t);
  const list = listOf(5, rowOf([A, B, C], { state: 'ready', made: 4 }));
  const [a, b] = [await cluster.start(A, 4), await cluster.start(B, 3)];
  for (const server of [a, b]) await server.adopt(list);
  assert.equal(a.catalogs.storeOf(ONE)?.trust(), 'lost');
  assert.equal(b.catalogs.storeOf(ONE)?.trust(), 'intact');
  const c = await cluster.start(C, 2);
  await c.adopt(list);
  const primary = await untilPrimary([a, b, c]);
  await primary.service().execute({ session: 1, number: 1, command: beginning() });
  while (a.catalogs.storeOf(ONE)?.trust() !== 'intact') await patientWorld.sleep(10);
});

test('before the root catalog has registered the disk, nothing is created', async (t) => {
  const cluster = clusterOf(t);
  const a = await cluster.start(A, null);
  await a.adopt(listOf(3, rowOf([A])));
  assert.ok(!existsSync(a.path()));
  await assert.rejects(a.catalogs.openForMove(ONE), { code: 'storage' });
  a.known.adoptAfterRegistration(listOf(3), 3);
  await a.catalogs.settled();
  assert.equal(a.catalogs.storeOf(ONE)?.trust(), 'lost');
});

test('a catalog that is listed between the registration of a disk and its answer is newer than the disk', async (t) => {
  const cluster = clusterOf(t);
  const a = await cluster.start(A, null);
  a.known.adoptAfterRegistration(listOf(3, rowOf([A], { made: 3 })), 2);
  await untilPrimary([a]);
  assert.equal(a.catalogs.storeOf(ONE)?.trust(), 'intact');
});

test('a volume that is being removed is opened, and its replica deleted once it is removed', async (t) => {
  const cluster = clusterOf(t);
  let a = await cluster.start(A);
  await a.adopt(listOf(3, rowOf([A], { state: 'removing', since: 3 })));
  await untilPrimary([a]);
  const held = a.service();
  await a.adopt(listOf(4, rowOf([A], { state: 'removed', since: 4 })));
  assert.equal(a.catalogs.at(ONE), null);
  assert.ok(!existsSync(a.path()));
  assert.deepEqual(readdirSync(a.folder.file('catalogs')), []);
  assert.deepEqual([...a.attended.keys()], []);
  assert.deepEqual([a.host.all(), a.catalogs.failed()], [[], []]);
  await assert.rejects(held.query({ kind: 'volumes' }), { code: 'not-primary' });
  await assert.rejects(a.catalogs.openForMove(ONE), { code: 'not-found' });
  // It is never opened again: neither by an older list, nor after a restart.
  await a.adopt(listOf(3, rowOf([A], { state: 'removing', since: 3 })));
  await cluster.stop(a);
  a = await cluster.start(A);
  await a.catalogs.settled();
  assert.ok(!existsSync(a.path()));
});

test('a restart opens what is there, in the state in which it was', async (t) => {
  const cluster = clusterOf(t);
  let a = await cluster.start(A);
  await a.adopt(listOf(2, rowOf([A])));
  await untilPrimary([a]);
  await a.service().execute({ session: 1, number: 1, command: beginning() });
  await cluster.stop(a);
  a = await cluster.start(A);
  await a.catalogs.settled();
  await untilPrimary([a]);
  const { volumes } = (await a.service().query({ kind: 'volumes' })) as QueryResults['volumes'];
  assert.deepEqual(
    volumes.map(({ name }) => name),
    ['projects'],
  );
});

test('a start deletes what an earlier one had begun to delete, and what a later list has removed', async (t) => {
  const cluster = clusterOf(t);
  let a = await cluster.start(A);
  await a.adopt(listOf(3, rowOf([A]), rowOf([A], { number: TWO, name: 'other' })));
  const [one, two] = [a.path(ONE), a.path(TWO)];
  await cluster.stop(a);
  // Killed between the first step of the deletion and the next; and before the deletion of the other one.
  renameSync(one, `${one}.removed`);
  a = await cluster.start(A, null);
  assert.ok(!existsSync(`${one}.removed`));
  const removed = { state: 'removed', since: 5 } as const;
  a.known.adopt(listOf(5, rowOf([A], removed), rowOf([A], { ...removed, number: TWO, name: 'other' })));
  await cluster.stop(a);
  a = await cluster.start(A);
  await a.catalogs.settled();
  assert.deepEqual([existsSync(one), existsSync(two)], [false, false]);
});

test('after the loss of the list, replicas stay as they are until the list is known again', async (t) => {
  const cluster = clusterOf(t);
  let a = await cluster.start(A);
  await a.adopt(listOf(2, rowOf([A])));
  await untilPrimary([a]);
  await cluster.stop(a);
  rmSync(a.folder.file('catalogs.json'));
  a = await cluster.start(A, null);
  await a.catalogs.settled();
  assert.deepEqual([existsSync(a.path()), a.catalogs.at(ONE)], [true, null]);
  await a.adopt(listOf(2, rowOf([A])));
  assert.equal(a.catalogs.storeOf(ONE)?.trust(), 'intact');
  await untilPrimary([a]);
});

test('a damaged replica disturbs neither the server nor other catalogs, and is reported', async (t) => {
  const cluster = clusterOf(t);
  let a = await cluster.start(A);
  const list = listOf(2, rowOf([A, B]), rowOf([A], { number: TWO, name: 'other' }));
  await a.adopt(list);
  await cluster.stop(a);
  writeFileSync(a.path(ONE, 'catalog.db'), 'not a database, but long enough to be read as one'.repeat(100));
  a = await cluster.start(A);
  await a.catalogs.settled();
  await untilPrimary([a], TWO);
  const [failed, ...others] = a.catalogs.failed();
  assert.deepEqual([failed?.volume, others], ['projects', []]);
  await assert.rejects(a.service().query({ kind: 'volumes' }), (error: Error) =>
    error.message.includes('cannot use its catalog replica'),
  );
  // The removal deletes it all the same.
  const removed = { state: 'removed', since: 3 } as const;
  await a.adopt(listOf(3, rowOf([A, B], removed), rowOf([A], { number: TWO, name: 'other' })));
  assert.deepEqual([existsSync(a.path()), a.catalogs.failed()], [false, []]);
});

test('with --rebuild, a damaged or lost replica is created anew, and counts once it is caught up', async (t) => {
  const cluster = clusterOf(t);
  let a = await cluster.start(A);
  const others = [await cluster.start(B), await cluster.start(C)];
  const two = { ...READY, number: TWO, name: 'other' };
  const list = listOf(2, rowOf([A, B, C], READY), rowOf([A, B, C], two));
  for (const server of [a, ...others]) await server.adopt(list);
  for (const number of [ONE, TWO]) {
    const primary = await untilPrimary([a, ...others], number);
    await primary.service(number).execute({ session: 1, number: 1, command: beginning(number) });
  }
  await cluster.stop(a);
  writeFileSync(a.path(ONE, 'catalog.db'), 'not a database, but long enough to be read as one'.repeat(100));
  rmSync(a.path(TWO, 'catalog.db'));
  a = await cluster.start(A, 0, true);
  assert.deepEqual(
    [a.folder.wasSetAside('catalogs', basename(a.path(ONE))), a.catalogs.failed()],
    [true, []],
  );
  for (const number of [ONE, TWO])
    while (a.catalogs.storeOf(number)?.trust() !== 'intact') await patientWorld.sleep(10);
  while (a.catalogs.lacksReplica) await patientWorld.sleep(10);
});

test('a lost database is not taken for a new catalog', async (t) => {
  const cluster = clusterOf(t);
  let a = await cluster.start(A);
  await a.adopt(listOf(2, rowOf([A])));
  await cluster.stop(a);
  rmSync(a.path(), { recursive: true });
  a = await cluster.start(A);
  await a.catalogs.settled();
  assert.equal(a.catalogs.failed().length, 1);
  assert.deepEqual([a.catalogs.storeOf(ONE), existsSync(a.path(ONE, 'catalog.db'))], [null, false]);
});

test('a catalog moves: the new member catches up, and the list has the old one deleted', async (t) => {
  const cluster = clusterOf(t);
  const ids = [A, B, C];
  const servers = await Promise.all(ids.map((id) => cluster.start(id)));
  const d = await cluster.start(D);
  const list = listOf(2, rowOf(ids, READY));
  for (const server of [...servers, d]) await server.adopt(list);
  let primary = await untilPrimary(servers);
  await primary.service().execute({ session: 1, number: 1, command: beginning() });
  await d.catalogs.openForMove(ONE);
  assert.equal(d.catalogs.storeOf(ONE)?.trust(), 'lost');
  // A list of the same view does not take the replica away that is to become a member.
  await d.adopt(listOf(3, rowOf(ids, { state: 'ready', since: 3 })));
  const view = await primary.service().changeMembers([B, C, D]);
  assert.equal(d.catalogs.storeOf(ONE)?.trust(), 'intact');
  const moved = listOf(4, rowOf([B, C, D], { state: 'ready', since: 3, view: view.number }));
  const [a, b, c] = servers as [CatalogServer, CatalogServer, CatalogServer];
  for (const server of [a, b, c, d]) await server.adopt(moved);
  assert.deepEqual([existsSync(a.path()), a.service().view()], [false, null]);
  assert.deepEqual(a.service().status().members, [B, C, D]);
  primary = await untilPrimary([b, c, d]);
  await primary.service().query({ kind: 'volumes' });
  // It may become a member again: what it once had does not count.
  await a.catalogs.openForMove(ONE);
  assert.equal(a.catalogs.storeOf(ONE)?.trust(), 'lost');
});

test('metrics are of all catalogs together', async (t) => {
  const cluster = clusterOf(t);
  const a = await cluster.start(A);
  await a.adopt(listOf(3, rowOf([A], READY), rowOf([A], { ...READY, number: TWO, name: 'other' })));
  for (const number of [ONE, TWO]) {
    await untilPrimary([a], number);
    await a.service(number).execute({ session: 1, number: 1, command: beginning(number) });
  }
  const text = await a.registry.text();
  assert.match(text, /leasehold_catalog_commands_total\{kind="catalog-begin",outcome="done"\} 2/);
  assert.match(text, /leasehold_cache_sessions 0/);
});

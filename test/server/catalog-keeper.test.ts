/**
 * Goal: a volume's catalog follows the root catalog's list, and reports only what survives a loss of power.
 * Method: members with real databases; lists of the test, which reads the reports. Rules are those of model/volumes.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, inodesOf, type ServerId } from '../../base/ids.ts';
import { runQuery } from '../../catalog/queries.ts';
import type { CatalogRow } from '../../server/catalog/catalog-rows.ts';
import type { Command, QueryResults } from '../../wire/catalog-api.ts';
import type { CatalogReport, ListedServer } from '../../wire/volume-catalogs.ts';
import type { ExportedRow, ExportedTable } from '../../wire/volume-moves.ts';
import { Pair } from '../catalog/pair.ts';
import { MEMBERS, registration } from '../catalog/root.ts';
import { Move } from '../catalog/volume-move.ts';
import { patientWorld } from '../patient-world.ts';
import { CatalogCluster, type CatalogServer, ONE, rowOf, serverOf } from './catalog-cluster.ts';

const [A, B, C, D] = ['a', 'b', 'c', 'd'] as [ServerId, ServerId, ServerId, ServerId];
const IDS = [A, B, C];
const ALL_IN = [...IDS, D].map((id) => serverOf(id, 'in', 1));
const CREATED: CatalogReport = { kind: 'created' };
const CLOSED: CatalogReport = { kind: 'closed' };

/** Waits until it is so, or for long enough. */
async function becomes(isSo: () => boolean): Promise<void> {
  for (let waits = 0; waits < 1_000 && !isSo(); waits++) await patientWorld.sleep(5);
}

/** Members of one catalog, and `D`, which is none. */
class Fixture {
  readonly cluster = new CatalogCluster();
  servers: CatalogServer[] = [];
  #requests = 0;
  #release = (): void => undefined;

  static async start(t: TestContext): Promise<Fixture> {
    const fixture = new Fixture();
    t.after(async () => {
      fixture.#release();
      await fixture.cluster.close();
      assert.deepEqual(fixture.cluster.fatal, []);
    });
    fixture.servers = await Promise.all([...IDS, D].map((id) => fixture.cluster.start(id)));
    return fixture;
  }

  /** @returns what to call for the syncs of databases to continue */
  holdSyncs(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.cluster.syncs = promise;
    this.#release = resolve;
    return resolve;
  }

  get reports(): readonly CatalogReport[] {
    return this.cluster.reports;
  }

  async list(version: number, change: Partial<CatalogRow>, servers: readonly ListedServer[] = ALL_IN) {
    const list = { version, catalogs: [rowOf(IDS, change)], servers };
    for (const server of this.servers) await server.adopt(list);
  }

  async primary(): Promise<CatalogServer> {
    for (;;) {
      const primary = this.servers.find((server) => server.catalogs.at(ONE)?.status().primary === server.id);
      if (primary !== undefined) return primary;
      await patientWorld.sleep(5);
    }
  }

  get volumesAtPrimary(): string[] {
    return this.servers.flatMap(({ catalogs }) => catalogs.volumesAtPrimary()).map(({ name }) => name);
  }

  async state(): Promise<QueryResults['catalog-state']> {
    const service = (await this.primary()).service();
    return (await service.query({ kind: 'catalog-state' }, true)) as QueryResults['catalog-state'];
  }

  async until(...reports: readonly CatalogReport[]): Promise<void> {
    await becomes(() => this.reports.length >= reports.length);
    assert.deepEqual(this.reports, reports);
  }

  async execute(command: Command): Promise<void> {
    const primary = await this.primary();
    await primary.service().execute({ session: 77, number: ++this.#requests, command });
  }

  /** Whatever the keepers do by the lists so far is done. */
  async quiet(): Promise<void> {
    for (const server of this.servers) for (const keeper of server.attended.values()) await keeper.settled();
  }
}

test('a new catalog begins with the servers of the list, and is reported once that is flushed', async (t) => {
  const fixture = await Fixture.start(t);
  // The primary's epoch comes first: its promises are synced, too.
  await fixture.list(2, { state: 'ready' });
  await fixture.state();
  const release = fixture.holdSyncs();
  const draining = [...ALL_IN.slice(0, 3), serverOf(D, 'draining', 2)];
  await fixture.list(3, {}, draining);
  while (!(await fixture.state()).begun) await patientWorld.sleep(5);
  await patientWorld.sleep(50);
  assert.deepEqual(fixture.reports, []);
  release();
  await fixture.until(CREATED, { kind: 'none-left', server: D, since: 2 });
  const { servers } = await fixture.state();
  assert.deepEqual(
    servers.map(({ id, state, since }) => [id, state, since]),
    draining.map(({ id, state, since }) => [id, state, since]),
  );
});

test('what was executed before is reported once it is flushed', async (t) => {
  const fixture = await Fixture.start(t);
  await fixture.list(2, { state: 'ready' });
  await fixture.state();
  const release = fixture.holdSyncs();
  const settings = { replicas: 1, objectBytes: 65_536 };
  // As an earlier primary did, which ended before the flush.
  const begin = { kind: 'catalog-begin', number: ONE, name: 'projects', settings, servers: ALL_IN } as const;
  const begun = Promise.allSettled([fixture.execute(begin)]);
  while (!(await fixture.state()).begun) await patientWorld.sleep(5);
  await fixture.list(3, {});
  await patientWorld.sleep(50);
  assert.deepEqual(fixture.reports, []);
  release();
  await begun;
  await fixture.until(CREATED);
});

test('an empty volume closes; one with files refuses, and is asked again only by a later removal', async (t) => {
  const fixture = await Fixture.start(t);
  await fixture.list(2, {});
  await fixture.until(CREATED);
  await fixture.list(3, { state: 'ready', since: 3 });
  const place = { volume: 'projects', path: '/d' };
  await fixture.execute({ kind: 'extend-numbers', limit: inodesOf(ONE).first + 1_000 });
  await fixture.execute({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 });
  await fixture.list(4, { state: 'removing', since: 4 });
  await patientWorld.sleep(50);
  const { refused } = await fixture.state();
  assert.equal(refused?.since, 4);
  const refusal: CatalogReport = { kind: 'refused', since: 4, why: refused.why };
  await fixture.until(CREATED, refusal);
  await fixture.execute({ kind: 'remove-directory', place });
  // The root catalog has not taken the refusal yet; it may have, so the removal is over.
  await fixture.list(5, { state: 'removing', since: 4 }, [...ALL_IN.slice(0, 3), serverOf(D, 'in', 5)]);
  await fixture.quiet();
  assert.equal((await fixture.state()).closed, false);
  await fixture.list(6, { state: 'ready', since: 6 });
  await fixture.list(7, { state: 'removing', since: 7 });
  await fixture.until(CREATED, refusal, CLOSED);
  assert.equal((await fixture.state()).closed, true);
  assert.deepEqual(fixture.volumesAtPrimary, []);
});

test('a catalog that is removed before it began closes without its volume', async (t) => {
  const fixture = await Fixture.start(t);
  await fixture.list(3, { state: 'removing', since: 3 });
  await fixture.until(CLOSED);
  const { begun, closed } = await fixture.state();
  assert.deepEqual([begun, closed], [false, true]);
  // A late list does not create it.
  for (const server of fixture.servers)
    server.known.adopt({ version: 2, catalogs: [rowOf(IDS)], servers: [] });
  await fixture.quiet();
  assert.equal((await fixture.state()).begun, false);
});

test('a draining server is confirmed as left once it has no member, with the version of the drain', async (t) => {
  const fixture = await Fixture.start(t);
  await fixture.list(2, {});
  await fixture.until(CREATED);
  const row = { state: 'ready', since: 3 } as const;
  const first = await fixture.primary();
  const leaving = IDS.find((id) => id !== first.id) as ServerId;
  const drained = (since: number) =>
    ALL_IN.map((one) => (one.id === leaving ? serverOf(leaving, 'draining', since) : one));
  await fixture.list(4, row, drained(4));
  await fixture.quiet();
  assert.deepEqual(fixture.reports, [CREATED], 'It has a replica of the catalog');
  await fixture.servers[3]?.catalogs.openForMove(ONE);
  const members = [...IDS.filter((id) => id !== leaving), D];
  const { number: view } = await first.service().changeMembers(members);
  const moved: CatalogReport = { kind: 'view', view, members };
  await fixture.until(CREATED, moved, { kind: 'none-left', server: leaving, since: 4 });
  // It was let in, and drained again: the earlier confirmation does not count.
  await fixture.list(9, { ...row, view, members }, drained(9));
  await fixture.until(
    ...[CREATED, moved],
    ...[4, 9].map((since): CatalogReport => ({ kind: 'none-left', server: leaving, since })),
  );
});

test('the next primary continues, and reports again what the list does not show', async (t) => {
  const fixture = await Fixture.start(t);
  await fixture.list(2, {});
  await fixture.until(CREATED);
  const first = await fixture.primary();
  await fixture.cluster.stop(first);
  fixture.servers = fixture.servers.filter((server) => server !== first);
  await fixture.until(CREATED, CREATED);
  await fixture.list(3, { state: 'removing', since: 3 });
  await fixture.until(CREATED, CREATED, CLOSED);
});

test('a change of the list that is not about a catalog has its keeper do nothing', async (t) => {
  const fixture = await Fixture.start(t);
  await fixture.list(3, {});
  await fixture.until(CREATED);
  const ready = rowOf(IDS, { state: 'ready' });
  let version = 4;
  for (let isSameEpoch = false; !isSameEpoch; version += 2) {
    await fixture.list(version, ready);
    await fixture.quiet();
    const primary = await fixture.primary();
    const { keeperQueries } = primary;
    const { epoch } = primary.service().status();
    const since = version + 1;
    const other = rowOf([D], { number: 2 as CatalogNumber, name: 'other', made: since, since });
    const list = { version: since, catalogs: [ready, other], servers: structuredClone(ALL_IN) };
    for (const server of fixture.servers) await server.adopt(list);
    await fixture.quiet();
    // On a busy machine, another server may have become primary.
    isSameEpoch = primary.service().status().epoch === epoch;
    if (isSameEpoch) assert.equal(primary.keeperQueries, keeperQueries);
  }
  await fixture.list(version, ready, [...ALL_IN.slice(0, 3), serverOf(D, 'draining', version)]);
  const isReported = () => fixture.reports.some(({ kind }) => kind === 'none-left');
  await becomes(isReported);
  assert.ok(isReported());
});

/** A root catalog whose volume moves to catalog one, page by page. */
function moveOf(fixture: Fixture): { readonly root: number } {
  const root = new Pair();
  for (const id of MEMBERS) root.run(registration(id));
  const batch = Array.from({ length: 250 }, (_, index) => index + 1);
  for (let page = 0; page < 12; page++)
    root.batch(
      batch.map((number) => {
        const place = { volume: 'main', path: `/d${page}-${number}` };
        const command = { kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 } as const;
        return { session: 5 + page, number, command };
      }),
    );
  const move = new Move(root);
  fixture.cluster.exported = async (after) => {
    const { tables, next } = move.page(after);
    return { tables, next };
  };
  move.freeze();
  move.record();
  return runQuery<'volume'>(root.backup, { kind: 'volume', name: 'main' }).volume;
}

test('a volume that moves here is copied by whichever server is primary, and the catalog begins with all of it', async (t) => {
  const fixture = await Fixture.start(t);
  const { root } = moveOf(fixture);
  const asked: string[] = [];
  const { exported } = fixture.cluster;
  const reached = Promise.withResolvers<void>();
  fixture.cluster.exported = async (after) => {
    asked.push(after);
    if (asked.length !== 2) return exported(after);
    reached.resolve();
    throw new ServiceError('no-majority', 'The root catalog has no primary');
  };
  await fixture.list(2, { moving: 'frozen', name: 'main' });
  await fixture.state();
  await fixture.list(3, { moving: 'frozen', name: 'main' });
  await fixture.quiet();
  assert.deepEqual(asked, [], 'The volume still has to be numbered');
  await fixture.list(4, { moving: 'numbered', name: 'main' });
  await reached.promise;
  assert.deepEqual(fixture.volumesAtPrimary, [], 'The root catalog reports it until it has moved');
  // Another primary continues behind the pages that the catalog has.
  const first = await fixture.primary();
  await fixture.cluster.stop(first);
  fixture.servers.splice(fixture.servers.indexOf(first), 1);
  await fixture.until(CREATED);
  assert.deepEqual([asked[0], asked[2]], ['', asked[1]]);
  const pages: string[] = [];
  for (let after = ''; after !== 'end'; after = (await exported(after)).next) pages.push(after);
  const starts = asked.flatMap((after, place) => (after === '' ? [place] : []));
  assert.ok((starts[1] ?? 0) > pages.length, 'No page is copied twice');
  assert.deepEqual(asked.slice(starts.at(-1)), pages, 'All are compared then');
  const { begun, name, imported } = await fixture.state();
  assert.deepEqual([begun, name, imported], [true, 'main', 'end']);
  // Until the list says that it is ready, the root catalog may end the move.
  assert.deepEqual(fixture.volumesAtPrimary, []);
  const service = (await fixture.primary()).service();
  const asks = [
    () => service.query({ kind: 'volume', name: 'main' }),
    () => service.query({ kind: 'volume', name: 'main' }, true),
    () => service.queryWithGrants({ kind: 'volume', name: 'main' }, 5),
    () => fixture.execute({ kind: 'volume-set', name: 'main', quotaInodes: 9_000 }),
  ];
  for (const refused of asks) await assert.rejects(refused, { code: 'recovering' });
  await fixture.list(5, { state: 'ready', name: 'main' });
  const { volume } = (await (
    await fixture.primary()
  )
    .service()
    .query({ kind: 'volume', name: 'main' })) as QueryResults['volume'];
  assert.deepEqual([volume.inodes, volume.root], [3_001, root]);
  assert.deepEqual(fixture.volumesAtPrimary, ['main']);
});

/** A volume moves here whose copy has other rows in a table, until the move ends. */
async function endedMove(
  t: TestContext,
  damaged: ExportedTable,
  change: (rows: ExportedRow[], isFirst: boolean) => ExportedRow[],
): Promise<QueryResults['catalog-state']> {
  const fixture = await Fixture.start(t);
  moveOf(fixture);
  const { exported } = fixture.cluster;
  const asked = new Set<string>();
  fixture.cluster.exported = async (after) => {
    const { tables, next } = await exported(after);
    const isFirst = !asked.has(after);
    asked.add(after);
    const changed = tables.map(({ table, rows }) => ({
      table,
      rows: table === damaged ? change(rows, isFirst) : rows,
    }));
    return { tables: changed, next };
  };
  await fixture.list(2, { moving: 'numbered', name: 'main' });
  await becomes(() => fixture.cluster.aborted.length > 0);
  assert.equal(fixture.cluster.aborted[0], 'main');
  const state = await fixture.state();
  assert.equal(state.begun, false);
  assert.deepEqual(fixture.reports, []);
  return state;
}

test('a copy that differs from what the root catalog counts ends the move', async (t) => {
  await endedMove(t, 'inodes', (rows) => rows.slice(0, 10));
});

test('a copy with a row that the root catalog has otherwise ends the move', async (t) => {
  const { imported } = await endedMove(t, 'entries', (rows, isFirst) => (isFirst ? rows.slice(1) : rows));
  assert.equal(imported, 'end');
});

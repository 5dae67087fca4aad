/**
 * Goal: the root catalog lists volumes with a catalog of their own by the rules of model/volumes.
 * Method: its commands and reports, in the orders in which they may arrive.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServiceError } from '../../base/errors.ts';
import { CATALOGS_END } from '../../base/ids.ts';
import type { CommandContext } from '../../catalog/command.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import { Tables } from '../../catalog/tables.ts';
import { CATALOGS_VERSION, COMMANDS_VERSION } from '../../catalog/versions.ts';
import { asVersion10 } from './earlier-schema.ts';
import { Catalog, SERVERS } from './fixture.ts';
import { Pair } from './pair.ts';
import { creation, MEMBERS, Root, registration } from './root.ts';

test('a volume with a catalog of its own is listed with its members, settings and the version of the list', () => {
  const root = new Root();
  const { catalog } = root.run(creation('big', { quotaBytes: 5, policy: 'all', force: true }));
  assert.deepEqual(catalog, {
    number: 1,
    name: 'big',
    state: 'creating',
    view: 1,
    members: MEMBERS,
    made: 1,
    since: 1,
    settings: { replicas: 3, objectBytes: 4096, policy: 'all', quotaBytes: 5 },
  });
  const { version, catalogs, servers } = root.query({ kind: 'catalogs' });
  assert.deepEqual([version, catalogs], [1, [catalog]]);
  assert.deepEqual(servers[0], {
    ...{ id: 's1', url: 'http://s1:7401', zone: '', state: 'in', since: 0 },
    storageId: 'store of s1',
  });
  const known = root.query({ kind: 'catalogs', known: version });
  assert.deepEqual(known, { version, catalogs: [], servers: [] }, 'The caller has this list');
  assert.deepEqual(root.query({ kind: 'catalogs', known: 0 }).catalogs, [catalog]);
  root.report(1, { kind: 'created' });
  assert.deepEqual([root.row(1).state, root.row(1).made, root.row(1).since], ['ready', 1, 2]);
  root.ignored(1, { kind: 'created' });
  assert.equal(root.create('other').number, 2);
});

test('a new catalog needs different members that are all in', () => {
  const root = new Root();
  root.refuse('bad-request', creation('big', { members: ['s1', 's1'] }));
  root.refuse('precondition-failed', creation('big', { members: ['s1', 's9'] }));
  root.setState('s1', 'draining');
  root.refuse('precondition-failed', creation('big'));
  root.setState('s1', 'in');
  assert.equal(root.create('big').number, 1);
  Tables.of(root.db).catalogs.put({ ...root.row(1), number: CATALOGS_END - 1, name: 'last' });
  root.refuse('no-space', creation('another'));
});

test('a name is taken until the catalog of its volume has closed', () => {
  const root = new Root();
  const plain = (name: string) => ({ kind: 'volume-create', name, replicas: 3, objectBytes: 4096 }) as const;
  root.refuse('exists', creation('main'));
  root.create('big');
  root.refuse('exists', creation('big'));
  root.refuse('exists', plain('big'));
  root.report(1, { kind: 'created' });
  root.remove('big');
  root.refuse('busy', creation('big'));
  root.refuse('busy', plain('big'));
  root.report(1, { kind: 'closed' });
  root.refuse('not-found', { kind: 'volume-remove', name: 'big' });
  assert.equal(root.create('big').number, 2, 'A removed row stays: no number is used twice');
  assert.equal(root.row(1).state, 'removed');
});

test('a volume is removed once its catalog has closed, also before it was created', () => {
  const root = new Root();
  root.create('big');
  root.ignored(1, { kind: 'closed' });
  const catalog = root.remove('big');
  assert.deepEqual([catalog.state, catalog.since], ['removing', 2]);
  assert.deepEqual(root.remove('big'), catalog, 'It is asked again');
  root.ignored(1, { kind: 'created' });
  root.report(1, { kind: 'closed' });
  assert.deepEqual([root.row(1).state, root.row(1).since], ['removed', 3]);
  root.ignored(1, { kind: 'closed' });
  root.ignored(1, { kind: 'refused', since: 2, why: 'It is not empty' });
  root.refuse('not-found', { kind: 'catalog-report', number: 9, report: { kind: 'closed' } });
});

test('a refusal names the removal that it refuses', () => {
  const root = new Root();
  root.create('big');
  root.report(1, { kind: 'created' });
  const remove = () => root.remove('big').since;
  const first = remove();
  root.report(1, { kind: 'refused', since: first, why: 'It is not empty' });
  assert.equal(root.row(1).state, 'ready');
  assert.deepEqual(root.row(1).refused, { since: first, why: 'It is not empty' });
  const second = remove();
  root.ignored(1, { kind: 'refused', since: first, why: 'It is not empty' });
  root.report(1, { kind: 'refused', since: second, why: 'It has a snapshot' });
  assert.deepEqual(root.row(1).refused, { since: second, why: 'It has a snapshot' });
});

test('the largest reported view is kept, and leaves the time of the state as it is', () => {
  const root = new Root();
  const { since } = root.create('big');
  const version = root.version;
  root.report(1, { kind: 'view', view: 3, members: ['s2', 's3', 's4'] });
  const { view, members, since: after } = root.row(1);
  assert.deepEqual([view, members, after], [3, ['s2', 's3', 's4'], since]);
  assert.equal(root.version, version + 1);
  root.ignored(1, { kind: 'view', view: 2, members: ['s1', 's3', 's4'] });
  root.ignored(1, { kind: 'view', view: 3, members: ['s1', 's3', 's4'] });
});

test("each change of what volumes' catalogs know of a server has a version of the list", () => {
  const root = new Root();
  root.create('big');
  const changes: (() => unknown)[] = [
    () => root.run({ kind: 'server-state', id: 's4', state: 'draining' }),
    () => root.run({ kind: 'server-zone', id: 's4', zone: 'rack-1' }),
    () => root.run({ kind: 'server-label', id: 's4', labels: ['ssd'] }),
    () => root.run({ kind: 'server-maintenance', id: 's4', forMs: 1 }),
    () => root.run({ kind: 'server-maintenance', id: 's4', forMs: null }),
    () => root.run({ ...registration('s4'), url: 'http://elsewhere:1' }),
    () => root.run({ kind: 'server-remove', id: 's4', dead: true }),
    () => root.run({ kind: 'server-add', id: 's4', url: 'http://s4:7401' }),
  ];
  for (const change of changes) {
    const before = root.version;
    change();
    assert.deepEqual([root.version, root.since('s4')], [before + 1, before + 1]);
  }
  const before = root.version;
  root.run({ ...registration('s4'), freeBytes: 1 });
  root.run({ kind: 'server-state', id: 's4', state: 'in' });
  root.run({ kind: 'server-label', id: 's4', labels: ['ssd'] });
  assert.deepEqual([root.version, root.since('s4')], [before, before], 'Free space is no such change');
  root.run(registration('s6'));
  assert.equal(root.since('s6'), before + 1);
});

test('a server is removed once each catalog that is not removed has confirmed that it has left this drain', () => {
  const root = new Root();
  const remove = { kind: 'server-remove', id: 's5', dead: false } as const;
  for (const name of ['created', 'creating', 'gone']) root.create(name);
  root.report(1, { kind: 'created' });
  root.remove('gone');
  root.report(3, { kind: 'closed' });
  root.refuse('precondition-failed', remove);
  root.report(1, { kind: 'none-left', server: 's5', since: root.since('s5') });
  root.refuse('precondition-failed', remove);
  const first = root.setState('s5', 'draining');
  root.report(1, { kind: 'none-left', server: 's5', since: first });
  root.refuse('precondition-failed', remove);
  root.report(2, { kind: 'none-left', server: 's5', since: first });
  root.setState('s5', 'in');
  const second = root.setState('s5', 'draining');
  root.refuse('precondition-failed', remove);
  for (const number of [1, 2]) root.report(number, { kind: 'none-left', server: 's5', since: first });
  root.refuse('precondition-failed', remove);
  for (const number of [1, 2]) root.report(number, { kind: 'none-left', server: 's5', since: second });
  assert.equal(root.run(remove).server.state, 'out');
});

test('a member of a catalog is removed only as dead', () => {
  const root = new Root();
  root.create('big');
  const since = root.setState('s1', 'draining');
  root.report(1, { kind: 'none-left', server: 's1', since });
  root.refuse('precondition-failed', { kind: 'server-remove', id: 's1', dead: false });
  root.report(1, { kind: 'view', view: 2, members: ['s2', 's3', 's4'] });
  root.run({ kind: 'server-remove', id: 's1', dead: false });
  root.run({ kind: 'server-remove', id: 's2', dead: true });
  assert.deepEqual(root.row(1).members, ['s2', 's3', 's4']);
});

test('the list has versions from the first catalog of a volume on: all members then know them', () => {
  const pair = new Pair();
  for (const id of SERVERS) pair.run(registration(id));
  pair.run({ kind: 'server-state', id: 's4', state: 'draining' });
  const versions = () => Tables.of(pair.backup).catalogs.list();
  assert.deepEqual(
    versions().servers.map(({ since }) => since),
    [0, 0, 0, 0, 0],
  );
  assert.equal(pair.versions.at(-1), 11);
  pair.run(creation('big'));
  pair.run({ kind: 'server-state', id: 's4', state: 'in' });
  assert.deepEqual(pair.versions.slice(-2), [12, 12]);
  const { version, servers } = versions();
  assert.deepEqual([version, servers[3]?.since], [2, 2]);
  pair.equal();
});

test('a catalog of version 10 is upgraded', () => {
  const pair = new Pair();
  for (const id of SERVERS) pair.run(registration(id));
  const before = [...dumpCatalog(pair.backup)];
  asVersion10(pair.backup);
  ensureSchema(pair.backup);
  assert.deepEqual([...dumpCatalog(pair.backup)], before);
  pair.run(creation('big'));
  pair.equal();
});

test('without named members, each server is a member, and the first one, of as many catalogs as the others', () => {
  const root = new Root();
  const [members, firsts] = [new Map<string, number>(), new Map<string, number>()];
  const count = (counts: Map<string, number>, id = '') => counts.set(id, (counts.get(id) ?? 0) + 1);
  for (let at = 0; at < 4 * SERVERS.length; at++) {
    const { members: _, ...unnamed } = creation(`volume-${at}`);
    const { catalog } = root.run(unnamed);
    count(firsts, catalog.members[0]);
    for (const id of catalog.members) count(members, id);
    assert.equal(Math.max(...firsts.values()), Math.ceil((at + 1) / SERVERS.length));
    assert.ok(Math.max(...members.values()) <= Math.ceil((3 * (at + 1)) / SERVERS.length) + 1);
  }
  assert.deepEqual([firsts.size, members.size], [SERVERS.length, SERVERS.length]);
});

test('a server that cannot be reached is not the first member, though it is that of few', () => {
  const root = new Root();
  root.unreachable.add('s4').add('s5');
  for (let at = 0; at < 6; at++) {
    const { members: _, ...unnamed } = creation(`volume-${at}`);
    assert.ok(MEMBERS.includes(root.run(unnamed).catalog.members[0] ?? ''));
  }
});

test('for a volume with a catalog of its own, the root catalog says that it is elsewhere', () => {
  const root = new Root();
  root.create('big');
  const refusal = (name: string): unknown => {
    try {
      root.run({ kind: 'volume-set', name, replicas: 2 });
    } catch (error) {
      return (error as ServiceError).details;
    }
    return null;
  };
  assert.deepEqual(refusal('big'), { elsewhere: true });
  assert.deepEqual(refusal('nowhere'), {});
  assert.throws(() => root.query({ kind: 'volume', name: 'big' }), { details: { elsewhere: true } });
});

test('a registration is answered with the version of the list at that time, once there are versions', () => {
  const root = new Root();
  assert.equal('catalogsVersion' in root.run(registration('s6')), false);
  root.create('big');
  const { version } = root;
  assert.equal(root.run(registration('s6')).catalogsVersion, version, 'Its entry is as before');
  const moved = { ...registration('s6'), url: 'http://elsewhere:7401' };
  assert.equal(root.run(moved).catalogsVersion, version + 1);
  assert.equal(root.version, version + 1);
});

test('a registration is answered with the version of the list at the first one of the same store', () => {
  const root = new Root();
  root.run(registration('s6'));
  root.create('big');
  assert.equal(root.run(registration('s6')).storedAt, 0, 'Its store is from before the first version');
  const { catalogsVersion, storedAt } = root.run(registration('s7'));
  assert.ok(storedAt !== undefined && storedAt > 0 && storedAt === catalogsVersion);
  root.create('another');
  assert.equal(root.run(registration('s7')).storedAt, storedAt);
  root.run({ ...registration('s7'), url: 'http://elsewhere:7401' });
  assert.equal(root.run(registration('s7')).storedAt, storedAt);
  const replaced = root.run({ ...registration('s7'), storageId: 'another store' });
  assert.equal(replaced.storedAt, root.version);
});

test('a server of an earlier release is let in only before the first catalog is listed', () => {
  const seen = new Map([['s8', CATALOGS_VERSION - 1]]);
  const root = new Root();
  const context = { ...root.context, seenVersion: (id: string) => seen.get(id) ?? null };
  Object.assign(root, { context });
  const earlier = (id: string) => {
    const { commandsVersion: _, ...command } = registration(id);
    return command;
  };
  const add = (id: string) => ({ kind: 'server-add', id, url: `http://${id}:7401` }) as const;
  root.run(earlier('s6'));
  const { number } = root.create('big');
  const outdated = (id: string) => ({
    message: new RegExp(`^Server ${id} runs a release .*: upgrade it first$`),
  });
  assert.throws(() => root.run(earlier('s7')), { code: 'bad-request', ...outdated('s7') });
  assert.throws(() => root.run(earlier('s6')), { code: 'bad-request', ...outdated('s6') });
  assert.throws(
    () => root.run({ ...registration('s7'), commandsVersion: CATALOGS_VERSION - 1 }),
    outdated('s7'),
  );
  assert.throws(() => root.run(add('s8')), { code: 'precondition-failed', ...outdated('s8') });
  root.run(registration('s7'));
  // It may never have run.
  root.run(add('s9'));
  seen.set('s8', COMMANDS_VERSION);
  root.run(add('s8'));
  root.remove('big');
  root.report(number, { kind: 'closed' });
  assert.throws(() => root.run(earlier('s10')), outdated('s10'));
});

test('a server that has not registered is no first member', () => {
  const root = new Root();
  root.run({ kind: 'server-add', id: 's6', url: 'http://s6:7401' });
  root.refuse('precondition-failed', creation('big', { members: ['s1', 's6'] }));
  root.run(registration('s6'));
  root.run(creation('big', { members: ['s1', 's6'] }));
});

test('a volume whose catalog is lost is removed without it, and keeps no server in the cluster', () => {
  const root = new Root();
  const { number, since } = root.create('big');
  root.report(number, { kind: 'created' });
  root.remove('big');
  const drained = root.setState('s5', 'draining');
  const removal = { kind: 'server-remove', id: 's5', dead: false } as const;
  assert.throws(() => root.run(removal), {
    message: /"big" .* \(s1, s2, s3\) .* remove the volume with --lost$/,
  });
  root.refuse('bad-request', { kind: 'volume-remove', name: 'main', lost: true });
  const { catalog } = root.run({ kind: 'volume-remove', name: 'big', lost: true });
  assert.equal(catalog?.state, 'removed');
  assert.ok(catalog.since > drained && root.version === catalog.since, 'The list has a new version');
  // Members that were cut off may still report.
  root.ignored(number, { kind: 'created' });
  root.ignored(number, { kind: 'refused', since, why: 'It is not empty' });
  root.run(removal);
  assert.equal(root.create('big').number, number + 1);
});

test('a new catalog gets no members that have not registered, and waits while they are the majority', () => {
  const root = new Unregistered();
  const { members: _, ...unnamed } = creation('own');
  assert.throws(() => root.run(unnamed), { code: 'busy' });
  root.run(registration('s1'));
  assert.throws(() => root.run(unnamed), { code: 'busy' });
  root.run(registration('s3'));
  assert.deepEqual(root.run(unnamed).catalog.members, ['s1', 's3']);
});

/** A root catalog that places on three servers of its configuration, which have not registered. */
class Unregistered extends Catalog {
  override readonly context: CommandContext = { nowNs: 0n, placement: () => SERVERS.slice(0, 3) };
}

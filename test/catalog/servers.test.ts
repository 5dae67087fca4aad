import assert from 'node:assert/strict';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import { executeRequests } from '../../catalog/batch.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import type { CommandOf, PlacedPosition, QueryResults, ServerInfo } from '../../wire/catalog-api.ts';
import { asVersion1, asVersion9 } from './earlier-schema.ts';
import { Catalog, main, SERVERS } from './fixture.ts';

function registration(id: string, more: Partial<CommandOf<'server-register'>> = {}) {
  const room = { storageId: `store of ${id}`, freeBytes: 10, totalBytes: 100 };
  return { kind: 'server-register', id, url: `http://${id}:7401`, ...room, ...more } as const;
}

function register(catalog: Catalog, id: string, more?: Partial<CommandOf<'server-register'>>): ServerInfo {
  return catalog.run(registration(id, more)).server;
}

test('a server that registers learns from which file on its store is known', () => {
  const catalog = new Catalog();
  catalog.file('/a');
  const server = register(catalog, 's1', { zone: 'rack-1' });
  assert.deepEqual(server, {
    id: 's1',
    url: 'http://s1:7401',
    zone: 'rack-1',
    state: 'in',
    storageId: 'store of s1',
    bornAt: 1,
    freeBytes: 10,
    totalBytes: 100,
    registeredNs: catalog.timeNs.toString(),
  });
  const latest = catalog.file('/b');
  const again = register(catalog, 's1', { freeBytes: 5 });
  assert.deepEqual([again.bornAt, again.zone, again.freeBytes], [server.bornAt, 'rack-1', 5]);
  const emptied = register(catalog, 's1', { storageId: 'another store' });
  assert.equal(emptied.bornAt, latest.inode + 1, 'Every earlier file may have been on the earlier disk');
  catalog.file('/c');
  const restarted = register(catalog, 's1', { storageId: 'another store' });
  assert.equal(restarted.bornAt, emptied.bornAt, 'However often it registers');
  catalog.run({ kind: 'server-add', id: 's2', url: 'http://s2:7401' });
  assert.equal(register(catalog, 's2').bornAt, 1, 'It was announced, but had no store yet');
});

test('a replaced store is not accepted again, and registering it excludes no server', () => {
  const catalog = new Catalog();
  register(catalog, 's1');
  register(catalog, 's1', { storageId: 'another store' });
  catalog.refuse('precondition-failed', registration('s1', {}));
  assert.equal(register(catalog, 's1', { storageId: 'another store' }).storageId, 'another store');
});

test('two servers cannot have one address', () => {
  const catalog = new Catalog();
  register(catalog, 's1');
  catalog.refuse('exists', registration('s2', { url: 'http://s1:7401' }));
  catalog.run({ kind: 'server-remove', id: 's1', dead: true });
  assert.equal(register(catalog, 's2', { url: 'http://s1:7401' }).state, 'in');
});

test('a server is drained, removed, and stays out until it is added', () => {
  const catalog = new Catalog();
  catalog.refuse('not-found', { kind: 'server-state', id: 's1', state: 'draining' });
  for (const id of SERVERS) register(catalog, id);
  const file = catalog.file('/a');
  assert.equal(catalog.run({ kind: 'server-state', id: 's1', state: 'draining' }).server.state, 'draining');
  assert.equal(register(catalog, 's1').state, 'draining', 'Registering does not end it');
  catalog.refuse('precondition-failed', { kind: 'server-remove', id: 's1', dead: false });
  const view = { number: 2, members: ['s2', 's3', 's4'] };
  assert.equal(catalog.run({ kind: 'follow-view', inode: file.inode, view }).followed, true);
  assert.equal(catalog.run({ kind: 'server-remove', id: 's1', dead: false }).server.state, 'out');
  assert.equal(register(catalog, 's1').state, 'out');
  catalog.refuse('precondition-failed', { kind: 'server-state', id: 's1', state: 'in' });
  const added = catalog.run({ kind: 'server-add', id: 's1', url: 'http://elsewhere:1' }).server;
  assert.deepEqual([added.state, added.url, added.storageId], ['in', 'http://elsewhere:1', 'store of s1']);
  catalog.refuse('exists', { kind: 'server-add', id: 's1', url: 'http://elsewhere:2' });
});

test("a dead server is removed although it has replicas; a query lists a server's replicas in pages", () => {
  const catalog = new Catalog();
  for (const id of SERVERS) register(catalog, id);
  const files = ['/a', '/b', '/c'].map((path) => catalog.file(path).inode);
  const on = (server: string, after = 0, countMax = 10) => {
    const { files: found, more } = catalog.query({ kind: 'files-on', server, after, countMax });
    return { inodes: found.map(({ inode }) => inode), more };
  };
  assert.deepEqual(on('s2'), { inodes: files, more: false });
  assert.deepEqual(on('s2', 0, 2), { inodes: files.slice(0, 2), more: true });
  assert.deepEqual(on('s2', files[1], 2), { inodes: files.slice(2), more: false });
  assert.deepEqual(on('s5'), { inodes: [], more: false });
  catalog.run({ kind: 'server-remove', id: 's2', dead: true });
  assert.deepEqual(on('s2').inodes, files, 'They are listed there until they are moved');
  const { servers } = catalog.query({ kind: 'servers', counts: true });
  assert.deepEqual(
    servers.map(({ id, state, replicas }) => [id, state, replicas]),
    [
      ['s1', 'in', 3],
      ['s2', 'out', 3],
      ['s3', 'in', 3],
      ['s4', 'in', 0],
      ['s5', 'in', 0],
    ],
  );
  catalog.run({ kind: 'unlink', place: main('/a') });
  catalog.run({ kind: 'collect', beforeNs: (catalog.timeNs + 1n).toString(), countMax: 10 });
  assert.deepEqual(on('s2').inodes, files.slice(1), 'A removed file is on no server');
});

test('follow-view: the larger number wins, and removed files are ignored', () => {
  const catalog = new Catalog();
  const { inode } = catalog.file('/a');
  const follow = (number: number, members: string[]) =>
    catalog.run({ kind: 'follow-view', inode, view: { number, members } }).followed;
  const now = () => {
    const { view, replicas } = catalog.inode(inode);
    return [view, replicas];
  };
  assert.equal(follow(1, ['s4']), false, 'It has view 1 already');
  assert.equal(follow(4, ['s3', 's4']), true);
  assert.equal(follow(3, ['s1']), false, 'Reported late');
  assert.deepEqual(now(), [4, ['s3', 's4']]);
  catalog.refuse('bad-request', { kind: 'follow-view', inode, view: { number: 9, members: ['s1', 's1'] } });
  const view = { number: 9, members: ['s1'] };
  assert.equal(catalog.run({ kind: 'follow-view', inode: 999, view }).followed, false);
  assert.equal(catalog.run({ kind: 'follow-view', inode: catalog.root, view }).followed, false);
  const { files } = catalog.query({ kind: 'placed', inodes: [inode, 999, catalog.root] });
  assert.deepEqual(files, [{ inode, members: ['s3', 's4'], view: 4, wanted: 3, sizeBytes: 0 }]);
});

/** Pairs of inode and wanted number, `countMax` at a time. */
function miscounted(catalog: Catalog, { servers = 5, countMax = 9 } = {}): [number, number][] {
  const found: [number, number][] = [];
  for (let after: PlacedPosition | null = null; ; ) {
    const query = { kind: 'files-miscounted', servers, after, countMax } as const;
    const page: QueryResults['files-miscounted'] = catalog.query(query);
    assert.ok(page.files.length <= countMax);
    for (const { inode, wanted } of page.files) found.push([inode, wanted]);
    if (page.next === null) return found;
    after = page.next;
  }
}

test('files with too few or too many replicas are found, whatever changed', () => {
  const catalog = new Catalog();
  const [a, b] = [catalog.file('/a').inode, catalog.file('/b').inode];
  assert.deepEqual(miscounted(catalog), []);
  catalog.run({ kind: 'set-replicas', inode: b, count: 4 });
  assert.deepEqual(miscounted(catalog), [[b, 4]]);
  catalog.run({ kind: 'volume-set', name: 'main', replicas: 2 });
  const all = [
    [a, 2],
    [b, 4],
  ];
  assert.deepEqual(miscounted(catalog), all);
  assert.deepEqual(miscounted(catalog, { countMax: 1 }), all, 'In pages');
  catalog.run({ kind: 'follow-view', inode: a, view: { number: 2, members: ['s1', 's2'] } });
  assert.deepEqual(miscounted(catalog), [[b, 4]]);
  catalog.run({ kind: 'set-replicas', inode: b, count: null });
  catalog.run({ kind: 'volume-set', name: 'main', replicas: 3 });
  assert.deepEqual(miscounted(catalog), [[a, 3]]);
  catalog.run({ kind: 'unlink', place: main('/a') });
  catalog.run({ kind: 'collect', beforeNs: (catalog.timeNs + 1n).toString(), countMax: 10 });
  assert.deepEqual(miscounted(catalog), []);
  catalog.refuse('bad-request', { kind: 'set-replicas', inode: catalog.root, count: 1 });
  catalog.refuse('not-found', { kind: 'volume-set', name: 'none', replicas: 1 });
});

test('a file that has as many replicas as there are servers has not too few', () => {
  const catalog = new Catalog();
  const { inode } = catalog.file('/a');
  catalog.run({ kind: 'volume-set', name: 'main', replicas: 5 });
  assert.deepEqual(miscounted(catalog, { servers: 4 }), [[inode, 5]]);
  assert.deepEqual(miscounted(catalog, { servers: 3 }), []);
  catalog.run({ kind: 'volume-set', name: 'main', replicas: 2 });
  assert.deepEqual(miscounted(catalog, { servers: 3 }), [[inode, 2]], 'Too many are too many');
});

test('the number of files on a server follows creations, moves and removals', () => {
  const catalog = new Catalog();
  for (const id of SERVERS) register(catalog, id);
  const counts = () =>
    catalog.query({ kind: 'servers', counts: true }).servers.map(({ replicas }) => replicas);
  const [a] = [catalog.file('/a').inode, catalog.file('/b').inode];
  assert.deepEqual(counts(), [2, 2, 2, 0, 0]);
  catalog.run({ kind: 'follow-view', inode: a, view: { number: 2, members: ['s1', 's4', 's5'] } });
  assert.deepEqual(counts(), [2, 1, 1, 1, 1]);
  const plan = (members: string[]) =>
    catalog.run({ kind: 'plan-members', inode: a, view: 2, mark: { epoch: 1, turn: 1 }, members });
  plan(['s1', 's2']);
  assert.deepEqual(counts(), [2, 2, 1, 1, 1], 'A planned member counts, but not twice');
  catalog.run({ kind: 'unlink', place: main('/a') });
  catalog.run({ kind: 'collect', beforeNs: (catalog.timeNs + 1n).toString(), countMax: 10 });
  assert.deepEqual(counts(), [1, 1, 1, 0, 0]);
});

/** An earlier version logged no deletions. */
function dumpWithoutLogs({ db }: Catalog): string[] {
  return [...dumpCatalog(db)].filter((line) => !/^(counters|deletion_logs|deletions) /.test(line));
}

test('a catalog of version 9 gets counts of placements, and an index by number of replicas', () => {
  const catalog = new Catalog();
  catalog.file('/a');
  const moved = catalog.file('/b').inode;
  catalog.run({ kind: 'follow-view', inode: moved, view: { number: 2, members: ['s5'] } });
  catalog.run({ kind: 'follow-view', inode: moved, view: { number: 3, members: ['s4', 's1'] } });
  catalog.directory('/d');
  const before = dumpWithoutLogs(catalog);
  asVersion9(catalog.db);
  ensureSchema(catalog.db);
  assert.deepEqual(dumpWithoutLogs(catalog), before);
  assert.deepEqual(miscounted(catalog), [[moved, 3]]);
});

test('a file has the policy that its volume had at its creation', () => {
  const catalog = new Catalog();
  const before = catalog.file('/a').inode;
  catalog.run({ kind: 'volume-set', name: 'main', policy: 'all' });
  assert.equal(catalog.query({ kind: 'volume', name: 'main' }).volume.policy, 'all');
  const later = [catalog.file('/b').inode, catalog.orphan().inode];
  assert.equal(catalog.inode(before).policy, 'quorum');
  for (const inode of later) assert.equal(catalog.inode(inode).policy, 'all');
  assert.equal(catalog.inode(catalog.root).policy, undefined);
});

test('more replicas than there are servers are refused, unless forced', () => {
  const db = new Database(':memory:');
  ensureSchema(db);
  db.exec('BEGIN');
  let number = 0;
  const outcome = (replicas: number, force: boolean) => {
    const command = {
      kind: 'volume-create',
      name: `v${++number}`,
      replicas,
      objectBytes: 4096,
      force,
    } as const;
    const context = {
      nowNs: 1n,
      placement: () => [],
      capacity: (servers: readonly ServerInfo[]) => servers.length + 3,
    };
    const { outcomes } = executeRequests(db, 1, [{ session: 1, number, command }], context);
    const [first] = outcomes;
    return first?.kind === 'done' ? 'done' : first?.code;
  };
  assert.equal(outcome(3, false), 'done');
  assert.equal(outcome(4, false), 'precondition-failed');
  assert.equal(outcome(4, true), 'done');
  db.exec('ROLLBACK');
});

/** The tables of version 1 that have changed since, and what it lacked. */
test('a catalog of version 1 is upgraded, and knows which servers have which files', () => {
  const catalog = new Catalog();
  catalog.file('/a');
  catalog.directory('/d');
  const moved = catalog.file('/d/b').inode;
  catalog.run({ kind: 'follow-view', inode: moved, view: { number: 2, members: ['s5'] } });
  catalog.orphan();
  // That version had sessions of one kind, no log of deletions, and neither times of creation nor flags, which are
  // before the last three columns.
  const dump = () =>
    [...dumpCatalog(catalog.db)]
      .filter((line) => !/^(counters|timed_sessions|deletion_logs|deletions) /.test(line))
      .map((line) => (line.startsWith('inodes ') ? line.replace(/ \S+ \S+( \S+ \S+ \S+)$/, '$1') : line));
  const before = dump();
  asVersion1(catalog.db);
  ensureSchema(catalog.db);
  assert.deepEqual(dump(), before);
  assert.equal(catalog.query({ kind: 'files-on', server: 's5', after: 0, countMax: 9 }).files.length, 1);
  catalog.db.pragma('user_version = 99');
  assert.throws(() => ensureSchema(catalog.db), /schema version 99/);
});

test('views of voters follow each other', () => {
  const catalog = new Catalog();
  assert.deepEqual(catalog.query({ kind: 'voters' }), { view: null });
  const members = { servers: ['s1'], perCell: 3 };
  const joint = { servers: ['s2', 's3'], perCell: 5 };
  const set = (number: number, more = {}) =>
    ({ kind: 'set-voters', view: { number, members, clockMs: 0.5, ...more } }) as const;
  catalog.refuse('precondition-failed', set(1));
  catalog.refuse('precondition-failed', set(3));
  catalog.refuse('bad-request', set(2, { joint: { servers: ['s1', 's1'], perCell: 5 } }));
  catalog.run(set(2, { joint }));
  catalog.refuse('precondition-failed', set(2));
  assert.deepEqual(catalog.query({ kind: 'voters' }), { view: { number: 2, members, joint, clockMs: 0.5 } });
  catalog.run(set(3));
  assert.deepEqual(catalog.query({ kind: 'voters' }), { view: { number: 3, members, clockMs: 0.5 } });
});

test('a live server is not removed while named leases need its vote', () => {
  const catalog = new Catalog();
  for (const id of ['s1', 's2', 's3']) register(catalog, id);
  const members = { servers: ['s1', 's2', 's3'], perCell: 5 };
  catalog.run({ kind: 'set-voters', view: { number: 2, members, clockMs: 0 } });
  assert.equal(catalog.run({ kind: 'server-remove', id: 's3', dead: false }).server.state, 'out');
  catalog.refuse('precondition-failed', { kind: 'server-remove', id: 's2', dead: false });
  assert.equal(catalog.run({ kind: 'server-remove', id: 's2', dead: true }).server.state, 'out');
});

test('a live server that is to become a member of a file is not removed', () => {
  const catalog = new Catalog();
  for (const id of SERVERS) register(catalog, id);
  const { inode } = catalog.file('/a');
  const remove = (id: string) => ({ kind: 'server-remove', id, dead: false }) as const;
  const plan = (turn: number, members: string[], view = 1) =>
    catalog.run({ kind: 'plan-members', inode, view, mark: { epoch: 3, turn }, members }).planned;
  assert.deepEqual(catalog.query({ kind: 'plans', after: 0, countMax: 9 }), {
    ...{ files: [], next: null },
    begun: false,
  });
  assert.deepEqual(plan(2, ['s4']), ['s4']);
  const [file] = catalog.query({ kind: 'plans', after: 0, countMax: 9 }).files;
  assert.deepEqual(file?.planned, { servers: ['s4'], view: 1, mark: { epoch: 3, turn: 2 } });
  assert.deepEqual(catalog.query({ kind: 'placed', inodes: [inode] }).files[0]?.planned, file?.planned);
  catalog.refuse('precondition-failed', remove('s4'));
  const held = catalog.query({ kind: 'servers', counts: true }).servers.map(({ replicas }) => replicas);
  assert.deepEqual(held, [1, 1, 1, 1, 0]);
  assert.deepEqual(plan(1, ['s5']), ['s4'], 'An earlier plan that arrives late');
  assert.deepEqual(plan(3, []), []);
  assert.equal(catalog.run(remove('s4')).server.state, 'out');
  catalog.refuse('precondition-failed', {
    ...{ kind: 'plan-members', inode, view: 1 },
    ...{ mark: { epoch: 3, turn: 4 }, members: ['s4'] },
  });
  plan(5, ['s5']);
  catalog.run({ kind: 'server-remove', id: 's5', dead: true });
});

test('plans and views of many files are stored with one command, and a refused one affects no other', () => {
  const catalog = new Catalog();
  for (const id of SERVERS) register(catalog, id);
  catalog.run({ kind: 'server-remove', id: 's5', dead: true });
  const [a, b, c] = ['/a', '/b', '/c'].map((path) => catalog.file(path).inode) as [number, number, number];
  const plan = (inode: number, ...members: string[]) => ({
    ...{ inode, view: 1, mark: { epoch: 3, turn: 1 }, members },
  });
  const files = [plan(a, 's4'), plan(b, 's5'), plan(999, 's4'), plan(c, 's4')];
  const { plans } = catalog.run({ kind: 'plan-files', files });
  const codes = plans.map((one) => ('code' in one ? one.code : one.planned));
  assert.deepEqual(codes, [['s4'], 'precondition-failed', 'not-found', ['s4']]);
  const planned = catalog.query({ kind: 'plans', after: 0, countMax: 9 }).files;
  assert.deepEqual(
    planned.map(({ inode }) => inode),
    [a, c],
  );
  const view = { number: 3, members: ['s1', 's2', 's4'] };
  const followed = catalog.run({
    kind: 'follow-views',
    files: [a, 999, c].map((inode) => ({ inode, view })),
  });
  assert.deepEqual(followed, { followed: [true, false, true] });
  assert.deepEqual(catalog.query({ kind: 'plans', after: 0, countMax: 9 }).files, []);
  assert.deepEqual(
    [a, b, c].map((inode) => catalog.inode(inode).view),
    [3, 1, 3],
  );
});

test('no numbers are reserved at leaving servers, and contents stored at a removed server do not count', () => {
  const catalog = new Catalog();
  for (const id of SERVERS) register(catalog, id);
  const reserve = (...sets: string[][]) =>
    ({ kind: 'reserve-inodes', owner: 7, count: sets.length, members: sets }) as const;
  const { first } = catalog.run(reserve(['s1', 's2', 's3']));
  catalog.run({ kind: 'server-state', id: 's3', state: 'draining' });
  catalog.refuse('precondition-failed', reserve(['s1', 's2', 's3']));
  assert.equal(catalog.run({ kind: 'server-remove', id: 's3', dead: false }).server.state, 'out');
  catalog.refuse('precondition-failed', reserve(['s3']));
  const owner = { uid: 1, gid: 2 };
  const contents = { epoch: 1, seq: 1 };
  const stored = { inode: first, mode: 0o600, ...owner, sizeBytes: 5, contents };
  const replicas = ['s1', 's2', 's3'];
  const file = { ...stored, parent: catalog.root, name: 'f' };
  const creation: CommandOf<'bear'> = {
    kind: 'bear',
    owner: 7,
    replicas,
    objectBytes: 131_072,
    files: [file],
  };
  catalog.refuse('precondition-failed', creation);
  const elsewhere = [{ replicas, inodes: [first] }];
  catalog.refuse('precondition-failed', { ...creation, replicas: ['s1'], elsewhere });
  catalog.refuse('bad-request', {
    ...{ kind: 'replace-with-contents', place: main('/f'), owner: 7, replicas, objectBytes: 131_072 },
    ...{ ...stored, modifiedNs: '5', expect: { kind: 'nothing' } },
  });
  // The client may have shown the number to a program: the file is created, and a primary, elected by a majority,
  // writes its contents.
  const { attributes } = catalog.run({
    ...{ kind: 'create-file', place: main('/f'), mode: 0o600, ...owner, exclusive: true },
    reserved: { inode: first, owner: 7 },
  });
  assert.deepEqual([attributes.inode, attributes.replicas], [first, replicas]);
});

test('a live server is not removed while a majority of a new file may need it', () => {
  const catalog = new Catalog();
  for (const id of SERVERS) register(catalog, id);
  const remove = (id: string) => ({ kind: 'server-remove', id, dead: false }) as const;
  const reserve = (...sets: string[][]) =>
    catalog.run({ kind: 'reserve-inodes', owner: 7, count: sets.length, members: sets });
  reserve(['s1', 's2', 's3']);
  catalog.run(remove('s3'));
  catalog.refuse('precondition-failed', remove('s2'));
  reserve(['s4', 's5']);
  catalog.refuse('precondition-failed', remove('s5'));
  catalog.timeNs += 16n * 60n * 1_000_000_000n;
  catalog.run({ kind: 'collect', beforeNs: '1', countMax: 1 });
  assert.equal(catalog.run(remove('s5')).server.state, 'out', 'The numbers are void');
  reserve(['s1']);
  assert.equal(catalog.run({ ...remove('s1'), dead: true }).server.state, 'out');
});

test('a plan ends once the catalog follows a later view, and with its file', () => {
  const catalog = new Catalog();
  for (const id of SERVERS) register(catalog, id);
  const { inode } = catalog.file('/a');
  const plan = (view: number, members: string[]) =>
    catalog.run({ kind: 'plan-members', inode, view, mark: { epoch: view, turn: 1 }, members }).planned;
  const planned = () => catalog.query({ kind: 'placed', inodes: [inode] }).files[0]?.planned?.servers ?? [];
  const follow = (number: number, members: string[]) =>
    catalog.run({ kind: 'follow-view', inode, view: { number, members } });
  plan(1, ['s4']);
  follow(3, ['s1', 's2', 's4']);
  assert.deepEqual(planned(), []);
  assert.deepEqual(plan(1, ['s5']), [], 'A plan for an earlier view');
  plan(5, ['s5']);
  follow(5, ['s1', 's2', 's3']);
  assert.deepEqual(planned(), ['s5'], 'Its change begins with the view that the catalog has just learned');
  catalog.refuse('bad-request', {
    ...{ kind: 'plan-members', inode, view: 5 },
    ...{ mark: { epoch: 9, turn: 1 }, members: ['s4', 's4'] },
  });
  catalog.run({ kind: 'unlink', place: main('/a') });
  catalog.run({ kind: 'collect', beforeNs: (catalog.timeNs + 1n).toString(), countMax: 10 });
  assert.deepEqual(catalog.query({ kind: 'plans', after: 0, countMax: 9 }).files, []);
  assert.equal(catalog.run({ kind: 'server-remove', id: 's5', dead: false }).server.state, 'out');
});

test('maintenance lasts for a time of the catalog, and through registrations and drains', () => {
  const catalog = new Catalog();
  const { maintenanceNs: _, ...before } = register(catalog, 's1');
  const begin = { kind: 'server-maintenance', id: 's1', forMs: 7_200_000 } as const;
  const until = (catalog.timeNs + 1n + 7_200_000_000_000n).toString();
  assert.deepEqual(catalog.run(begin).server, { ...before, maintenanceNs: until });
  assert.equal(register(catalog, 's1', { freeBytes: 7 }).maintenanceNs, until);
  const drained = catalog.run({ kind: 'server-state', id: 's1', state: 'draining' }).server;
  assert.equal(drained.maintenanceNs, until);
  const ended = catalog.run({ ...begin, forMs: null }).server;
  assert.ok(!('maintenanceNs' in ended), 'Earlier releases store the same result');
  catalog.refuse('not-found', { ...begin, id: 's9' });
  catalog.run({ kind: 'server-remove', id: 's1', dead: true });
  catalog.refuse('precondition-failed', begin);
});

test('the number of catalog replicas is a setting: odd, or by the number of servers', () => {
  const catalog = new Catalog();
  const settings = () => catalog.query({ kind: 'servers', counts: false }).settings;
  assert.deepEqual(settings(), { catalogReplicas: null });
  const set = (catalogReplicas: number | null) => ({ kind: 'cluster-set', catalogReplicas }) as const;
  assert.deepEqual(catalog.run(set(5)), { settings: { catalogReplicas: 5 } });
  catalog.refuse('bad-request', set(4));
  assert.deepEqual(catalog.run({ kind: 'cluster-set' }), { settings: { catalogReplicas: 5 } });
  catalog.run(set(null));
  assert.deepEqual(settings(), { catalogReplicas: null });
});

test('a catalog of version 9 is upgraded, without settings and maintenance', () => {
  const catalog = new Catalog();
  register(catalog, 's1');
  const before = dumpWithoutLogs(catalog);
  asVersion9(catalog.db);
  ensureSchema(catalog.db);
  assert.deepEqual(dumpWithoutLogs(catalog), before);
});

/**
 * Goal: a volume's own catalog begins, follows the list, numbers inodes and closes by the rules of model/volumes.
 * Method: commands in the orders in which they may arrive, executed by a primary and a backup.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ErrorCode } from '../../base/errors.ts';
import { type CatalogNumber, inodesOf } from '../../base/ids.ts';
import { startEpochInodes } from '../../catalog/batch.ts';
import { runQuery } from '../../catalog/queries.ts';
import { Tables } from '../../catalog/tables.ts';
import type { Command, Query } from '../../wire/catalog-api.ts';
import type { ListedServer } from '../../wire/volume-catalogs.ts';
import { Catalog, SERVERS } from './fixture.ts';
import { makeDirectory, Pair } from './pair.ts';
import { assertSound } from './soundness.ts';

const NUMBER = 3 as CatalogNumber;
const { first: ROOT_INODE, end: END } = inodesOf(NUMBER);
const SETTINGS = { replicas: 3, objectBytes: 4096, quotaInodes: 50 };

function listed(id: string, more: Partial<ListedServer> = {}): ListedServer {
  const url = `http://${id}:7401`;
  return { id, url, zone: '', state: 'in', since: 0, storageId: `store of ${id}`, ...more };
}

function begin(more: Partial<Extract<Command, { kind: 'catalog-begin' }>> = {}): Command {
  const servers = SERVERS.map((id) => listed(id));
  return { kind: 'catalog-begin', number: NUMBER, name: 'main', settings: SETTINGS, servers, ...more };
}

function follow(...servers: ListedServer[]): Command {
  return { kind: 'follow-servers', servers };
}

function register(id: string, storageId = `store of ${id}`): Command {
  const room = { freeBytes: 10, totalBytes: 100 };
  return { kind: 'server-register', id, url: `http://${id}:7401`, zone: 'rack-9', storageId, ...room };
}

const CLOSE = (since: number) => ({ kind: 'catalog-close', since }) as const;

/** A volume's catalog at a primary and a backup, which are equal after each command. */
class VolumePair extends Pair {
  constructor() {
    super(undefined, NUMBER);
  }

  static begun(limit = END): VolumePair {
    const pair = new VolumePair();
    pair.done(begin());
    pair.done({ kind: 'extend-numbers', limit });
    return pair;
  }

  refused(code: ErrorCode, message: RegExp, command: Command): void {
    const outcome = this.outcome(command);
    assert.ok(outcome.kind === 'refused', JSON.stringify(outcome));
    assert.equal(outcome.code, code);
    assert.match(outcome.message, message);
  }

  get state() {
    return runQuery<'catalog-state'>(this.backup, { kind: 'catalog-state' });
  }

  server(id: string) {
    return this.state.servers.find((server) => server.id === id);
  }

  info(id: string) {
    const { servers } = runQuery<'servers'>(this.backup, { kind: 'servers', counts: false });
    return servers.find((server) => server.id === id);
  }

  /** A new file at three servers. */
  file(path: string): number {
    const place = { volume: 'main', path };
    const more = { mode: 0o644, uid: 0, gid: 0, exclusive: true };
    return this.done({ kind: 'create-file', place, ...more }).attributes.inode;
  }

  startEpoch(epoch: number): void {
    for (const db of [this.primary, this.backup]) startEpochInodes(db, epoch);
  }

  membersOf(inode: number): string[] {
    return Tables.of(this.backup).placements.placed(inode)?.replicas.split(',') ?? [];
  }

  get next(): number {
    return Tables.of(this.backup).numbers.next();
  }
}

test('a catalog begins once, with its volume, settings, servers and the first of its numbers', () => {
  const pair = new VolumePair();
  pair.refused('bad-request', /^This is catalog 3, not catalog 4$/, begin({ number: 4 }));
  pair.done(begin());
  const { volumes } = runQuery<'volumes'>(pair.backup, { kind: 'volumes' });
  const [volume] = volumes;
  assert.deepEqual([volume?.root, volume?.name, volume?.quotaInodes], [ROOT_INODE, 'main', 50]);
  assert.equal(volume?.catalog, 3);
  pair.done(begin({ name: 'other', servers: [] }));
  const { servers, ...state } = pair.state;
  assert.deepEqual(state, { number: 3, name: 'main', begun: true, closed: false, refused: null });
  assert.deepEqual(servers[4], { id: 's5', state: 'in', since: 0, holds: false });
  assertSound(pair.backup);
});

test('before it has begun, and after it has closed, a catalog serves nothing', () => {
  const pair = new VolumePair();
  const queries: Query[] = [{ kind: 'volumes' }, { kind: 'servers', counts: false }, { kind: 'sweeps' }];
  const commands = [makeDirectory('/d'), register('s1'), follow(), { kind: 'forgo' } as const];
  const servesNothing = (code: ErrorCode, message: RegExp) => {
    for (const command of commands) pair.refused(code, message, command);
    for (const query of queries)
      assert.throws(() => runQuery(pair.backup, query as never), { code, message });
  };
  servesNothing('busy', /^The volume of catalog 3 is not created yet$/);
  pair.done(begin());
  pair.done({ kind: 'extend-numbers', limit: END });
  for (const query of queries) runQuery(pair.backup, query as never);
  for (const command of commands) pair.done(command);
  pair.done({ kind: 'remove-directory', place: { volume: 'main', path: '/d' } });
  assert.deepEqual(pair.done(CLOSE(7)), { closed: true });
  servesNothing('not-found', /^Volume "main" is removed$/);
  pair.refused('not-found', /^Volume "main" is removed$/, begin());
  assert.deepEqual(pair.done(CLOSE(7)), { closed: true });
  assert.equal(pair.state.closed, true);
});

test('a retry of a command that a catalog refused before it had begun is executed', () => {
  const pair = new VolumePair();
  const request = { session: 5, number: 1, command: makeDirectory('/d') };
  assert.equal(pair.batch([request])[0]?.kind, 'refused');
  pair.done(begin());
  pair.done({ kind: 'extend-numbers', limit: END });
  assert.equal(pair.batch([request])[0]?.kind, 'done');
  pair.equal();
});

test('a catalog whose volume is removed before it was created never begins', () => {
  const pair = new VolumePair();
  assert.deepEqual(pair.done(CLOSE(2)), { closed: true });
  pair.refused('not-found', /^Volume "main" is removed$/, begin());
  assert.deepEqual([pair.state.begun, pair.state.closed], [false, true]);
});

test('a catalog whose volume is not empty refuses that removal for good', () => {
  const pair = VolumePair.begun();
  pair.done(makeDirectory('/d'));
  const refusal = { closed: false, refused: { since: 5, why: 'Volume "main" is not empty' } };
  assert.deepEqual(pair.done(CLOSE(5)), refusal);
  assert.deepEqual(pair.state.refused, refusal.refused);
  pair.done({ kind: 'remove-directory', place: { volume: 'main', path: '/d' } });
  assert.deepEqual(pair.done(CLOSE(5)), refusal, 'The root may count on it');
  assert.deepEqual(pair.done(CLOSE(4)), refusal, 'An earlier removal is over');
  pair.done({ kind: 'snapshot-create', volume: 'main', name: 'kept' });
  const { refused } = pair.done(CLOSE(8));
  assert.match(refused?.why ?? '', /has 1 snapshots, the first of them "kept"/);
  pair.done({ kind: 'snapshot-remove', volume: 'main', name: 'kept' });
  assert.deepEqual(pair.done(CLOSE(9)), { closed: true });
});

test('a closed catalog holds nothing at any server: orphans are deleted, reserved numbers are void', () => {
  const pair = VolumePair.begun();
  const orphan = { kind: 'create-orphan', volume: 'main', mode: 0o600, uid: 1, gid: 2 } as const;
  pair.done(orphan);
  pair.done({ kind: 'reserve-inodes', owner: 9, count: 4, members: [['s5']] });
  const holding = () => pair.state.servers.flatMap(({ id, holds }) => (holds ? [id] : []));
  assert.ok(holding().length >= 3 && holding().includes('s5'));
  assert.deepEqual(pair.done(CLOSE(2)), { closed: true });
  assert.deepEqual(holding(), []);
  assertSound(pair.backup);
});

test('of each server, the latest change of the list counts, in whatever order lists arrive', () => {
  const pair = VolumePair.begun();
  const more = { zone: 'rack-1', labels: ['ssd'], maintenanceNs: '77' };
  const followed = () => [pair.info('s1')?.zone, pair.info('s1')?.labels, pair.info('s1')?.maintenanceNs];
  pair.done(follow(listed('s1', { ...more, state: 'draining', since: 4 })));
  assert.deepEqual(pair.server('s1'), { id: 's1', state: 'draining', since: 4, holds: false });
  pair.done(follow(listed('s1', { since: 3 }), listed('s2', { state: 'draining', since: 3 })));
  assert.deepEqual([pair.server('s1')?.state, pair.server('s2')?.state], ['draining', 'draining']);
  assert.deepEqual(followed(), ['rack-1', ['ssd'], '77']);
  pair.done(follow(listed('s1', { since: 5 })));
  assert.deepEqual([pair.server('s1')?.state, pair.server('s1')?.since], ['in', 5]);
  assert.deepEqual(followed(), ['', undefined, undefined]);
});

test('a server that registers reports its store; state, zone and maintenance are those of the list', () => {
  const pair = VolumePair.begun();
  pair.refused('busy', /^This catalog does not know server s9 yet/, register('s9'));
  assert.deepEqual([pair.info('s1')?.storageId, pair.info('s1')?.registeredNs], ['store of s1', '0']);
  pair.done(follow(listed('s1', { state: 'draining', since: 4, zone: 'rack-1' })));
  const { server } = pair.done(register('s1') as Extract<Command, { kind: 'server-register' }>);
  assert.deepEqual([server.state, server.zone, server.totalBytes], ['draining', 'rack-1', 100]);
  assert.equal(server.bornAt, 1, 'Its store is the one that the root knew when the catalog began');
  assert.equal(pair.server('s1')?.since, 4);
  const { next } = pair;
  pair.done(register('s2', 'another store'));
  assert.equal(pair.info('s2')?.bornAt, next, 'In the numbers of this catalog');
  pair.done(follow(listed('s2', { state: 'out', since: 6 })));
  assert.equal(pair.info('s2')?.storageId, 'another store');
  pair.done(register('s2', 'another store'));
  assert.equal(pair.server('s2')?.state, 'out');
});

test('a server holds something while it has files, planned moves or reserved numbers', () => {
  const pair = VolumePair.begun();
  const holds = (id: string) => pair.server(id)?.holds;
  const inode = pair.file('/f');
  const members = pair.membersOf(inode);
  const [from = '', ...rest] = members;
  const to = SERVERS.find((id) => !members.includes(id)) ?? '';
  assert.deepEqual([holds(from), holds(to)], [true, false]);
  const mark = { epoch: 1, turn: 1 };
  pair.done({ kind: 'plan-members', inode, view: 1, mark, members: [...rest, to] });
  assert.deepEqual([holds(from), holds(to)], [true, true]);
  pair.done({ kind: 'follow-view', inode, view: { number: 2, members: [...rest, to] } });
  assert.deepEqual([holds(from), holds(to)], [false, true]);
  pair.done({ kind: 'reserve-inodes', owner: 9, count: 2, members: [[from]] });
  assert.equal(holds(from), true);
});

test('no file is planned to move to a server that leaves; one that is there, or is to come, may stay', () => {
  const pair = VolumePair.begun();
  const inode = pair.file('/f');
  const members = pair.membersOf(inode);
  const [present = ''] = members;
  const [other = '', another = ''] = SERVERS.filter((id) => !members.includes(id));
  const plan = (turn: number, ...servers: string[]): Command => {
    return { kind: 'plan-members', inode, view: 1, mark: { epoch: 1, turn }, members: servers };
  };
  pair.done(plan(1, present, other));
  const since = 3;
  pair.done(follow(...[present, other, another].map((id) => listed(id, { state: 'draining', since }))));
  pair.done(plan(2, present, other));
  pair.refused('precondition-failed', /leaves, and takes no more files$/, plan(3, another));
  const planned = { inode, view: 1, mark: { epoch: 1, turn: 3 }, members: [another] };
  const { plans } = pair.done({ kind: 'plan-files', files: [planned] });
  assert.ok(plans[0] !== undefined && 'code' in plans[0]);
  pair.refused('precondition-failed', /leaves/, {
    ...{ kind: 'reserve-inodes', owner: 9, count: 2, members: [[another]] },
  } as Command);
});

test('a backup executes no batch whose numbers are not below the limit', () => {
  const pair = new VolumePair();
  pair.done(begin());
  pair.done({ kind: 'extend-numbers', limit: ROOT_INODE + 2 });
  assert.equal(pair.file('/a'), ROOT_INODE + 1);
  assert.throws(() => pair.run(makeDirectory('/b')), /gives out numbers below the limit only/);
});

test('the limit only rises, and ends with the numbers of the catalog', () => {
  const pair = new VolumePair();
  pair.done(begin());
  const limit = ROOT_INODE + 3;
  assert.deepEqual(pair.done({ kind: 'extend-numbers', limit }), { limit });
  assert.deepEqual(pair.done({ kind: 'extend-numbers', limit: limit - 1 }), { limit });
  assert.deepEqual(pair.done({ kind: 'extend-numbers', limit: END + 9 }), { limit: END });
  pair.startEpoch(1);
  pair.refused('no-space', /^Cannot number another inode$/, makeDirectory('/a'));
});

test('an epoch begins at the limit: a loss of power may have undone that numbers below it were given out', () => {
  const pair = new VolumePair();
  pair.startEpoch(1);
  pair.done(begin());
  pair.done({ kind: 'extend-numbers', limit: ROOT_INODE + 100 });
  pair.file('/a');
  pair.startEpoch(1);
  assert.equal(pair.next, ROOT_INODE + 2, 'In its epoch it continues');
  pair.startEpoch(4);
  assert.equal(pair.next, ROOT_INODE + 100);
  pair.done({ kind: 'extend-numbers', limit: ROOT_INODE + 200 });
  assert.equal(pair.file('/b'), ROOT_INODE + 100);
  pair.startEpoch(4);
  assert.equal(pair.file('/c'), ROOT_INODE + 101);
});

test('only the catalog that has given out a number says that there is no inode or replica', () => {
  const pair = VolumePair.begun();
  const root = new Catalog();
  const inodes = [ROOT_INODE, ROOT_INODE + 9];
  const existing = runQuery<'existing'>(pair.backup, { kind: 'existing', inodes });
  assert.deepEqual(existing.inodes, [ROOT_INODE]);
  for (const kind of ['existing', 'placed', 'paths'] as const) {
    root.refuseQuery('bad-request', { kind, inodes });
    const foreign = { kind, inodes: [...inodes, END] };
    assert.throws(() => runQuery(pair.backup, foreign as never), {
      code: 'bad-request',
      message: /is of catalog 4/,
    });
  }
});

test('commands of the root catalog are refused in those of volumes, and the other way round', () => {
  const pair = VolumePair.begun();
  const root = new Catalog();
  const ofRoot: Command[] = [
    { kind: 'volume-create', name: 'second', ...SETTINGS },
    { kind: 'volume-remove', name: 'main' },
    { kind: 'server-state', id: 's1', state: 'draining' },
    { kind: 'server-remove', id: 's1', dead: true },
    { kind: 'cluster-set', catalogReplicas: 3 },
  ];
  for (const command of ofRoot) pair.refused('bad-request', /is for the root catalog/, command);
  for (const kind of ['voters', 'catalogs'] as const)
    assert.throws(() => runQuery(pair.backup, { kind } as never), { code: 'bad-request' });
  for (const command of [begin(), CLOSE(1), follow(), { kind: 'extend-numbers', limit: 9 } as const])
    root.refuse('bad-request', command);
  root.refuseQuery('bad-request', { kind: 'catalog-state' });
});

test("a volume's catalog knows the labels of servers from the root's list, and has classes", () => {
  const pair = new VolumePair();
  const isLabelled = (id: string) => id !== 's1';
  const servers = SERVERS.map((id) => listed(id, isLabelled(id) ? { labels: ['ssd'] } : {}));
  pair.done(begin({ settings: { ...SETTINGS, labels: ['ssd'] }, servers }));
  pair.done({ kind: 'extend-numbers', limit: END });
  const misplaced = () => {
    const query = { kind: 'files-misplaced' as const, away: [], after: null, countMax: 9 };
    return runQuery<'files-misplaced'>(pair.backup, query).files.map(({ inode }) => inode);
  };
  const file = pair.file('/a');
  assert.deepEqual(pair.membersOf(file), ['s1', 's2', 's3']);
  assert.deepEqual(misplaced(), [file]);
  pair.done(follow(listed('s1', { since: 1, labels: ['ssd'] })));
  assert.deepEqual(misplaced(), []);
  const tape = { labels: ['tape'], zones: [], replicas: 1 };
  pair.done({ kind: 'set-placement', inode: ROOT_INODE, class: tape });
  pair.done({ kind: 'inherit-placement', inode: ROOT_INODE, after: '', countMax: 9 });
  const [placed] = runQuery<'placed'>(pair.backup, { kind: 'placed', inodes: [file] }).files;
  assert.deepEqual([placed?.wanted, placed?.class], [1, { labels: ['tape'] }]);
});

test('an inode of another catalog is elsewhere, for queries and commands', () => {
  const pair = VolumePair.begun();
  const root = new Catalog();
  const elsewhere = (inode: number): readonly Query[] => [
    { kind: 'lookup', parent: inode, name: 'd', snapshot: 0 },
    { kind: 'attributes', inode, snapshot: 0 },
  ];
  const refused = { code: 'not-found', details: { elsewhere: true } };
  for (const inode of [root.root, END, inodesOf((NUMBER - 1) as CatalogNumber).first])
    for (const query of elsewhere(inode)) assert.throws(() => runQuery(pair.backup, query as never), refused);
  for (const query of elsewhere(ROOT_INODE))
    assert.throws(() => runQuery(root.db, query as never), refused, query.kind);
  const mark = { epoch: 1, turn: 1 };
  const place = { parent: ROOT_INODE, name: 'd' };
  const commands: readonly Command[] = [
    { kind: 'follow-view', inode: ROOT_INODE, view: { number: 2, members: ['s1'] } },
    { kind: 'plan-files', files: [{ inode: ROOT_INODE, view: 1, mark, members: ['s1'] }] },
    { kind: 'remove-directory', place },
    { kind: 'rename', from: { volume: 'main', path: '/d' }, to: place, mode: 'replace' },
  ];
  for (const command of commands) assert.throws(() => root.run(command as never), refused, command.kind);
  root.refuse('bad-request', { kind: 'void-inodes', owner: 9, inodes: [ROOT_INODE + 1] });
});

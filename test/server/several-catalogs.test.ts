/** Goal: with several catalogs, each command, query, session and flush reaches the catalog that it belongs to. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import {
  CATALOG_CELL,
  type CatalogNumber,
  catalogCell,
  inodesOf,
  ROOT_CATALOG,
  type ServerId,
} from '../../base/ids.ts';
import { InodeCatalogs } from '../../base/inode-catalogs.ts';
import { KeyedCommands } from '../../server/http/idempotency.ts';
import { Gateway, NO_OPERATION } from '../../server/routing/gateway.ts';
import { commandInNamedCatalog } from '../../server/routing/named-catalog.ts';
import type { CallOptions } from '../../server/routing/router.ts';
import type { CatalogService, Catalogs, Services } from '../../server/routing/service-interfaces.ts';
import type {
  AnsweredCommands,
  ChangesRequest,
  Command,
  CommandOf,
  CommandRequest,
  Query,
} from '../../wire/catalog-api.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import { patientWorld } from '../patient-world.ts';

const A = 1 as CatalogNumber;
const B = 2 as CatalogNumber;
const IN_A = inodesOf(A).first + 5;
/** By the newest list, in catalog A. */
const MOVED = 40;
const IN_B = inodesOf(B).first + 7;
const IN_ROOT = 9;
/** Volumes by their catalog; of the root catalog's, one. */
const NAMES = ['in-root', 'in-a', 'in-b'];

/** Records what a catalog was asked; all of its answers say which one it is. */
class FakeCatalog {
  readonly number: CatalogNumber;
  readonly commands: CommandRequest[] = [];
  readonly queries: Query[] = [];
  readonly flushed: (readonly AnsweredCommands[])[] = [];
  missing: readonly AnsweredCommands[] = [];
  refusal: ServiceError | null = null;
  refuse = (): ServiceError | null => this.refusal;
  refuseQuery = (_query: { readonly inodes?: readonly number[] }): ServiceError | null => this.refusal;
  /** Of each command. */
  result: object = {};

  constructor(number: CatalogNumber) {
    this.number = number;
  }

  service(): CatalogService {
    const status = { primary: 's1', members: ['s1'], epoch: 3, seq: 10 + this.number, committedSeq: 10 };
    return {
      status: () => ({ ...status, invitesQueries: false }),
      execute: async (request: CommandRequest) => {
        const refusal = this.refuse();
        if (refusal !== null) throw refusal;
        this.commands.push(request);
        return this.result;
      },
      query: async (query: Query) => {
        if (query.kind === 'volume' && this.refusal !== null) throw this.refusal;
        this.queries.push(query);
        const refusal = this.refuseQuery(query as { readonly inodes?: readonly number[] });
        if (refusal !== null) throw refusal;
        return this.#answer(query);
      },
      changes: async ({ after }: ChangesRequest) => ({ changes: [], through: after ?? 0, resync: false }),
      queryWithGrants: async (query: Query, session: number) => ({
        result: this.#answer(query),
        granted: { session, refused: [] },
      }),
      flush: async (answered: readonly AnsweredCommands[]) => {
        this.flushed.push(answered);
        if (this.refusal !== null) throw this.refusal;
        return { missing: this.missing };
      },
    } as unknown as CatalogService;
  }

  #answer(query: Query): unknown {
    const { number } = this;
    if (query.kind === 'volumes') return { volumes: [{ name: NAMES[number] }] };
    if (query.kind === 'servers') return { servers: [{ id: 's1', replicas: 100 + number }] };
    if (query.kind === 'existing') return { inodes: query.inodes };
    if (query.kind === 'volume') return { volume: { name: NAMES[number], root: inodesOf(number).first } };
    if (query.kind === 'outcome') return { result: { of: number }, number: 1 };
    return { names: [`of-${number}`] };
  }
}

function rowOf(name: string, number: number, more: Partial<ListedCatalog> = {}): ListedCatalog {
  const settings = { replicas: 3, objectBytes: 4096 };
  return { name, number, state: 'ready', view: 1, members: ['s1'], made: 1, since: 1, settings, ...more };
}

function fixture() {
  const all = [ROOT_CATALOG, A, B].map((number) => new FakeCatalog(number));
  const [root, a, b] = all as [FakeCatalog, FakeCatalog, FakeCatalog];
  /** What the server knows without a request; `fresh` is what the root catalog would say. */
  const known = new Map([['in-a', A]]);
  const fresh = new Map([...known, ['in-b', B]]);
  let inodes = InodeCatalogs.NONE_MOVED;
  const freshInodes = new InodeCatalogs([{ first: MOVED, end: MOVED + 2, catalog: A }]);
  let refreshed = 0;
  const listeners = new Set<() => void>();
  let rows: readonly ListedCatalog[] = ['in-a', 'in-b'].map((name, index) => rowOf(name, index + 1));
  const catalogs: Catalogs = {
    root: root.service(),
    at: (cell) => all.find(({ number }) => catalogCell(number) === cell)?.service() ?? null,
    numbers: () => [ROOT_CATALOG, A, B],
    ofVolume: (name) => known.get(name) ?? ROOT_CATALOG,
    ofInode: (inode) => inodes.catalogOf(inode),
    get inodeCatalogs() {
      return inodes;
    },
    refresh: async () => {
      refreshed++;
      inodes = freshInodes;
      for (const [name, number] of fresh) known.set(name, number);
    },
    listed: () => rows,
    row: (wanted) => rows.find(({ number }) => number === wanted) ?? null,
    onListChange: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  const services = {
    catalogs,
    files: {},
    status: { id: 's1', urls: new Map(), operationTimeoutMs: 1_000, isConnected: () => true },
  } as unknown as Services;
  const gateway = new Gateway({
    world: patientWorld,
    services,
    founders: [],
    copyAt: async () => 'not-needed',
  });
  const list = (row: ListedCatalog): void => {
    rows = [...rows.filter(({ number }) => number !== row.number), row];
    for (const listener of [...listeners]) listener();
  };
  return { gateway, root, a, b, list, listeners, refreshes: () => refreshed };
}

const numbered = { session: 7, number: 1, since: 4 };
const unlinkAt = (place: CommandOf<'unlink'>['place']): Command => ({ kind: 'unlink', place });
const unlink = (parent: number): Command => unlinkAt({ parent, name: 'x' });
const commandsOf = ({ commands }: FakeCatalog) => commands.map(({ command }) => command.kind);

test('a command goes to the catalog of its inode, whichever the client names', async () => {
  const { gateway, root, a, b } = fixture();
  await gateway.command(unlink(IN_A), numbered);
  await gateway.command(unlink(IN_B), numbered, { catalog: A });
  await gateway.command(unlink(IN_ROOT), numbered);
  assert.deepEqual([root, a, b].map(commandsOf), [['unlink'], ['unlink'], ['unlink']]);
});

test('a command about a volume goes to the catalog that the client names, or to the known one', async () => {
  const { gateway, root, a, b } = fixture();
  await gateway.command({ kind: 'volume-set', name: 'in-a' }, numbered);
  await gateway.command({ kind: 'volume-set', name: 'in-a' }, numbered, { catalog: B });
  await gateway.command({ kind: 'cluster-set' }, numbered, { catalog: B });
  assert.deepEqual([root, a, b].map(commandsOf), [['cluster-set'], ['volume-set'], ['volume-set']]);
});

test('a start of a session counts only at the catalog that the client names', async () => {
  const { gateway, a } = fixture();
  await gateway.command(unlink(IN_A), numbered);
  await gateway.command(unlink(IN_A), numbered, { catalog: A });
  assert.deepEqual(
    a.commands.map(({ since }) => since),
    [undefined, 4],
  );
});

test("each catalog has a session of the server's own commands, which begins at its own position", async () => {
  const { gateway, a, b } = fixture();
  await gateway.command(unlink(IN_A));
  await gateway.command(unlink(IN_B));
  const [inA, inB] = [a.commands[0], b.commands[0]];
  assert.deepEqual([inA?.since, inB?.since], [11, 12]);
  assert.notEqual(inA?.session, inB?.session);
});

test('a command about two catalogs is refused', async () => {
  const { gateway } = fixture();
  const from = { parent: IN_A, name: 'x' };
  const rename: Command = { kind: 'rename', from, to: { parent: IN_B, name: 'x' }, mode: 'replace' };
  await assert.rejects(gateway.command(rename, numbered), { code: 'cross-volume' });
  await assert.rejects(gateway.durably(rename), { code: 'cross-volume' });
  const link: Command = { kind: 'link', inode: IN_B, place: from };
  await assert.rejects(gateway.command(link, numbered), { code: 'cross-volume' });
  const settle = { kind: 'void-inodes', inodes: [IN_A, IN_B] } as Command;
  await assert.rejects(gateway.command(settle, numbered), { code: 'bad-request' });
});

test('two places that are in one catalog by a newer list are not refused', async () => {
  const { gateway, b } = fixture();
  const place = { volume: 'in-b', path: '/x' };
  await gateway.command({ kind: 'link', inode: IN_B, place }, numbered);
  assert.deepEqual(commandsOf(b), ['link']);
  const rename: Command = { kind: 'rename', from: place, to: { ...place, path: '/y' }, mode: 'replace' };
  const other = fixture();
  await other.gateway.command(rename, numbered, { catalog: B });
  assert.deepEqual([commandsOf(other.b), other.refreshes()], [['rename'], 0]);
});

test('queries that concern several catalogs are split, and their answers merged', async () => {
  const { gateway, a, b } = fixture();
  const { volumes } = await gateway.query({ kind: 'volumes' });
  assert.deepEqual(
    volumes.map(({ name }) => name),
    NAMES.toSorted(),
  );
  const { servers } = await gateway.query({ kind: 'servers', counts: true });
  assert.deepEqual(
    servers.map(({ replicas }) => replicas),
    [303],
  );
  const { inodes } = await gateway.query({ kind: 'existing', inodes: [IN_A, IN_B, IN_A + 1] });
  assert.deepEqual(inodes, [IN_A, IN_A + 1, IN_B]);
  assert.deepEqual(a.queries.at(-1), { kind: 'existing', inodes: [IN_A, IN_A + 1] });
  assert.deepEqual(b.queries.at(-1), { kind: 'existing', inodes: [IN_B] });
});

test('a peer has chosen the catalog of a request that it forwards', async () => {
  const { gateway, root, a } = fixture();
  await gateway.query({ kind: 'servers', counts: false }, { forwarded: true, catalog: A });
  await gateway.query({ kind: 'volumes' }, { forwarded: true });
  assert.deepEqual([a.queries.length, root.queries.length], [1, 1]);
});

test('the list says where volumes are attached', async () => {
  const { gateway, root, a, list, refreshes } = fixture();
  const attached = async () => (await gateway.query({ kind: 'volume', name: 'in-a' })).volume.attached;
  assert.equal(await attached(), undefined);
  const row = rowOf('in-a', A, { attached: IN_B });
  root.result = { catalog: row };
  await gateway.command({ kind: 'volume-attach', name: 'in-a', inode: IN_B }, numbered);
  assert.deepEqual([commandsOf(root), commandsOf(a), refreshes()], [['volume-attach'], [], 1]);
  list(row);
  assert.equal(await attached(), IN_B);
  const { volumes } = await gateway.query({ kind: 'volumes' });
  assert.deepEqual(
    volumes.map((volume) => volume.attached),
    [IN_B, undefined, undefined],
  );
  const forwarded = await gateway.query({ kind: 'volume', name: 'in-a' }, { forwarded: true, catalog: A });
  assert.equal(forwarded.volume.attached, undefined, 'The first server adds it, by its list');
});

test('an outdated list of catalogs is fetched again, once', async () => {
  const { gateway, root, b, refreshes } = fixture();
  root.refusal = new ServiceError('not-found', 'There is no volume "in-b"', { elsewhere: true });
  await gateway.command({ kind: 'volume-set', name: 'in-b' }, numbered);
  assert.deepEqual(commandsOf(b), ['volume-set']);
  await assert.rejects(gateway.command({ kind: 'volume-set', name: 'nowhere' }, numbered), {
    code: 'not-found',
  });
  assert.equal(refreshes(), 2);
  root.refusal = new ServiceError('not-found', 'No such file');
  await assert.rejects(gateway.command(unlink(IN_ROOT), numbered), { code: 'not-found' });
  assert.equal(refreshes(), 2, 'other refusals are final');
});

test("that a peer does not know a catalog is no answer of the catalog's", async () => {
  const { gateway } = fixture();
  const inode = inodesOf(9 as CatalogNumber).first;
  const options = { forwarded: true, catalog: 9 as CatalogNumber };
  await assert.rejects(gateway.query({ kind: 'xattrs', inode }, options), { code: 'not-primary' });
});

test('while a server does not serve a listed catalog, others are asked', async () => {
  const { gateway, list } = fixture();
  list(rowOf('in-c', 9, { members: ['s1', 's2'] }));
  const inode = inodesOf(9 as CatalogNumber).first;
  await assert.rejects(gateway.query({ kind: 'xattrs', inode }, { timeoutMs: 20 }), { code: 'no-majority' });
});

test('an inode of a catalog that does not exist is not found', async () => {
  const { gateway, refreshes } = fixture();
  const inode = inodesOf(9 as CatalogNumber).first;
  await assert.rejects(gateway.query({ kind: 'xattrs', inode }), { code: 'not-found' });
  assert.equal(refreshes(), 1);
});

test('what moved is found in its new catalog once the list is fetched', async () => {
  const { gateway, root, a, refreshes } = fixture();
  const elsewhere = new ServiceError('not-found', 'It has moved', { elsewhere: true });
  root.refusal = elsewhere;
  await gateway.command(unlink(MOVED), numbered);
  assert.deepEqual([commandsOf(root), commandsOf(a), refreshes()], [[], ['unlink'], 1]);
  root.refusal = null;
  const { inodes } = await gateway.query({ kind: 'existing', inodes: [MOVED - 1, MOVED, MOVED + 1, IN_A] });
  assert.deepEqual(inodes, [MOVED - 1, MOVED, MOVED + 1, IN_A]);
  assert.deepEqual(a.queries.at(-1), { kind: 'existing', inodes: [MOVED, MOVED + 1, IN_A] });
  assert.equal(gateway.ofInode(MOVED + 2).number, ROOT_CATALOG);
});

test('a command is executed by the catalog that its client names, or refused', async () => {
  const { gateway, root, a, list, refreshes } = fixture();
  const execute = (catalog: CatalogNumber | undefined, command = unlink(MOVED)) =>
    commandInNamedCatalog(gateway, command, numbered, catalog === undefined ? {} : { catalog });
  await gateway.services.catalogs.refresh();
  // The list says that it has moved; an earlier attempt may have been executed before.
  await execute(ROOT_CATALOG);
  assert.deepEqual([commandsOf(root), commandsOf(a)], [['unlink'], []]);
  root.refusal = new ServiceError('not-found', 'It has moved', { elsewhere: true, movedTo: A });
  await assert.rejects(execute(ROOT_CATALOG), { code: 'not-found', details: root.refusal.details });
  await assert.rejects(execute(undefined), { code: 'read-only' });
  // Until the root catalog has flushed that the new one is ready, it may still be undone.
  list(rowOf('in-a', A, { state: 'creating' }));
  await assert.rejects(execute(ROOT_CATALOG), { code: 'moving' });
  assert.equal(refreshes(), 4);
  assert.deepEqual(commandsOf(a), []);
  await execute(A);
  assert.deepEqual(commandsOf(a), ['unlink']);
});

test('a client may know of a move that this server does not know yet', async () => {
  const { gateway, root, a } = fixture();
  const query = { kind: 'xattrs', inode: MOVED } as const;
  await gateway.query(query, { catalog: A });
  assert.deepEqual([a.queries, root.queries], [[query], []]);
  await commandInNamedCatalog(gateway, unlink(MOVED), numbered, { catalog: A });
  assert.deepEqual(commandsOf(a), ['unlink']);
  // What the named catalog does not have is asked from the one that does.
  a.refusal = new ServiceError('not-found', 'It is elsewhere', { elsewhere: true });
  await gateway.query({ kind: 'xattrs', inode: IN_ROOT }, { catalog: A });
  assert.deepEqual(root.queries, [{ kind: 'xattrs', inode: IN_ROOT }]);
});

test('a query about inodes, of which some have moved, is divided anew', async () => {
  const { gateway, root, a } = fixture();
  root.refuseQuery = ({ inodes = [] }) =>
    inodes.includes(MOVED) ? new ServiceError('bad-request', 'It has moved', { elsewhere: true }) : null;
  const { inodes } = await gateway.query({ kind: 'existing', inodes: [IN_ROOT, MOVED] });
  assert.deepEqual(inodes, [IN_ROOT, MOVED]);
  assert.deepEqual(a.queries, [{ kind: 'existing', inodes: [MOVED] }]);
});

test('a command waits while its volume moves; that of a client that waits by itself, or of several volumes, does not', async () => {
  const { gateway, root } = fixture();
  let refusals = 3;
  root.refuse = () => (refusals-- > 0 ? new ServiceError('moving', 'It moves') : null);
  await gateway.command(unlink(IN_ROOT), numbered);
  assert.deepEqual([refusals, commandsOf(root)], [-1, ['unlink']]);
  const isMoving = { code: 'moving' };
  refusals = 1;
  await assert.rejects(
    commandInNamedCatalog(gateway, unlink(IN_ROOT), numbered, { catalog: ROOT_CATALOG }),
    isMoving,
  );
  refusals = 1;
  await assert.rejects(gateway.command({ kind: 'settle', files: [] }), isMoving);
  refusals = Infinity;
  await assert.rejects(gateway.durably(unlink(IN_ROOT), undefined, { timeoutMs: 200 }), isMoving);
});

test('a command without a number of a client that may have been executed does not wait while its volume moves', async () => {
  const { gateway, root } = fixture();
  const refuse = () => {
    const refusals = [
      new ServiceError('unknown', 'The primary ended'),
      new ServiceError('moving', 'It moves'),
    ];
    root.refuse = () => refusals.shift() ?? null;
  };
  for (const attempt of [() => gateway.command(unlink(IN_ROOT)), () => gateway.durably(unlink(IN_ROOT))]) {
    refuse();
    await assert.rejects(attempt(), { code: 'unknown' });
  }
  assert.deepEqual(commandsOf(root), []);
  refuse();
  await gateway.command(unlink(IN_ROOT), numbered);
  assert.deepEqual(commandsOf(root), ['unlink'], 'The same number is executed once');
});

test('what a catalog that the volume has left refuses was not executed by an earlier attempt', async () => {
  const { gateway, root, a } = fixture();
  const refusals = [
    new ServiceError('unknown', 'The primary ended'),
    new ServiceError('not-found', 'It has moved', { elsewhere: true, movedTo: A }),
  ];
  root.refuse = () => refusals.shift() ?? null;
  await gateway.command(unlink(MOVED), numbered);
  assert.deepEqual([commandsOf(root), commandsOf(a)], [[], ['unlink']]);
});

test('changes after an operation of another catalog begin anew', async () => {
  const { gateway } = fixture();
  const request = { inode: IN_A, recursive: false, waitMs: 0 };
  const after = async (options: CallOptions) =>
    (await gateway.changes({ ...request, after: 7 }, options)).through;
  assert.deepEqual([await after({ catalog: A }), await after({})], [7, 7]);
  assert.equal(await after({ catalog: ROOT_CATALOG }), NO_OPERATION);
  const { catalog, through } = await gateway.changes({ ...request, after: null }, { catalog: ROOT_CATALOG });
  assert.deepEqual([catalog, through], [A, 0]);
});

test('grants are those of the catalog that the client names', async () => {
  const { gateway } = fixture();
  const query = { kind: 'xattrs', inode: IN_A } as const;
  assert.deepEqual((await gateway.queryWithGrants(query, 5, { catalog: A })).granted, {
    session: 5,
    refused: [],
  });
  assert.equal((await gateway.queryWithGrants(query, 5)).granted, null);
  assert.equal((await gateway.queryWithGrants(query, 5, { catalog: B })).granted, null);
});

test('a flush is of the named catalog, or of all; a command is lost if no catalog has it', async () => {
  const { gateway, root, a, b, refreshes } = fixture();
  const answered = [{ session: 7, numbers: [1, 2, 3] }];
  root.missing = [{ session: 7, numbers: [1, 2, 3] }];
  a.missing = [{ session: 7, numbers: [2, 3] }];
  b.missing = [{ session: 7, numbers: [1, 3] }];
  assert.deepEqual(await gateway.flushCommands(answered), { missing: [{ session: 7, numbers: [3] }] });
  assert.equal(refreshes(), 1, 'The client may have changed a volume that is not listed here yet');
  assert.deepEqual(await gateway.flushCommands(answered, { catalog: A }), { missing: a.missing });
  assert.deepEqual(
    [root, a, b].map(({ flushed }) => flushed.length),
    [1, 2, 1],
  );
  assert.equal(gateway.services.catalogs.at(CATALOG_CELL) === null, false);
});

test("what is found of a volume is flushed in the volume's catalog, also if the list was outdated", async () => {
  const { gateway, root, a, b } = fixture();
  assert.equal(await gateway.findDurably('in-a', async () => 'found'), 'found');
  const flushes = () => [root, a, b].map(({ flushed }) => flushed.splice(0).length);
  assert.deepEqual(flushes(), [0, 1, 0]);
  root.refuse = () => new ServiceError('not-found', 'There is no volume "in-b"', { elsewhere: true });
  const find = () => gateway.command({ kind: 'volume-set', name: 'in-b' }, numbered);
  await gateway.findDurably('in-b', find);
  const [, inA, inB] = flushes();
  assert.deepEqual([inA, inB], [0, 1]);
});

test('a server with an older list finds the outcome of an earlier attempt', async () => {
  const { gateway, root } = fixture();
  root.refusal = new ServiceError('not-found', 'There is no volume "in-b"', { elsewhere: true });
  const commands = await KeyedCommands.load(gateway, 'in-b', { session: 7 });
  assert.deepEqual(commands.result, { of: B });
});

test('a request with a key asks and uses the catalog of its volume', async () => {
  const { gateway, root, a, b } = fixture();
  const commands = await KeyedCommands.load(gateway, 'in-a', { session: 7, since: { catalog: A, seq: 4 } });
  assert.deepEqual(commands.result, { of: A });
  await commands.durably(unlink(IN_A));
  await commands.durably(unlink(IN_A));
  assert.deepEqual(
    a.commands.map(({ session, number, since }) => ({ session, number, since })),
    [2, 3].map((number) => ({ session: 7, number, since: 4 })),
  );
  for (const { queries, commands, flushed } of [root, b])
    assert.deepEqual([queries, commands, flushed], [[], [], []]);
});

test('a volume whose catalog is unavailable does not hide the others, but is not taken for empty', async () => {
  const { gateway, a } = fixture();
  a.refusal = new ServiceError('recovering', 'The catalog waits for old leases');
  const options = { timeoutMs: 20 };
  const { volumes, unavailable } = await gateway.query({ kind: 'volumes' }, options);
  assert.deepEqual(
    volumes.map(({ name }) => name),
    ['in-b', 'in-root'],
  );
  assert.deepEqual(unavailable, ['in-a']);
  const { servers, ...rest } = await gateway.query({ kind: 'servers', counts: true }, options);
  assert.deepEqual([servers[0]?.replicas, rest.unavailable], [202, ['in-a']]);
  const existing: Query = { kind: 'existing', inodes: [IN_A, IN_B] };
  await assert.rejects(gateway.query(existing, options), { code: 'recovering' });
});

test('a catalog that was closed meanwhile takes part in no list, and in no flush', async () => {
  const { gateway, a } = fixture();
  a.refusal = new ServiceError('not-found', 'Volume "in-a" is removed', { elsewhere: true });
  const { volumes, unavailable } = await gateway.query({ kind: 'volumes' });
  assert.deepEqual([volumes.map(({ name }) => name), unavailable], [['in-b', 'in-root'], undefined]);
  const answered = [{ session: 7, numbers: [1] }];
  assert.deepEqual(await gateway.flushCommands(answered), { missing: [] });
  await assert.rejects(gateway.flushCommands(answered, { catalog: A }), { code: 'not-found' });
});

test('the list is fetched for each request that names an unknown catalog', async () => {
  const { gateway, refreshes } = fixture();
  const options = { catalog: 9 as CatalogNumber };
  const poll = { client: 1, acked: 0 };
  await assert.rejects(gateway.cache(poll, options), { code: 'not-found' });
  await assert.rejects(gateway.flushCommands([], options), { code: 'not-found' });
  await assert.rejects(gateway.changeCatalogMembers(['s1' as ServerId], options), { code: 'not-found' });
  const inodes = [inodesOf(9 as CatalogNumber).first];
  await assert.rejects(gateway.query({ kind: 'existing', inodes }), { code: 'not-found' });
  assert.equal(refreshes(), 4);
});

test('a command that may have been executed is not sent to another catalog', async () => {
  const { gateway, root, refreshes } = fixture();
  const refusals = [
    new ServiceError('unknown', 'No answer', { unreachable: ['s1'] }),
    new ServiceError('not-found', 'Volume "v" is removed', { elsewhere: true }),
  ];
  root.refuse = () => refusals.shift() ?? null;
  const command = { kind: 'volume-set', name: 'v' } as const;
  await assert.rejects(gateway.command(command, numbered), { code: 'unknown' });
  assert.equal(refreshes(), 0);
});

test('a new volume is answered once its catalog serves', async () => {
  const { gateway, root, list, listeners } = fixture();
  const settings = { replicas: 3, objectBytes: 4096 };
  const creation = { kind: 'catalog-create', name: 'new', ...settings } as const;
  const row = rowOf('new', 3, { state: 'creating', since: 4 });
  root.result = { catalog: row };
  const created = gateway.command(creation, numbered);
  list(row);
  list({ ...row, state: 'ready', since: 5 });
  assert.deepEqual(await created, { catalog: row });
  assert.equal(listeners.size, 0);
  const late = rowOf('late', 4, { state: 'creating', since: 6 });
  root.result = { catalog: late };
  list(late);
  await assert.rejects(gateway.command(creation, numbered, { timeoutMs: 20 }), {
    code: 'no-majority',
    message: /^Volume "late" is listed, and will be created once a majority of s1 can serve its catalog$/,
  });
});

test('the removal of a volume is answered once its catalog has closed, or has refused this removal', async () => {
  const { gateway, root, list } = fixture();
  const row = rowOf('in-a', 1, { state: 'removing', since: 7, refused: { since: 5, why: 'earlier' } });
  root.result = { catalog: row };
  const remove = () => gateway.command({ kind: 'volume-remove', name: 'in-a' }, numbered, { timeoutMs: 500 });
  const refused = assert.rejects(remove(), { code: 'not-empty', message: 'Volume "in-a" is not empty' });
  list(row);
  list({ ...row, state: 'ready', since: 8, refused: { since: 7, why: 'Volume "in-a" is not empty' } });
  await refused;
  list(row);
  const removed = remove();
  list({ ...row, state: 'removed', since: 9 });
  await removed;
});

test('a client that names no catalog is refused, also by a server that does not know the volume yet', async () => {
  const { gateway, root, b, refreshes } = fixture();
  root.refusal = new ServiceError('not-found', 'There is no volume "in-b"', { elsewhere: true });
  const command = unlinkAt({ volume: 'in-b', path: '/x' });
  const refused = { code: 'read-only', message: /upgrade the client/ };
  await assert.rejects(commandInNamedCatalog(gateway, command, numbered, {}), refused);
  assert.equal(refreshes(), 1);
  await assert.rejects(commandInNamedCatalog(gateway, command, numbered, { catalog: ROOT_CATALOG }), refused);
  for (const catalog of [A, ROOT_CATALOG])
    await assert.rejects(commandInNamedCatalog(gateway, unlink(IN_B), numbered, { catalog }), {
      code: 'read-only',
    });
  assert.deepEqual(b.commands, []);
  await commandInNamedCatalog(gateway, command, numbered, { catalog: B });
  await commandInNamedCatalog(gateway, unlink(IN_B), numbered, { catalog: B });
  assert.deepEqual(
    b.commands.map(({ since }) => since),
    [4, 4],
  );
});

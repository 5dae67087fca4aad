/** Files that are created with contents, at the level of a server's parts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import {
  type CatalogNumber,
  catalogOfInode,
  type FileId,
  type Incarnation,
  inodesOf,
  ROOT_CATALOG,
  type ServerId,
} from '../../base/ids.ts';
import { InodeCatalogs } from '../../base/inode-catalogs.ts';
import { encodeReplicaMessage } from '../../replica/codec.ts';
import { firstEpoch } from '../../replica/create-with-contents.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { CreateWithContents, type CreateWithContentsParts } from '../../server/file/create-with-contents.ts';
import { BACKUP_CREATE_CALL, CREATE_CALL, decodeCreateCall } from '../../server/file/creation-call.ts';
import { isUnchangedSinceCreation } from '../../server/file/creation-operations.ts';
import { FileNumbers, type FileNumbersParts } from '../../server/file/file-numbers.ts';
import { FirstContents } from '../../server/file/first-contents.ts';
import { Garbage } from '../../server/file/garbage.ts';
import { StorageSettings } from '../../server/file/storage-settings.ts';
import { ViewConflicts } from '../../server/file/view-conflicts.ts';
import { WholeFiles } from '../../server/file/whole-files.ts';
import { Clock } from '../../server/process/clock.ts';
import { assertCatalogNamed } from '../../server/routing/named-catalog.ts';
import { CHANNEL_REPLICA_VIEW } from '../../server/transport/transport.ts';
import { ByteWriter } from '../../wire/bytes.ts';
import type {
  Command,
  CommandOf,
  DirectoryClass,
  FileSettings,
  PlacedFile,
  Query,
} from '../../wire/catalog-api.ts';
import type { Policy } from '../../wire/catalog-values.ts';
import type { FileOperation } from '../../wire/file-operation.ts';
import type { FileWithContents as NewFile, NewFilesRequest } from '../../wire/new-files.ts';
import type { PlacementClass } from '../../wire/placement-class.ts';
import { patientWorld } from '../patient-world.ts';
import { MemoryStore } from '../storage/memory-store.ts';
import { FILE, OBJECT_BYTES, requestOf, SmallCluster, type SmallServer, STEADY } from './small-cluster.ts';

const log = pino({ level: 'silent' });
const BYTES = Buffer.from('the whole of it');
const OPERATIONS: FileOperation[] = [
  { kind: 'write', offset: 0, bytes: BYTES, modifiedNs: 5n },
  { kind: 'settling' },
];
const BIRTH = { file: FILE, operations: OPERATIONS };

function placeOf(epoch: Epoch, { view }: SmallCluster) {
  return { epoch, view, objectBytes: OBJECT_BYTES };
}

/** Servers that have just started: no file has a primary for the first lease. */
function startedNow(t: { after(work: () => void): void }, told: string[] = []) {
  const command = async ({ kind }: { readonly kind: string }) => void told.push(kind);
  const cluster = new SmallCluster(['a', 'b', 'c'], { command }, STEADY);
  t.after(() => {
    cluster.close();
    assert.deepEqual(cluster.fatal, []);
  });
  const servers = cluster.servers as [SmallServer, SmallServer, SmallServer];
  const epoch = firstEpoch(servers[0].id, 1 as Incarnation);
  const bear = (server: SmallServer) => server.host.createWithContents([BIRTH], placeOf(epoch, cluster));
  return { cluster, servers, epoch, bear };
}

/** Servers at which files can have primaries. */
async function started(...given: Parameters<typeof startedNow>) {
  const all = startedNow(...given);
  await all.cluster.ready();
  return all;
}

test('the next primary begins with what a majority has, and has the file marked before it changes it', async (t) => {
  const told: string[] = [];
  const { servers, epoch, bear } = await started(t, told);
  const [a, b, c] = servers;
  assert.deepEqual([await bear(a), await bear(b)], [[null], [null]]);
  const record = a.store.record(FILE);
  assert.deepEqual([record?.promised, record?.installed, record?.seq], [epoch, epoch, 2]);
  assert.deepEqual(Buffer.from((await c.files.read(FILE, 0, 99)).bytes), BYTES);
  await c.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  assert.ok(told.includes('open-for-write'), 'No earlier mark exists');
});

test('a file is not created where another epoch was promised, nor twice', async (t) => {
  const { servers, bear, cluster } = await started(t);
  const [a, b] = servers;
  await b.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const [refused] = await bear(b);
  assert.ok(refused instanceof ServiceError && refused.code === 'precondition-failed');
  const other = 8 as FileId;
  const birth = [{ ...BIRTH, file: other }];
  assert.deepEqual(
    await a.host.createWithContents(birth, placeOf(firstEpoch(a.id, 1 as Incarnation), cluster)),
    [null],
  );
  const [again] = await a.host.createWithContents(
    birth,
    placeOf(firstEpoch(b.id, 2 as Incarnation), cluster),
  );
  assert.ok(again instanceof ServiceError);
  assert.equal(a.store.record(other)?.installed.server, a.id);
});

test("a message that arrives during a replica's creation does not open the replica", async (t) => {
  const { servers, bear, cluster } = startedNow(t);
  const [a, b] = servers;
  const gate = Promise.withResolvers<void>();
  const real = a.store.createWithContents.bind(a.store);
  a.store.createWithContents = async (...given) => gate.promise.then(() => real(...given));
  const bearing = bear(a);
  const incarnation = 9 as Incarnation;
  const prepare = {
    kind: 'prepare',
    epoch: { counter: 2, server: b.id, incarnation },
    view: cluster.view,
  } as const;
  const frame = encodeReplicaMessage(FILE, { incarnation, ...prepare });
  const payload = new ByteWriter(4 + frame.length).uint32(OBJECT_BYTES).raw(frame).finish();
  a.host.receive(b.id, CHANNEL_REPLICA_VIEW, payload);
  assert.equal(a.host.loaded(FILE), null);
  assert.throws(() => a.host.create(FILE, cluster.view, OBJECT_BYTES), /being created/);
  gate.resolve();
  assert.deepEqual(await bearing, [null]);
});

interface Catalog {
  readonly commands: Command[];
  readonly stored: FileId[];
  readonly calls: string[];
  /** Servers that were asked to store something, in alphabetical order. */
  readonly servers: string[];
  /** The catalog and the position that came with each of its commands. */
  readonly bounds: { readonly catalog: number | undefined; readonly since: number | undefined }[];
  /** The first number that it reserves. */
  first: number;
  readonly volume: {
    name: string;
    root: number;
    replicas: number;
    policy: Policy;
    objectBytes: number;
    quotaBytes: number;
  };
  /** How far the clock is ahead. */
  laterMs: number;
  /** Settings in which existing files differ from their volume; null: the catalog's release does not say. */
  readonly settings: Map<number, Partial<FileSettings> | null>;
  /** Whether all servers know the command that replaces. */
  isUnderstood: boolean;
  /** Of the catalog. */
  flushes: number;
  /** Directories with a placement class. */
  readonly classes: DirectoryClass[];
  /** Why the catalog refuses single files, by inode. */
  readonly refused: Map<number, ErrorCode>;
  /** Numbers that are void. */
  readonly voided: number[];
  /** Why the catalog refuses the next commands, each once. */
  inodeCatalogs: InodeCatalogs;
  /** What an attempt before the present one has created. */
  created: object | null;
  /** The root catalog's list, if it is newer than this server's. */
  newestCatalogs: InodeCatalogs | null;
  readonly refusals: { readonly kind: Command['kind']; readonly error: ServiceError }[];
}

/**
 * A creating server, a catalog that names every file as requested, and two other servers that answer as the test says.
 */
function bearerOf(
  cluster: SmallCluster,
  answer: () => Promise<Uint8Array>,
  isClosed = false,
  placed: Pick<CreateWithContentsParts, 'isOutdated'> & Pick<FileNumbersParts, 'choose'> = {
    choose: () => ['a', 'b', 'c'] as ServerId[],
    isOutdated: () => false,
  },
) {
  const [a] = cluster.servers as [SmallServer];
  const policy: Policy = 'quorum';
  const volume = { name: 'v', root: 1, replicas: 3, policy, objectBytes: OBJECT_BYTES, quotaBytes: 0 };
  const settings = new Map<number, Partial<FileSettings> | null>();
  const seen: Catalog = {
    ...{ commands: [], stored: [], calls: [], servers: [], volume, settings, laterMs: 0 },
    ...{
      bounds: [],
      first: 100,
      inodeCatalogs: InodeCatalogs.NONE_MOVED,
      created: null,
      newestCatalogs: null,
      isUnderstood: true,
      flushes: 0,
      refusals: [],
      classes: [],
      refused: new Map(),
      voided: [],
    },
  };
  const placedFile = (inode: number) => {
    const { name, quotaBytes, policy, objectBytes } = seen.volume;
    const own = { volume: name, policy, objectBytes, limited: quotaBytes > 0, ...settings.get(inode) };
    return settings.get(inode) === null ? { inode } : { inode, settings: own };
  };
  const clock = new Clock(patientWorld);
  const realMs = clock.nowMs.bind(clock);
  clock.nowMs = () => realMs() + seen.laterMs;
  const contents = new FirstContents({
    ...{ world: patientWorld, self: a.id, incarnation: 1 as Incarnation, log, host: a.host, store: a.store },
    isConnected: () => true,
    call: async (to, method, payload) => {
      seen.calls.push(method);
      seen.servers.push(to);
      seen.servers.sort();
      for (const { file, operations } of decodeCreateCall(payload).replicas) {
        seen.stored.push(file);
        assert.equal(operations.at(-1)?.kind, 'settling', 'The next primary knows that no mark exists');
      }
      return answer();
    },
  });
  const query = async (asked: Query): Promise<never> => {
    if (asked.kind === 'placement-classes') return { classes: [...seen.classes] } as never;
    if (asked.kind === 'placed') return { files: asked.inodes.map(placedFile), reserved: [] } as never;
    return (
      asked.kind === 'attributes' ? { attributes: { volume: 'v' } } : { volume: { ...volume }, servers: [] }
    ) as never;
  };
  const command: CreateWithContentsParts['command'] = async (
    given: Command,
    name,
    options,
  ): Promise<never> => {
    seen.commands.push(given);
    seen.bounds.push({ catalog: options?.catalog, since: name?.since });
    if (seen.refusals[0]?.kind === given.kind) throw seen.refusals.shift()?.error;
    if (given.kind === 'reserve-inodes') return { first: seen.first } as never;
    if (given.kind === 'forgo' && seen.created !== null) return seen.created as never;
    if (given.kind !== 'bear' || isClosed) return {} as never;
    const outcome = (inode: number) => {
      const code = seen.refused.get(inode);
      return code === undefined ? null : { code, message: code };
    };
    const files = Object.fromEntries(given.files.map(({ inode }) => [inode, outcome(inode)]));
    return { atNs: '1', limited: false, files } as never;
  };
  const storage = new StorageSettings({ clock, query, catalogOf: catalogOfInode });
  const numbers = new FileNumbers({
    ...{ self: a.id, clock, settings: storage, command },
    catalogOf: (inode) => seen.inodeCatalogs.catalogOf(inode),
    choose: placed.choose,
  });
  const shared = {
    ...{ clock, contents, numbers, settings: storage, isOutdated: placed.isOutdated },
    ...{
      host: a.host,
      traffic: { countWrite: () => undefined } as never,
      outcomes: { add: () => undefined },
    },
  };
  const voidNumbers = (_owner: number, inodes: readonly number[]) => void seen.voided.push(...inodes);
  const newFiles = new CreateWithContents({
    ...{ ...shared, query, command, voidNumbers },
    refreshCatalogs: async () => {
      seen.inodeCatalogs = seen.newestCatalogs ?? seen.inodeCatalogs;
    },
    catalogOf: (inode) => seen.inodeCatalogs.catalogOf(inode),
  });
  const wholes = new WholeFiles({
    ...{ ...shared, world: patientWorld },
    isUnderstood: () => seen.isUnderstood,
    catalogOf: (inode) => seen.inodeCatalogs.catalogOf(inode),
    flushCatalogOf: async () => void seen.flushes++,
  });
  return { newFiles, wholes, seen };
}

function requestFor(number: number, ...inodes: number[]): NewFilesRequest {
  const times = { accessedNs: null, modifiedNs: null, changedNs: null };
  const newFiles = inodes.map((inode) => {
    return { parent: 1, name: `f${inode}`, inode, mode: 0o600, uid: 0, gid: 0, ...times, contents: BYTES };
  });
  return { session: 1, number, owner: 3, newFiles };
}

const STORED = async () => new Uint8Array(0);

test('many files are one call to each server and one command', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  await newFiles.reserve({ owner: 3, count: 10 });
  const outcomes = await newFiles.create(requestFor(1, 100, 101, 102), {});
  assert.deepEqual(
    outcomes.map(({ kind }) => kind),
    ['created', 'created', 'created'],
  );
  assert.equal(seen.stored.length, 6);
  assert.deepEqual(seen.calls.toSorted(), [CREATE_CALL, BACKUP_CREATE_CALL]);
  assert.deepEqual(
    seen.commands.map(({ kind }) => kind),
    ['reserve-inodes', 'bear'],
  );
});

test('an empty named file gets its contents, which the catalog settles unless the file was marked since', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  const { named } = await newFiles.reserve({ owner: 3, count: 10 });
  assert.equal(named, true);
  const request = requestFor(1, 100, 101);
  const [first, second] = request.newFiles as [NewFile, NewFile];
  const filled: NewFile = { ...second, hasEntry: true, modifiedNs: '1700000000000000001' };
  const outcomes = await newFiles.create({ ...request, newFiles: [first, filled] }, {});
  assert.deepEqual(
    outcomes.map((outcome) => outcome.kind === 'created' && outcome.attributes.inode),
    [100, 101],
  );
  const settle = seen.commands.find(({ kind }) => kind === 'settle');
  const contents = { epoch: 1, seq: 1 };
  const file = { inode: 101, sizeBytes: BYTES.length, modifiedNs: filled.modifiedNs, contents };
  assert.deepEqual(settle, { kind: 'settle', files: [{ ...file, mark: { epoch: 1, turn: 0 } }] });
  const bear = seen.commands.find(({ kind }) => kind === 'bear');
  assert.deepEqual(bear?.kind === 'bear' && bear.files.map(({ inode }) => inode), [100]);
});

function namedRequest(number: number, ...inodes: number[]): NewFilesRequest {
  const request = requestFor(number, ...inodes);
  return { ...request, newFiles: request.newFiles.map((birth) => ({ ...birth, hasEntry: true })) };
}

test('a named file in a volume with a quota is left to its primary, also if the quota is new', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  await newFiles.reserve({ owner: 3, count: 10 });
  const [before] = await newFiles.create(namedRequest(1, 100), {});
  assert.equal(before?.kind, 'created');
  seen.stored.splice(0);
  seen.volume.quotaBytes = 1_000;
  assert.deepEqual(await newFiles.create(namedRequest(2, 101), {}), [{ kind: 'not-created' }]);
  assert.deepEqual(seen.stored, []);
});

test('each named file is judged by its own volume, whatever its request names', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  await newFiles.reserve({ owner: 3, count: 10 });
  seen.settings.set(101, { volume: 'another' });
  seen.settings.set(102, { limited: true });
  seen.settings.set(103, { objectBytes: 2 * OBJECT_BYTES });
  seen.settings.set(104, { policy: 'all' });
  const outcomes = await newFiles.create(namedRequest(1, 100, 101, 102, 103, 104), {});
  assert.deepEqual(
    outcomes.map(({ kind }) => kind),
    ['created', 'not-created', 'not-created', 'not-created', 'not-created'],
  );
  assert.deepEqual([...new Set(seen.stored)], [100]);
  const settled = seen.commands.flatMap((command) => (command.kind === 'settle' ? command.files : []));
  assert.deepEqual(
    settled.map(({ inode }) => inode),
    [100],
  );
});

test('if a catalog of an earlier release does not say how a file is stored, its primary writes it', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  await newFiles.reserve({ owner: 3, count: 10 });
  seen.settings.set(100, null);
  assert.deepEqual(await newFiles.create(namedRequest(1, 100), {}), [{ kind: 'not-created' }]);
  assert.deepEqual(seen.stored, []);
});

test('a named file that was opened since is left to its primary', async (t) => {
  const { cluster, servers } = await started(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  await newFiles.reserve({ owner: 3, count: 10 });
  await servers[0].files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const request = requestFor(1, 100, 101);
  const [file, other] = request.newFiles as [NewFile, NewFile];
  servers[0].host.has = (inode) => inode === 101;
  const outcomes = await newFiles.create({ ...request, newFiles: [file, { ...other, hasEntry: true }] }, {});
  assert.deepEqual([outcomes[0]?.kind, outcomes[1]], ['created', { kind: 'not-created' }]);
  assert.ok(!seen.stored.includes(101 as FileId));
});

test('an empty file is stored as any other: its second operation shows later primaries that it had none before', async (t) => {
  const { cluster, servers } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  await newFiles.reserve({ owner: 3, count: 10 });
  const request = requestFor(1, 100, 101);
  const [outcome] = await newFiles.create(
    { ...request, newFiles: request.newFiles.map((birth) => ({ ...birth, contents: new Uint8Array(0) })) },
    {},
  );
  const contents = { epoch: 1, seq: 1 };
  assert.ok(outcome?.kind === 'created');
  assert.deepEqual([outcome.attributes.sizeBytes, outcome.attributes.contents], [0, contents]);
  const [, command] = seen.commands;
  assert.ok(command?.kind === 'bear');
  assert.deepEqual(
    command.files.map((file) => [file.sizeBytes, file.contents]),
    [
      [0, contents],
      [0, contents],
    ],
  );
  assert.equal(seen.stored.length, 4);
  const { store } = servers[0];
  const record = store.record(100 as FileId);
  assert.ok(record !== null);
  assert.ok(
    isUnchangedSinceCreation(record, store.attributes(100 as FileId)),
    'It is there, and nothing came since',
  );
});

test('a server stores its own replica after its requests to the others have left', async (t) => {
  const { cluster, servers } = startedNow(t);
  const order: string[] = [];
  const { newFiles } = bearerOf(cluster, async () => {
    order.push('asked');
    // As the transport does, which sends at the end of a tick what was queued in the tick.
    setImmediate(() => order.push('left'));
    return STORED();
  });
  const { store } = servers[0];
  const real = store.createWithContents.bind(store);
  store.createWithContents = (...given) => {
    order.push('stores');
    return real(...given);
  };
  await newFiles.reserve({ owner: 3, count: 10 });
  const [outcome] = await newFiles.create(requestFor(1, 100), {});
  assert.equal(outcome?.kind, 'created');
  assert.deepEqual(order, ['asked', 'asked', 'left', 'left', 'stores']);
});

test('files are stored at the servers that were reserved with their numbers, and the naming command says so', async (t) => {
  const { cluster } = startedNow(t);
  const sets = [
    ['a', 'b', 'c'],
    ['a', 'd', 'e'],
  ] as ServerId[][];
  let chosen = 0;
  const { newFiles, seen } = bearerOf(cluster, STORED, false, {
    choose: () => sets[chosen++ % 2] ?? [],
    isOutdated: (members) => members.includes('e' as ServerId),
  });
  const reserved = await newFiles.reserve({ owner: 3, count: 128, volume: 'v' });
  assert.deepEqual(reserved.sets, sets);
  const [left, right] = [100, 100 + 64];
  const outcomes = await newFiles.create(requestFor(1, left, right), {});
  assert.deepEqual(
    outcomes.map((outcome) => outcome.kind === 'created' && [outcome.attributes.replicas, outcome.renew]),
    [
      [sets[0], undefined],
      [sets[1], true],
    ],
  );
  assert.deepEqual(seen.servers, ['b', 'c', 'd', 'e']);
  const [reservation, named] = seen.commands;
  assert.ok(reservation?.kind === 'reserve-inodes');
  assert.deepEqual([reservation.members, reservation.volume], [sets, 'v']);
  assert.ok(named?.kind === 'bear');
  assert.deepEqual([named.replicas, named.elsewhere], [sets[0], [{ replicas: sets[1], inodes: [right] }]]);
  assert.equal(chosen, 2, 'No servers are chosen after the reservation');
});

test('a number is not usable in a volume that wants another number of replicas', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  const { volume } = seen;
  await newFiles.reserve({ owner: 3, count: 10, volume: 'v' });
  volume.replicas = 2;
  // A server's knowledge of volumes' settings is up to a second old.
  seen.laterMs = 1_100;
  assert.deepEqual(await newFiles.create(requestFor(1, 100), {}), [{ kind: 'not-created' }]);
  assert.deepEqual(seen.stored, []);
});

test('a file that no majority has gets no name', async (t) => {
  const { cluster } = startedNow(t);
  const away = new ServiceError('unknown', 'no answer');
  const { newFiles, seen } = bearerOf(cluster, () => Promise.reject(away));
  await newFiles.reserve({ owner: 3, count: 10 });
  assert.deepEqual(await newFiles.create(requestFor(1, 100), {}), [{ kind: 'not-created' }]);
  assert.ok(!seen.commands.some(({ kind }) => kind === 'bear'));
});

test('numbers of files that lost their names are void at once, and not those that may still be created', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  await newFiles.reserve({ owner: 3, count: 10 });
  seen.refused
    .set(100, 'exists')
    .set(101, 'quota-exceeded')
    .set(102, 'precondition-failed')
    .set(103, 'not-found');
  const outcomes = await newFiles.create(requestFor(1, 100, 101, 102, 103, 104), {});
  assert.deepEqual(
    outcomes.map(({ kind }) => kind),
    ['refused', 'refused', 'not-created', 'refused', 'created'],
  );
  assert.deepEqual(seen.voided, [100, 103]);
});

test('if the first backup does not answer, the extra server is asked to store the file', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, async () => {
    const asked = seen.calls.filter((method) => method === CREATE_CALL).length;
    if (asked === 1 && seen.calls.at(-1) === CREATE_CALL) await new Promise(() => undefined);
    return STORED();
  });
  await newFiles.reserve({ owner: 3, count: 10 });
  const [outcome] = await newFiles.create(requestFor(1, 100), {});
  assert.equal(outcome?.kind, 'created');
  assert.equal(seen.calls.filter((method) => method === CREATE_CALL).length, 2);
});

test('a server records that it may have a file before it stores the file, also the second time', async (t) => {
  const { servers, bear } = startedNow(t);
  const [a, b] = servers;
  assert.deepEqual([await bear(a), await bear(b)], [[null], [null]]);
  assert.deepEqual([a.held, b.held], [[FILE], [FILE]]);
  assert.deepEqual(await bear(a), [null]);
});

test('a change of a new file is redirected to its creating server, and served after a redirect from there', async (t) => {
  const { servers, bear } = await started(t);
  const [a, b] = servers;
  assert.deepEqual([await bear(a), await bear(b)], [[null], [null]]);
  const change = () => b.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  await assert.rejects(
    change(),
    (error: ServiceError) => error.code === 'not-primary' && error.details.primary === a.id,
  );
  assert.equal((await change()).epoch, 2);
});

test('a request for a file whose replica is being created waits for that', async (t) => {
  const { servers, bear } = await started(t);
  const [a, b, c] = servers;
  const gate = Promise.withResolvers<void>();
  for (const { store } of [b, c]) {
    const real = store.createWithContents.bind(store);
    store.createWithContents = async (...given) => gate.promise.then(() => real(...given));
  }
  const bearing = [bear(a), bear(b), bear(c)];
  const isSent = (error: ServiceError) => error.code === 'not-primary' && error.details.primary === a.id;
  const asked = Promise.all([
    c.files.read(FILE, 0, BYTES.length),
    assert.rejects(b.files.write(FILE, requestOf(1), 0, Uint8Array.of(1)), isSent),
  ]);
  gate.resolve();
  const [{ bytes }] = await asked;
  assert.deepEqual(Buffer.from(bytes), BYTES);
  assert.deepEqual(await Promise.all(bearing), [[null], [null], [null]]);
});

test('a request that another server has closed meanwhile has no effect', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles } = bearerOf(cluster, STORED, true);
  await newFiles.reserve({ owner: 3, count: 10 });
  assert.deepEqual(await newFiles.create(requestFor(1, 100), {}), [{ kind: 'not-created' }]);
});

test('a file for a removed server is created in the ordinary way, and its numbers go to other servers', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, wholes, seen } = bearerOf(cluster, STORED);
  const left = new ServiceError('precondition-failed', 'Server c leaves');
  const reserving = { kind: 'reserve-inodes', error: left } as const;
  seen.refusals.push(reserving);
  await newFiles.reserve({ owner: 3, count: 10 });
  assert.equal(seen.commands.length, 2, 'They are requested again, for the present servers');
  seen.refusals.push({ kind: 'bear', error: left });
  const [outcome] = await newFiles.create(requestFor(1, 100), {});
  assert.equal(outcome?.kind, 'not-created');
  const refused = new ServiceError('precondition-failed', 'Server c runs an earlier release', {
    outdated: ['c'],
  });
  seen.refusals.push({ kind: 'bear', error: refused });
  await assert.rejects(newFiles.create(requestFor(2, 101), {}), refused);
  seen.refusals.push(reserving, reserving);
  assert.equal(await wholes.store('v', Buffer.from('whole')), null);
  assert.deepEqual(seen.refusals, []);
});

test('full disks refuse a file with that reason', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles } = bearerOf(cluster, async () => Buffer.from(JSON.stringify(['no-space'])));
  await newFiles.reserve({ owner: 3, count: 10 });
  const [outcome] = await newFiles.create(requestFor(1, 100), {});
  assert.equal(outcome?.kind === 'refused' && outcome.code, 'no-space');
});

test("no client fills the replicas of another client's numbers", async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  await newFiles.reserve({ owner: 3, count: 10 });
  assert.deepEqual(await newFiles.create({ ...requestFor(1, 100), owner: 4 }, {}), [{ kind: 'not-created' }]);
  assert.deepEqual(seen.stored, []);
  const [outcome] = await newFiles.create(requestFor(2, 100), {});
  assert.equal(outcome?.kind, 'created');
});

test('files and their numbers are of the catalog of their volume, which the client must name', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  const catalog = 3 as CatalogNumber;
  seen.volume.root = inodesOf(catalog).first;
  seen.first = seen.volume.root + 100;
  const refuse = (number: CatalogNumber): void => assertCatalogNamed(number, ROOT_CATALOG);
  await assert.rejects(newFiles.reserve({ owner: 3, count: 10, volume: 'v' }, refuse), { code: 'read-only' });
  assert.deepEqual(seen.commands, [], 'Numbers that no client can use would keep servers from leaving');
  await newFiles.reserve({ owner: 3, count: 10, volume: 'v' });
  const request = (number: number): NewFilesRequest => {
    const { newFiles: files, ...rest } = requestFor(number, seen.first + number);
    const inVolume = files.map((file) => ({ ...file, parent: seen.volume.root }));
    return { ...rest, since: 5, cache: { client: 1, forgets: [] }, newFiles: inVolume };
  };
  await newFiles.create(request(1), { catalog });
  // Its number was used before: the request is closed in the same catalog.
  await newFiles.create(request(1), { catalog });
  for (const options of [{}, { catalog: ROOT_CATALOG }, { catalog: 4 as CatalogNumber }])
    await assert.rejects(newFiles.create(request(2), options), { code: 'read-only' });
  assert.deepEqual(
    seen.commands.map(({ kind }, place) => ({ kind, ...seen.bounds[place] })),
    [
      { kind: 'reserve-inodes', catalog, since: undefined },
      { kind: 'bear', catalog, since: 5 },
      { kind: 'forgo', catalog, since: 5 },
    ],
  );
  const [file] = request(3).newFiles as [NewFile];
  for (const other of [{ parent: 1 }, { inode: 100 }]) {
    const mixed = { ...request(3), newFiles: [file, { ...file, inode: file.inode + 1, ...other }] };
    await assert.rejects(newFiles.create(mixed, { catalog }), { code: 'bad-request' });
  }
});

test('after a move, the root catalog still knows what it created; what it did not is for the new catalog', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  const catalog = 3 as CatalogNumber;
  await newFiles.reserve({ owner: 3, count: 10, volume: 'v' });
  await newFiles.create(requestFor(1, seen.first), {});
  // The directory of the requests and the new file move; numbers that were not used stay.
  seen.inodeCatalogs = new InodeCatalogs([
    { first: 1, end: 2, catalog },
    { first: seen.first, end: seen.first + 1, catalog },
  ]);
  seen.commands.splice(0);
  for (const number of [seen.first, seen.first + 1]) {
    const request = requestFor(2, number);
    const moved = { code: 'not-found', details: { elsewhere: true, movedTo: catalog } };
    await assert.rejects(newFiles.create(request, { catalog: ROOT_CATALOG }), moved);
    await assert.rejects(newFiles.create(request, {}), { code: 'read-only' });
  }
  assert.deepEqual(
    seen.commands.map(({ kind }) => kind),
    ['forgo', 'forgo', 'forgo', 'forgo'],
  );
  seen.created = { atNs: '1', limited: false, files: { [seen.first]: null } };
  const [outcome] = await newFiles.create(requestFor(1, seen.first), { catalog: ROOT_CATALOG });
  assert.equal(outcome?.kind, 'created');
});

test('of several directories, one of which has moved, the root catalog says that it has created nothing', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  const catalog = 3 as CatalogNumber;
  await newFiles.reserve({ owner: 3, count: 10, volume: 'v' });
  seen.inodeCatalogs = new InodeCatalogs([{ first: 2, end: 3, catalog }]);
  const request = requestFor(1, seen.first, seen.first + 1);
  const [here, there] = request.newFiles as [NewFile, NewFile];
  const mixed = { ...request, newFiles: [here, { ...there, parent: 2 }] };
  const moved = { code: 'not-found', details: { elsewhere: true, movedTo: catalog } };
  await assert.rejects(newFiles.create(mixed, { catalog: ROOT_CATALOG }), moved);
  assert.equal(seen.commands.at(-1)?.kind, 'forgo');
});

test('files in a catalog that the client knows, and this server not yet, are created by the newest list', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  const catalog = 3 as CatalogNumber;
  seen.first = inodesOf(catalog).first;
  await newFiles.reserve({ owner: 3, count: 10, volume: 'v' });
  // The directory of the requests has moved.
  seen.newestCatalogs = new InodeCatalogs([{ first: 1, end: 2, catalog }]);
  const [outcome] = await newFiles.create(requestFor(1, seen.first), { catalog });
  assert.equal(outcome?.kind, 'created');
});

test('a retry waits for the first attempt, and one that arrives later closes the request', async (t) => {
  const { cluster } = startedNow(t);
  const { newFiles, seen } = bearerOf(cluster, STORED);
  await newFiles.reserve({ owner: 3, count: 10 });
  const request = requestFor(1, 100);
  const [first, retry] = await Promise.all([newFiles.create(request, {}), newFiles.create(request, {})]);
  assert.equal(first, retry);
  assert.deepEqual(await newFiles.create(request, {}), [{ kind: 'not-created' }]);
  assert.deepEqual(
    seen.commands.map(({ kind }) => kind),
    ['reserve-inodes', 'bear', 'forgo'],
  );
});

test('a call that arrives after a later epoch stores nothing, and one with other members is reported', async (t) => {
  const { servers, bear, cluster } = await started(t);
  const [a, b, c] = servers;
  // The contents reached one server, and the file was created by the same number at the same members.
  assert.deepEqual(await bear(a), [null]);
  await b.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const later = b.host.loaded(FILE)?.epoch;
  const refusals = [await bear(b), await bear(c)].flat();
  assert.ok(refusals.every((refusal) => refusal instanceof ServiceError));
  assert.deepEqual(b.store.record(FILE)?.installed, later);
  const written = Buffer.from((await b.files.read(FILE, 0, 99)).bytes);
  await b.host.createWithContents([BIRTH], {
    ...placeOf(firstEpoch('d' as ServerId, 4 as Incarnation), cluster),
    view: { number: 1, members: ['b', 'd', 'e'] as ServerId[] },
  });
  assert.deepEqual(b.conflicts, [[FILE, 'd']]);
  assert.deepEqual(Buffer.from((await b.files.read(FILE, 0, 99)).bytes), written);
});

/**
 * Collects garbage of a server whose catalog answers so, at once.
 * @returns what was removed
 */
async function collected(
  store: MemoryStore,
  { files, reserved = [] }: { readonly files: readonly Partial<PlacedFile>[]; readonly reserved?: FileId[] },
  conflicts: Pick<ViewConflicts, 'compare'> = { compare: () => false },
): Promise<FileId[]> {
  const removed: FileId[] = [];
  const garbage = new Garbage({
    world: patientWorld,
    self: 'a' as ServerId,
    catalog: ROOT_CATALOG,
    inodeCatalogs: () => InodeCatalogs.NONE_MOVED,
    log,
    store,
    departed: { add: async () => undefined, files: () => [], forget: async () => undefined },
    host: { remove: async (file: FileId) => void removed.push(file), loaded: () => null } as never,
    lease: { close: () => undefined } as never,
    graceMs: 0,
    isSpaceShort: () => false,
    nowNs: () => 0n,
    nowMs: () => 0,
    catalogPosition: () => '0',
    isCatalogPrimary: () => false,
    catalogEpoch: () => 1,
    command: async () => ({}),
    query: async ({ kind }) =>
      (kind === 'deletions'
        ? { rows: [], trimmed: 0, last: 0, written: false }
        : { files, reserved }) as never,
    hasPosition: async () => true,
    replicaAt: async () => null,
    open: async () => undefined,
    conflicts,
  });
  await garbage.run();
  garbage.close();
  return removed;
}

test('contents are not collected before their number is void', async () => {
  const store = new MemoryStore();
  const view = { number: 1, members: ['a' as ServerId] };
  const [named, borne, void1] = [5, 6, 7] as [FileId, FileId, FileId];
  for (const file of [named, borne, void1]) store.create(file, view, 4096);
  const place = { inode: named, members: ['a'], view: 1, wanted: 1, sizeBytes: 0 };
  assert.deepEqual(await collected(store, { files: [place], reserved: [borne] }), [void1]);
});

test('a replica whose view has other members at the catalog is reported, and not removed as one that has moved', async () => {
  const store = new MemoryStore();
  const [forked, moved] = [5, 6] as [FileId, FileId];
  const view = { number: 1, members: ['a', 'b', 'c'] as ServerId[] };
  for (const file of [forked, moved]) store.create(file, view, 4096);
  const conflicts = new ViewConflicts({ log, isHere: () => true, found: () => undefined });
  const place = { members: ['d', 'e', 'f'], wanted: 3, sizeBytes: 0 };
  const files = [
    { ...place, inode: forked, view: 1 },
    { ...place, inode: moved, view: 2 },
  ];
  assert.deepEqual(await collected(store, { files }, conflicts), [moved]);
  const what = 'view 1 has a,b,c here and d,e,f at the catalog';
  assert.deepEqual(conflicts.current, [{ file: forked, what }]);
});

test('numbers for a directory with a placement class are for its servers, and not used once it has changed', async (t) => {
  const { cluster } = startedNow(t);
  const asked: [number, PlacementClass][] = [];
  const placed = {
    choose: (replicas: number, _: unknown, files: PlacementClass) => {
      asked.push([replicas, files]);
      return ['a', 'b', 'c'].slice(0, replicas) as ServerId[];
    },
    isOutdated: (_members: unknown, _servers: unknown, { labels = [] }: PlacementClass) =>
      labels.includes('hdd'),
  };
  const { newFiles, seen } = bearerOf(cluster, STORED, false, placed);
  const fast = { directory: 7, volume: 'v', labels: ['ssd'], replicas: 2 };
  seen.classes.push(fast);
  const reserve = async (first: number, placement?: number) => {
    seen.first = first;
    const ofClass = placement === undefined ? {} : { placement };
    return newFiles.reserve({ owner: 3, count: 64, volume: 'v', ...ofClass });
  };
  const reserved = await reserve(100, 7);
  assert.deepEqual([reserved.sets, reserved.placement], [[['a', 'b']], 7]);
  assert.deepEqual([asked[0]?.[0], asked[0]?.[1].labels], [2, ['ssd']]);
  assert.equal((await reserve(200)).placement, undefined);
  assert.equal(
    (await reserve(300, 8)).sets?.[0]?.length,
    3,
    'Directory 8 has no class any more: the volume counts',
  );
  const kinds = async (number: number, ...inodes: number[]) =>
    (await newFiles.create(requestFor(number, ...inodes), {})).map((one) => [one.kind, 'renew' in one]);
  const plain = ['created', false];
  assert.deepEqual(await kinds(1, 100, 200, 300), [plain, plain, plain], 'Of several classes together');
  const { replicas, elsewhere = [] } = seen.commands.at(-1) as CommandOf<'bear'>;
  assert.deepEqual(
    [replicas, elsewhere.map((one) => one.replicas.length)],
    [
      ['a', 'b'],
      [3, 3],
    ],
  );
  seen.laterMs += 2_000;
  seen.classes[0] = { ...fast, labels: ['hdd'] };
  assert.deepEqual(await kinds(2, 101), [['created', true]], 'Others would have better servers');
  seen.laterMs += 2_000;
  seen.classes[0] = { ...fast, replicas: 1 };
  assert.deepEqual(await kinds(3, 102), [['not-created', false]]);
});

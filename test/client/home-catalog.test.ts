/**
 * Goal: a client continues when its volume leaves the root catalog for one of its own: no call fails, and no command is
 * lost, executed twice, or flushed by a catalog that does not have it.
 * Method: a server that has both catalogs in memory, each with the outcomes of commands by session, and a volume that
 * the test moves.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type CatalogNumber, catalogOfInode, inodesOf, ROOT_CATALOG } from '../../base/ids.ts';
import { CachingClient } from '../../client/cluster/caching-client.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { CommandsLost } from '../../client/cluster/unflushed-commands.ts';
import type { CallOptions } from '../../client/transport/exchange.ts';
import type { CacheRequest, CommandRequest, FlushRequest, QueryRequest } from '../../wire/catalog-api.ts';
import { HEADER_CATALOG, HEADER_CATALOG_EPOCH, HEADER_CATALOG_SEQ } from '../../wire/http-api.ts';
import { until } from '../cluster/real-cluster.ts';
import { patientWorld } from '../patient-world.ts';
import { FakeCluster, type Reaction, type SeenRequest } from './fake-cluster.ts';

const OWN = 3 as CatalogNumber;
const ROOT_DIRECTORY = 17;
const ATTRIBUTES = {
  ...{
    inode: ROOT_DIRECTORY,
    kind: 'directory',
    volume: 'w',
    mode: 0o755,
    uid: 0,
    gid: 0,
    links: 2,
    sizeBytes: 0,
    target: '',
  },
  ...{ accessedNs: '1', modifiedNs: '1', changedNs: '1', replicas: [], live: false, xattrs: 0, device: 0 },
  contents: { epoch: 0, seq: 0 },
} as const;

type Phase = 'before' | 'frozen' | 'moved' | 'removed';

/** One catalog: the names that it has created, by session and number. */
class FakeCatalog {
  readonly made = new Map<string, string>();
  seq = 0;
  epoch = 1;

  execute({ session, number, command }: CommandRequest): object {
    const place = command.kind === 'make-directory' && 'parent' in command.place ? command.place : null;
    assert.ok(place !== null || command.kind === 'set-attributes');
    this.made.set(`${session}/${number}`, place?.name ?? command.kind);
    this.seq++;
    return { attributes: ATTRIBUTES };
  }

  missing({ answered = [] }: Partial<FlushRequest>): FlushRequest['answered'] {
    return answered
      .map(({ session, numbers }) => ({
        session,
        numbers: numbers.filter((number) => !this.made.has(`${session}/${number}`)),
      }))
      .filter(({ numbers }) => numbers.length > 0);
  }

  get names(): string[] {
    return [...this.made.values()];
  }
}

class MovingVolume {
  phase: Phase = 'before';
  /** Called with each command before it is executed. */
  beforeCommand = (_: string): 'cut' | null => null;
  readonly root = new FakeCatalog();
  readonly own = new FakeCatalog();
  readonly searches: string[] = [];
  /** Queries for the catalog of a volume get no answer. */
  isSearchSilent = false;
  readonly polls: [CatalogNumber, CacheRequest][] = [];

  react({ path, headers, body }: SeenRequest): Reaction | null {
    const named = headers[HEADER_CATALOG];
    const number = Number(named ?? ROOT_CATALOG) as CatalogNumber;
    const text = path === '/v1/births' ? '{}' : body.toString();
    const request = text === '' ? {} : JSON.parse(text);
    if (path === '/v1/catalog/commands') return this.#command(number, request);
    if (path === '/v1/catalog/flush' && this.phase === 'removed')
      return { kind: 'problem', code: 'not-found', extra: { elsewhere: true } };
    if (path === '/v1/catalog/flush')
      return answer(number, this.#at(number), { missing: this.#at(number).missing(request) });
    if (path === '/v1/catalog/cache') return this.#poll(number, request);
    if (path === '/v1/births/numbers') return this.#reserve(number);
    if (path === '/v1/catalog/queries') return this.#query(named, number, request);
    return null;
  }

  #at(number: CatalogNumber): FakeCatalog {
    return number === OWN ? this.own : this.root;
  }

  #command(number: CatalogNumber, request: CommandRequest): Reaction {
    const catalog = this.#at(number);
    const { session, number: at, command } = request;
    const name = 'place' in command && 'parent' in command.place ? command.place.name : '';
    const isKnown = catalog.made.has(`${session}/${at}`);
    if (isKnown) return answer(number, catalog, { attributes: ATTRIBUTES });
    const fate = this.beforeCommand(name);
    const refusal = this.#refusal(number);
    if (refusal !== null) return refusal;
    const result = catalog.execute(request);
    return fate === 'cut' ? { kind: 'cut' } : answer(number, catalog, result);
  }

  #refusal(number: CatalogNumber): Reaction | null {
    if (number === OWN) assert.equal(this.phase, 'moved', 'No client is there before the volume');
    if (number === OWN || this.phase === 'before') return null;
    if (this.phase === 'frozen') return { kind: 'problem', code: 'moving' };
    return { kind: 'problem', code: 'not-found', extra: { elsewhere: true, movedTo: OWN } };
  }

  #poll(number: CatalogNumber, request: CacheRequest): Reaction {
    this.polls.push([number, request]);
    const session = request.session ?? 100 + number;
    return answer(number, this.#at(number), {
      session,
      validMs: 5_000,
      recalls: [],
      through: 0,
      fenced: true,
    });
  }

  #reserve(number: CatalogNumber): Reaction {
    const refusal = this.#refusal(number);
    if (refusal !== null) return refusal;
    const { first } = inodesOf(number);
    const numbers = {
      first: first + 500,
      count: 8,
      sets: [['s1']],
      bearer: 's1',
      named: true,
      validMs: 600_000,
    };
    return answer(number, this.#at(number), numbers);
  }

  #query(named: unknown, number: CatalogNumber, { query, cache }: QueryRequest): Reaction {
    if (query.kind === 'volume') {
      this.searches.push(query.name);
      if (this.isSearchSilent) return { kind: 'hang' };
      const catalog = this.phase === 'moved' && query.name === 'v' ? { catalog: OWN } : {};
      return answer(number, this.#at(number), {
        volume: { name: query.name, root: ROOT_DIRECTORY, ...catalog },
      });
    }
    // Servers have a query answered by the catalog that has the inode.
    const isOfInode = query.kind === 'attributes';
    const answering = named !== undefined && isOfInode && this.phase === 'moved' ? OWN : number;
    const result = { attributes: ATTRIBUTES };
    const granted = answering === number ? { session: cache, refused: [] } : null;
    const granting = cache === undefined ? result : { result, granted };
    return answer(answering, this.#at(answering), isOfInode ? granting : { servers: [], volumes: [] });
  }
}

function answer(number: CatalogNumber, { seq, epoch }: FakeCatalog, value: object): Reaction {
  const headers = {
    ...(number === ROOT_CATALOG ? {} : { [HEADER_CATALOG]: String(number) }),
    [HEADER_CATALOG_SEQ]: String(seq),
    [HEADER_CATALOG_EPOCH]: String(epoch),
  };
  return { kind: 'answer', status: 200, text: JSON.stringify(value), headers };
}

async function started(t: TestContext, volume = 'v') {
  const cluster = await FakeCluster.start(1);
  const moving = new MovingVolume();
  moving.root.seq = 900;
  moving.own.seq = 12;
  cluster.server(0).intercept = (request) => moving.react(request);
  const options = { world: patientWorld, servers: cluster.urls, catalog: ROOT_CATALOG, volume };
  const client = new ClusterClient(options);
  t.after(async () => {
    await client.close();
    await cluster.stop();
  });
  const seenAt = (path: string): SeenRequest[] =>
    cluster.server(0).seen.filter((request) => request.path === path);
  return { options, client, moving, seenAt };
}

function makingOf(name: string) {
  const place = { parent: ROOT_DIRECTORY, name };
  return { kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 } as const;
}

function make(client: ClusterClient, name: string, options: CallOptions = {}) {
  return client.command(makingOf(name), options);
}

const bodiesOf = <Body>(requests: readonly SeenRequest[]): Body[] =>
  requests.map(({ body }) => JSON.parse(body.toString()) as Body);

test('commands wait while the volume moves, and are executed once, in a session of its own catalog', async (t) => {
  const { client, moving, seenAt } = await started(t);
  await make(client, 'a');
  moving.phase = 'frozen';
  const names = Array.from({ length: 100 }, (_, place) => `f${place}`);
  const waiting = Promise.all(names.map((name) => make(client, name, { timeoutMs: 300 })));
  const thawMs = patientWorld.nowMs() + 700;
  await until('they have waited longer than their limit', async () => patientWorld.nowMs() > thawMs);
  moving.phase = 'moved';
  await waiting;
  assert.deepEqual(moving.root.names, ['a']);
  assert.deepEqual(moving.own.names.sort(), names.sort());
  assert.deepEqual(moving.searches, ['v'], 'All share one search');
  const commands = bodiesOf<CommandRequest>(seenAt('/v1/catalog/commands'));
  assert.deepEqual([commands[0]?.since, commands.at(-1)?.since], [900, 12]);
  assert.equal(client.catalog, OWN);
});

test('a search for the new catalog extends no call beyond its time limit or signal', async (t) => {
  const { client, moving } = await started(t);
  moving.phase = 'moved';
  moving.isSearchSilent = true;
  const beganMs = patientWorld.nowMs();
  const controller = new AbortController();
  const stopped = make(client, 'a', { signal: controller.signal });
  await until('it searches', async () => moving.searches.length > 0);
  controller.abort(new Error('stopped by its caller'));
  await assert.rejects(stopped, /stopped by its caller/);
  await assert.rejects(make(client, 'b', { timeoutMs: 200 }), { code: 'no-majority' });
  assert.ok(patientWorld.nowMs() - beganMs < 3_000);
  assert.deepEqual(moving.own.names, []);
});

test('a command that the root catalog has executed is not repeated in the own catalog', async (t) => {
  const { client, moving } = await started(t);
  moving.beforeCommand = (name) => {
    if (name !== 'a') return null;
    // The volume moves once it is executed, and its answer is lost.
    moving.beforeCommand = () => null;
    queueMicrotask(() => {
      moving.phase = 'moved';
    });
    return 'cut';
  };
  await make(client, 'a');
  await make(client, 'b');
  assert.deepEqual([moving.root.names, moving.own.names], [['a'], ['b']]);
});

test('a flush asks each catalog about the commands that it has answered', async (t) => {
  const { client, moving, seenAt } = await started(t);
  await make(client, 'a');
  moving.phase = 'moved';
  await make(client, 'b');
  assert.equal(client.hasUnflushedCommands, true);
  await client.flushCatalog();
  const [first, second] = bodiesOf<CommandRequest>(seenAt('/v1/catalog/commands')).filter(
    ({ command }, place, all) => all.findLastIndex((other) => isEqual(other.command, command)) === place,
  );
  const flushes = seenAt('/v1/catalog/flush');
  assert.deepEqual(
    flushes.map(({ headers }) => headers[HEADER_CATALOG]),
    [String(ROOT_CATALOG), String(OWN)],
  );
  assert.deepEqual(
    bodiesOf<FlushRequest>(flushes).map(({ answered }) => answered),
    [first, second].map((sent) => [{ session: sent?.session, numbers: [sent?.number] }]),
  );
  assert.equal(client.hasUnflushedCommands, false);
  await client.flushCatalog();
  assert.equal(seenAt('/v1/catalog/flush').length, 3, 'The root catalog has nothing left to flush');
});

test('a loss in the root catalog is reported once, by a flush after the move', async (t) => {
  const { client, moving } = await started(t);
  await make(client, 'a');
  moving.root.made.clear();
  moving.phase = 'moved';
  await make(client, 'b');
  await assert.rejects(client.flushCatalog(), CommandsLost);
  await client.flushCatalog();
});

test('a flush of a removed catalog reports what was not flushed once, and then has nothing to do', async (t) => {
  const { client, moving } = await started(t);
  await make(client, 'a');
  await client.flushCatalog();
  moving.phase = 'removed';
  await client.flushCatalog();
  moving.phase = 'before';
  await make(client, 'b');
  moving.phase = 'removed';
  await assert.rejects(client.flushCatalog(), CommandsLost);
  assert.equal(client.hasUnflushedCommands, false);
  await client.flushCatalog();
});

test('a client does not leave because another volume has moved', async (t) => {
  const { client, moving } = await started(t, 'w');
  moving.phase = 'moved';
  await assert.rejects(make(client, 'a'), { code: 'not-found', details: { elsewhere: true, movedTo: OWN } });
  await client.query({ kind: 'attributes', inode: ROOT_DIRECTORY });
  await until('it has found out', async () => moving.searches.length === 2);
  assert.equal(client.catalog, ROOT_CATALOG);
});

test('a command for what has moved is executed once, and flushed, by the catalog that has it', async (t) => {
  const { client, moving, seenAt } = await started(t, 'w');
  moving.phase = 'moved';
  await client.commandWhereMoved(makingOf('a'));
  assert.deepEqual([moving.root.names, moving.own.names], [[], ['a']]);
  const flushedAt = seenAt('/v1/catalog/flush').map(({ headers }) => headers[HEADER_CATALOG]);
  assert.deepEqual(flushedAt, [String(OWN)]);
  assert.equal(client.hasUnflushedCommands, false);
  assert.equal(client.catalog, ROOT_CATALOG);
});

test('what was created in the catalog of another volume is changed there, by the number that it has reserved', async (t) => {
  const { client, moving, seenAt } = await started(t, 'w');
  moving.phase = 'moved';
  const inode = await client.reserveInodeAt(OWN, ROOT_DIRECTORY);
  assert.equal(catalogOfInode(inode), OWN);
  const [reservation] = bodiesOf(seenAt('/v1/births/numbers'));
  assert.deepEqual(reservation, { owner: client.inodeOwner, count: 1, volume: 'w' });
  await client.commandAt(OWN, makingOf('a'));
  await client.commandWhereMoved({ kind: 'set-attributes', inode, mode: 0o600 });
  const catalogs = seenAt('/v1/catalog/commands').map(({ headers }) => headers[HEADER_CATALOG]);
  assert.deepEqual(catalogs, [String(OWN), String(OWN)]);
  assert.deepEqual(moving.own.names, ['a', 'set-attributes']);
  assert.deepEqual([client.catalog, client.hasUnflushedCommands], [ROOT_CATALOG, false]);
});

test('a client that only reads learns from an answer that the volume has moved, and gets grants again', async (t) => {
  const { options, moving } = await started(t);
  await using client = new CachingClient(options);
  const isGranted = () => client.grantedAttributes(ROOT_DIRECTORY) !== undefined;
  const read = async (): Promise<boolean> => {
    await client.query({ kind: 'attributes', inode: ROOT_DIRECTORY });
    return isGranted();
  };
  await until('its attributes are granted', read);
  moving.phase = 'moved';
  // The root catalog recalls what it has granted before the volume moves.
  assert.equal(isGranted(), true);
  await client.command({
    kind: 'make-directory',
    place: { parent: ROOT_DIRECTORY, name: 'a' },
    mode: 0o755,
    uid: 0,
    gid: 0,
  });
  assert.equal(isGranted(), false, 'No grant of the former session is left');
  await until('its attributes are granted anew', read);
  const [, first] = moving.polls.find(([catalog]) => catalog === OWN) ?? [];
  assert.deepEqual([first?.session, first?.left, first?.acked], [undefined, undefined, 0]);
});

test('an answer of the own catalog is enough to follow the volume', async (t) => {
  const { client, moving } = await started(t);
  await client.query({ kind: 'attributes', inode: ROOT_DIRECTORY });
  moving.phase = 'moved';
  await client.query({ kind: 'attributes', inode: ROOT_DIRECTORY });
  await until('it has followed', async () => client.catalog === OWN);
});

test('numbers that the root catalog has reserved are not used after the move', async (t) => {
  const { client, moving, seenAt } = await started(t);
  const before = await client.reserveInodes(8, { volume: 'v' });
  assert.equal(catalogOfInode(before.first), ROOT_CATALOG);
  moving.phase = 'moved';
  const after = await client.reserveInodes(8, { volume: 'v' });
  assert.deepEqual([catalogOfInode(after.first), after.first], [OWN, inodesOf(OWN).first + 500]);
  const times = { accessedNs: null, modifiedNs: null, changedNs: null };
  const file = {
    parent: ROOT_DIRECTORY,
    name: 'a',
    mode: 0o644,
    uid: 0,
    gid: 0,
    contents: Buffer.alloc(1),
    ...times,
  };
  const outcomes = await client.createWithContents('s1', [{ ...file, inode: before.first }]);
  assert.deepEqual(outcomes, [{ kind: 'not-created' }]);
  assert.equal(seenAt('/v1/births').length, 0);
});

test('a client that names its volume again after the move continues, too', async (t) => {
  const { client, moving } = await started(t);
  await make(client, 'a');
  moving.phase = 'moved';
  await client.useVolume('v');
  await make(client, 'b');
  await client.flushCatalog();
  assert.deepEqual([moving.root.names, moving.own.names], [['a'], ['b']]);
});

function isEqual(one: object, other: object): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

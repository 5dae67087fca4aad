/**
 * Goal: a command that was acknowledged under a delegation is executed only while that very delegation is held.
 * Method: the catalog's service and its recaller, a subject that records what it executes, and clients that the test
 * plays.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import type { CommandContext } from '../../catalog/command.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import { type CatalogServiceParts, LocalCatalogService } from '../../server/catalog/catalog-service.ts';
import { Recaller } from '../../server/catalog/recaller.ts';
import type { CommandRequest, Query } from '../../wire/catalog-api.ts';
import { patientWorld } from '../patient-world.ts';

const [DIRECTORY, OTHER] = [5, 6];
const [A, B] = [1, 2];

function resultOf(request: CommandRequest | undefined): object {
  const attributes = { inode: OTHER, live: isLive };
  if (request?.command.kind === 'set-attributes') return { attributes };
  return request?.command.kind === 'create-file' ? { attributes, created: true } : {};
}

function touchedBy(request: CommandRequest | undefined): number[] {
  switch (request?.command.kind) {
    case 'note-accesses':
      return [];
    case 'set-attributes':
      return [OTHER];
    default:
      return [DIRECTORY, OTHER];
  }
}
/** Files whose attributes are set. */
let isLive = false;

/** @param version of commands, which another member of the catalog knows */
function primary(version: number | null = null) {
  const executed: number[] = [];
  const gone = new Set<number>();
  const junctions = new Set<number>();
  const self = 'a' as ServerId;
  const view = { number: 1, members: [self, 'b' as ServerId] };
  let drawn = 0;
  const driver = {
    ...{ isPrimary: true, epoch: 1, orderedSeq: 0 },
    status: () => ({ seq: 0, view }),
    onRole: () => () => undefined,
    untilReadable: () => Promise.resolve(),
    servesForMs: () => 60_000,
    noteCachedFor: () => undefined,
    submit: async () => executed.push(...staged.splice(0)),
  };
  let staged: number[] = [];
  const recaller = new Recaller({
    driver,
    options: { leaseMsMax: 60_000, sessionGrantsMax: 100, grantsMax: 100, draw: () => ++drawn },
    world: patientWorld,
  });
  const service = new LocalCatalogService({
    ...{ catalog: ROOT_CATALOG, self, world: patientWorld, driver, recaller, operationTimeoutMs: 5_000 },
    ...{ placement: () => [], isConnected: () => true, commandsVersion: () => version },
    settle: () => Promise.resolve(),
    lease: { view: () => ({ own: true, holder: null }) },
    clock: { nowMs: () => performance.now(), wallNs: () => 1n },
    subject: {
      ready: () => Promise.resolve(),
      isReady: true,
      record: () => ({ view }),
      execute: (requests: readonly CommandRequest[], { refusal }: CommandContext) => {
        const refused = requests.map((request) => refusal?.(request) ?? null);
        staged = requests.filter((_, index) => refused[index] === null).map(({ number }) => number);
        return {
          body: staged.length === 0 ? null : new Uint8Array(1),
          touched: refused.map((error, at) => (error === null ? touchedBy(requests[at]) : [])),
          outcomes: refused.map((error, index) =>
            error === null
              ? { kind: 'done', result: resultOf(requests[index]) }
              : { kind: 'refused', code: error.code, message: '' },
          ),
        };
      },
      query: (query: Query) => {
        const inode = 'inode' in query ? query.inode : 0;
        if (gone.has(inode)) throw new ServiceError('not-found', `There is no inode ${inode}`);
        const junction = junctions.has(inode) ? { junction: { catalog: 4, volume: 'other' } } : {};
        return { attributes: { inode, accessedNs: '7', changedNs: '1', ...junction } };
      },
      prepare: () => undefined,
      abandon: () => {
        staged = [];
      },
    },
  } as unknown as CatalogServiceParts);
  const begin = async (client: number) => {
    const { session } = await service.pollCache({ client, acked: 0, fenced: true });
    assert.ok(session !== null);
    return session;
  };
  const delegated = async (session: number) => {
    const { generation } = await service.queryWithGrants(
      { kind: 'attributes', inode: DIRECTORY },
      session,
      true,
    );
    assert.ok(generation !== undefined);
    return generation;
  };
  const unlink = (number: number, under: number, generation: number) => {
    const fence = [{ inode: DIRECTORY, generation }];
    const cache = { client: A, forgets: [DIRECTORY], under, fence };
    const command = { kind: 'unlink', place: { parent: DIRECTORY, name: 'x' } } as const;
    return service.execute({ session: 9, number, command, cache });
  };
  return { service, executed, gone, junctions, begin, delegated, unlink };
}

test('a fenced command is executed while its delegation is held, and has no effect after that', async () => {
  const { service, executed, begin, delegated, unlink } = primary();
  const session = await begin(A);
  const generation = await delegated(session);
  await unlink(1, session, generation);
  assert.deepEqual(executed, [1]);
  // The client is recalled, returns the directory, and has it again.
  const asked = service.queryWithGrants({ kind: 'attributes', inode: DIRECTORY }, await begin(B), true);
  const { through } = await service.pollCache({ client: A, session, acked: 0, fenced: true });
  await unlink(2, session, generation);
  void service.pollCache({ client: A, session, acked: through, fenced: true });
  assert.notEqual((await asked).generation, undefined);
  await assert.rejects(unlink(3, session, generation), { code: 'fence-lost' });
  assert.deepEqual(executed, [1, 2], 'During the recall it was held');
});

test('a junction is delegated to no client: what a client creates there ahead of the catalog would be refused', async () => {
  const { service, junctions, begin } = primary();
  const session = await begin(A);
  const query = { kind: 'list', inode: DIRECTORY, after: '', countMax: 1 } as const;
  junctions.add(DIRECTORY);
  const { result, delegated } = await service.queryWithGrants(query, session, true);
  assert.notEqual(result, null);
  assert.equal(delegated, undefined);
  junctions.delete(DIRECTORY);
  assert.equal((await service.queryWithGrants(query, session, true)).delegated, session);
});

test('a primary that does not know the session refuses', async () => {
  const before = primary();
  const session = await before.begin(A);
  const generation = await before.delegated(session);
  const { executed, unlink } = primary();
  await assert.rejects(unlink(1, session, generation), { code: 'fence-lost' });
  assert.deepEqual(executed, []);
});

test('a fenced command whose fence ends while it waits for a recall is refused', async () => {
  const { service, executed, begin, delegated, unlink } = primary();
  const [session, other] = [await begin(A), await begin(B)];
  const generation = await delegated(session);
  await service.queryWithGrants({ kind: 'attributes', inode: OTHER }, other);
  const unlinked = unlink(1, session, generation);
  unlinked.catch(() => undefined);
  const { recalls, through } = await service.pollCache({ client: B, session: other, acked: 0, fenced: true });
  assert.deepEqual(recalls, [OTHER]);
  await service.pollCache({ client: A, left: session, acked: 0, fenced: true });
  await turn();
  void service.pollCache({ client: B, session: other, acked: through, fenced: true });
  await assert.rejects(unlinked, { code: 'fence-lost' });
  assert.deepEqual(executed, []);
});

test('sessions begin only if clients name them, and if all members of the catalog obey fences', async () => {
  const { service } = primary();
  assert.equal((await service.pollCache({ client: A, acked: 0 })).session, null);
  assert.notEqual((await service.pollCache({ client: A, acked: 0, fenced: true })).session, null);
  const older = primary(4);
  assert.equal((await older.service.pollCache({ client: A, acked: 0, fenced: true })).session, null);
});

test('a change of attributes recalls the directory of a client that may keep others, except from that client', async () => {
  const { service, executed, begin, delegated } = primary(COMMANDS_VERSION);
  const session = await begin(A);
  const held = await delegated(session);
  const under = { client: A, forgets: [], under: session };
  const create = async (number: number, cache: object): Promise<unknown> => {
    const place = { parent: DIRECTORY, name: 'x' };
    const command = { kind: 'create-file', place } as unknown as CommandRequest['command'];
    const owner = { client: A, forgets: [DIRECTORY], under: session, ...cache };
    const result = await service.execute({ session: 9, number, command, cache: owner });
    return (result as { generation?: number }).generation;
  };
  const change = (number: number, owner: object) => {
    const command = { kind: 'set-attributes', inode: OTHER, changes: { mode: 0o600 } } as unknown;
    return service.execute({ session: 9, number, command: command as CommandRequest['command'], ...owner });
  };
  assert.equal(await create(1, {}), undefined, 'A client of an earlier release keeps nothing');
  await change(2, {});
  assert.equal(await create(3, { keeps: true }), held);
  await change(4, { cache: under });
  assert.deepEqual(executed, [1, 2, 3, 4]);
  const changed = change(5, {});
  const { recalls, through } = await service.pollCache({ client: A, session, acked: 0, fenced: true });
  assert.deepEqual(recalls, [DIRECTORY]);
  assert.deepEqual(executed, [1, 2, 3, 4], 'It waits for what the client has kept');
  void service.pollCache({ client: A, session, acked: through, fenced: true });
  await changed;
  await change(6, {});
  assert.deepEqual(executed, [1, 2, 3, 4, 5, 6], 'The directory is not delegated any more');
});

test('files of a fenced unlink are not recalled from the client that removes them', async () => {
  const { service, executed, begin, delegated } = primary();
  const session = await begin(A);
  const generation = await delegated(session);
  await service.queryWithGrants({ kind: 'attributes', inode: OTHER }, session);
  const file = { parent: DIRECTORY, name: 'x', inode: OTHER };
  const command = { kind: 'unlink-fenced' as const, files: [file], contents: [null] };
  const fence = [{ inode: DIRECTORY, generation }];
  const cache = { client: A, forgets: [DIRECTORY], under: session, fence };
  await service.execute({ session: 9, number: 1, command, cache });
  assert.deepEqual(executed, [1]);
  const { recalls } = await service.pollCache({ client: A, session, acked: 0, fenced: true });
  assert.deepEqual(recalls, []);
});

test('attributes are granted to the client that has set them, unless the file is live, or changed by the same batch', async (t) => {
  t.after(() => {
    isLive = false;
  });
  const { service, begin } = primary();
  const session = await begin(A);
  const changes = { mode: 0o600 };
  const command = { kind: 'set-attributes', inode: OTHER, changes } as unknown as CommandRequest['command'];
  const cache = { client: A, forgets: [OTHER, DIRECTORY], under: session };
  let number = 0;
  const set = async (owner: object = { cache }): Promise<unknown> => {
    const result = await service.execute({ session: 9, number: ++number, command, ...owner });
    return (result as { granted?: number }).granted;
  };
  assert.equal(await set({}), undefined, 'Its client caches nothing');
  assert.equal(await set({ cache: { ...cache, under: session + 1 } }), undefined, 'There is no such session');
  assert.equal(await set(), session);
  assert.deepEqual(await Promise.all([set(), set(), set()]), [undefined, undefined, session]);
  isLive = true;
  assert.equal(await set(), undefined);
});

test('sessions with a grant of an inode receive reports of its reads, and nothing waits for them', async () => {
  const { service, gone, begin } = primary();
  const session = await begin(A);
  for (const inode of [OTHER, OTHER + 1])
    await service.queryWithGrants({ kind: 'attributes', inode }, session);
  gone.add(OTHER + 1);
  const polled = service.pollCache({ client: A, session, acked: 0, fenced: true });
  const accesses = [OTHER, OTHER + 1].map((inode) => {
    return { inode, accessedNs: '7', seen: { accessedNs: '1', changedNs: '1' } };
  });
  await service.execute({
    session: 9,
    number: 1,
    command: { kind: 'note-accesses', volume: 'main', accesses },
  });
  const { reads, recalls, through } = await polled;
  assert.deepEqual([reads, recalls], [[{ inode: OTHER, accessedNs: '7', changedNs: '1' }], []]);
  assert.equal(through, 1);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import type { CommandContext } from '../../catalog/command.ts';
import type { Outcome } from '../../catalog/sessions.ts';
import { type CatalogServiceParts, LocalCatalogService } from '../../server/catalog/catalog-service.ts';
import { Clock } from '../../server/process/clock.ts';
import type { CreationListener } from '../../server/routing/service-interfaces.ts';
import { PAYLOAD_BYTES_MAX } from '../../server/transport/frame.ts';
import type { Attributes, Command, CommandRequest } from '../../wire/catalog-api.ts';
import { patientWorld } from '../patient-world.ts';

type Executed = ReturnType<CatalogServiceParts['subject']['execute']>;

/** A change of members takes so many ticks of the event loop. */
const CHANGE_TURNS = 50;

/** A service of a primary that commits whatever is executed. */
function serviceOf(
  execute: (
    requests: readonly CommandRequest[],
    context: Pick<CommandContext, 'nowNs' | 'membersVersion' | 'refusal'>,
  ) => Executed,
  batches: Uint8Array[] = [],
  replicated: () => Promise<void> = nextTurn,
  others: ReadonlyMap<string, number | null> = new Map(),
  prepare: () => void = () => undefined,
  query: () => unknown = () => undefined,
  driver: object = {},
  servers: ReadonlyMap<string, number | null> = new Map(),
  catalog: CatalogNumber = ROOT_CATALOG,
) {
  const members = ['a', ...others.keys()] as ServerId[];
  const future = [...members];
  const parts = {
    catalog,
    self: 'a' as ServerId,
    view: { number: 1, members: ['a' as ServerId] },
    world: patientWorld,
    clock: new Clock(patientWorld),
    operationTimeoutMs: 5_000,
    placement: () => [],
    isConnected: () => true,
    commandsVersion: (server: ServerId) => others.get(server) ?? servers.get(server) ?? null,
    driver: {
      isPrimary: true,
      orderedSeq: 0,
      status: () => ({ seq: 0 }),
      onRole: () => () => undefined,
      flush: () => Promise.resolve(),
      futureMembers: future,
      changeMembers: async (to: readonly ServerId[]) => {
        future.push(...to);
        for (let turn = 0; turn < CHANGE_TURNS; turn++) await nextTurn();
        future.splice(members.length);
      },
      submit: async ({ body }: { body: Uint8Array }) => {
        batches.push(body);
        await replicated();
        return { seq: batches.length, result: new Uint8Array(0) };
      },
      ...driver,
    },
    recaller: {
      refusal: () => null,
      isCached: () => false,
      block: () => undefined,
      release: () => undefined,
      directoriesToRecall: () => [],
    },
    subject: {
      ready: () => Promise.resolve(),
      isReady: true,
      record: () => ({ seq: 0, installed: { counter: 0 }, view: { number: 1, members } }),
      execute,
      prepare,
      query,
      numbers: () => ({ next: 1, limit: 1, end: 1, epoch: 0, serves: false }),
      abandon: () => undefined,
    },
  } as unknown as CatalogServiceParts;
  return new LocalCatalogService(parts);
}

/** Executes all requests, and records how the service refuses each first one. */
function recorderOf(refused: (string | undefined)[]): Parameters<typeof serviceOf>[0] {
  const outcome = { kind: 'done', result: {} } as unknown as Outcome;
  return ([request], { refusal }) => {
    refused.push(request === undefined ? 'nothing' : refusal?.(request)?.code);
    return { body: Buffer.from('x'), outcomes: [outcome], touched: [[]] };
  };
}

/** Records its notifications. */
function makerOf(told: string[], attempt: string): CreationListener {
  const note = (what: string) => {
    return ({ inode }: Attributes): void => void told.push(`${attempt} ${what} ${inode}`);
  };
  return { creating: note('creating'), created: note('created'), notCreated: note('notCreated') };
}

test('members of files are planned only if all members of the catalog are known to store that', async () => {
  const outcome = { kind: 'done', result: { planned: [] } } as unknown as Outcome;
  let begun = false;
  const others = new Map<string, number | null>([
    ['b', 6],
    ['c', null],
  ]);
  const service = serviceOf(
    () => ({ body: Buffer.from('x'), outcomes: [outcome], touched: [[]] }),
    [],
    nextTurn,
    others,
    () => undefined,
    () => ({ begun }),
  );
  const mark = { epoch: 1, turn: 1 };
  const command = { kind: 'plan-members', inode: 5, view: 1, mark, members: [] as string[] } as const;
  const plan = (number: number) => service.execute({ session: 1, number, command });
  const isOutdated = (error: ServiceError) => error.details.outdated?.join() === 'c';
  await assert.rejects(plan(1), isOutdated, 'It may be of an earlier release');
  begun = true;
  await plan(2);
  begun = false;
  others.set('c', 5);
  await assert.rejects(plan(3), isOutdated);
  others.set('c', 6);
  await plan(4);
  others.set('c', null);
  await plan(5);
  const files = [{ inode: 5, view: { number: 2, members: ['b'] } }];
  const many = { kind: 'follow-views' as const, files };
  const follow = (number: number) => service.execute({ session: 1, number, command: many });
  await assert.rejects(follow(6), (error: ServiceError) => error.details.outdated?.join() === 'b,c');
  for (const id of ['b', 'c']) others.set(id, 11);
  await follow(7);
});

/** Commands that wait until all servers were seen with the version that introduced them. */
const FOR_ALL_SERVERS: readonly (readonly [number, Command])[] = [
  [12, { kind: 'catalog-create', name: 'big', members: ['a'], replicas: 1, objectBytes: 4096 }],
  [13, { kind: 'volume-attach', name: 'big', inode: 7 }],
  [17, { kind: 'clone-create', name: 'copy', volume: 'main', snapshot: 's' }],
];

/** A service with a server in the cluster that is no member of the catalog, and one that has left. */
function withServers(
  others: ReadonlyMap<string, number | null>,
  elsewhere: ReadonlyMap<string, number | null>,
  catalogs: readonly object[] = [],
) {
  const outcome = { kind: 'done', result: {} } as unknown as Outcome;
  const servers = [
    { id: 'c', state: 'draining' },
    { id: 'd', state: 'out' },
  ];
  return serviceOf(
    () => ({ body: Buffer.from('x'), outcomes: [outcome], touched: [[]] }),
    [],
    nextTurn,
    others,
    () => undefined,
    () => ({ servers, catalogs }),
    {},
    elsewhere,
  );
}

for (const [version, command] of FOR_ALL_SERVERS)
  test(`${command.kind} is executed only if all servers were seen with a release that knows it`, async () => {
    const others = new Map<string, number | null>([['b', version]]);
    const elsewhere = new Map<string, number | null>([
      ['c', version - 1],
      ['d', 1],
    ]);
    const service = withServers(others, elsewhere);
    const run = (number: number) => service.execute({ session: 1, number, command });
    const message = new RegExp(
      `^Server c may run a release without the command "${command.kind}" \\(command version ${version}\\)`,
    );
    await assert.rejects(run(1), { code: 'precondition-failed', message });
    elsewhere.set('c', null);
    await assert.rejects(run(2), { code: 'precondition-failed', message });
    elsewhere.set('c', version);
    await run(3);
    elsewhere.set('c', null);
    await run(4);
    others.set('b', version - 1);
    await assert.rejects(run(5), (error: ServiceError) => error.details.outdated?.join() === 'b');
  });

test('while a volume is attached, another one is attached although a server is away', async () => {
  const others = new Map<string, number | null>([['b', null]]);
  const service = withServers(others, new Map(), [{ name: 'small', attached: 5 }, { name: 'big' }]);
  const command = { kind: 'volume-attach', name: 'big', inode: 7 } as const;
  await service.execute({ session: 1, number: 1, command });
  others.set('b', 12);
  await assert.rejects(
    service.execute({ session: 1, number: 2, command }),
    (error: ServiceError) => error.details.outdated?.join() === 'b',
  );
});

test('rules of a version are adopted once all members of the catalog were seen with a release that knows them', async () => {
  const outcome = { kind: 'done', result: {} } as unknown as Outcome;
  const versions: (number | undefined)[] = [];
  const others = new Map<string, number | null>([
    ['b', 5],
    ['c', null],
  ]);
  const service = serviceOf(
    (_, { membersVersion }) => {
      versions.push(membersVersion);
      return { body: Buffer.from('x'), outcomes: [outcome], touched: [[]] };
    },
    [],
    nextTurn,
    others,
  );
  const command = { kind: 'sweep', countMax: 1 } as const;
  const run = (number: number) => service.execute({ session: 1, number, command });
  await run(1);
  others.set('c', 4);
  await run(2);
  others.set('c', 5);
  await run(3);
  others.set('c', null);
  await run(4);
  assert.deepEqual(
    versions,
    [0, 4, 5, 5],
    'While it is down, and was not seen, it may be of an earlier release',
  );
});

test('holes are stored once all members of the catalog were seen with a release that knows them', async () => {
  const kept: boolean[] = [];
  const others = new Map<string, number | null>([
    ['b', 7],
    ['c', 6],
  ]);
  const service = serviceOf(
    ([request]) => {
      const { command } = request as CommandRequest;
      kept.push(command.kind === 'settle' && command.files[0]?.holeBytes === 4);
      return { body: Buffer.from('x'), outcomes: [{ kind: 'done', result: { settled: 1 } }], touched: [[]] };
    },
    [],
    nextTurn,
    others,
  );
  const file = { inode: 5, sizeBytes: 9, holeBytes: 4, modifiedNs: '1', contents: { epoch: 1, seq: 1 } };
  const run = (number: number) =>
    service.execute({ session: 1, number, command: { kind: 'settle', files: [file] } });
  await run(1);
  others.set('c', null);
  await run(2);
  others.set('c', 7);
  await run(3);
  others.set('c', null);
  await run(4);
  assert.deepEqual(kept, [false, false, true, true]);
});

test('numbers are reserved for a volume once all members of the catalog were seen with a release that knows it', async () => {
  const volumes: (string | undefined)[] = [];
  const others = new Map<string, number | null>([
    ['b', 13],
    ['c', 12],
  ]);
  const service = serviceOf(
    ([request]) => {
      const { command } = request as CommandRequest;
      if (command.kind === 'reserve-inodes') volumes.push(command.volume);
      return { body: Buffer.from('x'), outcomes: [{ kind: 'done', result: { first: 9 } }], touched: [[]] };
    },
    [],
    nextTurn,
    others,
  );
  const command: Command = { kind: 'reserve-inodes', owner: 5, count: 1, members: [['b']], volume: 'main' };
  await service.execute({ session: 1, number: 1, command });
  others.set('c', null);
  await service.execute({ session: 1, number: 2, command });
  others.set('c', 13);
  await service.execute({ session: 1, number: 3, command });
  assert.deepEqual(volumes, [undefined, undefined, 'main']);
});

test('a server that has the catalog, or is about to, is not removed, and a removed one does not get it', async () => {
  const refused: (string | undefined)[] = [];
  const service = serviceOf(
    recorderOf(refused),
    [],
    nextTurn,
    new Map([['b', 6]]),
    () => undefined,
    () => ({ servers: [{ id: 'd', state: 'out' }] }),
  );
  const ids = (...names: string[]) => names as ServerId[];
  let number = 0;
  const remove = (id: string, dead = false) =>
    service.execute({ session: 1, number: ++number, command: { kind: 'server-remove', id, dead } });
  await remove('b');
  await remove('b', true);
  await remove('c');
  await assert.rejects(service.changeMembers(ids('a', 'd')), { code: 'precondition-failed' });
  const changing = service.changeMembers(ids('a', 'c'));
  await nextTurn();
  await remove('c');
  await changing;
  await remove('c');
  const wanted = ['precondition-failed', undefined, undefined, 'precondition-failed', undefined];
  assert.deepEqual(refused, wanted);
});

test('no batch is executed between a change of members and its apply, whatever begins first', async () => {
  const outcome = { kind: 'done', result: {} } as unknown as Outcome;
  for (let ahead = 0; ahead < 20; ahead++) {
    const order = { ordered: 0, applied: 0 };
    const service = serviceOf(
      () => {
        assert.equal(order.ordered, order.applied, `with the batch ${ahead} microtasks ahead`);
        return { body: Buffer.from('x'), outcomes: [outcome], touched: [[]] };
      },
      [],
      nextTurn,
      new Map([['b', 12]]),
      () => undefined,
      () => ({ servers: [] }),
      {
        orderedSeq: 0,
        status: () => ({ seq: order.applied - order.ordered }),
        changeMembers: async () => void order.ordered++,
        nextChange: async () => {
          await nextTurn();
          order.applied = order.ordered;
        },
      },
    );
    const executed = service.execute({ session: 1, number: 1, command: { kind: 'forgo' } });
    for (let microtasks = 0; microtasks < ahead; microtasks++) await Promise.resolve();
    await Promise.all([executed, service.changeMembers(['a'] as ServerId[])]);
  }
});

test("a volume's catalog does not move to a server that leaves, and follows no leave while it moves there", async () => {
  const refused: (string | undefined)[] = [];
  const state = { isApplied: true };
  const service = serviceOf(
    recorderOf(refused),
    [],
    nextTurn,
    new Map([['b', 12]]),
    () => undefined,
    () => {
      assert.ok(state.isApplied, 'A batch that is executed, and not applied, may let a server go');
      return {
        servers: [
          { id: 'b', state: 'draining' },
          { id: 'c', state: 'in' },
          { id: 'd', state: 'draining' },
        ],
      };
    },
    {
      status: () => ({ seq: state.isApplied ? 0 : -1 }),
      nextChange: async () => {
        await nextTurn();
        state.isApplied = true;
      },
    },
    new Map(),
    1 as CatalogNumber,
  );
  const ids = (...names: string[]) => names as ServerId[];
  const server = { url: 'http://c:1', zone: '', since: 3, storageId: '' };
  let number = 0;
  const follow = (id: string, to: 'in' | 'draining') => {
    const servers = [{ ...server, id, state: to }];
    return service.execute({ session: 1, number: ++number, command: { kind: 'follow-servers', servers } });
  };
  await assert.rejects(service.changeMembers(ids('a', 'b', 'd')), { code: 'precondition-failed' });
  await assert.rejects(service.changeMembers(ids('a', 'b', 'unknown')), { code: 'precondition-failed' });
  state.isApplied = false;
  const changing = service.changeMembers(ids('a', 'b', 'c'));
  await nextTurn();
  await nextTurn();
  await follow('c', 'draining');
  await follow('c', 'in');
  await follow('b', 'draining');
  await changing;
  await follow('c', 'draining');
  assert.deepEqual(refused, ['busy', undefined, undefined, undefined]);
});

test('a move to a server that is to leave is withdrawn, however long the call that began it has ended', async () => {
  for (const catalog of [ROOT_CATALOG, 1 as CatalogNumber]) {
    const refused: (string | undefined)[] = [];
    const withdrawn: (readonly ServerId[])[] = [];
    const service = serviceOf(
      recorderOf(refused),
      [],
      nextTurn,
      new Map([['b', 12]]),
      () => undefined,
      () => undefined,
      {
        futureMembers: ['a', 'b', 'c'],
        changeMembers: async (members: readonly ServerId[]) => void withdrawn.push(members),
      },
      new Map(),
      catalog,
    );
    const server = { id: 'c', url: 'http://c:1', zone: '', since: 3, storageId: '' };
    const follow = { kind: 'follow-servers' as const, servers: [{ ...server, state: 'draining' as const }] };
    const remove = { kind: 'server-remove', id: 'c', dead: false } as const;
    const isRoot = catalog === ROOT_CATALOG;
    await service.execute({ session: 1, number: 1, command: isRoot ? remove : follow });
    await nextTurn();
    assert.deepEqual([refused, withdrawn], [[isRoot ? 'precondition-failed' : 'busy'], [['a', 'b']]]);
  }
});

test('while other members execute a batch, which has left, its commit is prepared', async () => {
  const order: string[] = [];
  const outcome = { kind: 'done', result: {} } as unknown as Outcome;
  const prepared = Promise.withResolvers<void>();
  const service = serviceOf(
    () => ({ body: Buffer.from('x'), outcomes: [outcome], touched: [[]] }),
    [],
    async () => {
      order.push('submitted');
      // As the transport does, which sends at the end of a tick what was queued in the tick.
      setImmediate(() => order.push('left'));
      await prepared.promise;
      order.push('acknowledged');
    },
    new Map(),
    () => {
      order.push('prepared');
      prepared.resolve();
    },
  );
  await service.execute({
    session: 1,
    number: 1,
    command: { kind: 'volume-create', name: 'v', replicas: 3, objectBytes: 4096 },
  });
  assert.deepEqual(order, ['submitted', 'left', 'prepared', 'acknowledged']);
});

test('the creating server of a file is notified when others may not have it', async () => {
  const outcome = { kind: 'done', result: { created: true, attributes: { inode: 7 } } } as unknown as Outcome;
  const lost = new ServiceError('unknown', 'The primary of the catalog changed meanwhile');
  const service = serviceOf(
    () => ({ body: Buffer.from('x'), outcomes: [outcome], touched: [[1, 7]] }),
    [],
    () => Promise.reject(lost),
  );
  const told: string[] = [];
  const request = { session: 1, number: 1, command: { kind: 'create-file' } as unknown as Command };
  await assert.rejects(service.execute(request, makerOf(told, 'it')), lost);
  assert.deepEqual(told, ['it creating 7', 'it notCreated 7']);
});

test('a file is created by one call, and its server notified before replication and before the answer', async () => {
  const result = { created: true, attributes: { inode: 7 } };
  let executions = 0;
  const service = serviceOf((requests) => {
    // A retry gets the earlier outcome, and nothing is changed.
    const touched = executions++ === 0 ? [1, 7] : [];
    const outcome = { kind: 'done', result } as unknown as Outcome;
    return { body: Buffer.from('x'), outcomes: requests.map(() => outcome), touched: [touched] };
  });
  const told: string[] = [];
  const request = { session: 1, number: 1, command: { kind: 'create-file' } as unknown as Command };
  for (const attempt of ['first', 'retry']) {
    await service.execute(request, makerOf(told, attempt));
    told.push(`${attempt} answered`);
  }
  assert.deepEqual(told, ['first creating 7', 'first created 7', 'first answered', 'retry answered']);
});

test('a file with a reserved number gets no first primary, because it may have been created with contents', async () => {
  const outcome = { kind: 'done', result: { created: true, attributes: { inode: 7 } } } as unknown as Outcome;
  const service = serviceOf(() => ({ body: Buffer.from('x'), outcomes: [outcome], touched: [[1, 7]] }));
  const told: string[] = [];
  const reserved = { inode: 7, owner: 1 };
  const request = { session: 1, number: 1, command: { kind: 'create-file', reserved } as unknown as Command };
  await service.execute(request, makerOf(told, 'it'));
  assert.deepEqual(told, []);
});

test("a client that changes or removes a name, or creates a file by its number, receives its directory's times, and a retry does not", async () => {
  const times: string[] = [];
  const service = serviceOf((_requests, { nowNs }) => {
    times.push(String(nowNs));
    const outcome = { kind: 'done', result: { inode: 7, links: 0 } } as unknown as Outcome;
    return { body: Buffer.from('x'), outcomes: [outcome], touched: [times.length === 1 ? [1, 7] : []] };
  });
  const reserved = { kind: 'create-file', reserved: { inode: 7, owner: 1 } };
  const kinds = ['unlink', 'unlink-files', 'rename', 'remove-directory'].map((kind) => ({ kind }));
  for (const command of [...kinds, reserved] as unknown as Command[]) {
    times.length = 0;
    const request = { session: 1, number: 1, command };
    const { conditional: _, ...result } = (await service.execute(request)) as { conditional?: true };
    assert.deepEqual(result, { inode: 7, links: 0, atNs: times[0] });
    assert.deepEqual(await service.execute(request), { inode: 7, links: 0 });
  }
});

test('a client learns that attributes can be set under a condition once all members obey it', async () => {
  const execute = (): Executed => ({
    body: Buffer.from('x'),
    outcomes: [{ kind: 'done', result: { created: true, attributes: { inode: 7 } } } as unknown as Outcome],
    touched: [[1, 7]],
  });
  const command = { kind: 'create-file', reserved: { inode: 7, owner: 1 } } as unknown as Command;
  const isConditional = async (versions: readonly (number | null)[]) => {
    const others = new Map(versions.map((version, place) => ['bc'[place] as string, version]));
    const result = await serviceOf(execute, [], nextTurn, others).execute({ session: 1, number: 1, command });
    return (result as { conditional?: true }).conditional === true;
  };
  assert.deepEqual(
    await Promise.all([isConditional([10, 10]), isConditional([10, 9]), isConditional([10, null])]),
    [true, false, false],
  );
});

test('a command is executed only if all connected members know it', async () => {
  const execute = (requests: readonly CommandRequest[]): Executed => ({
    body: Buffer.from('x'),
    outcomes: requests.map(() => ({ kind: 'done', result: {} }) as unknown as Outcome),
    touched: requests.map(() => []),
  });
  const asked = (command: Command, others: readonly [string, number | null][]) =>
    serviceOf(execute, [], nextTurn, new Map(others)).execute({ session: 1, number: 1, command });
  const set: Command = { kind: 'volume-set', name: 'main', replicas: 2 };
  const trash: Command = { ...set, trashMs: 5 };
  const empty: Command = { kind: 'trash-empty', volume: 'main', countMax: 1 };
  await asked(set, [['b', 1]]);
  for (const command of [trash, empty]) {
    await asked(command, [
      ['b', 2],
      ['c', 3],
    ]);
    // A disconnected member refuses it after its restart, if it has to.
    await asked(command, [['b', null]]);
    await assert.rejects(
      asked(command, [
        ['b', 2],
        ['c', 1],
      ]),
      {
        ...{ code: 'precondition-failed', message: /^Server c runs a release without the command/ },
        details: { outdated: ['c'] },
      },
    );
  }
});

test('a batch fits one message, however large its commands are', async () => {
  const batches: Uint8Array[] = [];
  let done = 0;
  const service = serviceOf(
    (requests) => ({
      body: Buffer.from(JSON.stringify(requests)),
      outcomes: requests.map(() => ({ kind: 'done', result: {} }) as unknown as Outcome),
      touched: requests.map(() => []),
    }),
    batches,
  );
  const command = {
    kind: 'set-xattr',
    inode: 2,
    name: 'user.large',
    value: 'A'.repeat(80_000),
    mode: 'any',
  } as unknown as Command;
  const requests = Array.from({ length: 300 }, (_, index) => ({ session: 1, number: index + 1, command }));
  await Promise.all(requests.map((request) => service.execute(request).then(() => done++)));
  assert.equal(done, requests.length);
  assert.ok(batches.length > 2);
  for (const body of batches) assert.ok(body.length < PAYLOAD_BYTES_MAX - 1024, `${body.length} bytes`);
});

test('a backup does not answer a query that recalls a directory, whatever its read lease', async () => {
  const backup = {
    ...{ role: 'backup', isPrimary: false, closed: true, epoch: { counter: 1 } },
    readGate: () => 'serve',
    untilReadable: () => Promise.resolve(),
  };
  const answer = { volumes: [] };
  const service = serviceOf(
    () => assert.fail(),
    [],
    nextTurn,
    new Map(),
    undefined,
    () => answer,
    backup,
  );
  const ask = (exact: boolean) => service.query({ kind: 'volumes' }, exact);
  // The first queries are too few to be answered here.
  for (let count = 0; count < 10; count++) await ask(false).catch(() => undefined);
  assert.equal(await ask(false), answer);
  await assert.rejects(ask(true), { code: 'not-primary' });
});

test('a command that needs a directory is executed again once that is filled; others of its batch are not', async () => {
  const executed: string[] = [];
  let isFilled = false;
  const outcome = { kind: 'done', result: { done: true } } as unknown as Outcome;
  const service = serviceOf((requests) => {
    executed.push(requests.map(({ command }) => command.kind).join());
    const unfilled = new Map<number, number>();
    for (const [place, { command }] of requests.entries()) {
      if (command.kind === 'clone-fill') isFilled = true;
      if (command.kind === 'unlink' && !isFilled) unfilled.set(place, 7);
    }
    const body = unfilled.size === requests.length ? null : Buffer.from('x');
    return { body, outcomes: requests.map(() => outcome), touched: requests.map(() => []), unfilled };
  });
  const place = { parent: 7, name: 'a' };
  const commands: Command[] = [
    { kind: 'unlink', place },
    { kind: 'link', inode: 5, place },
  ];
  await Promise.all(commands.map((command, at) => service.execute({ session: 1, number: at + 1, command })));
  assert.deepEqual(executed, ['unlink,link', 'clone-fill', 'unlink']);
});

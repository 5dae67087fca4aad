import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { KnownServers, knownServerOf, readRecordedServers } from '../../server/membership/known-servers.ts';
import { addressOf } from '../../server/membership/membership.ts';
import { Registrar } from '../../server/membership/registrar.ts';
import type { CommandOf, ServerInfo, ServerState } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';

const [S1, S2, S3] = ['s1', 's2', 's3'] as [ServerId, ServerId, ServerId];
const log = pino({ level: 'silent' });

function urlOf(id: string): string {
  return `http://${id}:7401`;
}

function server(id: string, state: ServerState = 'in', url = urlOf(id)) {
  return { id, url, zone: '', state };
}

function makeKnown(folder: string, remembered = false): KnownServers {
  const urls = new Map([S1, S2].map((id) => [id, urlOf(id)]));
  const file = join(folder, 'servers.json');
  return new KnownServers(
    {
      ...{
        self: S1,
        selfUrl: urlOf(S1),
        cluster: 'test',
        settings: {},
        paramsHash: 'p',
        file,
        world: systemWorld,
        log,
      },
      bootstrap: { urls, catalogMembers: [S1, S2] },
      configured: urls,
    },
    remembered ? readRecordedServers(file) : null,
  );
}

function temporary(t: { after(work: () => void): void }): string {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-known-'));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

test('what another server knows adds servers and a newer view of the catalog, and removes nothing', (t) => {
  const [told, known] = [makeKnown(temporary(t)), makeKnown(temporary(t))];
  told.adoptCatalogList([server('s1'), server('s3')], { number: 3, members: [S1, S3] }, [4, 4]);
  known.adoptCatalogList([server('s1', 'draining'), server('s2')], { number: 2, members: [S1, S2] }, [5, 1]);
  let changes = 0;
  known.onChange(() => changes++);
  for (let twice = 0; twice < 2; twice++) known.mergePeerList(told.describe());
  assert.deepEqual([...known.urls.keys()], [S1, S2, S3]);
  assert.equal(
    known.stateOf(S1),
    'draining',
    "For servers that are known here, this server's own record counts",
  );
  assert.deepEqual(known.catalogView, { number: 3, members: [S1, S3] });
  assert.equal(changes, 1);
});

test('a server that has just joined is found in the catalog, which is queried only if it is unknown here', async (t) => {
  const known = makeKnown(temporary(t));
  const rows = [S1, S2, S3].map((id) => ({ ...server(id), storageId: 1, freeBytes: 0, totalBytes: 0 }));
  let asked = 0;
  const listed = async (): Promise<ServerInfo[]> => {
    asked++;
    return rows as unknown as ServerInfo[];
  };
  assert.deepEqual([await known.find(S2, listed), asked], [true, 0]);
  assert.deepEqual([await known.find(S3, listed), asked], [true, 1]);
  assert.deepEqual([await known.find(S3, listed), asked], [true, 1], 'Requests to it have an address now');
  assert.deepEqual([await known.find('s4' as ServerId, listed), asked], [false, 2]);
});

test('servers join, leave, and are remembered', (t) => {
  const folder = temporary(t);
  const known = makeKnown(folder);
  let changes = 0;
  known.onChange(() => changes++);
  const { urls, others } = known;
  assert.deepEqual([...urls.keys()], [S1, S2]);

  known.adoptCatalogList(
    [server('s1'), server('s2'), server('s3')],
    { number: 2, members: [S2, S3] },
    [1, 5],
  );
  assert.deepEqual(
    [[...urls.keys()], others],
    [
      [S1, S2, S3],
      [S2, S3],
    ],
    'In the same objects as before',
  );
  assert.equal(changes, 1);
  known.adoptCatalogList([server('s1'), server('s2')], null, [1, 4]);
  assert.ok(urls.has(S3), 'An earlier report arrives too late');
  known.adoptCatalogList([server('s1', 'draining'), server('s2', 'out'), server('s3')], null, [2, 1]);
  assert.deepEqual(others, [S3]);
  assert.equal(known.isDraining, true);
  assert.equal(known.stateOf(S2), 'out');
  assert.equal(changes, 2);
  known.adoptCatalogList(
    [server('s1', 'out'), server('s2', 'out'), server('s3')],
    { number: 1, members: [S1] },
    [2, 2],
  );
  assert.ok(urls.has(S1), 'A server knows itself, whatever others report about it');
  assert.deepEqual(known.catalogView, { number: 2, members: [S2, S3] }, 'The larger view is the newer one');

  const again = makeKnown(folder, true);
  assert.deepEqual([...again.urls.keys()], [S1, S3]);
  assert.deepEqual(again.catalogView, { number: 2, members: [S2, S3] });
  assert.deepEqual(again.describe(), known.describe());
});

test('addresses that a server was given take precedence over those that others register', (t) => {
  const known = makeKnown(temporary(t));
  known.adoptCatalogList(
    [server('s2', 'in', 'http://elsewhere:1'), server('s3', 'in', 'http://elsewhere:3')],
    null,
    null,
  );
  assert.equal(known.urls.get(S2), urlOf(S2));
  assert.equal(known.urls.get(S3), 'http://elsewhere:3');
});

test('an invalid list is ignored', (t) => {
  const folder = temporary(t);
  const file = join(folder, 'servers.json');
  assert.equal(readRecordedServers(file), null);
  makeKnown(folder).adoptCatalogList([server('s3')], null, null);
  const whole = readFileSync(file, 'utf8');
  assert.notEqual(readRecordedServers(file), null);
  for (const text of [
    '',
    '{',
    '{}',
    '[]',
    whole.replace('"in"', '"maybe"'),
    whole.replace('"s3"', '"S 3"'),
  ]) {
    writeFileSync(file, text);
    assert.equal(readRecordedServers(file), null, text);
  }
});

test('an address is host and port of a base URL', () => {
  assert.deepEqual(addressOf('http://127.0.0.1:7401'), { host: '127.0.0.1', port: 7401 });
  assert.deepEqual(addressOf('http://[::1]:7402'), { host: '::1', port: 7402 });
  assert.deepEqual(addressOf('http://host'), { host: 'host', port: 80 });
});

test("a server registers once, and again only if the catalog's record is wrong", async (t) => {
  const commands: CommandOf<'server-register'>[] = [];
  const born: number[] = [];
  let room = { freeBytes: 500, totalBytes: 1_000 };
  let listed: ServerInfo[] = [];
  let failures = 1;
  let looks = 0;
  let confirmations = 0;
  let removals = 0;
  const known = makeKnown(temporary(t));
  const registrar = new Registrar({
    ...{
      self: S1,
      url: urlOf(S1),
      zone: null,
      labels: null,
      storageId: 'store',
      world: systemWorld,
      log,
      periodMs: 5,
      spaceStep: 0.01,
    },
    space: async () => room,
    firstFileKnown: (file: FileId) => void born.push(file),
    confirmed: () => void confirmations++,
    removed: () => void removals++,
    replaced: () => assert.fail('It was not replaced'),
    listed: (servers) => known.adoptCatalogList(servers.map(knownServerOf), null, null),
    command: async (command) => {
      assert.equal(command.kind, 'server-register');
      commands.push(command);
      const info = registered(command);
      listed = [info];
      return { server: info };
    },
    query: async () => {
      looks++;
      if (failures-- > 0) throw new Error('There is no catalog yet');
      return { servers: listed };
    },
  });
  t.after(() => registrar.close());
  const looked = async (times: number): Promise<void> => {
    const wanted = looks + times;
    for (const deadlineMs = performance.now() + 10_000; looks < wanted; await delay(2)) {
      assert.ok(performance.now() < deadlineMs, 'It queries again and again');
    }
  };
  registrar.start();
  await looked(5);
  assert.equal(registrar.registered, true);
  assert.deepEqual([commands.length, born], [1, [9]]);
  room = { freeBytes: 495, totalBytes: 1_000 };
  await looked(3);
  assert.equal(commands.length, 1, 'A difference of half a percent does not count');
  room = { freeBytes: 300, totalBytes: 1_000 };
  await looked(3);
  assert.deepEqual([commands.length, commands.at(-1)?.freeBytes], [2, 300]);
  listed = [{ ...(listed[0] as ServerInfo), state: 'out' }];
  room = { freeBytes: 100, totalBytes: 1_000 };
  await looked(3);
  assert.equal(commands.length, 2, 'A removed server does not add itself again');
  assert.equal(known.stateOf(S1), 'out');
  assert.deepEqual([confirmations, removals], [1, 1], 'However often it looks');
});

test('an entry of an earlier disk is no registration', async (t) => {
  let looks = 0;
  const registrar = new Registrar({
    ...{ self: S1, url: urlOf(S1), zone: null, labels: null, storageId: 'new', world: systemWorld, log },
    ...{ periodMs: 1, spaceStep: 0.01 },
    space: async () => ({ freeBytes: 1, totalBytes: 2 }),
    firstFileKnown: () => assert.fail('That is the first file of the earlier disk'),
    confirmed: () => assert.fail('It has the earlier disk'),
    removed: () => undefined,
    replaced: () => assert.fail('It was not replaced'),
    listed: () => void looks++,
    query: async () => ({ servers: [] }),
    // The server was removed between the query and the command.
    command: async (command) => {
      assert.ok(command.kind === 'server-register');
      return { server: { ...registered(command), storageId: 'earlier', state: 'out' } };
    },
  });
  t.after(() => registrar.close());
  registrar.start();
  for (const deadlineMs = performance.now() + 10_000; looks < 3; await delay(2))
    assert.ok(performance.now() < deadlineMs, 'It looks again and again');
  assert.equal(registrar.registered, false);
});

function registered(command: CommandOf<'server-register'>): ServerInfo {
  const { id, url, storageId, freeBytes, totalBytes } = command;
  const what = { id, url, storageId, freeBytes, totalBytes };
  return { ...what, zone: '', state: 'in', bornAt: 9, registeredNs: '1' };
}

test('a server reports its labels once all members of the catalog know labels', async (t) => {
  let own: ServerInfo | null = null;
  let isKnown = false;
  let refusals = 0;
  const labelled = Promise.withResolvers<readonly string[]>();
  const registrar = new Registrar({
    ...{ self: S1, url: urlOf(S1), zone: null, labels: ['fast', 'ssd'], storageId: 'store' },
    ...{ world: systemWorld, log, periodMs: 5, spaceStep: 0.01 },
    space: async () => ({ freeBytes: 500, totalBytes: 1_000 }),
    firstFileKnown: () => undefined,
    confirmed: () => undefined,
    removed: () => assert.fail('It is in the cluster'),
    replaced: () => {
      labelled.reject(new Error('It was not replaced'));
      return 'end';
    },
    listed: () => undefined,
    command: async (command) => {
      if (command.kind === 'server-register') {
        own = registered(command);
        return { server: own };
      }
      if (!isKnown) {
        refusals += 1;
        throw new ServiceError('precondition-failed', 'Server s2 runs an earlier release', {
          outdated: ['s2'],
        });
      }
      assert.ok(own !== null);
      own = { ...own, labels: command.labels };
      labelled.resolve(command.labels);
      return { server: own };
    },
    query: async () => {
      if (refusals === 2) isKnown = true;
      return { servers: own === null ? [] : [own] };
    },
  });
  t.after(() => registrar.close());
  registrar.start();
  assert.deepEqual(await labelled.promise, ['fast', 'ssd']);
  assert.equal(refusals, 2, 'It is registered meanwhile, and tries again');
});

/** Files that are created with contents, through real servers. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { catalogOfInode, ROOT_CATALOG } from '../../base/ids.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { FileWithContents, NewFileOutcome } from '../../wire/new-files.ts';
import { systemWorld } from '../../world/system-world.ts';
import { ask } from '../http/ask.ts';
import { isLong, onlyLong } from '../long.ts';
import { RealCluster, until } from './real-cluster.ts';

/** Kills of servers, one after the other. */
const DEATHS = isLong ? 3 : 1;
/** Pause of each client after a file. */
const PAUSE_MS = isLong ? 0 : 10;

let cluster: RealCluster;
let client: ClusterClient;
let root: number;

before(async () => {
  cluster = await RealCluster.start();
  client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  const { volume } = await client.command({
    kind: 'volume-create',
    name: 'v',
    replicas: 3,
    objectBytes: 131_072,
  });
  root = volume.root;
});

after(async () => {
  await client.close();
  await cluster.stop();
});

function birth(inode: number, name: string, contents: string, parent = root): FileWithContents {
  const attributes = {
    mode: 0o640,
    uid: 3,
    gid: 4,
    accessedNs: null,
    modifiedNs: '1000000007',
    changedNs: '9',
  };
  return { parent, name, inode, ...attributes, contents: Buffer.from(contents) };
}

function born(outcome: NewFileOutcome | undefined) {
  assert.equal(outcome?.kind, 'created', JSON.stringify(outcome));
  return outcome.attributes;
}

async function contentsOf(inode: number): Promise<string> {
  const { bytes } = await client.openFile(inode).read(0, 1024 * 1024);
  return Buffer.from(bytes).toString();
}

/** The sum of all servers' counters of this name. */
async function counted(metric: string): Promise<number> {
  const texts = await Promise.all(cluster.urls.map((url) => ask(url, 'GET', '/metrics')));
  const lines = texts.flatMap(({ text }) => text.split('\n')).filter((line) => line.startsWith(`${metric} `));
  return lines.reduce((sum, line) => sum + Number(line.slice(metric.length)), 0);
}

/** Lease attempts that were decided, and syncs of the catalog. */
const ELECTIONS = 'leasehold_lease_events_total{mark="decided"}';
const CATALOG_SYNCS = 'leasehold_sync_duration_seconds_count{of="catalog"}';

test('files created with contents have contents and attributes, and are written like any others', async () => {
  const { first, creatingServer } = await client.reserveInodes(100);
  const births = [
    birth(first, 'a', 'alpha'),
    birth(first + 1, 'b', 'b'.repeat(200_000)),
    birth(first + 2, 'empty', ''),
  ];
  const outcomes = await client.createWithContents(creatingServer, births);
  for (const [place, outcome] of outcomes.entries()) {
    const told = born(outcome);
    const { attributes } = await client.query({ kind: 'attributes', inode: first + place });
    // Only the catalog knows the time of creation, once all its members store it.
    const { createdNs = '0', ...known } = attributes;
    assert.deepEqual(told, known);
    assert.match(createdNs, /^\d+$/);
    assert.equal(attributes.live, false);
    assert.equal(attributes.modifiedNs, '1000000007');
  }
  assert.equal(await contentsOf(first), 'alpha');
  assert.equal(await contentsOf(first + 1), 'b'.repeat(200_000));
  assert.equal(await contentsOf(first + 2), '');
  for (const inode of [first, first + 2]) {
    const file = client.openFile(inode);
    await file.write(0, Buffer.from('A new end'));
    await file.settle();
    const { attributes } = await client.query({ kind: 'attributes', inode });
    assert.equal(attributes.sizeBytes, 9);
    assert.notEqual(attributes.modifiedNs, '1000000007');
    assert.equal(await contentsOf(inode), 'A new end');
  }
});

test('files created with contents are synced by their replicas, and have no primary for that', async () => {
  const { first, creatingServer } = await client.reserveInodes(10);
  const [outcome] = await client.createWithContents(creatingServer, [birth(first, 'synced', 'to be kept')]);
  const { contents, sizeBytes } = born(outcome);
  const before = await counted(ELECTIONS);
  const syncsBefore = await counted(CATALOG_SYNCS);
  // The one that is behind and certainly has it: the third gets its own a moment later.
  const other = cluster.ids[(cluster.ids.indexOf(creatingServer) + 1) % cluster.ids.length] as string;
  for (const asked of [client, new ClusterClient({ world: systemWorld, servers: [cluster.url(other)] })]) {
    const state = await asked.openFile(first).flush();
    assert.deepEqual([state.contents, state.sizeBytes], [contents, sizeBytes]);
    assert.equal(await counted(ELECTIONS), before);
    assert.ok((await counted(CATALOG_SYNCS)) > syncsBefore, 'Its name is durable, too');
    if (asked !== client) await asked.close();
  }
  await client.openFile(first).write(0, Buffer.from('To'));
  assert.equal((await client.openFile(first).flush()).sizeBytes, sizeBytes);
  assert.equal(await contentsOf(first), 'To be kept');
});

test('in a volume with its own catalog, a client that names it creates files with contents', async () => {
  await client.command({ kind: 'catalog-create', name: 'own', replicas: 3, objectBytes: 131_072 });
  const catalog = await client.catalogOfVolume('own');
  assert.notEqual(catalog, ROOT_CATALOG);
  await assert.rejects(
    client.reserveInodes(1, { volume: 'own' }),
    (error: ServiceError) => error.code === 'not-found' && error.details.movedTo === catalog,
  );
  await using own = new ClusterClient({ world: systemWorld, servers: cluster.urls, catalog });
  const { volume } = await own.query({ kind: 'volume', name: 'own' });
  const reserve = () => own.reserveInodes(10, { volume: 'own' });
  await until('its servers are registered with the catalog', async () => {
    const { first, creatingServer } = await reserve();
    const file = birth(first, `try${first}`, '', volume.root);
    const [outcome] = await own.createWithContents(creatingServer, [file]);
    return outcome?.kind === 'created';
  });
  const { first, creatingServer } = await reserve();
  assert.equal(catalogOfInode(first), catalog);
  const files = [birth(first, 'a', 'alpha', volume.root), birth(first + 1, 'b', '', volume.root)];
  for (const outcome of await own.createWithContents(creatingServer, files)) born(outcome);
  await own.flushCatalog();
  assert.equal(await contentsOf(first), 'alpha');
  const file = own.openFile(first + 1);
  await file.write(0, Buffer.from('beta'));
  assert.equal((await file.flush()).sizeBytes, 4);
  await file.settle();
  const { attributes } = await own.query({ kind: 'attributes', inode: first + 1 });
  assert.deepEqual([attributes.sizeBytes, attributes.live], [4, false]);
  // Another server does not know the number: the catalog closes the request.
  const other = cluster.ids.find((id) => id !== creatingServer) as string;
  const [again] = await own.createWithContents(other, [birth(first + 2, 'c', 'c', volume.root)]);
  assert.equal(again?.kind, 'not-created');
  for (const url of cluster.urls) {
    const headers = { 'idempotency-key': 'one' };
    const { status, text } = await ask(url, 'PUT', '/v1/files/own/put', { body: 'put', headers });
    assert.equal(status, 201, text);
  }
});

test('a name that exists refuses one file and no other, and makes its number void at once', async () => {
  const { first, creatingServer } = await client.reserveInodes(10);
  await client.createWithContents(creatingServer, [birth(first, 'taken', 'x')]);
  const births = [
    birth(first + 1, 'taken', 'y'),
    birth(first + 2, 'free', 'z'),
    birth(first + 3, 'n'.repeat(300), 'contents'),
  ];
  const outcomes = await client.createWithContents(creatingServer, births);
  const codes = outcomes.map((outcome) => (outcome.kind === 'refused' ? outcome.code : outcome.kind));
  assert.deepEqual(codes, ['exists', 'created', 'name-too-long']);
  assert.equal(await contentsOf(first + 2), 'z');
  await until('the number is void', async () => {
    const { reserved } = await client.query({ kind: 'placed', inodes: [first + 1, first + 3] });
    return reserved.join() === String(first + 3);
  });
  const place = { parent: root, name: 'other' };
  const node = { kind: 'create-file', place, mode: 0o600, uid: 0, gid: 0, exclusive: true } as const;
  const create = (inode: number) =>
    client.command({ ...node, reserved: { inode, owner: client.inodeOwner } });
  await assert.rejects(create(first + 1), { code: 'precondition-failed' });
  // Another number makes a file in the ordinary way, although contents were stored under it.
  const { attributes } = await create(first + 3);
  assert.equal(attributes.inode, first + 3);
  const file = client.openFile(first + 3);
  await file.truncate(0);
  await file.write(0, Buffer.from('other contents'));
  assert.equal(await contentsOf(first + 3), 'other contents');
});

test('a number creates one file, and only for its owner', async () => {
  const { first, creatingServer } = await client.reserveInodes(10);
  await client.createWithContents(creatingServer, [birth(first, 'once', '1')]);
  const again = await client.createWithContents(creatingServer, [
    birth(first, 'twice', '2'),
    birth(first + 1, 'with it', '2'),
  ]);
  assert.deepEqual(again, [{ kind: 'not-created' }, { kind: 'not-created' }]);
  const other = cluster.ids.find((id) => id !== creatingServer) as string;
  const single = new ClusterClient({ world: systemWorld, servers: [cluster.url(other)] });
  const elsewhere = await single.createWithContents(other, [birth(first + 2, 'elsewhere', '3')]);
  assert.deepEqual(elsewhere, [{ kind: 'not-created' }]);
  await single.close();
  assert.equal(await contentsOf(first), '1');
});

test('files survive the server that created them with contents, and a retry elsewhere answers that it did not create them', async () => {
  const { first, creatingServer } = await client.reserveInodes(10);
  const births = Array.from({ length: 8 }, (_, at) => birth(first + at, `survivor-${at}`, `contents ${at}`));
  for (const outcome of await client.createWithContents(creatingServer, births)) born(outcome);
  await cluster.kill(creatingServer);
  for (let at = 0; at < 8; at++) assert.equal(await contentsOf(first + at), `contents ${at}`);
  const outcomes = await client.createWithContents(creatingServer, [birth(first + 8, 'late', 'late')]);
  assert.deepEqual(outcomes, [{ kind: 'not-created' }]);
  await cluster.restart(creatingServer);
});

test('while one server is down, the others create files with contents', async () => {
  const { creatingServer } = await client.reserveInodes(1);
  const away = cluster.ids.find((id) => id !== creatingServer) as string;
  await cluster.kill(away);
  // On a busy machine the one other server may answer too late; then no file is created with contents.
  let created = 0;
  await until('one is created', async () => {
    const { first, creatingServer: at } = await client.reserveInodes(1);
    const [outcome] = await client.createWithContents(at, [birth(first, `two of three ${first}`, 'here')]);
    if (outcome?.kind === 'created') created = first;
    return created > 0;
  });
  assert.equal(await contentsOf(created), 'here');
  await cluster.restart(away);
});

test('in volumes that need more than a majority, files are created in the ordinary way', async () => {
  const all = { kind: 'volume-create', name: 'all', replicas: 3, objectBytes: 4096, policy: 'all' } as const;
  const { volume } = await client.command(all);
  const { first, creatingServer } = await client.reserveInodes(2);
  assert.deepEqual(await client.createWithContents(creatingServer, [birth(first, 'a', 'a', volume.root)]), [
    { kind: 'not-created' },
  ]);
});

/** As a mount does: what cannot be created with contents is created by the same number, and written. */
async function store(birth: FileWithContents, creatingServer: string): Promise<'created' | 'made'> {
  const { inode, parent, name, contents } = birth;
  const told = await client.createWithContents(creatingServer, [birth]).catch((error: unknown) => {
    if (!(error instanceof ServiceError)) throw error;
    return null;
  });
  if (told?.[0]?.kind === 'created') return 'created';
  assert.notEqual(told?.[0]?.kind, 'refused', JSON.stringify(told));
  const { attributes } = await client.command({
    ...{ kind: 'create-file', mode: 0o600, uid: 0, gid: 0, exclusive: true },
    place: { parent, name },
    reserved: { inode, owner: client.inodeOwner },
  });
  assert.equal(attributes.inode, inode);
  const file = client.openFile(inode);
  await file.write(0, contents);
  await file.settle();
  return 'made';
}

test('every acknowledged file exists, while servers die one after the other', {
  skip: onlyLong('test/simulation/cluster/mounts.test.ts'),
}, async () => {
  const done = new Map<number, string>();
  const madeAfterAll: number[] = [];
  const how = { created: 0, made: 0 };
  let isOver = false;
  const worker = async (at: number): Promise<void> => {
    while (!isOver) {
      const { first, creatingServer } = await client.reserveInodes(20);
      for (let inode = first; inode < first + 20 && !isOver; inode++) {
        const contents = `${at} of ${inode} `.repeat(50);
        const came = await store(birth(inode, `under-fire-${inode}`, contents), creatingServer);
        how[came]++;
        if (came === 'made') madeAfterAll.push(inode);
        done.set(inode, contents);
        await delay(PAUSE_MS);
      }
    }
  };
  const workers = Array.from({ length: 4 }, (_, at) => worker(at));
  for (let turn = 0; turn < DEATHS; turn++) {
    await delay(1_000);
    // The creating server dies first.
    const victim = turn === 0 ? client.catalogPrimary : cluster.ids[turn % 3];
    await cluster.kill(victim as string);
    await delay(500);
    await cluster.restart(victim as string);
  }
  isOver = true;
  await Promise.all(workers);
  assert.ok(how.created > 0 && how.made > 0, JSON.stringify(how));
  // Reading a file needs its lease: this reads the files created in the ordinary way, and one of four of the thousands
  // created with contents.
  const read = new Set([...madeAfterAll, ...[...done.keys()].filter((_, place) => place % 4 === 0)]);
  for (const inode of read) assert.equal(await contentsOf(inode), done.get(inode), `file ${inode}`);
  const { entries } = await client.query({
    kind: 'list',
    inode: root,
    after: 'under-fire-',
    countMax: 10_000,
  });
  const sizes = new Map(entries.map(({ attributes }) => [attributes.inode, attributes.sizeBytes]));
  for (const [inode, { length }] of done) assert.equal(sizes.get(inode), length);
});

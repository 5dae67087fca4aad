/**
 * Goal: a client with a zone reads names and contents from the zone's servers while these can answer, and from others
 * at once when they cannot; a client without one reads as ever.
 * Method: three server processes; the catalog's primary and another one are in zone `far`, the third in `near`. The
 * client is given the addresses of the far ones only. Servers count the requests that they receive and forward.
 */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { after, test } from 'node:test';
import { ClusterClient, type ClusterClientOptions } from '../../client/cluster/cluster-client.ts';
import type { FileHandle } from '../../client/cluster/file-handle.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import { systemWorld } from '../../world/system-world.ts';
import { runCli } from '../client/run-cli.ts';
import { RealCluster, until } from './real-cluster.ts';

const READS = 50;
/** On a busy machine a read lease may end for a moment. */
const NEAR_MIN = 0.9 * READS;
/** Rounds in which the file may get another primary. */
const PRIMARIES_MAX = 10;
const CONTENTS = Buffer.alloc(1_000, 'contents');
const DATA = ['method="GET"', 'route="/v1/data/:file"', 'status="200"'];
const QUERIES = ['route="/v1/catalog/queries"', 'status="200"'];

const cluster = await RealCluster.start();
after(() => cluster.stop());
await cluster.createVolume('main');
const writer = clientOf({});
const catalogPrimary = await primaryOfCatalog();
const [other = '', near = ''] = cluster.ids.filter((id) => id !== catalogPrimary);
const far = [catalogPrimary, other];
for (const id of cluster.ids)
  await writer.command({ kind: 'server-zone', id, zone: id === near ? 'near' : 'far' });

function clientOf(options: Partial<ClusterClientOptions>): ClusterClient {
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls, ...options });
  after(() => client.close());
  return client;
}

function nearClient(): ClusterClient {
  return clientOf({ servers: far.map((id) => cluster.url(id)), zone: 'near' });
}

async function primaryOfCatalog(): Promise<string> {
  await writer.resolve('main', '/');
  await writer.command({
    ...{ kind: 'make-directory', place: { volume: 'main', path: '/directory' } },
    ...{ mode: 0o755, uid: 0, gid: 0 },
  } as const);
  const { catalogPrimary: primary } = writer;
  assert.ok(primary !== null, "The answer to a command names the catalog's primary");
  return primary;
}

/** A file whose primary is in the other zone. */
async function farFile(): Promise<{ readonly inode: number; readonly replicas: readonly string[] }> {
  for (let number = 0; number < 30; number++) {
    const path = `/directory/${number}`;
    await uploadFile(writer, 'main', path, Readable.from([CONTENTS]));
    const { inode, replicas } = await writer.resolve('main', path);
    if ((await primaryOf(inode, replicas)) !== near) return { inode, replicas };
  }
  throw new Error('All files have their primary in the near zone');
}

async function primaryOf(inode: number, replicas: readonly string[]): Promise<string | null> {
  return (await writer.openFile(inode, { replicas }).ensurePrimary()).primary;
}

interface Answered {
  /** Requests that servers received. */
  readonly byNear: number;
  readonly byFar: number;
  /** Requests that the near server forwarded. */
  readonly forwarded: number;
}

async function answeredDuring(labels: readonly string[], work: () => Promise<unknown>): Promise<Answered> {
  const sample = async (): Promise<readonly number[]> => {
    const requests = (id: string): Promise<number> =>
      cluster.countedAt(id, 'leasehold_http_requests_total', ...labels);
    const others = await Promise.all(far.map(requests));
    const forwarded = await cluster.countedAt(near, 'leasehold_forwards_total');
    return [await requests(near), others.reduce((sum, count) => sum + count, 0), forwarded];
  };
  const before = await sample();
  await work();
  const [byNear = 0, byFar = 0, forwarded = 0] = (await sample()).map((now, at) => now - (before[at] ?? 0));
  return { byNear, byFar, forwarded };
}

async function readAll(file: FileHandle): Promise<void> {
  for (let count = 0; count < READS; count++)
    assert.ok(CONTENTS.equals((await file.read(0, CONTENTS.length)).bytes));
}

/** Repeats reads until the zone's server answers nearly all of them by itself. */
async function untilNear(labels: readonly string[], work: () => Promise<unknown>): Promise<void> {
  await until('the server of the zone answers', async () => {
    const { byNear, byFar, forwarded } = await answeredDuring(labels, work);
    return byNear - forwarded >= NEAR_MIN && byFar <= READS - NEAR_MIN;
  });
}

test('contents', { timeout: 300_000 }, async (t) => {
  const { inode, replicas } = await farFile();

  /** Asserts who answers all of the work's requests. On a busy machine another server may become the primary. */
  const assertPrimaryAnswers = async (
    labels: readonly string[],
    requests: number,
    work: () => Promise<unknown>,
  ): Promise<void> => {
    for (let round = 0; round < PRIMARIES_MAX; round++) {
      await work();
      const primary = await primaryOf(inode, replicas);
      const { byNear, byFar } = await answeredDuring(labels, work);
      if ((await primaryOf(inode, replicas)) !== primary) continue;
      const isNear = primary === near;
      assert.deepEqual({ byNear, byFar }, { byNear: isNear ? requests : 0, byFar: isNear ? 0 : requests });
      return;
    }
    throw new Error(`The file had another primary after each of ${PRIMARIES_MAX} rounds`);
  };

  await t.test('a client without a zone reads from the primary', async () => {
    const file = clientOf({}).openFile(inode, { replicas });
    await assertPrimaryAnswers(DATA, READS, () => readAll(file));
  });

  const client = nearClient();
  const file = client.openFile(inode, { replicas });

  await t.test("a client reads from its zone's replica, which it was not told of", async () => {
    await untilNear(DATA, () => readAll(file));
  });

  await t.test('what was just written is read there', async () => {
    for (let round = 0; round < 20; round++) {
      const bytes = Buffer.from(`round ${String(round).padStart(3)}`);
      await writer.openFile(inode, { replicas }).write(0, bytes);
      assert.deepEqual(Buffer.from((await file.read(0, bytes.length)).bytes), bytes);
    }
    await writer.openFile(inode, { replicas }).write(0, CONTENTS);
  });

  await t.test('changes go to the primary', async () => {
    const changes = ['method="PUT"', 'route="/v1/data/:file"'];
    await assertPrimaryAnswers(changes, 1, () => file.write(0, CONTENTS.subarray(0, 10)));
  });

  await t.test('a server of the zone that stops for a while delays reads only for a moment', async () => {
    cluster.signal(near, 'SIGSTOP');
    try {
      const began = performance.now();
      await readAll(file);
      const tookMs = performance.now() - began;
      assert.ok(tookMs < 10_000, `The reads took ${tookMs} ms`);
    } finally {
      cluster.signal(near, 'SIGCONT');
    }
    await untilNear(DATA, () => readAll(file));
  });

  await t.test('without a server of the zone, reads go to the others at once', async () => {
    await cluster.kill(near);
    const began = performance.now();
    await file.read(0, 1);
    // A moment for the refused connection, no lease and no time-out.
    const tookMs = performance.now() - began;
    await readAll(file);
    assert.ok(tookMs < 5_000, `The first read took ${tookMs} ms`);
    await cluster.restart(near);
    await untilNear(DATA, () => readAll(file));
  });
});

test('names', { timeout: 300_000 }, async (t) => {
  const resolveAll = async (client: ClusterClient): Promise<void> => {
    for (let count = 0; count < READS; count++) await client.resolve('main', '/directory');
  };

  await t.test("queries are answered by the zone's member of the catalog", async () => {
    const client = nearClient();
    await untilNear(QUERIES, () => resolveAll(client));
    const before = await cluster.countedAt(near, 'leasehold_catalog_member_reads_total');
    await resolveAll(client);
    assert.ok((await cluster.countedAt(near, 'leasehold_catalog_member_reads_total')) - before >= NEAR_MIN);
  });

  await t.test('without it, queries go to the others', async () => {
    const client = nearClient();
    await untilNear(QUERIES, () => resolveAll(client));
    await cluster.kill(near);
    await resolveAll(client);
    await cluster.restart(near);
    await untilNear(QUERIES, () => resolveAll(client));
  });
});

test('the command line takes its zone from --zone, else from the environment', {
  timeout: 120_000,
}, async () => {
  const run = (argv: readonly string[], zone: string): ReturnType<typeof runCli> =>
    runCli(argv, { env: { LEASEHOLD_SERVERS: cluster.urls.join(','), LEASEHOLD_ZONE: zone } });
  for (const argv of [
    ['ls', 'main:/'],
    ['ls', '--zone', 'near', 'main:/'],
    ['ls', '--zone', 'nowhere', 'main:/'],
  ]) {
    const { code, stdout, stderr } = await run(argv, argv.length === 2 ? 'near' : '');
    assert.equal(code, 0, stderr);
    assert.match(stdout, /directory/);
  }
  for (const [argv, zone] of [
    [['ls', 'main:/'], 'not a zone'],
    [['ls', '--zone', 'not a zone', 'main:/'], ''],
  ] as const) {
    const { code, stderr } = await run(argv, zone);
    assert.equal(code, 2, stderr);
    assert.match(stderr, /a zone has 1 to 63/i);
  }
});

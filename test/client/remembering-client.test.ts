/**
 * Goal: a client's cache and its delegations agree, because both are valid by one session.
 * Method: a server that grants every request, and records the requests.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { CachingClient } from '../../client/cluster/caching-client.ts';
import { Delegations } from '../../client/cluster/delegations.ts';
import type { CacheRequest, CommandRequest, NotedRead, QueryRequest } from '../../wire/catalog-api.ts';
import { decodeNewFiles } from '../../wire/new-files.ts';
import { until } from '../cluster/real-cluster.ts';
import { patientWorld } from '../patient-world.ts';
import { FakeCluster, type Reaction, type SeenRequest } from './fake-cluster.ts';

const SESSION = 11;
const DIRECTORY = 5;
const ATTRIBUTES = {
  ...{ inode: 77, kind: 'file', mode: 0o644, uid: 0, gid: 0, links: 1, sizeBytes: 0, target: '', device: 0 },
  ...{ accessedNs: '1', modifiedNs: '1', changedNs: '1', replicas: [], live: false, xattrs: 0 },
  contents: { epoch: 0, seq: 0 },
} as const;
const BIRTH = {
  ...{ parent: DIRECTORY, name: 'new', inode: 77, mode: 0o644, uid: 0, gid: 0, contents: Buffer.alloc(0) },
  ...{ accessedNs: '1', modifiedNs: '1', changedNs: '1' },
};

/**
 * A client of a server that has a file once it was created with contents; and the recalls and reads that its next poll
 * returns.
 */
async function started(t: TestContext) {
  const cluster = await FakeCluster.start(1);
  const asked: string[] = [];
  const recalls: number[] = [];
  const reads: NotedRead[] = [];
  /** Sessions that begin next. */
  const sessions: number[] = [SESSION, SESSION + 1];
  const owners: unknown[] = [];
  const acked: number[] = [];
  const polled: (number | undefined)[] = [];
  let through = 0;
  let isBorn = false;
  const answer = (value: unknown): Reaction => ({ kind: 'answer', status: 200, text: JSON.stringify(value) });
  const react = ({ path, body }: SeenRequest): Reaction | null => {
    if (path === '/v1/catalog/cache') {
      const request = JSON.parse(body.toString()) as CacheRequest;
      acked.push(request.acked);
      polled.push(request.session);
      const session = request.session ?? sessions.shift() ?? SESSION;
      through += recalls.length + reads.length;
      const news = { recalls: recalls.splice(0), reads: reads.splice(0), through };
      return answer({ session, validMs: 5_000, ...news, fenced: true });
    }
    if (path === '/v1/births') {
      isBorn = true;
      changes.push('births');
      owners.push(decodeNewFiles(body).cache);
      return answer({ outcomes: [{ kind: 'born', attributes: ATTRIBUTES, namedNs: '2' }] });
    }
    if (path === '/v1/catalog/commands') {
      const { command } = JSON.parse(body.toString()) as CommandRequest;
      if ('by' in command && command.by === 'silence') return { kind: 'hang' };
      changes.push(command.kind);
      return answer({ result: { attributes: ATTRIBUTES } });
    }
    if (path !== '/v1/catalog/queries') return null;
    const { query, cache, delegate } = JSON.parse(body.toString()) as QueryRequest & { delegate?: boolean };
    asked.push(query.kind);
    if (delegate === true)
      return answer({
        result: { entries: [], more: false },
        granted: null,
        delegated: SESSION,
        generation: 1,
      });
    const result = isBorn ? { attributes: ATTRIBUTES } : null;
    return answer({ result, granted: { session: cache, refused: [] } });
  };
  for (const server of cluster.servers) server.intercept = react;
  /** Inodes that are about to change, and then the requests that change them. */
  const changes: string[] = [];
  const client = new CachingClient({
    world: patientWorld,
    servers: cluster.urls,
    changing: async (inodes) => {
      // As a kernel does, which is notified in another thread.
      await new Promise(setImmediate);
      changes.push(`nothing is cached of ${inodes.join(', ')}`);
    },
    accessed: async (inodes) => {
      accessed.push(...inodes);
    },
  });
  const accessed: number[] = [];
  const told: number[][] = [];
  const said: unknown[] = [];
  const delegations = new Delegations(client, (error) => assert.fail(String(error)));
  delegations.listen({
    recalled: async (directories) => {
      told.push([...directories]);
      said.push(delegations.asOwner(directories).cache);
    },
    ended: () => undefined,
    flushed: async () => undefined,
  });
  t.after(async () => {
    await client.close();
    await cluster.stop();
  });
  await until('it is delegated', async () => (await delegations.delegate(DIRECTORY, 10)) !== null);
  const lookup = () => client.query({ kind: 'lookup', parent: DIRECTORY, name: 'new' });
  return {
    client,
    delegations,
    asked,
    accessed,
    changes,
    recalls,
    reads,
    acked,
    polled,
    owners,
    told,
    said,
    lookup,
  };
}

test('a cached absence ends when the name is created with contents', async (t) => {
  const { client, delegations, asked, owners, lookup } = await started(t);
  await assert.rejects(lookup(), { code: 'not-found' });
  const before = asked.length;
  await assert.rejects(lookup(), { code: 'not-found' });
  assert.equal(asked.length, before, 'The absence was cached');
  await client.createWithContents('s1', [BIRTH], delegations.asOwner([DIRECTORY]));
  assert.equal((await lookup()).attributes.inode, 77);
  const { cache } = delegations.asOwner([DIRECTORY]);
  assert.deepEqual(owners, [cache], 'It recalls nothing from the creating client');
});

test('after a command with unknown outcome, a client uses no grant of its session', async (t) => {
  const { client, delegations, asked, polled, lookup } = await started(t);
  await assert.rejects(lookup(), { code: 'not-found' });
  const owner = delegations.asOwner([DIRECTORY]);
  assert.equal(owner.cache?.under, SESSION);
  const place = { parent: DIRECTORY, name: 'other' };
  const command = { kind: 'unlink', place, by: 'silence' } as const;
  await assert.rejects(client.command(command, { ...owner, timeoutMs: 500 }), { code: 'unknown' });
  assert.equal(delegations.isDelegated(DIRECTORY), false);
  await until('another session is used', async () => polled.includes(SESSION + 1));
  const before = asked.length;
  await assert.rejects(lookup(), { code: 'not-found' });
  assert.equal(asked.length, before + 1, 'It is requested again');
});

test('a recalled directory is no longer delegated, and the former owner is notified', async (t) => {
  const { delegations, recalls, acked, told } = await started(t);
  assert.ok(delegations.isDelegated(DIRECTORY));
  recalls.push(DIRECTORY);
  await until('that is acknowledged', async () => acked.at(-1) === 1);
  assert.deepEqual([told, delegations.isDelegated(DIRECTORY)], [[[DIRECTORY]], false]);
});

test('flushing a recalled directory waits for no recall of its own', async (t) => {
  const { delegations, recalls, acked, said } = await started(t);
  const owner = delegations.asOwner([DIRECTORY]);
  assert.deepEqual(owner.cache?.forgets, [DIRECTORY]);
  recalls.push(DIRECTORY);
  await until('that is acknowledged', async () => acked.at(-1) === 1);
  assert.deepEqual(said, [owner.cache]);
  assert.deepEqual(delegations.asOwner([DIRECTORY]).cache?.forgets, [], 'It is returned');
});

test('this client drops what it has cached before it requests a change of it', async (t) => {
  const { client, delegations, changes } = await started(t);
  await client.command({ kind: 'set-attributes', inode: 77, mode: 0o600 });
  await client.createWithContents('s1', [BIRTH], delegations.asOwner([DIRECTORY]));
  assert.deepEqual(changes, [
    ...['nothing is cached of 77', 'set-attributes'],
    ...[`nothing is cached of ${DIRECTORY}`, 'births', `nothing is cached of ${DIRECTORY}`],
  ]);
});

test('a read that was reported to the cluster is cached, and drops nothing', async (t) => {
  const { client, delegations, asked, changes, lookup } = await started(t);
  await client.createWithContents('s1', [BIRTH], delegations.asOwner([DIRECTORY]));
  const before = (await lookup()).attributes;
  assert.ok(client.validMs(before) > 0);
  const questions = asked.length;
  const tell = (accessedNs: string, from: string) => {
    const access = { inode: 77, accessedNs, seen: { accessedNs: from, changedNs: '1' } };
    return client.command({ kind: 'note-accesses', volume: 'main', accesses: [access] });
  };
  await tell('9', '1');
  const { attributes } = await lookup();
  assert.deepEqual(attributes, { ...before, accessedNs: '9' });
  assert.ok(client.validMs(attributes) > 0);
  await tell('12', '5');
  assert.equal((await lookup()).attributes.accessedNs, '9', 'Another client has set another time since');
  assert.equal(asked.length, questions);
  assert.deepEqual(changes.slice(-2), ['note-accesses', 'note-accesses']);
});

test('reads of other clients are learned, and drop nothing', async (t) => {
  const { client, delegations, asked, accessed, reads, acked, lookup } = await started(t);
  await client.createWithContents('s1', [BIRTH], delegations.asOwner([DIRECTORY]));
  const before = (await lookup()).attributes;
  const questions = asked.length;
  const hear = async (...news: NotedRead[]) => {
    const acknowledged = Math.max(...acked) + news.length;
    reads.push(...news);
    await until('it is acknowledged', async () => acked.includes(acknowledged));
  };
  await hear({ inode: 77, accessedNs: '9', changedNs: '1' }, { inode: 99, accessedNs: '9', changedNs: '1' });
  const { attributes } = await lookup();
  assert.deepEqual(attributes, { ...before, accessedNs: '9' });
  assert.ok(client.validMs(attributes) > 0);
  await hear({ inode: 77, accessedNs: '8', changedNs: '1' });
  await hear({ inode: 77, accessedNs: '12', changedNs: '2' });
  assert.equal((await lookup()).attributes.accessedNs, '9', 'One is earlier, one of other attributes');
  assert.deepEqual(accessed, [77]);
  assert.equal(asked.length, questions);
});

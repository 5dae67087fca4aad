/**
 * Goal: a mount enters a volume only where the cluster's list says that it is attached.
 * Method: the client library over a server whose answers the test sets.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type CatalogNumber, inodesOf, ROOT_CATALOG } from '../../base/ids.ts';
import type { MovedNumbers } from '../../base/inode-catalogs.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { ClusterAttachments } from '../../fuse/cluster/cluster-attachments.ts';
import type { QueryRequest } from '../../wire/catalog-api.ts';
import type { CatalogState } from '../../wire/volume-catalogs.ts';
import { systemWorld } from '../../world/system-world.ts';
import { FakeCluster, type Reaction } from '../client/fake-cluster.ts';

const TEAM = 3 as CatalogNumber;
const ROOT = inodesOf(TEAM).first;
const ABOVE = 5 as CatalogNumber;
const JUNCTION = 77;
const LIMIT_MS = 2_000;

interface Answers {
  /** Of the server that answers; null: there is no such volume. Absent: it does not answer. */
  volume?: { readonly catalog?: number; readonly root: number; readonly attached?: number } | null;
  row?: { readonly state: CatalogState; readonly attached?: number };
  /** The junction of the volume above, if it has a catalog of its own. */
  above?: number;
  moved?: readonly MovedNumbers[];
  /** The credentials are for some volumes. */
  hidesList?: boolean;
}

async function started(t: TestContext) {
  const answers: Answers = { volume: null };
  const asked: string[] = [];
  const cluster = await FakeCluster.start(1);
  cluster.server(0).intercept = ({ path, body }): Reaction | null => {
    if (path !== '/v1/catalog/queries') return null;
    const { query } = JSON.parse(body.toString()) as QueryRequest;
    asked.push(query.kind);
    const { volume, row, above, moved, hidesList } = answers;
    if (query.kind === 'catalogs' && hidesList === true) return { kind: 'problem', code: 'forbidden' };
    if (query.kind === 'catalogs')
      return answered({
        version: 1,
        catalogs: [
          ...(row === undefined ? [] : [{ number: TEAM, name: 'team', ...row }]),
          ...(above === undefined ? [] : [{ number: ABOVE, name: 'above', state: 'ready', attached: above }]),
        ],
        servers: [],
        ...(moved === undefined ? {} : { moved }),
      });
    if (volume === undefined) return { kind: 'hang' };
    if (volume === null) return { kind: 'problem', code: 'not-found' };
    return answered({ volume: { name: 'team', ...volume } });
  };
  const client = new ClusterClient({
    ...{ world: systemWorld, servers: cluster.urls, operationTimeoutMs: LIMIT_MS },
  });
  const attachments = new ClusterAttachments(client, 0);
  t.after(async () => {
    await attachments.stop();
    await cluster.stop();
  });
  const find = () => attachments.find({ catalog: TEAM, volume: 'team' }, JUNCTION);
  return { answers, asked, find, attachments };
}

function answered(value: object): Reaction {
  return { kind: 'answer', status: 200, text: JSON.stringify(value) };
}

const FOUND = { catalog: TEAM, volume: 'team', root: ROOT };

test('a volume is attached where the answering server knows it to be', async (t) => {
  const { answers, asked, find } = await started(t);
  answers.volume = { catalog: TEAM, root: ROOT, attached: JUNCTION };
  assert.deepEqual(await find(), FOUND);
  assert.deepEqual(asked, ['volume']);
});

test('where the answering server knows nothing of it, the root catalog decides', async (t) => {
  const { answers, asked, find } = await started(t);
  for (const attached of [{}, { attached: JUNCTION + 1 }]) {
    asked.splice(0);
    answers.volume = { catalog: TEAM, root: ROOT, ...attached };
    answers.row = { state: 'ready', attached: JUNCTION };
    assert.deepEqual(await find(), FOUND);
    assert.deepEqual(asked, ['volume', 'catalogs']);
    answers.row = { state: 'ready', ...attached };
    assert.equal(await find(), null);
    answers.row = { state: 'removed', attached: JUNCTION };
    assert.equal(await find(), null);
    delete answers.row;
    assert.equal(await find(), null);
  }
});

test('credentials for some volumes: an inert junction is one, until the answering server knows better', async (t) => {
  const { answers, find } = await started(t);
  answers.hidesList = true;
  answers.volume = { catalog: TEAM, root: ROOT };
  assert.equal(await find(), null);
  answers.volume = { catalog: TEAM, root: ROOT, attached: JUNCTION };
  assert.deepEqual(await find(), FOUND);
});

test('a volume that was removed, or replaced by one of its name, is not attached', async (t) => {
  const { answers, find } = await started(t);
  assert.equal(await find(), null);
  const other = (TEAM + 1) as CatalogNumber;
  answers.volume = { catalog: other, root: inodesOf(other).first, attached: JUNCTION };
  assert.equal(await find(), null);
  answers.volume = { root: 5, attached: JUNCTION };
  assert.equal(await find(), null);
});

test('a volume that moved to its catalog has the numbers that moved with it', async (t) => {
  const { answers, asked, find, attachments } = await started(t);
  const root = 1_000;
  answers.volume = { catalog: TEAM, root, attached: JUNCTION };
  await assert.rejects(find(), { errno: 'EIO' });
  answers.moved = [{ first: root, end: root + 10, catalog: TEAM }];
  assert.deepEqual(await find(), { ...FOUND, root });
  assert.deepEqual(
    [root - 1, root, root + 9, root + 10, ROOT].map((inode) => attachments.catalogOf(inode)),
    [ROOT_CATALOG, TEAM, TEAM, ROOT_CATALOG, TEAM],
  );
  asked.splice(0);
  await find();
  assert.deepEqual(asked, ['volume']);
});

test('a file handle leads to a volume that is attached below the mounted one', async (t) => {
  const { answers, attachments } = await started(t);
  const top = 1;
  const find = () => attachments.findByNumber(ROOT + 5, top);
  answers.volume = { catalog: TEAM, root: ROOT };
  assert.equal(await find(), null);
  answers.row = { state: 'ready' };
  assert.equal(await find(), null);
  answers.row = { state: 'ready', attached: JUNCTION };
  assert.deepEqual(await find(), { attachment: FOUND, junctions: [JUNCTION] });
  assert.equal(await attachments.findByNumber(top + 5, top), null);
  const inAbove = inodesOf(ABOVE).first + 9;
  answers.row = { state: 'ready', attached: inAbove };
  assert.equal(await find(), null);
  answers.above = JUNCTION;
  assert.deepEqual(await find(), { attachment: FOUND, junctions: [inAbove, JUNCTION] });
  assert.deepEqual(await attachments.findByNumber(ROOT + 5, inodesOf(ABOVE).first), {
    ...{ attachment: FOUND, junctions: [inAbove] },
  });
  answers.above = ROOT + 7;
  assert.equal(await find(), null);
});

test('after a time limit, requests about the volume fail soon, until it answers', async (t) => {
  const { answers, find } = await started(t);
  delete answers.volume;
  const failed = async (): Promise<number> => {
    const beganMs = performance.now();
    await assert.rejects(find(), { code: 'no-majority' });
    return performance.now() - beganMs;
  };
  assert.ok((await failed()) > LIMIT_MS / 2);
  assert.ok((await failed()) < LIMIT_MS / 2);
  answers.volume = { catalog: TEAM, root: ROOT, attached: JUNCTION };
  assert.deepEqual(await find(), FOUND);
});

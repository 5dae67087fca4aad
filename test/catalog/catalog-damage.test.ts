import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { CatalogSubject } from '../../server/catalog/catalog-subject.ts';
import { CatalogStore } from '../../server/storage/catalog-store.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { damageColdPage } from '../storage/cold-page.ts';
import { SERVERS } from './fixture.ts';

const VIEW = { number: 1, members: SERVERS.slice(0, 3) };
const NO_SESSIONS = new Uint8Array(0);
const DIRECTORIES = 200;

const base = fs.mkdtempSync(path.join(os.tmpdir(), 'leasehold-damage-'));
after(() => fs.rmSync(base, { recursive: true, force: true }));

const epoch = (counter: number): Epoch => ({
  ...{ counter, server: 's1' as ServerId, incarnation: 7 as Incarnation },
});
const open = (folder: string): Promise<CatalogStore> =>
  CatalogStore.open({ world: systemWorld, folder, view: VIEW });
const directory = (name: string): Command => ({
  ...{ kind: 'make-directory', place: { volume: 'main', path: name } },
  ...{ mode: 0o755, uid: 0, gid: 0 },
});
const namesIn = (store: CatalogStore): number => {
  const { attributes } = store.query({ kind: 'resolve', volume: 'main', path: '/', follow: false });
  return store.query({ kind: 'list', inode: attributes.inode, after: '', countMax: 10_000 }).entries.length;
};
const enter = async (store: CatalogStore, at: Epoch): Promise<void> => {
  await store.promise(at);
  await store.install(at, store.record().seq, null);
};

let session = 0;
/** @returns the body of a batch, which the store is about to commit as its next operation */
function execute(store: CatalogStore, commands: readonly Command[]): Uint8Array {
  store.begin();
  const requests = commands.map((command) => ({ session: ++session, number: 1, command }));
  const { body } = store.execute(requests, { nowNs: 1n, placement: (count) => SERVERS.slice(0, count) });
  assert(body !== null);
  return body;
}

const whole = path.join(base, 'whole');
before(async () => {
  fs.mkdirSync(whole);
  const store = await open(whole);
  await enter(store, epoch(1));
  const names = Array.from({ length: DIRECTORIES }, (_, at) => directory(`d${at}`));
  execute(store, [{ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 }, ...names]);
  await store.finish(epoch(1), 1);
  await store.close();
});

let copies = 0;
/** A replica with all directories: intact, or with a damaged page that no query has read yet. */
async function replica(isDamaged: boolean): Promise<{ store: CatalogStore; subject: CatalogSubject }> {
  const folder = path.join(base, `copy-${++copies}`);
  fs.cpSync(whole, folder, { recursive: true });
  if (isDamaged) damageColdPage(path.join(folder, 'catalog.db'));
  const store = await open(folder);
  return { store, subject: new CatalogSubject(store) };
}

/** Reads the damaged page. */
const meet = (store: CatalogStore): void =>
  assert.throws(() => namesIn(store), { name: 'ServiceError', code: 'storage' });

test("a replica that has read a damaged page is damaged until it has installed another replica's copy", async () => {
  const [source, damaged] = [await replica(false), await replica(true)];
  const told: (string | null)[] = [];
  damaged.store.damage.watch((reason) => told.push(reason));
  assert.equal(damaged.store.trust(), 'intact', 'No query has read the page');
  meet(damaged.store);
  assert.equal(damaged.store.trust(), 'damaged');
  await source.store.promise(epoch(2));
  await damaged.store.promise(epoch(2));
  // It has the source's position: the log has nothing that it lacks.
  const { position } = await damaged.subject.fetch((method, payload) =>
    source.subject.serve(method, payload),
  );
  await damaged.subject.install(epoch(2), position.seq, NO_SESSIONS, true);
  assert.equal(damaged.store.trust(), 'intact');
  assert.equal(namesIn(damaged.store), DIRECTORIES);
  assert.deepEqual([...damaged.store.dump()], [...source.store.dump()]);
  assert.deepEqual(told.slice(1), [null]);
  for (const { store } of [source, damaged]) await store.close();
});

test('a batch that reads a damaged page is rolled back; the replica can still promise and be replaced', async () => {
  const [source, damaged] = [await replica(false), await replica(true)];
  const body = execute(source.store, [directory('more')]);
  await assert.rejects(damaged.store.apply(epoch(1), 2, body), { name: 'ServiceError', code: 'storage' });
  assert.equal(damaged.store.record().seq, 1);
  assert.equal(damaged.store.trust(), 'damaged');
  await source.store.finish(epoch(1), 2);
  await source.store.promise(epoch(2));
  await damaged.store.promise(epoch(2));
  const { position } = await damaged.subject.fetch((method, payload) =>
    source.subject.serve(method, payload),
  );
  await damaged.subject.install(epoch(2), position.seq, NO_SESSIONS, true);
  assert.equal(namesIn(damaged.store), DIRECTORIES + 1);
  for (const { store } of [source, damaged]) await store.close();
});

test('a batch of a primary that reads a damaged page is rolled back', async () => {
  const { store } = await replica(true);
  store.begin();
  const request = { session: ++session, number: 1, command: directory('more') };
  assert.throws(() => store.execute([request], { nowNs: 1n, placement: () => [] }), { code: 'storage' });
  assert.equal(store.inTransaction, false);
  assert.equal(store.trust(), 'damaged');
  await store.flush();
  await store.close();
});

test('a source learns from the receiving replica that its copy is damaged, and checks its own database', async () => {
  const [source, other, empty] = [await replica(true), await replica(false), path.join(base, 'empty')];
  fs.mkdirSync(empty);
  const store = await open(empty);
  const subject = new CatalogSubject(store);
  // The log contains all of so small a catalog.
  store.damage.notice('as if');
  const flipping = async (method: string, payload: Uint8Array): Promise<Uint8Array> => {
    const answer = await other.subject.serve(method, payload);
    return method === 'snapshot-pages' ? answer.map((byte, at) => (at % 4096 === 0 ? 0xff : byte)) : answer;
  };
  await assert.rejects(subject.fetch(flipping), { code: 'storage' });
  assert.equal(other.store.trust(), 'intact', 'The copy was damaged on the way');
  await assert.rejects(
    subject.fetch((method, payload) => source.subject.serve(method, payload)),
    { code: 'storage' },
  );
  assert.equal(source.store.trust(), 'damaged');
  for (const each of [source.store, other.store, store]) await each.close();
});

import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, test } from 'node:test';
import Database from 'better-sqlite3';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { Recount } from '../../catalog/recount.ts';
import { outcomeResult } from '../../catalog/sessions.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { EPOCH_ZERO } from '../../replica/epoch.ts';
import type { LogBounds } from '../../server/storage/catalog-log.ts';
import { CatalogStore } from '../../server/storage/catalog-store.ts';
import {
  type CatalogTail,
  decodeDescription,
  decodeTail,
  encodeTail,
  type StagedCatalog,
} from '../../server/storage/catalog-transfer.ts';
import { hasLogReached } from '../../server/storage/database-log.ts';
import type { Command, CommandRequest } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { damageColdPage } from '../storage/cold-page.ts';
import { SERVERS } from './fixture.ts';

const VIEW = { number: 1, members: SERVERS.slice(0, 3) };
const base = fs.mkdtempSync(path.join(os.tmpdir(), 'leasehold-catalog-'));
after(() => fs.rmSync(base, { recursive: true, force: true }));
let folders = 0;

function newFolder(): string {
  folders += 1;
  const folder = path.join(base, `f${folders}`);
  fs.mkdirSync(folder);
  return folder;
}

function epoch(counter: number, server = 's1'): Epoch {
  return { counter, server: server as ServerId, incarnation: 7 as Incarnation };
}

const open = (folder = newFolder(), logBounds: Partial<LogBounds> = {}): Promise<CatalogStore> =>
  CatalogStore.open({ world: systemWorld, folder, view: VIEW, logBounds });

const VOLUME: Command = { kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 };
const directory = (name: string): Command => ({
  kind: 'make-directory',
  place: { volume: 'main', path: name },
  mode: 0o755,
  uid: 0,
  gid: 0,
});
const names = (store: CatalogStore): string[] => {
  const { attributes } = store.query({ kind: 'resolve', volume: 'main', path: '/', follow: false });
  const page = store.query({ kind: 'list', inode: attributes.inode, after: '', countMax: 10_000 });
  return page.entries.map((entry) => entry.name);
};
const DIRECTORIES = 300;
const dump = (store: CatalogStore): string[] => [...store.dump()];

let session = 0;
function request(command: Command): CommandRequest {
  session += 1;
  return { session, number: 1, command };
}

/** Executes commands as one batch, and stops before the batch is replicated. */
function execute(store: CatalogStore, ...commands: Command[]): Uint8Array {
  store.begin();
  const { body, outcomes } = store.execute(commands.map(request), {
    nowNs: 1_700_000_000_000_000_000n,
    placement: (count) => SERVERS.slice(0, count),
  });
  for (const outcome of outcomes) outcomeResult(outcome);
  assert(body !== null);
  return body;
}

/**
 * Executes a batch at a primary, then at backups.
 * @returns its sequence number
 */
async function replicate(
  stores: readonly CatalogStore[],
  at: Epoch,
  ...commands: Command[]
): Promise<number> {
  const [primary, ...backups] = stores;
  assert(primary !== undefined);
  await primary.ready();
  const body = execute(primary, ...commands);
  const seq = primary.record().seq + 1;
  for (const backup of backups) await backup.apply(at, seq, body);
  await primary.finish(at, seq);
  return seq;
}

/** Promises and installs an epoch, and keeps the state. */
async function enter(store: CatalogStore, at: Epoch, staged: StagedCatalog | null = null): Promise<void> {
  await store.promise(at);
  await store.install(at, staged?.position.seq ?? store.record().seq, staged);
}

/** Fetches what `store` lacks of `from`'s log, in small pieces, encoded as on the wire. */
function fetchTail(store: CatalogStore, from: CatalogStore, bytesMax = 200): CatalogTail[] | null {
  const pieces: CatalogTail[] = [];
  let { last } = decodeDescription(store.describe());
  for (;;) {
    const piece = from.tail(last, bytesMax);
    if (piece === null) return null;
    pieces.push(decodeTail(encodeTail(piece)));
    last = piece.entries.at(-1) ?? last;
    if (!piece.more) return pieces;
  }
}

/** All pieces as one. */
function joined(pieces: readonly CatalogTail[] | null): CatalogTail {
  const last = pieces?.at(-1);
  assert(last !== undefined);
  return { ...last, entries: pieces?.flatMap(({ entries }) => entries) ?? [] };
}

async function* fetchSnapshot(from: CatalogStore, chunkBytes = 5000): AsyncGenerator<Uint8Array> {
  const { id, bytes } = await from.snapshot();
  for (let offset = 0; offset < bytes; offset += chunkBytes) {
    yield await from.readSnapshot(id, offset, chunkBytes);
  }
  await from.closeSnapshot(id);
}

test('a prepared batch is neither visible nor durable before its commit, and is committed once', async () => {
  const store = await open();
  await enter(store, epoch(1));
  await replicate([store], epoch(1), VOLUME);
  const before = { dump: dump(store), position: store.record() };
  execute(store, directory('gone'));
  store.prepare();
  assert.deepEqual({ dump: dump(store), position: store.record() }, before);
  store.rollback();
  assert.deepEqual({ dump: dump(store), position: store.record() }, before);
  const body = execute(store, directory('kept'));
  store.prepare();
  store.prepare();
  await store.finish(epoch(1), 2);
  assert.deepEqual(names(store), ['kept']);
  const tail = store.tail({ seq: 1, epoch: epoch(1) }, 10_000);
  assert.deepEqual(
    tail?.entries.map((entry) => [entry.seq, Buffer.from(entry.body)]),
    [[2, Buffer.from(body)]],
  );
  await store.close();
});

test('a batch that cannot be prepared fails at its commit, and leaves nothing', async () => {
  const folder = newFolder();
  const store = await open(folder);
  await enter(store, epoch(1));
  await replicate([store], epoch(1), VOLUME);
  const other = new Database(path.join(folder, 'catalog.db'));
  other.exec("CREATE TRIGGER full BEFORE INSERT ON replica_log BEGIN SELECT RAISE(ABORT, 'refused'); END");
  other.close();
  execute(store, directory('a'));
  store.prepare();
  await assert.rejects(store.finish(epoch(1), 2), /refused/);
  assert.equal(store.inTransaction, false);
  await store.close();
  const again = new Database(path.join(folder, 'catalog.db'));
  again.exec('DROP TRIGGER full');
  again.close();
  const reopened = await open(folder);
  assert.deepEqual([reopened.record().seq, names(reopened)], [1, []]);
  await reopened.close();
});

test('a batch is visible after its commit, and not at all after a rollback', async () => {
  const store = await open();
  await enter(store, epoch(1));
  await replicate([store], epoch(1), VOLUME);
  execute(store, directory('a'));
  assert.equal(store.inTransaction, true);
  assert.deepEqual(names(store), []);
  await store.finish(epoch(1), 2);
  assert.deepEqual(names(store), ['a']);
  const before = dump(store);
  execute(store, directory('b'));
  store.rollback();
  store.rollback();
  assert.equal(store.inTransaction, false);
  assert.deepEqual(dump(store), before);
  assert.equal(store.record().seq, 2);
  await replicate([store], epoch(1), directory('c'));
  assert.deepEqual(names(store), ['a', 'c']);
  await store.close();
});

test('a batch without commands to execute has no body', async () => {
  const store = await open();
  await enter(store, epoch(1));
  await replicate([store], epoch(1), VOLUME);
  const retry = { session, number: 1, command: VOLUME };
  store.begin();
  const { body, outcomes } = store.execute([retry], { nowNs: 0n, placement: () => [] });
  assert.equal(body, null);
  assert.equal(outcomes[0]?.kind, 'done');
  store.rollback();
  await store.close();
});

test('backups that apply the same batches are equal, also after a restart', async () => {
  const folder = newFolder();
  const [primary, backup] = [await open(), await open(folder)];
  for (const store of [primary, backup]) await enter(store, epoch(1));
  await replicate([primary, backup], epoch(1), VOLUME, directory('a'));
  await replicate([primary, backup], epoch(1), directory('a/b'));
  await backup.apply(epoch(1), 3, new Uint8Array(0));
  await backup.flush();
  await backup.close();
  const again = await open(folder);
  assert.deepEqual(dump(again), dump(primary));
  const { promised, installed, seq, view, sessions } = again.record();
  assert.deepEqual([promised, installed, seq, view], [epoch(1), epoch(1), 3, VIEW]);
  assert.equal(sessions.length, 0);
  await primary.close();
  await again.close();
});

test('a grown write-ahead log is checkpointed while batches wait and readers read', async () => {
  const folders = [newFolder(), newFolder()];
  const stores = await Promise.all(folders.map((folder) => open(folder)));
  const [primary, backup] = stores as [CatalogStore, CatalogStore];
  for (const store of stores) await enter(store, epoch(1));
  await replicate(stores, epoch(1), VOLUME, directory('a'));
  const logBytes = (folder: string): number => fs.statSync(path.join(folder, 'catalog.db-wal')).size;
  const value = Buffer.alloc(60_000, 7).toString('base64');
  const inode = primary.query({ kind: 'resolve', volume: 'main', path: '/a', follow: false }).attributes
    .inode;
  const peaks = [0, 0];
  for (let turn = 0; turn < 500; turn++) {
    const name = `user.${turn % 50}`;
    await replicate(stores, epoch(1), { kind: 'set-xattr', inode, name, value, mode: 'set' });
    assert.equal(primary.query({ kind: 'xattr', inode, name }).value, value);
    for (const [place, folder] of folders.entries())
      peaks[place] = Math.max(peaks[place] ?? 0, logBytes(folder));
  }
  // Without checkpoints, the log would contain each of the five hundred values.
  for (const peak of peaks) assert.ok(peak > 16 * 2 ** 20 && peak < 32 * 2 ** 20, `a log of ${peak} bytes`);
  assert.deepEqual(dump(backup), dump(primary));
  await primary.close();
  await backup.close();
  const again = await open(folders[1]);
  assert.equal(again.record().seq, 501);
  assert.equal(again.query({ kind: 'xattrs', inode }).names.length, 50);
  await again.close();
});

test('after a checkpoint the write-ahead log restarts in its file, and is checkpointed again at the same length', async () => {
  const folder = newFolder();
  const logFileBytesMax = 256 * 1024;
  const store = await CatalogStore.open({ world: systemWorld, folder, view: VIEW, logFileBytesMax });
  await enter(store, epoch(1));
  await replicate([store], epoch(1), VOLUME);
  const log = fs.openSync(path.join(folder, 'catalog.db-wal'), 'r');
  const reached: boolean[] = [];
  for (let turn = 0; turn < 600; turn++) {
    await replicate([store], epoch(1), directory(`d${turn}`));
    const isLong = hasLogReached(log, logFileBytesMax);
    if (isLong !== reached.at(-1)) reached.push(isLong);
    // As another process finds it after this one was killed.
    if (turn % 50 !== 0) continue;
    const copy = newFolder();
    execFileSync('cp', ['-r', `${folder}/.`, copy]);
    const next = await open(copy);
    assert.deepEqual(dump(next), dump(store));
    await next.close();
  }
  assert.ok(reached.length > 6, `Long or not: ${reached}`);
  const { size } = fs.fstatSync(log);
  assert.ok(size > logFileBytesMax && size < 32 * logFileBytesMax, `a log of ${size} bytes`);
  await store.close();
  fs.closeSync(log);
});

test('programming errors end in assertions', async () => {
  const store = await open();
  assert.deepEqual(store.record().promised, EPOCH_ZERO);
  await enter(store, epoch(3));
  const failure = { name: 'AssertionFailure' };
  await assert.rejects(store.promise(epoch(2)), failure);
  await assert.rejects(store.apply(epoch(3), 2, new Uint8Array(0)), failure);
  await assert.rejects(store.apply(epoch(2), 1, new Uint8Array(0)), failure);
  await assert.rejects(store.install(epoch(2), 0, null), failure);
  execute(store, VOLUME);
  assert.throws(() => store.begin(), failure);
  await assert.rejects(store.promise(epoch(4)), failure, 'Roll back first');
  await assert.rejects(store.apply(epoch(3), 1, new Uint8Array(0)), failure);
  await store.flush();
  store.rollback();
  await assert.rejects(store.apply(epoch(3), 1, Buffer.from('[1]')), {
    name: 'ServiceError',
    code: 'storage',
  });
  await store.promise(epoch(4));
  await store.close();
  assert.throws(() => store.begin(), { name: 'ServiceError' });
});

test('operations ordered after one that the disk refused are refused, and are no assertion failure', async () => {
  const store = await open();
  await enter(store, epoch(1));
  const [, body] = [await replicate([store], epoch(1), VOLUME), execute(store, directory('a'))];
  store.rollback();
  // In the same tick of the event loop, as the operations of one frame: the refusal is not known in between.
  const both = [store.apply(epoch(1), 2, Buffer.from('[1]')), store.apply(epoch(1), 3, body)];
  for (const { status, reason } of (await Promise.allSettled(both)) as PromiseRejectedResult[]) {
    assert.deepEqual([status, reason.name, reason.code], ['rejected', 'ServiceError', 'storage']);
  }
  await store.apply(epoch(1), 2, body);
  assert.deepEqual(names(store), ['a']);
  await assert.rejects(store.apply(epoch(1), 4, body), { name: 'AssertionFailure' }, 'A gap of its own');
  await store.close();
});

test('a loss of power takes inode numbers back, and a later epoch never gives them out again', async () => {
  const folder = newFolder();
  const [primary, backup] = [await open(), await open(folder)];
  for (const store of [primary, backup]) await enter(store, epoch(1));
  await replicate([primary, backup], epoch(1), VOLUME);
  const inodeOf = (store: CatalogStore, name: string): number =>
    store.query({ kind: 'resolve', volume: 'main', path: `/${name}`, follow: false }).attributes.inode;
  // The backup has what the disks have after the loss of power: without this directory.
  await replicate([primary], epoch(1), directory('lost'));
  const lost = inodeOf(primary, 'lost');
  await primary.close();
  await enter(backup, epoch(2));
  const third = await open();
  const { last } = decodeDescription(third.describe());
  assert.equal(last.seq, 0);
  await replicate([backup], epoch(2), directory('next'));
  assert.ok(inodeOf(backup, 'next') > lost + 1_000_000, `${inodeOf(backup, 'next')} after ${lost}`);
  const staged = third.stageTail(joined(fetchTail(third, backup)));
  await third.promise(epoch(3));
  await third.install(epoch(3), backup.record().seq, staged);
  assert.deepEqual(dump(third), dump(backup), 'A replica that installs the log numbers inodes alike');
  for (const store of [backup, third]) await store.close();
});

test('a replica that was disconnected fetches the end of the log', async () => {
  const [primary, backup] = [await open(), await open()];
  for (const store of [primary, backup]) await enter(store, epoch(1));
  await replicate([primary, backup], epoch(1), VOLUME);
  for (let index = 0; index < 20; index++) await replicate([primary], epoch(1), directory(`d${index}`));
  await enter(primary, epoch(2));
  await replicate([primary], epoch(2), directory('e'));

  const pieces = fetchTail(backup, primary);
  assert(pieces !== null && pieces.length > 5, 'It arrives in pieces');
  const staged = backup.stageTail(joined(pieces));
  assert.deepEqual(staged.position, { epoch: epoch(2), seq: 22 });
  await backup.promise(epoch(3, 's2'));
  const installed = backup.install(epoch(3, 's2'), 22, staged);
  // A batch that arrives meanwhile waits for its turn.
  await backup.promise(epoch(9, 's3'));
  await installed;
  assert.deepEqual(dump(backup), dump(primary));
  assert.deepEqual([backup.record().installed, backup.record().promised], [epoch(3, 's2'), epoch(9, 's3')]);
  // The last operation is still that of epoch 2, so both have the same state.
  assert.deepEqual(fetchTail(backup, primary), [{ installed: epoch(2), entries: [], more: false }]);
  assert.deepEqual(fetchTail(primary, backup), [{ installed: epoch(3, 's2'), entries: [], more: false }]);
  await primary.close();
  await backup.close();
});

test('a replica with an operation that the others lack fetches a snapshot, not the end of the log', async () => {
  const [primary, other] = [await open(), await open()];
  for (const store of [primary, other]) await enter(store, epoch(1));
  await replicate([primary, other], epoch(1), VOLUME);
  await replicate([other], epoch(1), directory('uncommitted'));
  await enter(primary, epoch(2));
  await replicate([primary], epoch(2), directory('a'));
  assert.equal(fetchTail(other, primary), null, 'Same seq, another epoch');
  await replicate([primary], epoch(2), directory('b'));
  assert.equal(fetchTail(other, primary), null, 'Behind, and with an operation that this log never had');
  await replicate([other], epoch(1), directory('uncommitted-2'), directory('uncommitted-3'));
  await replicate([other], epoch(1), directory('uncommitted-4'));
  assert.equal(fetchTail(other, primary), null, 'Ahead');
  const staged = await other.stageSnapshot(fetchSnapshot(primary));
  await enter(other, epoch(3), staged);
  assert.deepEqual(dump(other), dump(primary));
  await replicate([other], epoch(3), directory('c'));
  await primary.close();
  await other.close();
});

test('the log is bounded, and then an empty replica fetches a snapshot', async () => {
  const folder = newFolder();
  const [primary, empty] = [await open(newFolder(), { bytesMin: 0, bytesMax: 20_000 }), await open(folder)];
  await enter(primary, epoch(1));
  await replicate([primary], epoch(1), VOLUME);
  assert.equal(fetchTail(empty, primary)?.length, 1);
  for (let index = 0; index < DIRECTORIES; index++)
    await replicate([primary], epoch(1), directory(`d${index}`));
  assert.equal(fetchTail(empty, primary), null);

  await empty.promise(epoch(5));
  const staged = await empty.stageSnapshot(fetchSnapshot(primary, 100_000));
  assert.deepEqual(staged.position, { epoch: epoch(1), seq: DIRECTORIES + 1 });
  const flushes = [empty.flush(), empty.flush()];
  await empty.install(epoch(4), staged.position.seq, staged);
  await Promise.all(flushes);
  assert.deepEqual(empty.record().promised, epoch(5), 'A promise stays');
  assert.deepEqual(empty.record().installed, epoch(4));
  assert.deepEqual(dump(empty), dump(primary));
  // It continues like any replica, and can itself send the end of its log.
  await replicate([empty], epoch(4), directory('next'));
  assert.equal(fetchTail(primary, empty)?.flatMap((piece) => piece.entries).length, 1);
  await empty.close();
  assert.deepEqual(fs.readdirSync(folder), ['catalog.db']);
  const again = await open(folder);
  assert.equal(names(again).length, DIRECTORIES + 1);
  await again.close();
  await primary.close();
});

test('a snapshot shows one point in time, while batches continue', async () => {
  const [primary, backup] = [await open(), await open()];
  await enter(primary, epoch(1));
  await replicate([primary], epoch(1), VOLUME);
  const many = (from: number) => Array.from({ length: 2000 }, (_, index) => directory(`d${from + index}`));
  for (let from = 0; from < 20_000; from += 2000) await replicate([primary], epoch(1), ...many(from));
  const { seq } = primary.record();
  // It does not contain an open batch, which may wait for the replica that takes the copy.
  execute(primary, directory('open'));
  const early = await primary.snapshot();
  assert.deepEqual(early.position, { epoch: epoch(1), seq });
  await primary.closeSnapshot(early.id);
  // Nor what is applied while it is copied.
  const copying = primary.snapshot();
  await primary.finish(epoch(1), seq + 1);
  const before = dump(primary);
  let during = 0;
  let copied = false;
  const done = copying.finally(() => {
    copied = true;
  });
  while (!copied) {
    await replicate([primary], epoch(1), directory(`during${during++}`));
    await new Promise(setImmediate);
  }
  const { id, bytes, position } = await done;
  assert.deepEqual(position, { epoch: epoch(1), seq: seq + 1 });
  async function* chunks(): AsyncGenerator<Uint8Array> {
    yield await primary.readSnapshot(id, 0, bytes + 1000);
  }
  const staged = await backup.stageSnapshot(chunks());
  await enter(backup, epoch(2), staged);
  assert.deepEqual(dump(backup), before);
  assert(during > 0);
  await primary.closeSnapshot(id);
  await assert.rejects(primary.readSnapshot(id, 0, 1), { code: 'not-found' });

  // A replica that installs another state aborts the copy that it is sending. It copies while it sends.
  await primary.promise(epoch(3));
  const theirs = await primary.stageSnapshot(fetchSnapshot(backup, 1_000_000));
  const aborted = await primary.snapshot();
  const end = primary.readSnapshot(aborted.id, aborted.bytes - 1, 1);
  const givenUp = assert.rejects(end, { name: 'ServiceError', code: 'precondition-failed' });
  await primary.install(epoch(3), theirs.position.seq, theirs);
  await givenUp;
  assert.deepEqual(dump(primary), before);
  await primary.close();
  await backup.close();
});

test('a damaged snapshot is refused and leaves no files', async () => {
  const folder = newFolder();
  const [primary, backup] = [await open(), await open(folder)];
  await enter(primary, epoch(1));
  await replicate(
    [primary],
    epoch(1),
    VOLUME,
    ...Array.from({ length: 500 }, (_, index) => directory(`d${index}`)),
  );
  async function* damaged(): AsyncGenerator<Uint8Array> {
    for await (const chunk of fetchSnapshot(primary, 4096)) {
      if (chunk.length > 0 && chunk[0] === 13) chunk.fill(0xff, 0, 100);
      yield chunk;
    }
  }
  async function* cut(): AsyncGenerator<Uint8Array> {
    let left = 8;
    for await (const chunk of fetchSnapshot(primary, 4096)) if (left-- > 0) yield chunk;
  }
  async function* broken(): AsyncGenerator<Uint8Array> {
    yield Buffer.alloc(10_000, 7);
    throw new Error('The connection broke');
  }
  for (const chunks of [damaged(), cut(), broken()]) {
    await assert.rejects(backup.stageSnapshot(chunks), { name: 'ServiceError', code: 'storage' });
  }
  const staged = await backup.stageSnapshot(fetchSnapshot(primary));
  await backup.unstage(staged);
  assert.deepEqual(fs.readdirSync(folder).sort(), ['catalog.db', 'catalog.db-shm', 'catalog.db-wal']);
  await primary.close();
  await backup.close();
});

test('leftovers of an interrupted transfer are removed; a damaged catalog is refused', async () => {
  const folder = newFolder();
  for (const name of [
    'catalog.db.incoming-3',
    'catalog.db.incoming-3-wal',
    'catalog.db.snapshot-1',
    'other',
  ]) {
    fs.writeFileSync(path.join(folder, name), 'x');
  }
  const store = await open(folder);
  await store.close();
  assert.deepEqual(fs.readdirSync(folder).sort(), ['catalog.db', 'other']);
  fs.writeFileSync(path.join(folder, 'catalog.db'), Buffer.alloc(9000, 5));
  await assert.rejects(open(folder), { name: 'FolderError' });
});

test('opening with a full check finds a damaged page that no query reads', async () => {
  const folder = newFolder();
  const thorough = () => CatalogStore.open({ world: systemWorld, folder, view: VIEW, thorough: true });
  const store = await open(folder);
  await enter(store, epoch(1));
  await replicate([store], epoch(1), VOLUME, ...Array.from({ length: 200 }, (_, at) => directory(`d${at}`)));
  await store.close();
  await (await thorough()).close();
  damageColdPage(path.join(folder, 'catalog.db'));
  await (await open(folder)).close();
  await assert.rejects(thorough(), { name: 'FolderError', code: 'damaged' });
});

test('a base installed before a loss of power is suspect until the next one', async () => {
  const folder = newFolder();
  const start = (startCounter: number, powerLossStart: number) =>
    CatalogStore.open({ world: systemWorld, folder, view: VIEW, startCounter, powerLossStart });
  let store = await start(1, 0);
  assert.equal(store.trust(), 'lost', 'What was here before a new catalog is unknown');
  await enter(store, epoch(1));
  assert.equal(store.trust(), 'intact');
  await store.close();
  store = await start(2, 2);
  assert.equal(store.trust(), 'suspect');
  await enter(store, epoch(2));
  assert.equal(store.trust(), 'intact');
  await store.close();
});

test('a change of the view is an operation: it is stored, and is part of the log and of copies', async () => {
  const JOINT = {
    number: 2,
    members: SERVERS.slice(0, 3),
    joint: SERVERS.slice(1, 4),
    policy: 'all',
  } as const;
  const folder = newFolder();
  let store = await open(folder);
  await enter(store, epoch(1));
  const before = dump(store);
  await store.apply(epoch(1), 1, new Uint8Array(0), JOINT);
  assert.deepEqual(store.record().view, JOINT);
  assert.equal(store.record().seq, 1);
  assert.deepEqual(dump(store), before);
  await store.close();
  store = await open(folder);
  assert.deepEqual(store.record().view, JOINT);

  const byLog = await open();
  const byCopy = await open();
  const entries = decodeTail(encodeTail(store.tail({ seq: 0, epoch: EPOCH_ZERO }, 1000) as CatalogTail));
  await byLog.promise(epoch(2));
  await byLog.install(epoch(2), 1, byLog.stageTail(entries));
  assert.deepEqual(byLog.record().view, JOINT);
  const { id, bytes } = await store.snapshot();
  const copy = store.readSnapshot(id, 0, bytes);
  const staged = await byCopy.stageSnapshot(
    (async function* () {
      yield await copy;
    })(),
  );
  await byCopy.promise(epoch(2));
  await byCopy.install(epoch(2), 1, staged);
  assert.deepEqual(byCopy.record().view, JOINT);
  for (const opened of [store, byLog, byCopy]) await opened.close();
});

// End of the process ----------------------------------------------------------------------------

const CHILD = path.join(import.meta.dirname, 'catalog-store-child.ts');

function start(...args: string[]): ChildProcess {
  return spawn(process.execPath, [CHILD, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
}

test('applied batches survive kill -9, each completely', async () => {
  for (const role of ['primary', 'backup']) {
    const folder = newFolder();
    const child = start('write', folder, role);
    assert(child.stdout !== null);
    const exited = once(child, 'exit');
    let acknowledged = 0;
    for await (const line of createInterface({ input: child.stdout })) {
      acknowledged = Number(line);
      if (acknowledged >= 300) child.kill('SIGKILL');
    }
    assert.deepEqual(await exited, [null, 'SIGKILL']);
    const store = await open(folder);
    const { seq } = store.record();
    assert(seq >= acknowledged, `${role}: ${acknowledged} acknowledged, ${seq} there`);
    // Every batch makes two directories: no batch is there by half.
    assert.equal(names(store).length, 2 * (seq - 1));
    await store.close();
  }
});

test('an installation that kill -9 interrupts took place completely or not at all', async () => {
  const source = newFolder();
  const primary = await open(source);
  await enter(primary, epoch(1));
  await replicate([primary], epoch(1), VOLUME);
  for (let index = 0; index < 50; index++) await replicate([primary], epoch(1), directory(`new${index}`));
  const theirs = dump(primary);
  await primary.close();

  const seen = new Set<string>();
  for (const way of ['tail', 'snapshot']) {
    for (let step = 1; step <= 12; step++) {
      const folder = newFolder();
      const old = await open(folder);
      await enter(old, epoch(1));
      const sourceStore = await open(source);
      const pieces = fetchTail(old, sourceStore, 1)?.slice(0, 1);
      assert(pieces !== undefined);
      await old.install(epoch(1), 1, old.stageTail({ ...joined(pieces), more: false }));
      await sourceStore.close();
      const before = dump(old);
      await old.close();

      const child = start('install', folder, source, way, String(step));
      const [code, signal] = (await once(child, 'exit')) as [number | null, string | null];
      const store = await open(folder);
      const state = dump(store);
      const { seq, installed, promised } = store.record();
      const isOld = seq === 1;
      assert.deepEqual(state, isOld ? before : theirs, `${way}, step ${step}`);
      assert.deepEqual(installed, isOld ? epoch(1) : epoch(2));
      assert.deepEqual(promised, epoch(2), 'The promise was stored before');
      // The state is usable: it takes the next batch.
      await enter(store, epoch(3));
      await replicate([store], epoch(3), directory('after'));
      await store.close();
      seen.add(`${way} ${signal === null ? `exit ${code}` : 'killed'} ${isOld ? 'old' : 'new'}`);
      // The step does not exist, and so no later step does.
      if (signal === null) break;
    }
  }
  for (const wanted of ['tail killed old', 'snapshot killed old', 'snapshot killed new', 'tail exit 0 new']) {
    assert(seen.has(wanted), `${wanted} occurred: ${[...seen].join(', ')}`);
  }
});

test('a recount follows the batches of a store, also one that is rolled back, and leaves nothing on the disk', async () => {
  const folder = newFolder();
  const [store, at] = [await open(folder), epoch(1)];
  await enter(store, at);
  await replicate([store], at, VOLUME, directory('/a'), directory('/b'));
  const recount = store.withTemporaryTables((writer) => new Recount(writer));
  const isCounted = (countMax: number) => store.withTemporaryTables(() => recount.step(countMax));
  isCounted(2);
  execute(store, directory('/undone'));
  isCounted(2);
  store.rollback();
  await replicate([store], at, directory('/c'));
  while (!isCounted(2));
  await replicate([store], at, directory('/d'));
  const wrong = () => store.withTemporaryTables(() => recount.wrongCounters());
  assert.deepEqual(wrong(), []);
  assert.deepEqual(fs.readdirSync(folder).sort(), ['catalog.db', 'catalog.db-shm', 'catalog.db-wal']);
  const staged = await store.stageSnapshot(fetchSnapshot(store));
  const before = dump(store);
  await enter(store, epoch(2), staged);
  assert.equal(
    store.withTemporaryTables((writer) => recount.isOf(writer)),
    false,
    'Of the database before',
  );
  assert.deepEqual(dump(store), before);
  await store.close();
});

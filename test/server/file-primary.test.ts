import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, type FileId, inodesOf } from '../../base/ids.ts';
import type { CatalogAccess } from '../../server/file/catalog-access.ts';
import { FilePrimary } from '../../server/file/file-primary.ts';
import { Clock } from '../../server/process/clock.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { WriteGuard, WriteResult } from '../../wire/http-api.ts';
import { patientWorld } from '../patient-world.ts';
import { FILE, requestOf, SmallCluster, type SmallServer } from './small-cluster.ts';

/** A catalog that records its commands, and answers only while it is up. */
class Catalog {
  readonly told: string[] = [];
  isUp = true;
  readonly #waiting: (() => void)[] = [];

  /** As the servers see it. */
  readonly access: Partial<CatalogAccess> = {
    command: async (command) => {
      this.told.push(command.kind);
      if (!this.isUp) await new Promise<void>((resolve) => this.#waiting.push(resolve));
      return {};
    },
    flush: async () => void this.told.push('flush'),
  };

  comeUp(): void {
    this.isUp = true;
    for (const answer of this.#waiting.splice(0)) answer();
  }
}

async function started(t: { after(work: () => void): void }, catalog: Catalog) {
  const cluster = new SmallCluster(['a', 'b', 'c'], catalog.access);
  t.after(() => cluster.close());
  await cluster.ready();
  return { cluster, servers: cluster.servers as [SmallServer, SmallServer, SmallServer] };
}

/** Asks until the lease of the earlier primary has ended. */
async function atNext<Result>(ask: () => Promise<Result>): Promise<Result> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'not-primary') throw error;
      await delay(10);
    }
  }
}

test('after a primary that was changing a file, the next one writes without an answer of the catalog, and grows the file with one', async (t) => {
  const catalog = new Catalog();
  const { cluster, servers } = await started(t, catalog);
  const [a, b, c] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  catalog.isUp = false;
  for (const other of [b, c]) cluster.network.cut(a.id, other.id);
  await atNext(() => b.files.write(FILE, requestOf(2), 0, Uint8Array.of(2)));
  assert.deepEqual(catalog.told, ['open-for-write'], 'No write waits for its answer');
  let isGrown = false;
  const growing = b.files.write(FILE, requestOf(3), 'append', Uint8Array.of(3)).then(() => {
    isGrown = true;
  });
  while (catalog.told.length < 2 && !isGrown) await delay(10);
  // How far the volume's quota lets the file grow is not known here.
  assert.deepEqual([catalog.told, isGrown], [['open-for-write', 'open-for-write'], false]);
  catalog.comeUp();
  await growing;
  await b.files.settle(FILE);
  assert.deepEqual(catalog.told, ['open-for-write', 'open-for-write', 'settle']);
  assert.deepEqual(cluster.fatal, []);
});

test('after a primary that has settled a file, the next one writes only once the catalog asks for the size again', async (t) => {
  const catalog = new Catalog();
  const { cluster, servers } = await started(t, catalog);
  const [a, b, c] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  await a.files.settle(FILE);
  assert.deepEqual(catalog.told, ['settle']);
  const settledSeq = a.host.loaded(FILE)?.orderedSeq;
  catalog.isUp = false;
  for (const other of [b, c]) cluster.network.cut(a.id, other.id);
  let isWritten = false;
  const writing = atNext(() => b.files.write(FILE, requestOf(2), 'append', Uint8Array.of(2))).then(() => {
    isWritten = true;
  });
  while (!catalog.told.includes('open-for-write')) await delay(10);
  const { role, orderedSeq } = b.host.loaded(FILE) ?? assert.fail('It is primary');
  const now = { role, orderedSeq, isWritten };
  const wanted = { role: 'active', orderedSeq: settledSeq, isWritten: false };
  assert.deepEqual(now, wanted, 'It gets its number in the order only afterwards');
  catalog.comeUp();
  await writing;
  assert.deepEqual(cluster.fatal, []);
});

test('a disconnected primary cannot report to the catalog a size that others may have changed', async (t) => {
  const catalog = new Catalog();
  const { cluster, servers } = await started(t, catalog);
  const [a, b, c] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  for (const other of [b, c]) cluster.network.cut(a.id, other.id);
  const settling = assert.rejects(a.files.settle(FILE), ServiceError);
  await atNext(() => b.files.write(FILE, requestOf(2), 'append', Uint8Array.of(2)));
  await settling;
  assert.deepEqual(catalog.told, ['open-for-write']);
  assert.deepEqual(cluster.fatal, []);
});

test('a flush makes the catalog sync the mark under which the file is written', async (t) => {
  const catalog = new Catalog();
  const { servers } = await started(t, catalog);
  const [a] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  await a.files.flush(FILE);
  await a.files.flush(FILE);
  await a.files.settle(FILE);
  await a.files.write(FILE, requestOf(2), 0, Uint8Array.of(2));
  await a.files.flush(FILE);
  assert.deepEqual(catalog.told, ['flush', 'settle', 'open-for-write', 'flush']);
});

test('a flush depends on the epoch of the catalog that has the file, and flushes no other', async (t) => {
  const catalog = new Catalog();
  const elsewhere = inodesOf(3 as CatalogNumber).first;
  const epochs = new Map<FileId, number>([FILE, elsewhere].map((file) => [file, 1]));
  const flushed: FileId[] = [];
  const cluster = new SmallCluster(['a', 'b', 'c'], {
    ...catalog.access,
    flush: async (file) => void flushed.push(file),
    epoch: (file) => epochs.get(file) ?? 0,
  });
  t.after(() => cluster.close());
  await cluster.ready();
  const [a] = cluster.servers as [SmallServer];
  await Promise.all([FILE, elsewhere].map((file) => a.files.write(file, requestOf(1), 0, Uint8Array.of(1))));
  // The catalog of one file loses its power: only that file's mark may be lost, and is queried.
  epochs.set(elsewhere, 2);
  await a.files.flush(FILE);
  assert.deepEqual(flushed.splice(0), [FILE]);
  await a.files.flush(elsewhere);
  assert.deepEqual(flushed, [elsewhere, elsewhere]);
});

test('a file is settled once for all changes before', async (t) => {
  const catalog = new Catalog();
  const { cluster, servers } = await started(t, catalog);
  const [a] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  await a.files.settle(FILE);
  const after = a.store.record(FILE)?.seq;
  await a.files.settle(FILE);
  assert.equal(a.store.record(FILE)?.seq, after, 'No change that a next primary would have to know');
  await a.files.write(FILE, requestOf(2), 'append', Uint8Array.of(2));
  assert.deepEqual(catalog.told, ['settle', 'settle', 'open-for-write']);
  assert.deepEqual(cluster.fatal, []);
});

test('a settled size depends on no operation that the next primary may lack', async (t) => {
  const catalog = new Catalog();
  const { cluster, servers } = await started(t, catalog);
  const [a, b, c] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  await a.files.state(FILE);
  for (const other of [b, c]) cluster.network.cut(a.id, other.id);
  // The members' change is ordered after the write, and only here.
  const changing = assert.rejects(a.files.changeMembers(FILE, [a.id, b.id]), ServiceError);
  const settling = assert.rejects(a.files.settle(FILE), ServiceError);
  await atNext(() => b.files.write(FILE, requestOf(2), 'append', Uint8Array.of(2)));
  assert.deepEqual(catalog.told, ['open-for-write'], 'The write relied on the earlier mark');
  await Promise.all([changing, settling]);
  assert.deepEqual(cluster.fatal, []);
});

test('a file whose operations need all replicas is settled by a majority', async (t) => {
  const told: string[] = [];
  const members = ['a', 'b', 'c'];
  const file = { inode: FILE, kind: 'file', live: true, view: 1, objectBytes: 4096, policy: 'all' };
  const cluster = new SmallCluster(members, {
    attributes: async () => ({ ...file, replicas: members }) as unknown as Attributes,
    command: async ({ kind }) => void told.push(kind),
  });
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  for (const other of [a, b]) cluster.network.cut(other.id, c.id);
  await a.files.settle(FILE);
  assert.deepEqual(told, ['settle']);
  assert.deepEqual(cluster.fatal, []);
});

test('a file grows no further than the catalog allows', async (t) => {
  const asked: number[] = [];
  let allowedBytes = 10;
  let settled = 0;
  const cluster = new SmallCluster(['a', 'b', 'c'], {
    command: async (command) => {
      if (command.kind === 'settle') settled++;
      if (command.kind !== 'open-for-write') return {};
      const { growTo } = command;
      if (growTo !== undefined) {
        asked.push(growTo);
        if (growTo > 20) throw new ServiceError('quota-exceeded', 'The volume may not hold that');
        allowedBytes = growTo;
      }
      return { attributes: { allowedBytes } };
    },
  });
  t.after(() => cluster.close());
  await cluster.ready();
  const [a] = cluster.servers as [SmallServer];
  await a.files.write(FILE, requestOf(1), 0, new Uint8Array(1));
  // The first mark was set at the file's creation: with the next one the catalog answers what it allows.
  await a.files.settle(FILE);
  const write = (number: number, offset: number | 'append', length: number) =>
    a.files.write(FILE, requestOf(number), offset, new Uint8Array(length));
  await write(2, 'append', 9);
  assert.deepEqual(asked, [], 'It has what it asked for before');
  await Promise.all([write(3, 'append', 3), write(4, 'append', 3)]);
  assert.ok(asked.length > 0, 'It asked before it grew');
  assert.ok(
    asked.every((size) => size > 10 && size <= 16),
    `${asked}`,
  );
  assert.equal((await a.files.state(FILE)).sizeBytes, 16);
  const settledBefore = settled;
  await assert.rejects(write(5, 100, 1), { code: 'quota-exceeded' });
  // The size allowed with its mark counts, until it is settled.
  for (let turn = 0; settled === settledBefore && turn < 1_000; turn++) await delay(10);
  assert.ok(settled > settledBefore, 'A refused growth does not count');
  await assert.rejects(a.files.truncate(FILE, requestOf(6), 21), { code: 'quota-exceeded' });
  await assert.rejects(a.files.punch(FILE, requestOf(7), { from: 0, to: 21, grows: true }), {
    code: 'quota-exceeded',
  });
  const before = asked.length;
  await write(8, 0, 16);
  await a.files.truncate(FILE, requestOf(9), 2);
  await a.files.punch(FILE, requestOf(10), { from: 0, to: 21, grows: false });
  assert.equal(asked.length, before, 'Only growth is asked for');
  assert.equal((await a.files.state(FILE)).sizeBytes, 2);
  assert.deepEqual(cluster.fatal, []);
});

test('a late answer to an earlier mark lets a file grow no further than the last mark', async (t) => {
  let late: ((answer: unknown) => void) | undefined;
  let isLate = false;
  const cluster = new SmallCluster(['a', 'b', 'c'], {
    command: async (command) => {
      if (command.kind !== 'open-for-write') return {};
      if (command.growTo !== undefined) throw new ServiceError('quota-exceeded', 'The volume is full');
      if (isLate && late === undefined) return new Promise((resolve) => (late = resolve));
      return { attributes: { allowedBytes: 10 } };
    },
  });
  t.after(() => cluster.close());
  await cluster.ready();
  const [a] = cluster.servers as [SmallServer];
  const write = (number: number, offset: number) =>
    a.files.write(FILE, requestOf(number), offset, new Uint8Array(1));
  await write(1, 0);
  await a.files.settle(FILE);
  isLate = true;
  const first = write(2, 500);
  while (late === undefined) await delay(5);
  // The mark has taken effect, and ends here with its allowed size.
  await a.files.settle(FILE);
  await write(3, 1);
  late({ attributes: { allowedBytes: 1_000 } });
  await assert.rejects(first, { code: 'quota-exceeded' });
  assert.deepEqual(cluster.fatal, []);
});

test('of two concurrent writes on the same condition one succeeds', async (t) => {
  const { servers } = await started(t, new Catalog());
  const [a] = servers;
  const { contents } = await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const outcomes = await Promise.allSettled(
    [2, 3].map((number) =>
      a.files.write(FILE, requestOf(number), 'append', Uint8Array.of(number), { contents }),
    ),
  );
  const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []));
  assert.deepEqual(
    refused.map(({ code }) => code),
    ['precondition-failed'],
  );
  assert.equal((await a.files.state(FILE)).sizeBytes, 2);
  await assert.rejects(a.files.write(FILE, requestOf(4), 0, Uint8Array.of(4), { sizeBytes: 1 }), {
    code: 'precondition-failed',
  });
  await a.files.write(FILE, requestOf(4), 2, Uint8Array.of(4), { sizeBytes: 2 });
});

test('an executed write is answered again, although its condition no longer holds', async (t) => {
  const { servers } = await started(t, new Catalog());
  const [a] = servers;
  const { contents } = await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const append = () => a.files.write(FILE, requestOf(2), 'append', Uint8Array.of(2), { contents });
  const { before, ...done } = await append();
  assert.deepEqual(before, contents);
  assert.deepEqual(await append(), done);
  assert.equal((await a.files.state(FILE)).sizeBytes, 2);
});

test('a write is refused if the file had other names when it was marked', async (t) => {
  let changedNs = '1';
  const cluster = new SmallCluster(['a', 'b', 'c'], { command: async () => ({ attributes: { changedNs } }) });
  t.after(() => cluster.close());
  await cluster.ready();
  const [a] = cluster.servers as [SmallServer];
  const write = (number: number, guard?: WriteGuard) =>
    a.files.write(FILE, requestOf(number), 0, Uint8Array.of(number), guard);
  assert.equal((await write(1)).sameNames, undefined);
  await a.files.settle(FILE);
  changedNs = '2';
  await assert.rejects(write(2, { changedNs: '1' }), { code: 'precondition-failed' });
  const { before: _, ...done } = await write(2, { changedNs });
  assert.equal(done.sameNames, true);
  assert.deepEqual(await write(2, { changedNs: '1' }), done, 'The answer is repeated');
  // While the mark exists, a command that changes the names has expected no contents.
  changedNs = '3';
  assert.equal((await write(3, { changedNs: '2' })).sameNames, true);
});

test('each change reports which version it has changed, whatever else was ordered meanwhile', async (t) => {
  const { cluster, servers } = await started(t, new Catalog());
  const [a, b, c] = servers;
  const { contents: empty } = await a.files.state(FILE);
  const first = await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const [second, third] = await Promise.all([
    a.files.writeParts(FILE, requestOf(2), [{ offset: 1, bytes: Uint8Array.of(2) }]),
    a.files.truncate(FILE, requestOf(3), 1),
  ]);
  await a.files.settle(FILE);
  const fourth = await a.files.punch(FILE, requestOf(4), { from: 0, to: 1, grows: false });
  assert.ok(fourth.seq > Math.max(second.seq, third.seq) + 1, 'Settling takes a number');
  for (const other of [b, c]) cluster.network.cut(a.id, other.id);
  const fifth = await atNext(() => b.files.write(FILE, requestOf(5), 'append', Uint8Array.of(5)));
  const changes = [first, second, third, fourth, fifth].sort((x, y) => x.seq - y.seq);
  assert.deepEqual(
    changes.map(({ before }) => before),
    [empty, ...changes.slice(0, -1).map(({ contents }) => contents)],
  );
});

test('writes that are repeated after a failover have their earlier versions', async (t) => {
  const { cluster, servers } = await started(t, new Catalog());
  const [a, b, c] = servers;
  const write = ({ files }: SmallServer, number: number) =>
    files.write(FILE, requestOf(number), 'append', Uint8Array.of(number));
  const before = [await write(a, 1), await write(a, 2)];
  for (const other of [b, c]) cluster.network.cut(a.id, other.id);
  const again = [await atNext(() => write(b, 1)), await write(b, 2)];
  const told = ({ contents, sizeBytes }: WriteResult) => ({ contents, sizeBytes });
  assert.deepEqual(again.map(told), before.map(told));
  const [first, second] = again as [WriteResult, WriteResult];
  assert.ok(first.epoch > first.contents.epoch, 'By another primary');
  assert.deepEqual((await b.files.state(FILE)).contents, second.contents);
  const third = await write(b, 3);
  assert.equal(third.contents.epoch, third.epoch);
  // Now neither of them is the newest, and both are older than the present version.
  const once = [await write(b, 1), await write(b, 2), await write(b, 3)];
  assert.deepEqual(once.map(told), [...before, third].map(told));
});

/**
 * Goal: a write that no majority can store gets no number in the order: it would block all later operations until the
 * disconnected servers restart.
 */
test('if the connected servers have no free space, nothing is ordered that needs the disconnected ones', async (t) => {
  const { cluster, servers } = await started(t, new Catalog());
  const [a, b, c] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  cluster.full.add(c.id);
  await a.files.write(FILE, requestOf(2), 'append', Uint8Array.of(2));
  for (const other of [a, c]) cluster.network.cut(b.id, other.id);
  const seq = () => a.host.loaded(FILE)?.orderedSeq;
  const before = seq();
  await assert.rejects(a.files.write(FILE, requestOf(3), 'append', Uint8Array.of(3)), {
    code: 'no-space',
    message: /of c are full, and b is not reachable/,
  });
  assert.equal(seq(), before);
  assert.deepEqual([...(await a.files.read(FILE, 0, 9)).bytes], [1, 2]);
  cluster.full.delete(c.id);
  await a.files.write(FILE, requestOf(3), 'append', Uint8Array.of(3));
  assert.deepEqual(cluster.fatal, []);
});

/**
 * Goal: a client whose ordered write cannot be committed gets an error that names full disks, and not only disconnected
 * servers.
 * Method: the stores of both backups have received a write and never finish it; only then do they report that they are
 * full.
 */
test('the error of a write that full disks delay names them', async (t) => {
  const { cluster, servers } = await started(t, new Catalog());
  const [a, b, c] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const taken = [b, c].map(({ store }) => {
    return new Promise<void>((resolve) => {
      const apply = (): Promise<void> => {
        resolve();
        return new Promise(() => {});
      };
      Object.assign(store, { apply });
    });
  });
  const writing = a.files.write(FILE, requestOf(2), 'append', Uint8Array.of(2));
  await Promise.all(taken);
  for (const { id } of [b, c]) cluster.full.add(id);
  await assert.rejects(writing, {
    code: 'no-majority',
    message: /no space on the disk of b, c/,
    details: { unreachable: [], retryAfterMs: 1_000 },
  });
  assert.deepEqual(cluster.fatal, []);
});

test('a primary whose lease has ended declares no contents lost: the next one may have written them', async (t) => {
  const { cluster, servers } = await started(t, new Catalog());
  const [a, b, c] = servers;
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const driver = a.host.loaded(FILE) ?? assert.fail('It is primary');
  const primary = new FilePrimary(driver, a.store, new Clock(patientWorld), {
    ...{ isLive: true, allowedBytes: Infinity, changedNs: null, markedInEpoch: null },
    markLive: async () => ({ allowedBytes: Infinity, changedNs: null }),
    nextMarkNumber: () => 1,
    flush: async () => undefined,
    epoch: () => 1,
    knows: async () => true,
  });
  const gone = { epoch: primary.epoch.counter - 1, seq: 1 };
  assert.equal(await primary.preserve({ inode: 8, contents: gone }), 'lost');
  for (const other of [b, c]) cluster.network.cut(a.id, other.id);
  const { contents } = await atNext(() => b.files.write(FILE, requestOf(2), 0, Uint8Array.of(2)));
  assert.deepEqual(
    [driver.isPrimary, driver.epoch],
    [false, primary.epoch],
    'It has not learned of the next epoch',
  );
  await assert.rejects(primary.preserve({ inode: 8, contents }), { code: 'not-primary' });
  assert.deepEqual(cluster.fatal, []);
});
